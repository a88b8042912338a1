//! Conformance with vectors: published algorithms, worked out by hand. They lie outside the repository
//! (see `fairmesh-needs`).

mod fsgrid;
mod metacentrum;
