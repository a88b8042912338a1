//! A feed between a batch system and a node that are both pretended.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fairmesh_model::{JobKey, WallTime};
use fairmesh_records::{Format, JobState};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use super::*;
use crate::plan::Update;
use crate::slurm::{Slurm, SlurmSettings, UsageSource};

/// What the node heard: path and body of each request.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

/// What the node says to job records.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    Counted,
    /// Its record log is full.
    Full,
    /// The first request is refused for now.
    NotYet,
    /// Whatever has a job named `waits` is.
    NoneThatWaits,
}

fn node(folder: &std::path::Path, says: Says) -> anyhow::Result<(Control, Heard)> {
    node_with_past(folder, says, &["{}"])
}

/// A node that says this of its VOs, one after the other, and goes on with the last. The file `log` in the folder has
/// the state of its record log: its id, and more members of the answer.
fn node_with_past(
    folder: &std::path::Path,
    says: Says,
    past: &'static [&'static str],
) -> anyhow::Result<(Control, Heard)> {
    let asked = Arc::new(AtomicUsize::new(0));
    let (socket, log) = (folder.join("control.sock"), folder.join("log"));
    let listener = tokio::net::UnixListener::bind(&socket)?;
    let heard = Heard::default();
    let hears = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (hears, asked, log) = (Arc::clone(&hears), Arc::clone(&asked), log.clone());
            let answer = service_fn(move |request: Request<Incoming>| {
                let (hears, asked) = (Arc::clone(&hears), Arc::clone(&asked));
                let log = std::fs::read_to_string(&log).unwrap_or_else(|_| "null".to_owned());
                async move {
                    let path = request.uri().path().to_owned();
                    if ["/v1/pretended", "/v1/slurm"].contains(&path.as_str()) {
                        let words = format!(r#"{{"log":{log}}}"#);
                        return Ok(Response::new(Full::new(Bytes::from(words))));
                    }
                    if path == "/v1/status" {
                        let at = asked.fetch_add(1, Ordering::Relaxed).min(past.len() - 1);
                        let words = format!(r#"{{"vos":[{}]}}"#, past[at]);
                        return Ok(Response::new(Full::new(Bytes::from(words))));
                    }
                    let body = request.into_body().collect().await.expect("a body");
                    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                    let lines = body.lines().count();
                    let is_of_jobs = path == "/v1/accounting";
                    let mut heard = hears.lock().expect("whole");
                    let is_for_now = match says {
                        Says::NotYet => heard.is_empty(),
                        Says::NoneThatWaits => body.contains("\"waits\""),
                        _ => false,
                    };
                    heard.push((path, body));
                    drop(heard);
                    let (status, words) = match says {
                        Says::Full if is_of_jobs => (
                            503,
                            r#"{"error":"the record log failed: no room"}"#.to_owned(),
                        ),
                        _ if is_for_now => {
                            let (refused, for_now) = (1, 1);
                            (200, report(lines, 0, refused, for_now))
                        }
                        _ => (200, report(lines, lines, 0, 0)),
                    };
                    let words = Full::new(Bytes::from(words));
                    let response = Response::builder().status(status).body(words);
                    Ok::<_, Infallible>(response.expect("a response"))
                }
            });
            let io = TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, answer));
        }
    });
    Ok((Control::new(socket), heard))
}

fn report(read: usize, counted: usize, refused: u64, for_now: u64) -> String {
    let report = ReportBody {
        read: read as u64,
        counted: counted as u64,
        refused,
        for_now,
        ..ReportBody::default()
    };
    serde_json::to_string(&report).expect("plain data")
}

/// A batch system that says of the same jobs, again and again, that they have ended.
struct Ended(Vec<BatchRecord>, Vec<PathBuf>);

impl Scheduler for Ended {
    const NAME: &'static str = "pretended";
    const NUMBER: &'static str = "number";
    const SHOWS_CPUS: &'static str = "nothing";

    async fn cpus(&self) -> anyhow::Result<Option<u64>> {
        Ok(None)
    }

    async fn queue(&self, _all: bool) -> anyhow::Result<(Vec<Job>, Vec<String>)> {
        Ok(<_>::default())
    }

    async fn numbers(&self) -> anyhow::Result<BTreeMap<u64, i64>> {
        Ok(<_>::default())
    }

    async fn set(&self, _updates: &[Update]) -> anyhow::Result<Vec<crate::Refusal>> {
        Ok(<_>::default())
    }

    async fn about(&mut self) -> anyhow::Result<About> {
        let cluster = "alpha".to_owned();
        Ok(About {
            cluster,
            lack: None,
        })
    }

    async fn ended(&self, cursor: &Cursor) -> anyhow::Result<Portion> {
        let mut cursor = cursor.clone();
        cursor.sacct_until = Some(END);
        Ok(Portion {
            records: self.0.clone(),
            again_from_s: Some(END - 3_600),
            cursor,
            files: self.1.clone(),
            ..Portion::default()
        })
    }
}

const END: u64 = 1_795_238_190;

fn job(id: u64) -> BatchRecord {
    let key = JobKey {
        cluster: "alpha".to_owned(),
        job: id.to_string(),
        instance: END - 10,
    };
    let mut record = BatchRecord::new(Format::SlurmSacct, key, JobState::Completed);
    record.origin.user = Some("ann".to_owned());
    record.start = Some(WallTime::from_unix_secs(END - 6));
    record.end = Some(WallTime::from_unix_secs(END));
    (record.cpus, record.wall) = (Some(2), Some(Millis::from_secs(4)));
    record
}

fn feed(folder: &std::path::Path, jobs: Vec<BatchRecord>, control: Control) -> Feed<Ended> {
    let settings = LoopSettings::defaults(folder.join("cursor.json"));
    Feed::new(Ended(jobs, Vec::new()), settings, control)
}

fn paths(heard: &Heard) -> Vec<String> {
    let heard = heard.lock().expect("whole");
    heard.iter().map(|(path, _)| path.clone()).collect()
}

#[tokio::test]
async fn where_the_log_fails_usage_is_reported_all_the_same_and_the_cursor_stays()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (control, heard) = node(folder.path(), Says::Full)?;
    let mut feed = feed(folder.path(), vec![job(1)], control);
    let why = feed.once().await.expect_err("not logged").to_string();
    assert!(why.contains("no room"), "{why}");
    assert_eq!(paths(&heard)[..2], ["/v1/accounting", "/v1/records"]);
    let usage: UsageRecord = serde_json::from_str(&heard.lock().expect("whole")[1].1)?;
    assert_eq!(usage.end.since(usage.start), Millis::from_secs(4));
    assert!(!folder.path().join("cursor.json").exists());
    feed.once().await.expect_err("still not");
    assert_eq!(paths(&heard).len(), 8, "all of it again");
    Ok(())
}

#[tokio::test]
async fn what_is_refused_for_now_is_told_again_and_its_file_and_the_cursor_stay()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (control, heard) = node(folder.path(), Says::NotYet)?;
    let mut feed = feed(folder.path(), vec![job(1), job(2)], control);
    let (spooled, cursor) = (
        folder.path().join("job.1"),
        folder.path().join("cursor.json"),
    );
    std::fs::write(&spooled, "1")?;
    feed.scheduler.1 = vec![spooled.clone()];
    let why = feed.once().await.expect_err("not counted").to_string();
    assert!(why.contains("refuses records for now (1)"), "{why}");
    assert!(spooled.exists() && !cursor.exists());
    assert_eq!(feed.once().await?.counted, 2);
    assert!(!spooled.exists() && cursor.exists());
    let told = paths(&heard);
    assert_eq!(
        told.iter().filter(|path| *path == "/v1/accounting").count(),
        2
    );
    Ok(())
}

/// The round ended no more: it read the same five thousand again.
#[tokio::test]
async fn what_is_refused_for_now_in_a_spool_holds_up_no_more_than_its_portion() -> anyhow::Result<()>
{
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let mut feed = slurm_of(folder, Says::NoneThatWaits, "")?;
    let spool = folder.join("spool");
    std::fs::create_dir(&spool)?;
    feed.scheduler.settings.usage = UsageSource::Hook;
    feed.scheduler.settings.spool.clone_from(&spool);
    for id in 0..=2 * BATCH_RECORDS {
        let mut record = job(id.try_into()?);
        record.name = Some("waits".to_owned()).filter(|_| id == 7);
        std::fs::write(
            spool.join(format!("{id:06}-1.json")),
            serde_json::to_vec(&record)?,
        )?;
    }
    for _ in 0..2 {
        let round = tokio::time::timeout(Duration::from_secs(100), feed.once()).await?;
        let why = round.expect_err("one is refused").to_string();
        assert!(why.contains("refuses records for now (1)"), "{why}");
        assert_eq!(std::fs::read_dir(&spool)?.count(), BATCH_RECORDS);
    }
    std::fs::write(spool.join("000007-1.json"), serde_json::to_vec(&job(7))?)?;
    feed.once().await?;
    assert_eq!(std::fs::read_dir(&spool)?.count(), 0);
    Ok(())
}

#[tokio::test]
async fn what_was_acknowledged_is_not_sent_again_unless_it_changes() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (control, heard) = node(folder.path(), Says::Counted)?;
    let mut feed = feed(folder.path(), vec![job(1), job(2)], control);
    assert_eq!(feed.once().await?.finished, 2);
    assert_eq!(feed.once().await?.finished, 0);
    feed.scheduler.0[1].cpus = Some(3);
    feed.scheduler.0.push(job(3));
    assert_eq!(feed.once().await?.finished, 2);
    let records = paths(&heard)
        .into_iter()
        .filter(|path| path == "/v1/accounting");
    assert_eq!(records.count(), 2);
    Ok(())
}

/// If the data folder was lost, what the node had counted may be at other sites alone.
#[tokio::test]
async fn a_feed_that_starts_waits_until_its_node_has_heard_of_its_own_past() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let past = [
        r#"{"past_known":false},{"past_known":true}"#,
        r#"{"past_known":true},{"past_known":true}"#,
    ];
    let (control, heard) = node_with_past(folder.path(), Says::Counted, Box::leak(Box::new(past)))?;
    let mut feed = feed(folder.path(), vec![job(1)], control);
    let began = std::time::Instant::now();
    assert_eq!(feed.once().await?.finished, 1);
    assert!((past::PAUSE..past::WAIT_MAX).contains(&began.elapsed()));
    assert_eq!(paths(&heard)[0], "/v1/accounting");
    feed.once().await?;
    Ok(())
}

/// The node was wiped, or its record log set aside, while the feed runs.
#[tokio::test]
async fn a_node_that_has_lost_its_record_log_gets_everything_again() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (control, heard) = node(folder.path(), Says::Counted)?;
    let log = |id: &str| std::fs::write(folder.path().join("log"), id);
    let jobs = || vec![job(1), job(2)];
    log("7")?;
    let mut running = feed(folder.path(), jobs(), control.clone());
    assert_eq!(running.once().await?.finished, 2);
    assert_eq!(running.once().await?.finished, 0);
    log("8")?;
    assert_eq!(running.once().await?.finished, 2);
    assert_eq!(running.once().await?.finished, 0);
    // A feed that was not there at that time has the id with its cursor.
    let cursor = || std::fs::read_to_string(folder.path().join("cursor.json"));
    assert!(cursor()?.contains("\"log\":8"), "{}", cursor()?);
    log("9")?;
    let mut later = feed(folder.path(), Vec::new(), control);
    later.compare_log().await?;
    let place = later.cursor()?;
    assert_eq!((place.sacct_until, place.log.log), (None, Some(9)));
    assert!(!paths(&heard).is_empty());
    Ok(())
}

/// The data folder was restored from a backup while the feed runs, between two rounds and within one.
#[tokio::test]
async fn a_node_that_was_restored_from_a_backup_gets_everything_again() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (control, _) = node(folder.path(), Says::Counted)?;
    let log = |starts: &str| {
        let state = format!(r#"7,"starts":[{starts}]"#);
        std::fs::write(folder.path().join("log"), state)
    };
    let (backup, newer) = (
        r#"{"start":1,"batches":2},{"start":2,"batches":1}"#,
        r#"{"start":1,"batches":2},{"start":2,"batches":3}"#,
    );
    log(newer)?;
    let mut feed = feed(folder.path(), vec![job(1), job(2)], control);
    assert_eq!(feed.once().await?.finished, 2);
    // A node that was killed still has all of it.
    log(&format!(r#"{newer},{{"start":3,"batches":1}}"#))?;
    assert_eq!(feed.once().await?.finished, 0);
    log(backup)?;
    assert_eq!(feed.once().await?.finished, 2);
    assert_eq!(feed.once().await?.finished, 0);

    log(newer)?;
    feed.scheduler.0.push(job(3));
    assert_eq!(feed.once().await?.finished, 1);
    let mut cursor = feed.cursor()?;
    log(backup)?;
    let loss = feed
        .note_log(&mut cursor)
        .await
        .expect_err("it is restored");
    assert!(loss.to_string().contains("restored"), "{loss}");
    assert_eq!(feed.once().await?.finished, 3);

    // What is acknowledged in a portion that is not taken to its end does not move the cursor.
    let mut unkept = feed.cursor()?;
    log(newer)?;
    feed.note_log(&mut unkept).await?;
    log(backup)?;
    assert_eq!(feed.once().await?.finished, 3);
    Ok(())
}

#[tokio::test]
async fn without_the_source_of_ended_jobs_running_ones_are_reported() -> anyhow::Result<()> {
    let (folder, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let sacct =
        "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1";
    let mut feed = slurm_of(folder.path(), Says::Counted, sacct)?;
    let (control, heard) = node(other.path(), Says::Counted)?;
    feed.control = control;
    let error = feed.once().await.expect_err("no source");
    assert!(error.is::<SourceAway>(), "{error:?}");
    let words = error.to_string();
    assert!(
        words.starts_with("slurmdbd does not answer: `sacct` failed: "),
        "{words}"
    );
    assert_eq!(paths(&heard), ["/v1/running", "/v1/occupancy"]);
    Ok(())
}

/// A Slurm with an empty queue, whose `sacct` does this, and a node.
fn slurm_of(folder: &std::path::Path, says: Says, sacct: &str) -> anyhow::Result<Feed<Slurm>> {
    use std::os::unix::fs::PermissionsExt as _;
    let config = "echo 'AccountingStorageType = accounting_storage/slurmdbd\nClusterName = alpha'";
    for (command, script) in [("sacct", sacct), ("scontrol", config), ("squeue", "")] {
        let program = folder.join(command);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    }
    let mut settings = SlurmSettings::defaults(folder);
    settings.common.bin_dir = Some(folder.to_owned());
    let (control, _) = node(folder, says)?;
    let common = settings.common.clone();
    Ok(Feed::new(Slurm::new(settings), common, control))
}

/// A Slurm whose `sacct` honours `-S` and `-E`, and knows of one job that ended at this moment, once there is a file
/// `flushed` beside it. It notes what it was asked.
fn sacct_of(folder: &std::path::Path, end_s: u64) -> anyhow::Result<Feed<Slurm>> {
    let moment = |second: u64| {
        let moment = jiff::Timestamp::from_second(second.try_into()?)?;
        anyhow::Ok(moment.strftime("%Y-%m-%dT%H:%M:%S").to_string())
    };
    let (end, start) = (moment(end_s)?, end_s - 60);
    let row = format!(
        "7,7,alpha,vo1,ann,7,vo1,7,main,normal,COMPLETED,0:0,{start},{start},{start},{end_s},60,5,1,2,2,4G,cpu=2,cpu=2,n1,1,x"
    );
    let sacct = format!(
        r#"here=${{0%/*}} from= to=9
for word in "$@"; do
    case $before in -S) from=$word ;; -E) to=$word ;; -o) columns=$word ;; esac
    case $word in --delimiter=*) mark=${{word#*=}} ;; esac
    before=$word
done
echo "$from $to" >> $here/asked
echo "$columns" | sed "s/,/$mark/g"
[ -e $here/flushed ] || exit 0
[ "$(printf '%s\n' "$from" {end} "$to" | sort | sed -n 2p)" = {end} ] && echo {row} | sed "s/,/$mark/g"
exit 0"#
    );
    slurm_of(folder, Says::Counted, &sacct)
}

/// slurmctld keeps what it cannot tell slurmdbd, and tells it hours behind the first answer of `sacct`.
#[tokio::test]
async fn what_slurmdbd_hears_of_late_is_asked_for_again_whatever_days_lie_between()
-> anyhow::Result<()> {
    let (folder, day) = (tempfile::tempdir()?, 86_400);
    let folder = folder.path();
    let seen = now_ms() / 1_000 - 3 * day + 600;
    let mut feed = sacct_of(folder, seen + 3_600)?;
    let state = folder.join("slurm-feed.json");
    std::fs::write(&state, format!(r#"{{"sacct_until":{seen},"file":null}}"#))?;
    assert_eq!(feed.once().await?.finished, 0);
    let asked = || std::fs::read_to_string(folder.join("asked"));
    assert_eq!(asked()?.lines().count(), 3, "{}", asked()?);
    std::fs::write(folder.join("flushed"), "")?;
    assert_eq!(feed.once().await?.finished, 1);
    assert_eq!(asked()?.lines().count(), 4, "{}", asked()?);
    let cursor: Cursor = serde_json::from_slice(&std::fs::read(&state)?)?;
    assert_eq!(cursor.sacct_until, Some(seen + 3_600));
    assert_eq!(feed.once().await?.finished, 0);
    Ok(())
}

/// A day on which more ended than a command may say.
#[tokio::test]
async fn days_that_are_too_much_for_one_call_are_asked_for_in_pieces() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let sacct = r#"to=now
for word in "$@"; do
    case $before in -S) from=$word ;; -E) to=$word ;; esac
    before=$word
done
[ $(($(date -ud "$to" +%s) - $(date -ud "$from" +%s))) -le 10800 ] || exec yes
echo "$from $to" >> ${0%/*}/asked"#;
    let mut feed = slurm_of(folder, Says::Counted, sacct)?;
    let seen = now_ms() / 1_000 - 26 * 3_600;
    let state = folder.join("slurm-feed.json");
    std::fs::write(&state, format!(r#"{{"sacct_until":{seen},"file":null}}"#))?;
    assert_eq!(feed.once().await?.finished, 0);
    let asked = std::fs::read_to_string(folder.join("asked"))?;
    assert!((26..=27).contains(&asked.lines().count()), "{asked}");
    assert!(
        asked
            .lines()
            .last()
            .is_some_and(|line| line.ends_with("now")),
        "{asked}"
    );
    Ok(())
}

/// As `docs/guides/backup.md` says, behind a loss.
#[test]
fn a_cursor_can_be_written_by_hand() -> anyhow::Result<()> {
    let by_hand: Cursor = serde_json::from_str(r#"{"sacct_until": 1780000000}"#)?;
    let sacct_until = Some(1_780_000_000);
    assert_eq!(
        by_hand,
        Cursor {
            sacct_until,
            ..Cursor::default()
        }
    );
    Ok(())
}
