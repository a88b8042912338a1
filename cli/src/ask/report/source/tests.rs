//! Packing, encodings, formats, and rejects that are read again.

use std::io;

use super::*;

#[test]
fn logs_of_18_numbers_are_swf() {
    let numbers = "1 0 -1 60 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1";
    let log = format!("; UnixStartTime: 1131000000\n\n  {numbers}\n");
    assert_eq!(recognised(log.as_bytes()), Some(Kind::Swf));
    assert_eq!(recognised(b"1 2 3\n"), None);
    assert_eq!(recognised(b""), None);
}

#[test]
fn a_log_without_a_start_is_refused_as_a_whole_unless_it_is_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("METACENTRUM.swf");
    let open = |text: &str, start: Option<u64>| {
        std::fs::write(&path, text).expect("written");
        let given = ReadOptions {
            unix_start: start,
            ..ReadOptions::default()
        };
        Source::open(&path, &given, false, Arc::default())
    };
    let job = "1 10 -1 60 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1\n";
    let refused = open(&format!("; Note: none\n{job}{job}"), None).err();
    let why = refused.expect("refused").to_string();
    for word in ["METACENTRUM.swf", "UnixStartTime", "--unix-start"] {
        assert!(why.contains(word), "{why}");
    }
    let submit = |source: Source| {
        let items: Vec<Item> = source.collect();
        let (_, job) = &items[0];
        let entry = job.as_ref().expect("a job");
        entry.record.submit.expect("a time").0 / 1_000
    };
    let given = open(job, Some(1_000)).expect("opened");
    assert_eq!(submit(given), 1_010);
    let both = open(&format!("; UnixStartTime: 500\n{job}"), Some(1_000));
    assert_eq!(submit(both.expect("opened")), 510, "the header knows best");
    assert!(open("; nothing but a header\n", None).is_err());
    let blank = |lines: usize| open(&("\n".repeat(lines) + job), None).map(|_| ());
    assert!(
        blank(DETECT_BYTES_MAX).is_err(),
        "what lies behind is no news"
    );
}

#[test]
fn every_format_has_a_name_on_the_command_line() {
    for format in Format::all() {
        let kind = Kind::parse(format.name()).expect("known");
        assert_eq!(kind, Some(Kind::Records(format)));
    }
    assert_eq!(Kind::parse("auto").expect("known"), None);
    assert!(Kind::parse("punch-cards").is_err());
}

fn open(path: &Path, bytes: &[u8]) -> anyhow::Result<Source> {
    std::fs::write(path, bytes).expect("written");
    Source::open(path, &ReadOptions::default(), false, Arc::default())
}

fn line(job: u64) -> String {
    format!(
        "{{\"cluster\":\"c\",\"job\":\"{job}\",\"user\":\"u\",\"start_ms\":1,\"end_ms\":2,\"cores\":1}}\n"
    )
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    io::Write::write_all(&mut encoder, text).expect("packed");
    encoder.finish().expect("packed")
}

fn bzip2(text: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    io::Write::write_all(&mut encoder, text).expect("packed");
    encoder.finish().expect("packed")
}

fn xz(text: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(0);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).expect("options");
    io::Write::write_all(&mut encoder, text).expect("packed");
    encoder.finish().expect("packed")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 0).expect("packed")
}

type Pack = fn(&[u8]) -> Vec<u8>;

const PACKERS: [(&str, Pack); 4] = [("gzip", gzip), ("bzip2", bzip2), ("xz", xz), ("zstd", zstd)];

#[test]
fn files_are_unpacked_by_their_first_bytes_however_many_parts_they_have() {
    let halves = [line(1), line(2) + "nonsense\n"];
    let folder = tempfile::tempdir().expect("a folder");
    let packed = PACKERS.map(|(name, pack)| {
        let parts = halves.iter().map(|half| pack(half.as_bytes()));
        (Some(name), parts.collect::<Vec<_>>().concat())
    });
    let plain = (None, halves.concat().into_bytes());
    for (packed, bytes) in [plain].into_iter().chain(packed) {
        let source = open(&folder.path().join("jobs"), &bytes).expect("opened");
        assert_eq!((source.packed, source.kind.name()), (packed, "jsonl"));
        let items: Vec<Item> = source.collect();
        let whole = |item: &Item| item.1.as_ref().is_ok_and(|entry| entry.usage.is_some());
        assert!(whole(&items[0]) && whole(&items[1]), "{packed:?}");
        let (line, bad) = &items[2];
        let bad = bad.as_ref().expect_err("nonsense");
        assert_eq!((*line, bad.text.as_slice()), (3, &b"nonsense"[..]));
    }
}

/// As gzip, bzip2 and xz themselves do it.
#[test]
fn zeros_behind_a_packed_file_are_padding_and_anything_else_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let read = |parts: &[&[u8]]| {
        let source = open(&folder.path().join("jobs"), &parts.concat()).expect("opened");
        source.map(|(_, item)| item.is_ok()).collect::<Vec<_>>()
    };
    let zeros = [0; 10_240];
    for (name, pack) in PACKERS {
        let [one, two] = [1, 2].map(|job| pack(line(job).as_bytes()));
        let is_padding = name != "zstd";
        let padded = read(&[&one, &two, &zeros]);
        assert_eq!(
            padded,
            [&[true; 2][..], &[false][is_padding.into()..]].concat(),
            "{name}"
        );
        let more = read(&[&one, &zeros, &two]);
        assert_eq!(more, [true, is_padding], "{name}");
        assert_eq!(read(&[&one, &zeros, b"more"]), [true, false], "{name}");
    }
}

#[test]
fn a_packed_file_that_was_cut_is_read_as_far_as_it_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    // So much that each packing has several blocks.
    let numbers = (0..20_000_u64).map(|job| job.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let text: String = numbers.map(line).collect();
    for (name, pack) in PACKERS {
        let mut bytes = pack(text.as_bytes());
        bytes.truncate(bytes.len() * 9 / 10);
        let mut source = open(&folder.path().join("jobs"), &bytes).expect(name);
        let read = source.by_ref().take_while(|(_, item)| item.is_ok()).count();
        assert!((1..20_000).contains(&read), "{name}: {read} records");
        bytes.truncate(20);
        let opened = open(&folder.path().join("jobs"), &bytes);
        assert!(opened.is_err(), "{name}: nothing can be read");
    }
    let bytes = [gzip(line(1).as_bytes()), b"\x1f\x8b\x08".to_vec()].concat();
    let items: Vec<Item> = open(&folder.path().join("jobs"), &bytes)
        .expect("opened")
        .collect();
    let last = items[1].1.as_ref().expect_err("cut");
    assert!(last.is_end, "{last:?}");
}

#[test]
fn other_packings_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    let marks: [(&str, &[u8]); 5] = [
        ("zip", b"PK\x03\x04jobs"),
        ("rar", b"Rar!\x1a\x07\x01"),
        ("lzma", b"\x5d\x00\x00\x80\x00"),
        ("tar", &tar),
        ("tar", &gzip(&tar)),
    ];
    for (packing, bytes) in marks {
        let error = open(&folder.path().join("jobs"), bytes)
            .err()
            .expect("refused");
        let expected = format!("jobs: packed with {packing}: unpack it first");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}

#[test]
fn text_is_read_in_utf_16_and_with_marks() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = line(1)
        .replace("\"u\"", "\"j\u{f6}rg\u{1f600}\"")
        .repeat(600);
    let units = || text.encode_utf16();
    let le: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
    let be: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
    let marked = |mark: &[u8], bytes: &[u8]| [mark, bytes].concat();
    for bytes in [
        le.clone(),
        be.clone(),
        marked(b"\xff\xfe", &le),
        marked(b"\xfe\xff", &be),
        marked(b"\xef\xbb\xbf", text.as_bytes()),
        gzip(&marked(b"\xff\xfe", &le)),
    ] {
        let source = open(&folder.path().join("jobs"), &bytes).expect("opened");
        let users = source.map(|(_, item)| item.expect("a job").record.origin.user);
        let users: Vec<String> = users.flatten().collect();
        assert_eq!(users, vec!["j\u{f6}rg\u{1f600}"; 600]);
    }
}

/// What is written of refused records is read again as they were, each list with its own columns.
#[test]
fn sections_of_rejects_are_read_as_the_files_that_they_are_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let sacct = |user: &str| {
        format!(
            "7;{user};COMPLETED;2026-11-01T00:00:00;2026-11-01T00:00:10;2026-11-01T01:00:10;4\n"
        )
    };
    let header = "JobIDRaw;User;State;Submit;Start;End;NCPUS\n";
    let lists = folder.path().join("lists");
    let text = [
        header,
        &sacct("ann"),
        "x\n",
        "JobIDRaw|State|Submit\n",
        "y\n",
    ]
    .concat();
    std::fs::write(&lists, text).expect("written");
    let given = ReadOptions {
        cluster: Some("c1".to_owned()),
        tz: Some("Europe/Prague".to_owned()),
        ..ReadOptions::default()
    };
    let mut source = Source::open(&lists, &given, true, Arc::default()).expect("opened");
    let swf = folder.path().join("old.swf");
    let job = "1 10 -1 60 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1\n";
    std::fs::write(&swf, format!("; UnixStartTime: 500\n{job}")).expect("written");
    let none = ReadOptions::default();
    let log = Source::open(&swf, &none, true, Arc::default()).expect("opened");
    let (mut kept, mut submits) = (String::new(), Vec::new());
    let mut sources = vec![log];
    while let Some((_, item)) = source.next() {
        let text = item.map_or_else(|bad| bad.text, |entry| entry.text);
        kept += &source.section();
        kept += &format!("# a:1: why\n{}\n", String::from_utf8_lossy(&text));
    }
    for source in &mut sources {
        while let Some((_, item)) = source.next() {
            let entry = item.expect("a job");
            kept += &source.section();
            kept += &String::from_utf8_lossy(&entry.text);
            submits.push(entry.record.submit);
        }
    }
    let rejects = open(&folder.path().join("x.rejects"), kept.as_bytes()).expect("opened");
    assert!(rejects.is_of_rejects());
    let items: Vec<Item> = rejects.collect();
    let jobs: Vec<&Box<Entry>> = items.iter().flat_map(|(_, item)| item).collect();
    assert_eq!(items.len() - jobs.len(), 2, "{items:?}");
    assert_eq!(jobs[0].record.origin.user.as_deref(), Some("ann"));
    assert_eq!(jobs[0].record.key.cluster, "c1");
    let start = jobs[0].record.start.expect("a start").0;
    assert_eq!(start, 1_793_487_610_000, "in the zone that was given");
    assert_eq!(jobs[1].record.key.cluster, "old");
    assert_eq!(jobs[1].record.submit, submits[0]);
    // Lines keep their numbers.
    let line = |at: usize| kept.lines().nth(items[at].0 as usize - 1);
    assert_eq!([line(1), line(2)], [Some("x"), Some("y")]);
    assert!(line(3).is_some_and(|line| line.starts_with("1 10 ")));
}

#[test]
fn bursts_of_a_job_are_in_its_sum() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = |submit: i64, run: u32, status: u32| {
        format!("2 {submit} 10 {run} 4 -1 -1 4 {run} -1 {status} 1 1 -1 1 1 -1 -1\n")
    };
    let log = [
        "; UnixStartTime: 1000000000\n",
        &line(0, 3_600, 1),
        &line(0, 1_200, 2),
        &line(-1, 1_200, 2),
        &line(-1, 1_200, 3),
    ]
    .concat();
    let mut source = open(&folder.path().join("log.swf"), log.as_bytes()).expect("opened");
    let items: Vec<Item> = source.by_ref().collect();
    assert_eq!((items.len(), source.ignored()), (1, 3), "{items:?}");
    assert!(items[0].1.is_ok());
}
