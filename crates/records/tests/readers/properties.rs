//! Whatever the bytes, no parser panics; every reader comes to its end, and one that goes on from a
//! cursor gives what the first would have given.

use fairmesh_model::WallTime;
use fairmesh_records::export::{self, ApelSite, Summaries};
use fairmesh_records::{
    ChargeRule, Cursor, Format, GridIdentities, Options, RECORD_BYTES_MAX, Records,
    slurm::array_tasks,
};
use proptest::prelude::*;

use crate::support::{self, cases};

/// Pieces of real lines of all formats, so that random input gets past the first check.
const PIECES: [&str; 69] = [
    "\n",
    "\n\n",
    "|",
    ":",
    ";",
    " ",
    "=",
    ",",
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "/",
    "*",
    "%%",
    "\\",
    "-",
    ".",
    "e",
    "0",
    "1",
    "99999999999999999999",
    "4294967296",
    "Unknown",
    "NONE",
    "JobID|State|Start|End|Submit|NCPUS|User\n",
    "1|COMPLETED|1|2|3|4|u\n",
    "12/21/2024 17:58:09;E;1.s;user=u ctime=1 start=2 end=3 exec_host=a/0*2+b/0-3 ",
    "exec_vnode=(n:ncpus=1:mem=1kb)",
    "Resource_List.nodes=2:ppn=8",
    "Exit_status=-11",
    "q:h:g:u:n:1:a:0:1:2:3:0:0:1:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:p:d:NONE:1:0:1:1:0:c:0:NONE:1",
    "\"JOB_FINISH\" \"9.11\" 5 6 7 8 9 1 0 0 2 \"u\" \"q\"",
    " 0 8 \"16*h\" 64 60.0 \"n\" \"c\" ",
    "JobId=1 UserId=u(0) Name=x JobState=COMPLETED ",
    "EndTime=2026-11-21T05:13:28 ProcCnt=2 ",
    "JobId=1 JobName=a ",
    "\n   UserId=u(1) GroupId=g(1) MCS_label=N/A\n   ",
    "JobState=RUNNING Reason=None\n   ",
    "SubmitTime=2026-11-21T05:13:25 EligibleTime=Unknown\n   ",
    "NumNodes=1-2 NumCPUs=2 NumTasks=1\n   TRES=cpu=1,mem=1G\n   ",
    "Command=(null)\n   TresPerJob=gres:gpu:1\n",
    "JOBID=1\nJOBSTATE=FAILED\nSUBMIT=1\nEND=2\nPROCS=1\n--\n",
    "{\"jobs\":[",
    "\"meta\":{",
    "{\"job_id\":1,\"state\":{\"current\":[\"FAILED\"]},\"time\":{\"submission\":1,\"start\":2,\"end\":3}}",
    "],\"errors\":[{}]}",
    "{\"_source\":{\"jobid\":1,\"@submit\":\"1\",\"@end\":\"2\",\"total_cpus\":1,\"state\":\"FAILED\"}",
    "{\"hits\":{\"hits\":[",
    "<c>",
    "</c>",
    "<a n=\"ClusterId\"><i>1</i></a><a n=\"ProcId\"><i>0</i></a><a n=\"JobStatus\"><i>4</i></a>",
    "<a n=\"X\"><l><c>",
    "{\"record_id\":\"s-1\",\"components\":[{\"name\":\"Cores\",\"amount\":1}],\"start_time\":\"1\"}",
    "\"ClusterId\": 1, \"ProcId\": 0, \"JobStatus\": 4",
    "ClusterId = 1\nProcId = 0\nJobStatus = 4\n",
    "<ur:JobUsageRecord>",
    "</ur:JobUsageRecord>",
    "<JobIdentity><LocalJobId>1</LocalJobId>",
    "<WallDuration>PT1S</WallDuration>",
    "<!--",
    "-->",
    "&#x41;&lt;&nope;",
    "LocalJobId: 1\nStartTime: 1\nEndTime: 2\n%%\n",
    "\"timestamp=2012-05-20 23:59:47\" \"userDN=/O=a\" \"lrmsID=1\"",
];

fn soup() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(PIECES.to_vec()).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn options(growing: bool) -> Options {
    Options {
        growing,
        ..support::options()
    }
}

fn site() -> ApelSite {
    ApelSite {
        name: "s".to_owned(),
        infrastructure: "local".to_owned(),
    }
}

fn outcomes(bytes: &[u8], format: Format, cursor: Cursor, growing: bool) -> Vec<String> {
    let records = Records::resume(bytes, format, &options(growing), cursor);
    records
        .map(|result| match result {
            Ok(record) => format!("{record:?}"),
            Err(error) => error.to_string(),
        })
        .collect()
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn no_input_makes_a_parser_panic(bytes in soup()) {
        let _ = Format::detect(&bytes);
        let _ = array_tasks(&String::from_utf8_lossy(&bytes));
        let _ = GridIdentities::default().read(bytes.as_slice());
        for format in Format::all() {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            let most = bytes.len() + lines + 2;
            prop_assert!(outcomes(&bytes, format, Cursor::default(), false).len() <= most);
        }
    }

    /// Whatever a parser gives can be charged and written out, and what is written can be read.
    #[test]
    fn no_record_makes_charging_or_export_panic(bytes in soup(), as_of in any::<u64>()) {
        for format in Format::all() {
            let mut summaries = Summaries::default();
            for record in Records::new(bytes.as_slice(), format, &options(false)).flatten() {
                let _ = ChargeRule::default().usage(&record, WallTime(as_of));
                let _ = summaries.add(&record);
                let _ = export::apel_job(&record, &site());
                if let Ok(xml) = export::usage_record(&record, WallTime(0)) {
                    let format = Format::OgfUsageRecord;
                    let mut again = Records::new(xml.as_bytes(), format, &options(false));
                    let job = again.next().and_then(Result::ok);
                    let named = !record.key.job.trim().is_empty();
                    prop_assert!(job.is_some() || !named, "{xml}");
                }
            }
            prop_assert!(Summaries::parse(&summaries.message(&site())).is_ok());
        }
    }

    #[test]
    fn reading_on_from_any_cursor_gives_the_rest(bytes in soup(), growing: bool) {
        for format in Format::all() {
            let all = outcomes(&bytes, format, Cursor::default(), growing);
            let mut reader = Records::new(bytes.as_slice(), format, &options(growing));
            let mut given = 0;
            loop {
                let cursor = reader.cursor().clone();
                let at = usize::try_from(cursor.bytes).unwrap();
                let rest = outcomes(&bytes[at..], format, cursor.clone(), growing);
                // It may stay behind while one line gives several, and never runs ahead.
                prop_assert!(all.ends_with(&rest), "{format} from {cursor:?}: {all:?} {rest:?}");
                prop_assert!(given + rest.len() >= all.len(), "{format} from {cursor:?}");
                if reader.next().is_none() {
                    prop_assert_eq!(given, all.len());
                    break;
                }
                given += 1;
            }
        }
    }

    /// A file that grows by bits gives, all in all, what it gives at once.
    #[test]
    fn a_file_may_grow_anywhere(bytes in soup(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        for format in Format::all() {
            let mut cursor = Cursor::default();
            let mut given = Vec::new();
            for end in &ends {
                let from = usize::try_from(cursor.bytes).unwrap();
                let seen = &bytes[from..*end];
                let mut reader = Records::resume(seen, format, &options(true), cursor);
                given.extend(reader.by_ref().map(|result| match result {
                    Ok(record) => format!("{record:?}"),
                    Err(error) => error.to_string(),
                }));
                cursor = reader.cursor().clone();
            }
            let at_once = outcomes(&bytes, format, Cursor::default(), true);
            prop_assert_eq!(given, at_once, "{}", format);
        }
    }
}

/// A line without end is refused by name, in whatever format, and what follows is read.
#[test]
fn a_line_without_end_is_refused_by_its_limit() {
    let mut bytes = vec![b'x'; 3 * RECORD_BYTES_MAX];
    bytes.extend_from_slice(b"\n");
    for format in Format::all() {
        let outcomes = outcomes(&bytes, format, Cursor::default(), false);
        assert!(
            outcomes
                .iter()
                .any(|outcome| outcome.contains("RECORD_BYTES_MAX")),
            "{format}: {outcomes:?}"
        );
    }
}

#[test]
fn formats_are_known_by_their_names() {
    for format in Format::all() {
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert!("swf".parse::<Format>().is_err());
}
