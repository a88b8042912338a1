//! What is refused is kept whole: every record of several lines, from its first line to its last, so
//! that the file of rejects, mended, can be read again.

use fairmesh_records::{Format, Records};

use crate::support::options;

/// Good records read, and what was kept of the others.
fn read(format: Format, text: &str) -> (usize, Vec<String>) {
    let mut records = Records::new(text.as_bytes(), format, &options());
    let (mut good, mut bad) = (0, Vec::new());
    while let Some(record) = records.next() {
        match record {
            Ok(_) => good += 1,
            Err(_) => bad.push(String::from_utf8_lossy(records.rejected()).into_owned()),
        }
    }
    (good, bad)
}

const AD: &str = "ClusterId = 7\nProcId = 0\nOwner = \"ann\"\nJobStatus = 4\nRequestCpus = 1\n\
    JobStartDate = 1795238184\nCompletionDate = 1795238190\nRemoteWallClockTime = 6.0\n";

const BLOCK: &str = "LocalJobId: 7\nLocalUserId: ann\nStartTime: 1795238184\nEndTime: 1795238190\n\
    WallDuration: 6\nCpuDuration: 5\nProcessors: 1\n";

const XML: &str = "<JobUsageRecord>\n  <JobIdentity><LocalJobId>7</LocalJobId></JobIdentity>\n  \
    <Status>completed</Status>\n  <StartTime>2026-11-21T00:00:00Z</StartTime>\n  \
    <EndTime>2026-11-21T01:00:00Z</EndTime>\n</JobUsageRecord>";

const SCRIPT: &str = "JOBID=7\nJOBSTATE=COMPLETED\nUSERNAME=ann\nSUBMIT=1795238180\n\
    START=1795238184\nEND=1795238190\nPROCS=4\n";

const SCONTROL: &str = "JobId=7 JobName=a b\n   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A\n   \
    JobState=RUNNING Reason=None\n   SubmitTime=2026-11-21T00:00:00 EligibleTime=Unknown\n   \
    NumNodes=1 NumCPUs=4\n   Command=(null)\n   Power=\n   \n";

#[test]
fn a_record_of_several_lines_is_kept_from_its_first_to_its_last() {
    let json = |body: &str| format!("{{\n \"ClusterId\": 7,\n{body}\n}}");
    let good_json = json(
        " \"ProcId\": 0, \"Owner\": \"ann\", \"JobStatus\": 4, \"RequestCpus\": 1,\n \
         \"JobStartDate\": 1795238184, \"CompletionDate\": 1795238190",
    );
    let bad_xml = XML.replace("<EndTime>2026", "<EndTime>never");
    for (format, good, bad, between, head, tail) in [
        (
            Format::HtcondorAds,
            AD.to_owned(),
            AD.replace("ProcId = 0", "ProcId is 0"),
            "\n",
            "",
            "",
        ),
        (
            Format::ApelJob,
            BLOCK.to_owned(),
            BLOCK.replace("EndTime", "Ende"),
            "%%\n",
            "APEL-individual-job-message: v0.3\n",
            "%%",
        ),
        (
            Format::OgfUsageRecord,
            XML.to_owned(),
            bad_xml,
            "\n",
            "<UsageRecords>\n",
            "",
        ),
        (
            Format::SlurmScript,
            SCRIPT.to_owned(),
            SCRIPT.replace("JOBSTATE=COMPLETED", "JOBSTATE=LOST"),
            "--\n",
            "",
            "--",
        ),
        (
            Format::SlurmScontrol,
            SCONTROL.to_owned(),
            SCONTROL.replace("NumCPUs=4", "NumCPUs=four"),
            "\n",
            "",
            "",
        ),
        (
            Format::HtcondorJson,
            good_json,
            json(" \"ProcId\": zero, \"Owner\": \"ann\""),
            ",\n",
            "[\n",
            "",
        ),
    ] {
        let text = format!("{head}{good}{between}{bad}{between}{good}{between}{bad}{between}");
        let (read_well, kept) = read(format, &text);
        assert_eq!((read_well, kept.len()), (2, 2), "{format}: {kept:?}");
        for kept in &kept {
            assert_eq!(kept.trim(), format!("{bad}{tail}").trim(), "{format}");
        }
        let again = kept.join("\n") + "\n";
        assert_eq!(read(format, &again), (0, kept), "{format}: reads as before");
    }
}

/// A node may refuse a record that was read well.
#[test]
fn a_good_record_is_kept_as_it_was_read_where_that_is_asked_for() {
    let line = "7|c|ann|COMPLETED|1793491200|1793491210|1793494810|4";
    let header = "JobIDRaw|Cluster|User|State|Submit|Start|End|NCPUS";
    for (format, text, records) in [
        (
            Format::SlurmSacct,
            format!("{header}\n{line}\nx|y\n{line}\n"),
            vec![line, "x|y", line],
        ),
        (
            Format::HtcondorAds,
            format!("{AD}\n{AD}\n"),
            vec![AD.trim_end(), AD.trim_end()],
        ),
        (
            Format::OgfUsageRecord,
            format!("<UsageRecords>{XML}\n{XML}</UsageRecords>"),
            vec![XML, XML],
        ),
        (
            Format::SlurmScontrol,
            format!("{SCONTROL}\n{SCONTROL}"),
            vec![SCONTROL.trim_end(), SCONTROL.trim_end()],
        ),
    ] {
        let mut all = Records::new(text.as_bytes(), format, &options()).keeping_all();
        let mut kept = Vec::new();
        while all.next().is_some() {
            let text = String::from_utf8_lossy(all.rejected());
            kept.push(text.trim().to_owned());
        }
        assert_eq!(kept, records, "{format}");
        let header = (format == Format::SlurmSacct).then_some(header);
        assert_eq!(all.header(), header);
    }
}

#[test]
fn a_record_that_is_never_closed_is_kept_without_the_next() {
    let open = XML.replace("</JobUsageRecord>", "");
    let (good, kept) = read(Format::OgfUsageRecord, &format!("{open}\n{XML}\n{open}"));
    assert_eq!(good, 1);
    assert_eq!(kept[0].trim(), open.trim());
    assert!(kept[1].starts_with(open.trim()), "{}", kept[1]);

    let event = "\"JOB_FINISH\" \"9.11\" 1 \"of two\nlines";
    let (good, kept) = read(Format::Lsf, &format!("{event}\n{event}\n"));
    assert_eq!((good, kept), (0, vec![event.to_owned(), event.to_owned()]));

    let (_, kept) = read(
        Format::HtcondorJson,
        "{\n \"ClusterId\": 7,\n{ \"ClusterId\": 8 }\nstray {}",
    );
    assert_eq!(kept.len(), 4, "{kept:?}");
    assert_eq!(kept[0], "{\n \"ClusterId\": 7,");
    assert_eq!(kept[1], "{ \"ClusterId\": 8 }");
}

#[test]
fn of_a_record_that_is_too_long_nothing_is_kept_and_the_next_is_read() {
    let long = format!("Environment = \"{}\"\n", "x".repeat(700 << 10));
    let text = format!("{AD}\n{long}{long}\n{AD}\n");
    assert_eq!(read(Format::HtcondorAds, &text), (2, vec![String::new()]));
    let line = "x".repeat(2 << 20);
    let text = format!("{BLOCK}{line}\n%%\n{BLOCK}%%\n");
    let (good, kept) = read(Format::ApelJob, &text);
    assert_eq!((good, kept), (1, vec![BLOCK.trim_end().to_owned()]));
}
