//! How a file is packed, by its first bytes, and what is inside.
//!
//! Deliberately not here: archives of several files.

use std::io::{self, BufRead, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;

/// Memory that unpacking xz may take, KiB: `xz -9` needs 65 MiB. A file may ask for 4 GiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// The format of bzip2.
    Bzip2,
    /// The format of xz.
    Xz,
}

impl Packing {
    /// What the names of such files end with.
    pub(crate) const ENDS: [&'static str; 4] = [".gz", ".zst", ".bz2", ".xz"];

    /// The packing of a file that begins so; at least 6 bytes of it.
    pub fn of(head: &[u8]) -> Option<Self> {
        Some(match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => return None,
        })
    }

    /// The name of the format, as its program is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }

    /// What is inside, of all members. Zeros after a member are padding (tapes, block devices), as for `gzip`, `bzip2`
    /// and `xz`. To `zstd` they are an error.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn unpack(self, input: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Gzip => Box::new(Members::new(input, GzDecoder::new, GzDecoder::into_inner)),
            Self::Zstd => Box::new(zstd::Decoder::with_buffer(input)?),
            Self::Bzip2 => Box::new(Members::new(input, BzDecoder::new, BzDecoder::into_inner)),
            Self::Xz => Box::new(XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB)),
        })
    }
}

/// The members of a file, with or without zeros after each.
struct Members<R, D> {
    begin: fn(R) -> D,
    end: fn(D) -> R,
    /// The member that is read now.
    member: Option<D>,
}

impl<R, D> Members<R, D> {
    fn new(input: R, begin: fn(R) -> D, end: fn(D) -> R) -> Self {
        let member = Some(begin(input));
        Self { begin, end, member }
    }
}

impl<R: BufRead, D: Read> Read for Members<R, D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut input) = self.member.take().map(self.end) else {
                break;
            };
            if goes_on(&mut input)? {
                self.member = Some((self.begin)(input));
            }
        }
        Ok(0)
    }
}

/// Skips zeros. Whether anything is behind them.
fn goes_on(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let buffer = input.fill_buf()?;
        let zeros = buffer.iter().take_while(|byte| **byte == 0).count();
        let is_end = buffer.is_empty();
        if is_end || zeros < buffer.len() {
            input.consume(zeros);
            return Ok(!is_end);
        }
        input.consume(zeros);
    }
}
