use std::io::{BufReader, Read};

use proptest::prelude::*;

use super::*;

const GOOD: &str = "7 100 5 60 2 1.5 -1 4 90 -1 1 3 2 -1 -1 9 -1 -1";

fn read(text: &[u8]) -> (Vec<Result<SwfRecord, String>>, SwfHeader) {
    let mut reader = SwfReader::new(text);
    let records = reader
        .by_ref()
        .map(|line| line.map_err(|error| error.to_string()))
        .collect();
    (records, reader.header)
}

fn with_column(column: usize, value: &str) -> String {
    let mut words: Vec<_> = GOOD.split(' ').collect();
    words[column - 1] = value;
    words.join(" ")
}

#[test]
fn a_record_says_what_its_columns_say() {
    let (records, _) = read(GOOD.as_bytes());
    let record = records[0].as_ref().expect("a good line");
    assert_eq!(
        (record.job, record.submit_s, record.wait_s),
        (7, 100, Some(5))
    );
    assert_eq!(
        (record.run_s, record.cpu_mean_ms, record.memory_kb),
        (Some(60), Some(1_500), None)
    );
    assert_eq!(
        (record.user, record.group, record.partition),
        (Some(3), Some(2), Some(9))
    );
    assert_eq!(
        (record.requested_s, record.status, record.think_s),
        (Some(90), Some(1), None)
    );
    assert_eq!(
        (record.start_s(), record.end_s(), record.cores()),
        (105, Some(165), Some(2))
    );
}

#[test]
fn start_end_and_cores_fall_back_as_documented() {
    let rows = [
        (3, "-1", (100, Some(160), Some(2))),
        (3, "-250", (100, Some(160), Some(2))),
        (4, "-1", (105, None, Some(2))),
        (4, "-1359980917", (105, None, Some(2))),
        (4, "0", (105, Some(105), Some(2))),
        (5, "-1", (105, Some(165), Some(4))),
        (5, "0", (105, Some(165), Some(4))),
        (4, "60.00", (105, Some(165), Some(2))),
        (4, "60.75", (105, Some(165), Some(2))),
        (2, "100.5", (105, Some(165), Some(2))),
        (4, "18446744073709551615", (105, Some(u64::MAX), Some(2))),
    ];
    for (column, value, expected) in rows {
        let (records, _) = read(with_column(column, value).as_bytes());
        let record = records[0].as_ref().expect(value);
        assert_eq!(
            (record.start_s(), record.end_s(), record.cores()),
            expected,
            "{column} {value}"
        );
    }
}

#[test]
fn a_bad_value_names_its_line_and_column() {
    let rows = [
        (1, "-1", "column 1 (job number): must be known: `-1`"),
        (
            2,
            "x\u{7f}y",
            "column 2 (submit time): not a number: `x\\u{7f}y`",
        ),
        (
            8,
            "1.5",
            "column 8 (requested processors): not a whole number: `1.5`",
        ),
        (
            5,
            "-2",
            "column 5 (allocated processors): negative, and not -1: `-2`",
        ),
        (6, "1.", "column 6 (mean CPU time): not a number: `1.`"),
        (
            6,
            "18446744073709551615",
            "column 6 (mean CPU time): too large: `18446744073709551615`",
        ),
        (
            12,
            "18446744073709551616",
            "column 12 (user): too large: `18446744073709551616`",
        ),
        (18, "+1", "column 18 (think time): not a number: `+1`"),
    ];
    for (column, value, expected) in rows {
        let text = format!("\n{}\n{GOOD}\n", with_column(column, value));
        let (records, _) = read(text.as_bytes());
        assert_eq!(records[0], Err(format!("line 2: {expected}")));
        assert!(records[1].is_ok(), "parsing goes on after {value}");
    }
    let (records, _) = read(b"1 2 3");
    let expected = "line 1: only 3 of 18 columns; column 4 (run time) is the first to be missing";
    assert_eq!(records, [Err(expected.to_owned())]);
}

#[test]
fn headers_comments_blanks_and_extra_columns_are_taken_as_they_come() {
    let mut text = b"; UnixStartTime: 1132444805\n;MaxProcs: 24515 or so\r\n".to_vec();
    text.extend_from_slice(
        b";Note: caf\xe9 \xff\n; Partition:  1 grid.ici.ro   \n  ; Partition: two\n",
    );
    text.extend_from_slice(
        format!("\n   {} {{1,2}} q_1d\r\n \t\n", GOOD.replace(' ', "   ")).as_bytes(),
    );
    text.extend_from_slice(b"; UnixStartTime: 5\n; \xff\n");
    text.extend_from_slice(GOOD.as_bytes());
    let (records, header) = read(&text);
    assert!(
        records.len() == 2 && records.iter().all(Result::is_ok),
        "{records:?}"
    );
    assert_eq!(records[0], records[1]);
    assert_eq!(
        (header.unix_start_s, header.max_procs),
        (Some(1_132_444_805), Some(24_515))
    );
    assert_eq!(
        header.partitions,
        BTreeMap::from([(1, "grid.ici.ro".to_owned())])
    );
}

#[test]
fn a_start_time_that_cannot_be_read_is_an_error() {
    let (records, header) = read(format!("; UnixStartTime: soon\n{GOOD}\n").as_bytes());
    assert_eq!(
        records[0]
            .as_ref()
            .map_err(|text| text.contains("line 1: ")),
        Err(true)
    );
    assert!(records[1].is_ok() && header.unix_start_s.is_none());
}

#[test]
fn an_endless_line_is_refused_unbuffered_and_the_next_one_is_read() {
    let endless = std::io::repeat(b'9').take(50 * SWF_LINE_BYTES_MAX as u64);
    let rest = format!("\n{GOOD}\n");
    let mut reader = SwfReader::new(BufReader::new(endless.chain(rest.as_bytes())));
    let refused = reader.next().expect("a line").expect_err("too long");
    assert!(matches!(
        refused,
        SwfError {
            line: 1,
            kind: SwfErrorKind::LineTooLong
        }
    ));
    assert!(reader.line.capacity() <= 2 * SWF_LINE_BYTES_MAX);
    assert!(reader.next().expect("the next line").is_ok());
    assert!(reader.next().is_none());

    let padding = " ".repeat(SWF_LINE_BYTES_MAX - GOOD.len());
    assert!(
        read(format!("{GOOD}{padding}\n").as_bytes()).0[0].is_ok(),
        "the limit is included"
    );
    assert!(read(format!("{GOOD}{padding} \n").as_bytes()).0[0].is_err());
}

#[test]
fn an_input_that_fails_ends_the_records() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("unplugged"))
        }
    }
    let start = format!("{GOOD}\n");
    let mut reader = SwfReader::new(BufReader::new(start.as_bytes().chain(Broken)));
    assert!(reader.next().expect("a record").is_ok());
    let error = reader.next().expect("an error").expect_err("broken");
    assert!(matches!(
        error,
        SwfError {
            line: 2,
            kind: SwfErrorKind::Input(_)
        }
    ));
    assert!(reader.next().is_none());
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_or_loop(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
        prop_assert!(read(&bytes).0.len() <= lines);
    }

    #[test]
    fn no_words_make_the_reader_panic(words in prop::collection::vec("(-?[0-9]{0,22}|-1|[0-9.;:-]{0,6}|é)", 18..22)) {
        read(words.join(" ").as_bytes());
    }

    #[test]
    fn numbers_are_read_as_written_whatever_the_buffer(
        numbers in prop::collection::vec(0_u64.., SWF_COLUMNS),
        buffer in 1_usize..40,
    ) {
        let mut numbers = numbers;
        numbers[5] /= 1_000;
        let words: Vec<_> = numbers.iter().map(u64::to_string).collect();
        let line = words.join("  ");
        let mut reader = SwfReader::new(BufReader::with_capacity(buffer, line.as_bytes()));
        let record = reader.next().expect("a line").expect("a good line");
        prop_assert_eq!(record.job, numbers[0]);
        prop_assert_eq!(record.cpu_mean_ms, Some(numbers[5] * 1_000));
        prop_assert_eq!(record.think_s, Some(numbers[17]));
    }
}

#[test]
fn parts_of_a_job_count_where_the_line_of_the_whole_job_is_missing() {
    let line = |job: u64, submit: &str, status: u64| {
        format!("{job} {submit} 10 1200 4 -1 -1 4 1200 -1 {status} 1 1 -1 1 1 -1 -1\n")
    };
    let text = [
        line(1, "0", 1),
        line(1, "0", 2),
        line(1, "-1", 3),
        line(2, "0", 0),
        line(2, "0", 4),
        line(3, "0", 2),
        line(3, "5000", 3),
    ];
    let text = text.concat();
    let mut reader = SwfReader::new(text.as_bytes());
    let jobs: Vec<u64> = reader.by_ref().map(|job| job.expect("a job").job).collect();
    assert_eq!((jobs, reader.parts_skipped()), (vec![1, 2, 3, 3], 3));
}
