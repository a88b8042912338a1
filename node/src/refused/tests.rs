use super::*;

fn job(name: &str, reason: &str) -> RefusedJob {
    RefusedJob {
        key: JobKey {
            cluster: "c".to_owned(),
            job: name.to_owned(),
            instance: u64::MAX,
        },
        user: Some("ann".to_owned()),
        account: None,
        reason: format!("job `{name}` {reason}"),
        since: WallTime(0),
        record: Some("{}".to_owned()),
    }
}

const DAY: u64 = 86_400_000;

#[test]
fn a_job_is_listed_once_until_it_is_counted() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let store = Refused::open(folder.path())?;
    assert!(store.is_empty()? && store.summary()?.is_none());
    let jobs = [
        job("1", "held 48 CPUs"),
        job("2", "held 64 CPUs"),
        job("3", "ends before it starts"),
    ];
    let at = |day: u64| WallTime(day * DAY);
    assert_eq!(store.note(at(1), &jobs)?, [false; 3]);
    // The numbers of a reason may differ, and the reason may become another one.
    let again = [job("1", "held 49 CPUs"), job("3", "held 48 CPUs")];
    assert_eq!(store.note(at(2), &again)?, [true, false]);
    drop(store);
    let store = Refused::open(folder.path())?;
    let waiting = store.summary()?.expect("three");
    assert_eq!((waiting.count, waiting.since_ms), (3, at(1).0));
    assert!(waiting.reason.starts_with("held 4"), "{}", waiting.reason);
    let listed = store.list(2)?;
    assert_eq!((listed.len(), &listed[0].key), (2, &jobs[0].key));
    assert_eq!(store.records(0, 9)?.len(), 3);
    store.forget(jobs.iter().map(|job| &job.key).take(2))?;
    assert_eq!(store.summary()?.expect("one").count, 1);
    // One that was not refused again for so long weighs nothing any more.
    assert_eq!(store.note(at(93), &jobs[..1])?, [false]);
    assert_eq!(store.summary()?.expect("the new one").since_ms, at(93).0);
    Ok(())
}

#[test]
fn one_that_runs_is_listed_as_long_as_it_is_refused() -> anyhow::Result<()> {
    let store = Refused::in_memory()?;
    let running = |name| RefusedJob {
        record: None,
        ..job(name, "held 48 CPUs")
    };
    let both = [running("1"), running("2")];
    store.note(WallTime(DAY), &both)?;
    store.note(WallTime(DAY), &[job("2", "held 48 CPUs")])?;
    store.keep_running(&[])?;
    let listed = store.list(9)?;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(
        listed[0].key, both[1].key,
        "it has ended, and was refused then"
    );
    Ok(())
}

#[test]
fn the_rejects_of_a_file_are_replaced_and_taken_out() -> anyhow::Result<()> {
    let store = Refused::in_memory()?;
    let of = |file: &str, count| RejectsBody {
        file: file.to_owned(),
        lines: WaitingBody {
            count,
            since_ms: 5,
            reason: "no end".to_owned(),
        },
    };
    assert!(store.set_rejects(&of("/a", 3))? && store.set_rejects(&of("/a", 2))?);
    assert_eq!(store.rejects()?, [of("/a", 2)]);
    for file in 1..FILES_MAX {
        assert!(store.set_rejects(&of(&file.to_string(), 1))?);
    }
    assert!(!store.set_rejects(&of("/b", 1))? && store.set_rejects(&of("/a", 1))?);
    assert!(store.set_rejects(&of("/a", 0))? && store.set_rejects(&of("/b", 1))?);
    Ok(())
}

#[test]
fn a_damaged_store_is_set_aside() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(
        folder.path().join(FILE),
        "no database at all, but long enough to be taken for one".repeat(40),
    )?;
    let store = Refused::open(folder.path())?;
    store.note(WallTime(DAY), &[job("1", "held 48 CPUs")])?;
    assert!(folder.path().join("refused.sqlite.unreadable").exists());
    Ok(())
}
