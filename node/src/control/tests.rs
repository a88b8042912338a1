//! A real node on loopback, asked over a real socket.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use axum::body::{Body, HttpBody as _};
use axum::response::Response;
use fairmesh_api::client::{AskError, Control, HOST};
use fairmesh_api::{AccountingBody, Answer, PriorityBody, ReportBody, StatusBody};
use fairmesh_model::{HistoryRule, SigningKey, WindowLength};
use fairmesh_policy::parse_tree;
use fairmesh_site::{IdentityMap, Pattern, Rule, SiteConfig};
use futures::FutureExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::task::JoinHandle;

use super::*;
use crate::driver::{NodeOptions, SystemClock, start};
use crate::network::NetworkConfig;
use crate::record_log::Keep;
use crate::refused::Refused;
use crate::sockets::{Slot, Slots, Trusted};

/// A user who is neither root nor the node nor a writer.
const STRANGER: u32 = 4_242;

type Parameters = &'static [(&'static str, Option<&'static str>)];

pub(crate) struct World {
    control: Control,
    path: PathBuf,
    pub(crate) options: ControlOptions,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    _settings: watch::Sender<ControlSettings>,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let secret = [7; 32];
        let options = NodeOptions {
            site: site_config(),
            secret,
            takes_over: None,
            network: NetworkConfig {
                listen: vec!["/ip4/127.0.0.1/tcp/0".parse().expect("an address")],
                ..NetworkConfig::default()
            },
            data_dir: dir.path().join("data"),
            clock: Arc::new(SystemClock::start()),
            observer: None,
            random: 1,
        };
        let running = start(options).await.expect("starts");
        let (settings, receiver) = watch::channel(ControlSettings {
            name: "here".to_owned(),
            ..ControlSettings::default()
        });
        let path = dir.path().join("control.sock");
        let log = RecordLog::open(dir.path(), Keep::default()).expect("a log");
        let serving = Serving::start(running.handle.clone(), ProjectionName::default, rests_on);
        let options = ControlOptions {
            node: running.handle.clone(),
            serving: serving.await.expect("the node answers"),
            site: SigningKey::from_secret(&secret).site_id(),
            listening: running.listening.iter().map(ToString::to_string).collect(),
            settings: receiver,
            lookups: None,
            records: Some(Arc::new(log)),
            refused: Arc::new(Refused::open(dir.path()).expect("a list")),
            limits: ControlLimits {
                body_idle_max: Duration::from_secs(5),
                ..ControlLimits::default()
            },
        };
        let server = bind(&path, options.clone()).await.expect("binds");
        let (stop, stopped) = watch::channel(false);
        Self {
            control: Control::new(path.clone()),
            path,
            options,
            stop,
            server: tokio::spawn(server.run(stopped)),
            _settings: settings,
            _dir: dir,
        }
    }

    pub(crate) async fn end(self) {
        self.stop.send_replace(true);
        self.server.await.expect("the server ends well");
        self.options.node.stop().await;
        assert!(!self.path.exists(), "the socket file stayed behind");
    }

    /// What somebody hears who is neither root nor the node nor a writer.
    async fn as_a_stranger(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let slots = Slots::new(self.options.limits.slots, Trusted::default());
        let slot = Slots::take(&slots, Some(STRANGER)).expect("a slot");
        let answer = self.answer_to(slot, method, path, body).await;
        let status = answer.status().as_u16();
        let text = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
        let text = text.expect("a body");
        (status, String::from_utf8_lossy(&text).into_owned())
    }

    /// What such a one is answered on a connection of his, not read yet.
    async fn answer_to(&self, slot: Slot, method: &str, path: &str, body: &str) -> Response {
        let uid = Some(STRANGER);
        let shared = Arc::new(Shared::new(self.options.clone()));
        let router = router(shared).layer(axum::Extension(access::Peer { uid }));
        let service = TowerToHyperService::new(router.layer(axum::Extension(Arc::new(slot))));
        let request = axum::http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", HOST);
        let request = request
            .body(Body::from(body.to_owned()))
            .expect("a request");
        service.call(request).await.expect("answers")
    }

    /// What comes back for raw bytes, with our side closed behind them.
    async fn raw(&self, bytes: Vec<u8>) -> String {
        let path = self.path.clone();
        let exchange = move || {
            let mut stream = UnixStream::connect(path).expect("connects");
            // The server may refuse before it has read everything.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::task::spawn_blocking(exchange)
            .await
            .expect("no panic")
    }
}

/// In this order by names, and `/bio-b` before `/bio/ann` by the bytes of paths.
const SHARES: &str = "[shares]\n\"/bio\" = 90\n\"/bio/ann\" = 50\n\"/bio/ann-b\" = 20\n\"/bio/bob\" = 30\n\"/bio-b\" = 10\n";

fn site_config() -> SiteConfig {
    let rule = Rule {
        account: Some(Pattern::parse("bio")),
        path: "/bio/{user}".to_owned(),
        ..Rule::default()
    };
    SiteConfig {
        share_rule: fairmesh_model::ShareRule::Weights,
        policy: parse_tree(SHARES, "test.toml")
            .and_then(|tree| tree.to_site_policy())
            .expect("shares"),
        vos: std::collections::BTreeMap::new(),
        identity: IdentityMap::new(vec![rule]),
        introducers: BTreeSet::new(),
        advert: None,
        forward: None,
        quotas: Default::default(),
        local_history: HistoryRule::None {
            horizon: 24 * 365 * 100,
        },
        local_window: WindowLength::HOUR,
        charging: fairmesh_site::Charging::default(),
        timing: Timing::default(),
    }
}

const RECORDS: &str = concat!(
    r#"{"cluster":"c","job":"1","user":"ann","account":"bio","start_ms":1700000000000,"end_ms":1700000060000,"cores":2}"#,
    "\n\nnonsense\n",
    r#"{"cluster":"c","job":"2","user":"eve","start_ms":1700000000000,"end_ms":1700000060000,"cores":1}"#,
    "\n",
    r#"{"cluster":"c","job":"3","user":"ann","start_ms":2,"end_ms":1,"cores":1}"#,
);

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_counted_once_and_bad_lines_stop_nothing() {
    let world = World::start().await;
    let post = async || -> ReportBody {
        let answer: Answer<ReportBody> = world
            .control
            .post("/v1/records", RECORDS.into())
            .await
            .expect("counts");
        assert_eq!(answer.schema, "fairmesh.report/1");
        answer.body
    };
    let first = post().await;
    assert_eq!(
        (first.read, first.counted, first.unmapped, first.refused),
        (4, 2, 1, 2)
    );
    assert_eq!(first.charge_core_ms, "180000");
    let lines: Vec<u64> = first.refusals.iter().map(|refusal| refusal.line).collect();
    assert_eq!(lines, [3, 5]);
    let second = post().await;
    assert_eq!((second.counted, second.known, second.refused), (0, 2, 2));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_read_changes_nothing_and_sees_no_single_job() {
    let world = World::start().await;
    let record = r#"{"format":"slurm-sacct","cluster":"c","job":"1","instance":7,"user":"ann","account":"bio","state":"completed","start":1700000000000,"end":1700000060000,"cpus":2}"#;
    let running = r#"{"cluster":"c","job":"1","user":"ann","start_ms":1,"end_ms":2,"cores":1,"running":true,"expected_end_ms":3}"#;
    let usage = RECORDS.lines().next().expect("a line");
    for (path, body) in [
        ("/v1/accounting", record),
        ("/v1/records", usage),
        ("/v1/running", running),
        ("/v1/running", ""),
        ("/v1/documents", "x"),
        ("/v1/slurm", "{}"),
        ("/v1/quota/hold", "{}"),
        ("/v1/quota/commit", "{}"),
        ("/v1/quota/release", "{}"),
        ("/v1/quota/drain", ""),
    ] {
        let (status, said) = world.as_a_stranger("POST", path, body).await;
        assert_eq!(status, 403, "{path}: {said}");
        assert!(said.contains("user 4242 may only read"), "{said}");
    }
    let (status, said) = world.as_a_stranger("GET", "/v1/accounting", "").await;
    assert_eq!(status, 403, "{said}");
    for (method, path, body) in [
        ("POST", "/v1/accounting?dry_run=true", record),
        ("GET", "/v1/accounting?totals=true", ""),
        ("GET", "/v1/status", ""),
    ] {
        let (status, said) = world.as_a_stranger(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {said}");
    }
    let log = world.options.records.as_ref().expect("a log");
    assert_eq!(log.stats().inserted, 0, "nothing was logged");
    let answer: Answer<AccountingBody> = world
        .control
        .post("/v1/accounting", record.into())
        .await
        .expect("counts");
    assert_eq!((answer.body.report.counted, log.stats().inserted), (1, 1));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_read_answers_with_its_schema_and_coverage() {
    let world = World::start().await;
    let (status, _): (Answer<StatusBody>, _) = world
        .control
        .get("/v1/status", &[("digests", Some("true"))])
        .await
        .expect("answers");
    assert_eq!(status.schema, "fairmesh.status/1");
    assert_eq!(status.body.node.name, "here");
    assert!(status.body.healthy, "{:?}", status.body.notices);
    for what in ["peers", "shares", "usage", "unmapped", "documents"] {
        let (answer, _): (Answer<serde_json::Value>, _) = world
            .control
            .get(&format!("/v1/{what}"), &[])
            .await
            .expect("answers");
        assert_eq!(answer.schema, format!("fairmesh.{what}/1"));
        assert_eq!(answer.rests_on.coverage.sites_total, 0);
    }
    let parameters = [("user", Some("ann")), ("account", Some("bio"))];
    let (priority, _): (Answer<PriorityBody>, _) = world
        .control
        .get("/v1/priority", &parameters)
        .await
        .expect("answers");
    assert_eq!(priority.body.account, "/bio/ann");
    let metrics = world
        .raw(b"GET /v1/metrics HTTP/1.1\r\nhost: fairmesh\r\n\r\n".to_vec())
        .await;
    assert!(
        metrics.contains("fairmesh_records_total{outcome=\"counted\"} 0"),
        "{metrics}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_in_words() {
    let world = World::start().await;
    let cases: [(&str, Parameters, u16); 7] = [
        ("/v1/nothing", &[], 404),
        ("/v1/records", &[], 405),
        ("/v1/priority", &[], 400),
        ("/v1/priority", &[("user", Some("nobody\x1b[2J"))], 404),
        ("/v1/usage", &[("voo", Some("x"))], 400),
        ("/v1/shares", &[("path", Some("a//b"))], 400),
        ("/v1/accounting", &[("by", Some("user,day,user"))], 400),
    ];
    for (path, parameters, expected) in cases {
        let asked = world
            .control
            .get::<serde_json::Value>(path, parameters)
            .await;
        let Err(AskError::Refused { status, error, .. }) = asked else {
            panic!("{path}: {asked:?}")
        };
        assert_eq!(status, expected, "{path}: {error}");
        assert!(!error.contains('\x1b'), "{error:?}");
    }
    let published =
        fairmesh_api::client::documents::publish(&world.control, b"no document".to_vec()).await;
    assert!(published.is_err(), "nonsense was published");
    let large = fairmesh_api::client::documents::publish(&world.control, vec![0; 5 << 20]).await;
    assert!(large.is_err(), "a document beyond the limit was taken");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lists_come_in_pages_to_who_asks_for_them() {
    let world = World::start().await;
    let users = ["ann", "ann-b", "bob", "cy", "dan"];
    let records: String = users
        .iter()
        .enumerate()
        .map(|(at, user)| {
            format!(
                "{{\"cluster\":\"c\",\"job\":\"{at}\",\"user\":\"{user}\",\"account\":\"bio\",\
                     \"start_ms\":1700000000000,\"end_ms\":1700000060000,\"cores\":2}}\n"
            )
        })
        .collect();
    let report: Answer<ReportBody> = world
        .control
        .post("/v1/records", records.into())
        .await
        .expect("counts");
    assert_eq!(report.body.counted, users.len() as u64);
    // Where the list is, and where the path of one of it is.
    for (asked, list, path) in [
        ("/v1/usage", "/ledgers/0/by_account", "id"),
        ("/v1/shares", "/entries", "path"),
    ] {
        let page = async |parameters: &[(&str, Option<&str>)]| -> (Vec<String>, Option<String>) {
            let answer = world.control.get::<serde_json::Value>(asked, parameters);
            let (answer, _) = answer.await.expect("answers");
            let listed = answer.pointer(list).and_then(|list| list.as_array());
            let listed = listed.expect("a list").iter();
            let listed = listed.map(|one| one[path].as_str().expect("a path").to_owned());
            let (above, _) = list.rsplit_once('/').expect("a path");
            let next = answer.pointer(above).expect("what has it")["next"].as_str();
            (listed.collect(), next.map(str::to_owned))
        };
        let (whole, next) = page(&[]).await;
        assert_eq!(next, None, "{asked}");
        assert!(whole.len() >= users.len(), "{asked}: {whole:?}");
        let (mut joined, mut after) = (Vec::new(), None);
        loop {
            let (listed, next) = page(&[("limit", Some("2")), ("after", after.as_deref())]).await;
            assert!(listed.len() <= 2, "{asked}: {listed:?}");
            joined.extend(listed);
            assert_eq!(
                next.as_ref(),
                joined.last().filter(|_| joined.len() < whole.len())
            );
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(joined, whole, "{asked}");
        let nothing = [("limit", Some("0"))];
        let refused = world
            .control
            .get::<serde_json::Value>(asked, &nothing)
            .await;
        assert!(
            matches!(&refused, Err(AskError::Refused { status: 400, error, .. }) if error.contains("limit")),
            "{asked}: {refused:?}"
        );
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_web_page_asks_or_reports_in_the_name_of_who_has_the_socket_carried_to_a_port() {
    let world = World::start().await;
    let post = |head: &str| {
        let (body, length) = (RECORDS, RECORDS.len());
        format!("POST /v1/records HTTP/1.1\r\n{head}content-length: {length}\r\n\r\n{body}")
    };
    // What a browser sends for another's page; for a name that was pointed here; what sends no name.
    for asked in [
        post("host: localhost:7681\r\norigin: https://evil.example\r\n"),
        post("host: fairmesh.evil.example:7681\r\n"),
        post("host: fairmesh:7681\r\n"),
        "GET /v1/usage HTTP/1.1\r\nhost: evil.example\r\n\r\n".to_owned(),
        "GET /nothing HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".to_owned(),
        "GET /v1/usage HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let said = world.raw(asked.clone().into_bytes()).await;
        let (head, body) = said.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(" 421 "), "{asked}: {said}");
        assert!(
            body.contains("http://fairmesh/v1/") && body.len() < 512,
            "{asked}: {said}"
        );
    }
    let said = world.raw(post("host: Fairmesh\r\n").into_bytes()).await;
    assert!(
        said.contains("\"counted\":2,"),
        "nothing of it was known: {said}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_http_costs_the_client_its_connection_and_nothing_else() {
    let world = World::start().await;
    let cut = b"POST /v1/records HTTP/1.1\r\nhost: fairmesh\r\ncontent-length: 1000\r\n\r\n{\"clu"
        .to_vec();
    let mut long_head = b"GET /v1/status HTTP/1.1\r\nx: ".to_vec();
    long_head.resize(100_000, b'x');
    let refused = world.raw(b"\x00\xff nonsense\r\n\r\n".to_vec()).await;
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    for bytes in [cut, long_head, b"GET /v1/st".to_vec(), Vec::new()] {
        let answer = world.raw(bytes).await;
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let long_line = vec![b'x'; 300_000];
    let answer: Answer<ReportBody> = world
        .control
        .post("/v1/records", long_line)
        .await
        .expect("answers");
    assert_eq!((answer.body.read, answer.body.refused), (1, 1));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_quota_is_a_job_runs_and_nothing_is_held() {
    let world = World::start().await;
    let asking = |account: &str, wall: u64| {
        serde_json::json!({
            "cluster": "c", "job": "1", "user": "ann", "account": account, "cores": 2, "wall_s": wall,
        })
    };
    let call = async |what: &str, body: &serde_json::Value| {
        let path = format!("/v1/quota/{what}");
        let body = serde_json::to_vec(body).expect("plain");
        world.control.post::<serde_json::Value>(&path, body).await
    };
    let held = call("hold", &asking("bio", 60)).await.expect("it runs");
    assert_eq!(held["schema"], "fairmesh.hold/1");
    assert_eq!(
        (&held["verdict"], &held["runs"]),
        (&"exempt".into(), &true.into())
    );
    assert_eq!(held["held_core_ms"], "0");
    for (what, account) in [("check", "bio"), ("check", "nobody"), ("hold", "nobody")] {
        let said = call(what, &asking(account, 60)).await.expect(account);
        assert_eq!(said["verdict"], "exempt", "{what} {account}");
    }
    let quotes = call("quote", &asking("bio", 60)).await.expect("a price");
    assert_eq!(quotes["quotes"][0]["charge_core_ms"], "120000");
    for (what, body, status) in [
        ("hold", asking("bio", 0), 400),
        ("check", asking("bio", 0), 400),
        ("hold", serde_json::json!({"job": "1"}), 400),
        ("release", asking("bio", 60), 422),
        (
            "commit",
            serde_json::json!({"cluster": "c", "job": "1", "charge_core_ms": 1}),
            422,
        ),
    ] {
        let refused = call(what, &body).await.expect_err(what);
        let is_it = matches!(&refused, AskError::Refused { status: is, .. } if *is == status);
        assert!(is_it, "{what}: {refused}");
    }
    let (quota, _): (serde_json::Value, _) = world
        .control
        .get("/v1/quota", &[])
        .await
        .expect("an answer");
    assert_eq!(quota["accounts"], serde_json::json!([]));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_read_his_answer_has_no_other_and_keeps_nobody_waiting() {
    let world = World::start().await;
    let slots = Slots::new(world.options.limits.slots, Trusted::default());
    let slot = |uid| Slots::take(&slots, Some(uid)).expect("a slot");
    let own = slot(STRANGER);
    let others = [4_243, 4_244].map(slot);
    for (method, path) in [
        ("GET", "/v1/shares"),
        ("GET", "/v1/usage"),
        ("GET", "/v1/quota/history"),
        ("GET", "/v1/metrics"),
        ("GET", "/v1/accounting?totals=true"),
        ("POST", "/v1/accounting?dry_run=true"),
    ] {
        let answer = world.answer_to(slot(STRANGER), method, path, "").await;
        assert_eq!(answer.status(), 200, "{path}");
        let turns = others.each_ref().map(|slot| slot.turn().now_or_never());
        assert!(turns.iter().all(Option::is_some), "{path}: others wait");
        drop(turns);
        assert!(own.turn().now_or_never().is_none(), "{path}: he has two");
        let length = answer.body().size_hint().exact();
        assert!(length.is_some(), "{path}: its length is said");
        drop(answer);
        assert!(own.turn().now_or_never().is_some(), "{path}: it is gone");
        let answer = world.answer_to(slot(STRANGER), method, path, "").await;
        let read = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
        assert!(!read.expect("a body").is_empty(), "{path}");
        assert!(own.turn().now_or_never().is_some(), "{path}: it is read");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_asks_for_no_more_properties_than_a_record_may_have() {
    let world = World::start().await;
    let properties = vec!["gpu"; 65];
    let job = serde_json::json!({"cpus": 1, "wall_s": 60, "properties": properties}).to_string();
    let (status, said) = world.as_a_stranger("POST", "/v1/place", &job).await;
    assert_eq!(status, 400, "{said}");
    assert!(said.contains("64 properties"), "{said}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_the_node_for_anything_before_his_turn() {
    let world = World::start().await;
    let slots = Slots::new(world.options.limits.slots, Trusted::default());
    let slot = |uid| Slots::take(&slots, Some(uid)).expect("a slot");
    for (method, path, expected) in [
        ("POST", "/v1/accounting?dry_run=true&at_site=zz", 404),
        ("POST", "/v1/accounting?dry_run=true", 200),
        ("GET", "/v1/accounting?totals=true", 200),
        ("GET", "/v1/quota", 200),
    ] {
        let others = [4_243, 4_244].map(slot);
        let turns = others.each_ref().map(|slot| slot.turn().now_or_never());
        let mut answer = std::pin::pin!(world.answer_to(slot(STRANGER), method, path, ""));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut answer).await;
        assert!(early.is_err(), "{path}: two others have the turns");
        drop(turns);
        assert_eq!(answer.await.status(), expected, "{path}");
    }
    world.end().await;
}

/// A job that began in 2023.
fn job_that_ends(end: &str) -> String {
    format!(
        "{{\"format\":\"slurm-sacct\",\"cluster\":\"c\",\"job\":\"9\",\"instance\":7,\"user\":\"ann\",\"account\":\"bio\",\
         \"state\":\"completed\",\"start\":1700000000000,\"end\":{end},\"cpus\":2}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_refused_for_good_is_listed_until_it_counts() {
    let world = World::start().await;
    let post = async |path: &str, body: String| -> ReportBody {
        let answer: Result<Answer<ReportBody>, _> = world.control.post(path, body.into()).await;
        answer.expect("answers").body
    };
    let status = async || -> StatusBody {
        let (status, _): (Answer<StatusBody>, _) =
            world.control.get("/v1/status", &[]).await.expect("answers");
        status.body
    };
    let listed = async || -> fairmesh_api::RefusedJobsBody {
        let (listed, _): (Answer<fairmesh_api::RefusedJobsBody>, _) = world
            .control
            .get("/v1/refused", &[])
            .await
            .expect("answers");
        listed.body
    };
    let wrong = job_that_ends("4102444800000");
    let first = post("/v1/accounting", wrong.clone()).await;
    assert_eq!(
        (first.refused, first.for_now, first.refused_again.len()),
        (1, 0, 0)
    );
    let second = post("/v1/accounting", wrong).await;
    assert_eq!(second.refused_again, BTreeSet::from([1]));
    let log = world.options.records.as_ref().expect("a log");
    assert_eq!(log.stats().inserted, 0, "it is not logged as if it counted");
    let job = listed().await.jobs.pop().expect("one");
    assert_eq!((job.job.as_str(), job.user.as_deref()), ("9", Some("ann")));
    assert!(job.reason.contains("ten years"), "{}", job.reason);
    let told = status().await;
    assert_eq!(told.refused.expect("one").count, 1);
    let notice = told
        .notices
        .iter()
        .find(|notice| notice.code == "records-refused");
    assert!(notice.expect("one").text.contains("refused 1 job since"));
    assert_eq!(
        accounting::retry::again(&Shared::new(world.options.clone()))
            .await
            .expect("tries"),
        0
    );
    let counted = post("/v1/accounting", job_that_ends("1700000060000")).await;
    assert_eq!(counted.counted, 1);
    assert!(listed().await.jobs.is_empty() && status().await.refused.is_none());
    let instalment = r#"{"cluster":"c","job":"5","user":"ann","start_ms":9,"end_ms":1,"cores":1,"running":true,"expected_end_ms":9}"#;
    for again in [BTreeSet::new(), BTreeSet::from([1])] {
        assert_eq!(
            post("/v1/running", instalment.to_owned())
                .await
                .refused_again,
            again
        );
    }
    assert_eq!(listed().await.jobs.len(), 1);
    post("/v1/running", String::new()).await;
    assert_eq!(listed().await.jobs, []);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_of_a_file_are_in_the_status_until_there_are_none() {
    let world = World::start().await;
    let post = async |file: &str, count: u32| {
        let body = format!(
            "{{\"file\":\"{file}\",\"count\":{count},\"since_ms\":1700000000000,\"reason\":\"no end\"}}"
        );
        let answer: Result<Answer<serde_json::Value>, _> =
            world.control.post("/v1/rejects", body.into()).await;
        answer
    };
    let notices = async || {
        let (status, _): (Answer<StatusBody>, _) =
            world.control.get("/v1/status", &[]).await.expect("answers");
        status.body.notices
    };
    for (count, words) in [(3, "3 rejects wait"), (1, "1 reject waits")] {
        post("/var/log/a.rejects", count).await.expect("takes it");
        let found = notices().await.pop().expect("one");
        assert_eq!(found.code, "rejects-wait");
        let text = format!(
            "{words} in /var/log/a.rejects since 2023-11-14T22:13:20Z; main reason: no end"
        );
        assert_eq!(found.text, text);
    }
    post("/var/log/a.rejects", 0).await.expect("takes it");
    assert_eq!(notices().await, []);
    assert!(post("a.rejects", 1).await.is_err());
    // If the node has seen a file, it sees that the file was removed.
    let folder = tempfile::tempdir().expect("a folder");
    let [seen, elsewhere] = ["seen", "elsewhere"].map(|name| folder.path().join(name));
    std::fs::write(&seen, "").expect("written");
    for file in [&seen, &elsewhere] {
        post(&file.display().to_string(), 1)
            .await
            .expect("takes it");
    }
    let listed = async || {
        world.options.refused.forget_removed().expect("written");
        notices().await.len()
    };
    assert_eq!(listed().await, 2);
    std::fs::remove_file(&seen).expect("removed");
    assert_eq!(
        listed().await,
        1,
        "the other file may be where the node sees nothing"
    );
    let (status, said) = world.as_a_stranger("POST", "/v1/rejects", "{}").await;
    assert_eq!(status, 403, "{said}");
    world.end().await;
}
