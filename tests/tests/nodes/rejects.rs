//! What `fairmesh report` makes of bad input, on a real node: rejects are corrected and reported again, one bad file
//! spoils no other, and a dry run shows what the run then does.

use serde_json::Value;

use crate::records::{Place, append, now_s};

const HEADER: &str = "JobIDRaw;Cluster;User;Account;Submit;Start;End;Elapsed;State;NCPUS\n";

/// A job of an hour, in a list by `;`, which ends so many seconds from now.
fn job(id: u32, state: &str, cpus: &str, end_in_s: i64) -> String {
    let end = now_s().saturating_add_signed(end_in_s);
    let start = end - 3_600;
    format!("{id};c1;ann;physics;{start};{start};{end};01:00:00;{state};{cpus}\n")
}

fn read(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(name)).unwrap_or_default()
}

#[test]
fn refused_records_are_corrected_and_reported_again() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let list = [
        HEADER,
        &job(1, "COMPLETED", "2", -60),
        &job(2, "COMPLETED", "two", -60),
        &job(3, "COMPLETED", "2", 90_000),
        &job(4, "LOST", "2", -60),
    ];
    append(&place.path("jobs.sacct"), &list.concat())?;
    let swf = "1 10 -1 60 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1\n2 10 -1 sixty 1 0.5 -1 1 60 -1 1 3 2 -1 -1 7 -1 -1\n";
    append(
        &place.path("old.swf"),
        &format!("; UnixStartTime: 1767225600\n{swf}"),
    )?;
    let output = place.run(&["report", "jobs.sacct", "old.swf"])?;
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr)?;
    assert!(
        told.contains("fairmesh report --rejects jobs.sacct.rejects"),
        "{told}"
    );
    let rejects = read(&place, "jobs.sacct.rejects");
    let lines: Vec<&str> = rejects.lines().collect();
    assert!(lines[0].starts_with("# fairmesh report: "), "{rejects}");
    assert_eq!(lines[1], HEADER.trim_end());
    assert_eq!(lines.len(), 8, "all in one form: {rejects}");
    assert!(
        rejects.contains(list[3].trim_end()),
        "refused by the node: {rejects}"
    );

    // As an administrator does, who gives no option.
    let corrected = rejects.replace(";two\n", ";2\n");
    std::fs::write(place.path("jobs.sacct.rejects"), corrected)?;
    let corrected = read(&place, "old.swf.rejects").replace("sixty", "60");
    std::fs::write(place.path("old.swf.rejects"), corrected)?;
    let tried = place.json(&["report", "--rejects", "--dry-run"])?;
    assert_eq!(
        (&tried["counted"], &tried["refused"]),
        (&2.into(), &2.into())
    );
    let again = place.json(&["report", "--rejects"])?;
    assert_eq!(
        (&again["counted"], &again["known"], &again["refused"]),
        (&2.into(), &0.into(), &2.into()),
        "{again}"
    );
    assert!(
        !place.path("old.swf.rejects").exists(),
        "nothing is refused"
    );
    let rest = read(&place, "jobs.sacct.rejects");
    assert!(
        !rest.contains("\n2;") && rest.contains("\n3;") && rest.contains("\n4;"),
        "{rest}"
    );
    assert_eq!(rest.lines().nth(1), Some(HEADER.trim_end()));
    std::fs::write(
        place.path("jobs.sacct.rejects"),
        rest.replace("LOST", "FAILED"),
    )?;
    let third = place.json(&["report", "jobs.sacct.rejects"])?;
    assert_eq!(
        (&third["counted"], &third["refused"]),
        (&1.into(), &1.into())
    );
    let status = place.json(&["status"])?.to_string();
    assert!(status.contains("1 reject waits in"), "{status}");
    assert!(
        !status.contains("old.swf.rejects"),
        "none is left: {status}"
    );
    // The list itself was never corrected: what waits already is not added again.
    place.run(&["report", "jobs.sacct"])?;
    let all = read(&place, "jobs.sacct.rejects");
    let places = all
        .lines()
        .filter(|line| line.starts_with("# jobs.sacct"))
        .count();
    assert_eq!((all.matches("\n3;").count(), places), (1, 3), "{all}");
    Ok(())
}

/// Somebody corrects a file by hand as they like, or removes it.
#[test]
fn a_file_of_rejects_that_was_reported_or_removed_waits_no_more() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let good = [HEADER, &job(1, "COMPLETED", "2", -60)].concat();
    let bad = [HEADER, &job(2, "COMPLETED", "two", -60)].concat();
    for (name, text) in [("good", &good), ("bad", &bad)] {
        append(&place.path(name), text)?;
    }
    let waits = |file: &str| {
        let status = place.json(&["status"])?;
        anyhow::Ok(status.to_string().contains(file))
    };
    let output = place.run(&["report", "good", "bad", "--rejects-to", "all.rejects"])?;
    let told = String::from_utf8(output.stderr)?;
    assert!(told.contains("lines of bad are in all.rejects"), "{told}");
    assert!(!told.contains("lines of good"), "it has none: {told}");
    assert!(waits("all.rejects")?);
    std::fs::write(place.path("all.rejects"), bad.replace(";two\n", ";2\n"))?;
    let again = place.json(&["report", "./all.rejects"])?;
    assert_eq!(again["counted"], 1, "{again}");
    assert!(!waits("all.rejects")?);
    place.run(&["report", "bad"])?;
    assert!(waits("bad.rejects")?);
    std::fs::remove_file(place.path("bad.rejects"))?;
    let output = place.run(&["report", "bad.rejects"])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(!waits("bad.rejects")?);
    Ok(())
}

#[test]
fn one_file_that_cannot_be_read_spoils_no_other() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    append(
        &place.path("a"),
        &[HEADER, &job(1, "COMPLETED", "2", -60)].concat(),
    )?;
    append(&place.path("b"), "no list\n")?;
    let nameless = [HEADER, &job(2, "COMPLETED", "2", -60).replace(";c1;", ";;")];
    append(&place.path("c"), &nameless.concat())?;
    append(
        &place.path("d"),
        &[HEADER, &job(3, "COMPLETED", "2", -60)].concat(),
    )?;
    let words = ["report", "a", "b", "gone", "c", "d"];
    let output = place.run(&words)?;
    assert_eq!(output.status.code(), Some(1));
    let (out, told) = (
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    );
    assert!(out.contains("counted 2, "), "{out}");
    for word in [
        "b: the format cannot be recognised",
        "cannot read gone",
        "c:2: ",
        "--cluster",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let again = place.json(&words)?;
    let files = again["files"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let errors: Vec<bool> = files.iter().map(|file| file["error"].is_string()).collect();
    assert_eq!(errors, [false, true, true, true, false], "{again}");
    assert_eq!(files[1].get("format"), None);
    let only = place.run(&["report", "b"])?;
    assert_eq!((only.status.code(), only.stdout.len()), (Some(2), 0));
    Ok(())
}

#[test]
fn a_dry_run_shows_what_the_run_then_does() -> anyhow::Result<()> {
    let place = Place::start("physics", &["ann"])?;
    let half = |id: u32| {
        let running = job(id, "RUNNING", "2", -60).replace("01:00:00", "00:30:00");
        let mut fields: Vec<String> = running.split(';').map(str::to_owned).collect();
        fields[6] = "Unknown".to_owned();
        fields.join(";")
    };
    // Made once: the records of a job have one key.
    let (four, one, two, three) = (
        half(4),
        job(1, "COMPLETED", "2", -60),
        job(2, "COMPLETED", "2", -60),
        job(3, "COMPLETED", "2", -60),
    );
    // Final records that replace no instalment: of another account, and of a later start.
    let (five, six) = (half(5), half(6));
    let last = |running: &str, account: &str, late_s: u64| {
        let mut fields: Vec<String> = running.trim_end().split(';').map(str::to_owned).collect();
        let start: u64 = fields[5].parse()?;
        fields[3] = account.to_owned();
        fields[5] = (start + late_s).to_string();
        fields[6] = (start + 3_600).to_string();
        fields[7] = format!("{}:00", 60 - late_s / 60);
        anyhow::Ok(fields.join(";").replace("RUNNING;2", "COMPLETED;4\n"))
    };
    let (five_last, six_last) = (last(&five, "other", 0)?, last(&six, "physics", 600)?);
    append(&place.path("before"), &[HEADER, &one].concat())?;
    append(
        &place.path("monday"),
        &[HEADER, &one, &two, &four, &two, &five, &six].concat(),
    )?;
    append(
        &place.path("tuesday"),
        &[HEADER, &two, &three, &four, &five_last, &six_last].concat(),
    )?;
    place.json(&["report", "before"])?;
    let words = ["report", "monday", "tuesday"];
    let tried = place.json(&[&words[..], &["--dry-run"]].concat())?;
    let done = place.json(&words)?;
    let told = |body: &Value| (body["charge_core_ms"].clone(), body["counted"].clone());
    assert_eq!(told(&tried), told(&done), "{tried}\n{done}");
    assert_eq!(
        done["charge_core_ms"],
        ((5 + 3 + 3) * 3_600_000).to_string()
    );
    assert_eq!(
        tried["summary"]["totals"]["cpu_hours"], "13.3333",
        "{tried}"
    );
    Ok(())
}
