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

/// What the node heard: path and body of each request.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

/// A node whose record log is full, or not.
fn node(folder: &std::path::Path, is_full: bool) -> anyhow::Result<(Control, Heard)> {
    node_with_past(folder, is_full, &["{}"])
}

/// A node that says this of its VOs, one after the other, and goes on with the last.
fn node_with_past(
    folder: &std::path::Path,
    is_full: bool,
    past: &'static [&'static str],
) -> anyhow::Result<(Control, Heard)> {
    let asked = Arc::new(AtomicUsize::new(0));
    let socket = folder.join("control.sock");
    let listener = tokio::net::UnixListener::bind(&socket)?;
    let heard = Heard::default();
    let hears = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (hears, asked) = (Arc::clone(&hears), Arc::clone(&asked));
            let answer = service_fn(move |request: Request<Incoming>| {
                let (hears, asked) = (Arc::clone(&hears), Arc::clone(&asked));
                async move {
                    let path = request.uri().path().to_owned();
                    if path == "/v1/status" {
                        let at = asked.fetch_add(1, Ordering::Relaxed).min(past.len() - 1);
                        let words = format!(r#"{{"vos":[{}]}}"#, past[at]);
                        return Ok(Response::new(Full::new(Bytes::from(words))));
                    }
                    let body = request.into_body().collect().await.expect("a body");
                    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                    let lines = body.lines().count();
                    let refuses = is_full && path == "/v1/accounting";
                    hears.lock().expect("whole").push((path, body));
                    let (status, words) = match refuses {
                        true => (
                            503,
                            r#"{"error":"the record log failed: no room"}"#.to_owned(),
                        ),
                        false => (200, format!(r#"{{"read":{lines},"counted":{lines}}}"#)),
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

/// A batch system that says of the same jobs, again and again, that they have ended.
struct Ended(Vec<BatchRecord>);

impl Scheduler for Ended {
    const NAME: &'static str = "pretended";
    const NUMBER: &'static str = "number";

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
    Feed::new(Ended(jobs), settings, control)
}

fn paths(heard: &Heard) -> Vec<String> {
    let heard = heard.lock().expect("whole");
    heard.iter().map(|(path, _)| path.clone()).collect()
}

#[tokio::test]
async fn where_the_log_fails_usage_is_reported_all_the_same_and_the_cursor_stays()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (control, heard) = node(folder.path(), true)?;
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
async fn what_was_acknowledged_is_not_sent_again_unless_it_changes() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (control, heard) = node(folder.path(), false)?;
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

/// The cursor was lost with the data folder, and its marks of jobs; peers gave back what had been counted.
#[tokio::test]
async fn without_a_cursor_a_feed_begins_where_the_counters_end_that_came_back() -> anyhow::Result<()>
{
    let folder = tempfile::tempdir()?;
    let past = [
        r#"{"past_known":false}"#,
        r#"{"past_known":false}"#,
        r#"{"past_known":true,"recovered_until_ms":1795238190400},{"past_known":true}"#,
    ];
    let (control, heard) = node_with_past(folder.path(), false, Box::leak(Box::new(past)))?;
    let mut later = job(2);
    later.end = Some(WallTime::from_unix_secs(END + 1));
    let mut feed = feed(folder.path(), vec![job(1), later], control);
    assert_eq!(
        feed.look().await?.0.len(),
        1,
        "it waits until the node knows"
    );
    assert_eq!(feed.once().await?.finished, 1);
    let told = heard.lock().expect("whole")[0].1.clone();
    assert!(told.contains(r#""job":"2""#), "{told}");
    let kept: Cursor = state::load(&folder.path().join("cursor.json"))?.expect("a cursor");
    assert_eq!(kept, Cursor::behind(Some(END)));
    Ok(())
}

#[test]
fn what_of_a_running_job_came_back_is_not_reported_again() {
    let job = Job {
        state: State::Running,
        start: Some(END - 7_200),
        used: 10_000,
        limit: Some(20_000),
        ..Job::default()
    };
    let list = |counted_until| {
        let cursor = Cursor::behind(counted_until);
        let rule = ChargeRule::default();
        let listed = running(&rule, std::slice::from_ref(&job), "alpha", &cursor).remove(0);
        let times = [listed.record.start, listed.record.end, listed.expected_end];
        times.map(|at| at.0 / 1_000)
    };
    let (end, expected) = (END + 2_800, END + 12_800);
    assert_eq!(list(None), [END - 7_200, end, expected]);
    assert_eq!(list(Some(END)), [END, end, expected]);
    assert_eq!(list(Some(END + 5_000)), [end, end, expected], "nothing yet");
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
