//! How the page and `fairmesh explain` put numbers and explanations. Floating point prints them, so they are not in
//! `crates/api`.

pub mod explanation;
pub mod number;
