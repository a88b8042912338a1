//! Input without end: a line or a record of a gigabyte is refused by a named limit, in bounded
//! memory, and what follows it is read.
//!
//! Deliberately not here: what one parser makes of odd input (`properties`).
#![allow(
    clippy::disallowed_methods,
    reason = "memory is known to the kernel, which tells it in a file"
)]

use std::io::{BufRead, BufReader, Read};

use fairmesh_records::{Format, GridIdentities, Options, Reason, Records};

const GIB: u64 = 1 << 30;

/// Most memory that reading may add: the limit of a record, some times over, for buffers that grow
/// by doubling; far below what was read.
const GROWTH_MAX: u64 = 64 << 20;

/// Bytes of an endless pattern, up to a length: nothing of it is ever held.
struct Endless {
    /// The pattern, many times over.
    block: Vec<u8>,
    at: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.block[self.at..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.at = (self.at + length) % self.block.len();
        Ok(length)
    }
}

/// So many bytes of a pattern, a line's end, and a last line.
fn input(pattern: &'static [u8], length: u64, last: &'static str) -> impl BufRead {
    let block = pattern.repeat(1 << 14);
    let endless = Endless { block, at: 0 };
    let rest = std::io::Cursor::new(["\n", last, "\n"].concat().into_bytes());
    BufReader::with_capacity(1 << 16, endless.take(length).chain(rest))
}

/// The most memory that this process has ever held, as Linux tells.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux");
    let mut lines = status.lines();
    let kib = lines.find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") << 10
}

fn options() -> Options {
    Options {
        cluster: "c".to_owned(),
        ..Options::default()
    }
}

/// Reads everything; says whether something was refused for its length, and how many records and
/// other errors there were.
fn read(format: Format, input: impl BufRead) -> (bool, usize, usize) {
    let (mut refused, mut records, mut errors) = (false, 0, 0);
    for result in Records::new(input, format, &options()) {
        match result {
            Ok(_) => records += 1,
            Err(error) if matches!(error.reason, Reason::TooLong) => {
                assert!(error.to_string().contains("RECORD_BYTES_MAX"), "{error}");
                refused = true;
            }
            Err(_) => errors += 1,
        }
    }
    (refused, records, errors)
}

/// What grew while `run` ran is bounded. The kernel tells the peak to within some pages, so a second
/// look may be below the first.
fn in_bounded_memory(what: &str, run: impl FnOnce()) {
    let before = peak_bytes();
    run();
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown <= GROWTH_MAX, "{what}: {grown} bytes");
}

#[test]
fn a_gigabyte_without_a_line_end_is_one_refusal_and_the_next_line_is_read() {
    let pbs = "12/21/2024 17:58:09;E;1.s;user=u group=g ctime=1 qtime=1 start=2 end=3 \
               Resource_List.ncpus=1 exec_host=a/0";
    in_bounded_memory("a line", || {
        let (refused, records, errors) = read(Format::Pbs, input(b"x", GIB, pbs));
        assert_eq!((refused, records, errors), (true, 1, 0));
    });
    let job = "<JobUsageRecord><JobIdentity><LocalJobId>1</LocalJobId></JobIdentity>\
               <EndTime>2009-08-07T09:06:52Z</EndTime></JobUsageRecord>";
    // The tag that ends the long piece is lost with it, so a whole record follows the next one.
    in_bounded_memory("a piece", || {
        let tail: &'static str = Box::leak(format!("<a/>{job}").into_boxed_str());
        let (refused, records, errors) = read(Format::OgfUsageRecord, input(b"x", GIB, tail));
        assert_eq!((refused, records, errors), (true, 1, 0));
    });
}

#[test]
fn endless_input_of_any_format_is_refused_in_bounded_memory() {
    let long = 48 << 20;
    for format in Format::all() {
        in_bounded_memory(format.name(), || {
            for pattern in [
                b"x".as_slice(),
                b"{",
                b"\"",
                b"[",
                b"<",
                b"\\",
                b"=",
                b"\xff\0",
            ] {
                let (refused, _, _) = read(format, input(pattern, long, ""));
                assert!(refused, "{format}: {}", pattern.escape_ascii());
            }
        });
    }
}

#[test]
fn a_record_that_is_never_closed_is_refused_in_bounded_memory() {
    let open: [(Format, &'static [u8]); 5] = [
        (Format::ApelJob, b"LocalJobId: 1\n"),
        (Format::OgfUsageRecord, b"<JobIdentity>"),
        (Format::SlurmScript, b"JOBID=1\n"),
        (Format::HtcondorAds, b"ClusterId = 1\n"),
        (Format::HtcondorJson, b"{\"ClusterId\":{}"),
    ];
    for (format, pattern) in open {
        in_bounded_memory(format.name(), || {
            let head: &[u8] = match format {
                Format::OgfUsageRecord => b"<JobUsageRecord>",
                _ => b"",
            };
            let input = head.chain(input(pattern, 48 << 20, ""));
            let (refused, records, _) = read(format, input);
            assert!(refused, "{format}");
            assert_eq!(records, 0, "{format}");
        });
    }
}

#[test]
fn a_mapping_of_identities_without_end_is_refused_too() {
    in_bounded_memory("blah", || {
        let mut kept = GridIdentities::default();
        let errors = kept.read(input(b"x", 48 << 20, ""));
        let said = format!("{errors:?}");
        assert!(said.contains("TooLong"), "{}", &said[..said.len().min(200)]);
        assert_eq!(kept.len(), 0);
    });
}
