//! What readers make of text that is written down here or drawn at random. (Recorded samples: `traces`;
//! memory, alone in a process: `limits`.)

mod cases;
mod dialects;
mod export;
mod fields;
mod formats;
mod properties;
mod rejected;
mod renderings;
mod support;
