use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use fairmesh_client::protocol::{FRAME_BYTES_MAX, Reply, Status, decode_reply, split_frame};
use fairmesh_client::{Client, ClientError, Roster};
use fairmesh_model::{ContentHash, Millis, WallTime, Window};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::sockets::BindError;

const PATIENCE: Duration = Duration::from_secs(20);

/// Users `u0`, `u1` … up to a number; the factor is the number of the user plus an offset.
struct Users {
    known: u32,
    offset: u32,
    generation: u64,
}

impl LookupSnapshot for Users {
    fn resolve(&self, who: &Who<'_>) -> Option<u32> {
        let Who::Names(names) = who else { return None };
        let number: u32 = names.user?.strip_prefix('u')?.parse().ok()?;
        (number < self.known).then_some(number)
    }

    fn factor(&self, entry: u32) -> Option<u32> {
        (entry < self.known).then(|| entry + self.offset)
    }

    fn view(&self) -> View {
        View {
            as_of: WallTime(1),
            age: Millis(2),
            sites_known: 3,
            sites_total: 4,
            reference_window: Window(5),
            digest: ContentHash::of(b"view"),
            flags: View::ALONE,
            generation: 0,
            ranking: 7,
            step: 250_000_000,
        }
    }

    fn generation(&self) -> u64 {
        self.generation
    }
}

struct Source(Mutex<Arc<Users>>);

impl LookupSource for Source {
    type Snapshot = Users;

    fn snapshot(&self) -> Arc<Users> {
        Arc::clone(&self.0.lock().expect("no test panics with it"))
    }
}

/// A running server; what blocks runs in the test's own thread.
struct World {
    runtime: tokio::runtime::Runtime,
    source: Arc<Source>,
    stats: Arc<LookupStats>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl World {
    fn start(config: LookupConfig) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("lookup.sock");
        let runtime = runtime();
        let users = Users {
            known: 100,
            offset: 7,
            generation: 1,
        };
        let source = Arc::new(Source(Mutex::new(Arc::new(users))));
        let bound = LookupServer::bind(&path, Arc::clone(&source), config);
        let server = runtime.block_on(bound).expect("the path is free");
        let (stop, stopped) = watch::channel(false);
        Self {
            stats: server.stats(),
            server: runtime.spawn(server.run(stopped)),
            runtime,
            source,
            stop,
            path,
            _dir: dir,
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.path, PATIENCE).expect("the server listens")
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    fn stop(self) {
        self.stop.send(true).expect("the server runs");
        self.runtime
            .block_on(self.server)
            .expect("the server ends well");
        assert!(!self.path.exists(), "the socket file goes with the server");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Everything up to the end of the stream.
fn read_to_end(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A server that closes with something unread resets the stream; what came before counts.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

fn refusal(bytes: &[u8]) -> Status {
    let (body, used) = split_frame(bytes)
        .expect("a good frame")
        .expect("a whole frame");
    assert_eq!(used, bytes.len(), "one answer and no more");
    let Reply { outcome, .. } = decode_reply(body).expect("a good answer");
    outcome.expect_err("a refusal").0
}

#[test]
fn names_are_answered_in_order_with_the_view() {
    let world = World::start(LookupConfig::default());
    let mut client = world.client();
    let asked = [
        Who::user_account("u3", "a"),
        Who::Path("/x"),
        Who::user_account("u0", "b"),
    ];
    let answer = client.lookup(&asked).expect("answered");
    assert_eq!(
        answer.factors().collect::<Vec<_>>(),
        [Some(10), None, Some(7)]
    );
    assert_eq!(
        (answer.view.generation, answer.view.flags),
        (1, View::ALONE)
    );
    assert!(
        client
            .lookup(&[])
            .expect("asks for the view alone")
            .is_empty()
    );
    world.stop();
}

#[test]
fn a_roster_outlives_a_change_of_generation() {
    let world = World::start(LookupConfig::default());
    let mut client = world.client();
    let mut roster = Roster::new(&[Who::user_account("u1", "a"), Who::user_account("u200", "a")])
        .expect("good names");
    for _ in 0..2 {
        let answer = client.lookup_roster(&mut roster).expect("answered");
        assert_eq!(answer.factors().collect::<Vec<_>>(), [Some(8), None]);
    }
    let newer = Users {
        known: 300,
        offset: 0,
        generation: 2,
    };
    *world.source.0.lock().expect("not poisoned") = Arc::new(newer);
    let answer = client.lookup_roster(&mut roster).expect("answered");
    assert_eq!(answer.factors().collect::<Vec<_>>(), [Some(1), Some(200)]);

    let mut second = world.client();
    let answer = second
        .lookup_roster(&mut roster)
        .expect("handles are not used across connections");
    assert_eq!(answer.len(), 2);
    assert_eq!(
        world.stats.refused.load(Ordering::Relaxed),
        1,
        "the stale handles"
    );
    world.stop();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let world = World::start(LookupConfig::default());
    let mut client = world.client();
    for number in 0..50 {
        let user = format!("u{number}");
        client.send(&[Who::user_account(&user, "a")]).expect("sent");
    }
    for number in 0..50 {
        assert_eq!(
            client.receive().expect("answered").factor(0),
            Some(number + 7)
        );
    }
    assert!(matches!(client.receive(), Err(ClientError::NothingSent)));
    world.stop();
}

#[test]
fn a_full_batch_is_answered() {
    let world = World::start(LookupConfig::default());
    let mut client = world.client();
    let asked = vec![Who::user_account("u5", "an-account-name"); 65_536];
    let answer = client.lookup(&asked).expect("answered");
    assert_eq!(answer.len(), 65_536);
    assert!(answer.factors().all(|factor| factor == Some(12)));
    world.stop();
}

#[test]
fn one_user_cannot_take_every_connection() {
    let config = LookupConfig {
        slots: SlotLimits {
            all: 9,
            reserved: 3,
            of_one: 2,
        },
        trusted: Trusted::new(|_| false),
        ..LookupConfig::default()
    };
    let world = World::start(config);
    let (mut first, mut second) = (world.client(), world.client());
    first.lookup(&[]).expect("within the limit");
    second.lookup(&[]).expect("within the limit");
    assert_eq!(refusal(&read_to_end(&mut world.raw())), Status::Busy);
    first.lookup(&[]).expect("not disturbed");

    drop(second);
    // The place is free as soon as the server has seen the end of the stream.
    let freed = (0..10_000).any(|_| world.client().lookup(&[]).is_ok());
    assert!(freed);
    world.stop();
}

#[test]
fn however_long_the_names_are_that_users_choose_everybody_is_asked_for() {
    let world = World::start(LookupConfig::default());
    let person = |number: u32| {
        let long = Some(format!("{number:0>512}"));
        fairmesh_schedulers::sync::Person {
            user: format!("u{}", number % 100),
            account: long.clone(),
            group: Some("users".to_owned()),
            queue: long.clone(),
            qos: long,
        }
    };
    let people: Vec<_> = (0..9_000).map(person).collect();
    let asked = fairmesh_schedulers::sync::factors(&world.path, people);
    let (factors, _) = world.runtime.block_on(asked).expect("in parts");
    assert_eq!(factors.len(), 9_000);
    assert!(factors.values().all(Option::is_some));
    world.stop();
}

#[test]
fn bad_frames_cost_only_their_sender() {
    let world = World::start(LookupConfig::default());
    let mut good = world.client();
    let too_large = u32::try_from(FRAME_BYTES_MAX + 1)
        .expect("small")
        .to_be_bytes();
    let cases: [(&[u8], Status); 4] = [
        (&[0, 0, 0, 1, 0xff], Status::Malformed),
        (&[0, 0, 0, 0], Status::Malformed),
        (&[0, 0, 0, 5, 0xa2, 1, 9, 2, 1], Status::Version),
        (&too_large, Status::TooLarge),
    ];
    for (bytes, status) in cases {
        let mut raw = world.raw();
        raw.write_all(bytes).expect("taken");
        assert_eq!(refusal(&read_to_end(&mut raw)), status);
        good.lookup(&[]).expect("not disturbed");
    }
    assert_eq!(world.stats.refused.load(Ordering::Relaxed), 4);
    world.stop();
}

#[test]
fn half_sent_frames_and_idle_clients_are_sent_away() {
    let short = Duration::from_millis(30);
    let config = LookupConfig {
        frame_deadline: short,
        ..LookupConfig::default()
    };
    let world = World::start(config);
    let mut raw = world.raw();
    raw.write_all(&[0, 0, 0]).expect("taken");
    assert!(read_to_end(&mut raw).is_empty(), "closed without an answer");
    world.stop();

    let config = LookupConfig {
        idle_max: short,
        ..LookupConfig::default()
    };
    let world = World::start(config);
    assert!(
        read_to_end(&mut world.raw()).is_empty(),
        "closed without an answer"
    );
    world.stop();
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let short = Duration::from_millis(30);
    let config = LookupConfig {
        frame_deadline: short,
        ..LookupConfig::default()
    };
    let world = World::start(config);
    let asked = vec![Who::user_account("u5", "a"); 60_000];
    let names = fairmesh_client::protocol::NameBlockBuf::of(&asked).expect("rows");
    let mut frame = Vec::new();
    let request = fairmesh_client::protocol::Request {
        id: 1,
        want: fairmesh_client::protocol::Want::FactorsAndHandles,
        accounts: fairmesh_client::protocol::Accounts::Names(names.as_block()),
    };
    fairmesh_client::protocol::encode_request(&mut frame, &request).expect("fits");
    let mut raw = world.raw();
    // Sooner or later the server no longer reads, gives up, and the pipe breaks.
    let cut = (0..1_000).any(|_| raw.write_all(&frame).is_err());
    assert!(cut);
    world.stop();
}

#[test]
fn stopping_lets_clients_know() {
    let world = World::start(LookupConfig::default());
    let mut client = world.client();
    client.lookup(&[]).expect("answered");
    world.stop();
    assert!(client.lookup(&[]).is_err());
    assert!(client.is_broken());
    assert!(matches!(client.lookup(&[]), Err(ClientError::Broken)));
}

#[test]
fn the_socket_replaces_only_what_is_dead() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("lookup.sock");
    let users = Users {
        known: 1,
        offset: 0,
        generation: 1,
    };
    let source = Arc::new(Source(Mutex::new(Arc::new(users))));
    let runtime = runtime();
    let config = LookupConfig {
        mode: 0o660,
        ..LookupConfig::default()
    };
    let bind = || {
        runtime.block_on(LookupServer::bind(
            &path,
            Arc::clone(&source),
            config.clone(),
        ))
    };

    std::fs::write(&path, "precious").expect("written");
    assert!(matches!(bind(), Err(BindError::NotASocket(_))));
    std::fs::remove_file(&path).expect("removed");

    drop(UnixListener::bind(&path).expect("bound"));
    assert!(path.exists(), "a stale socket");
    let server = bind().expect("the stale one is replaced");
    let mode = std::fs::metadata(&path)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    assert!(matches!(bind(), Err(BindError::Served(_))));
    assert!(path.exists(), "the living one is left alone");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn what_was_asked_before_is_asked_anew_in_another_generation() {
    let world = World::start(LookupConfig::default());
    let mut client = world.client();
    let asked = [
        Who::user_account("u1", "a"),
        Who::user_account("u200", "a"),
        Who::user_account("u1", "a"),
    ];
    for _ in 0..2 {
        let answer = client.lookup(&asked).expect("answered");
        let factors: Vec<_> = answer.factors().collect();
        assert_eq!(factors, [Some(8), None, Some(8)]);
    }
    let later = Users {
        known: 300,
        offset: 9,
        generation: 2,
    };
    *world.source.0.lock().expect("no test panics with it") = Arc::new(later);
    let answer = client.lookup(&asked).expect("answered");
    let factors: Vec<_> = answer.factors().collect();
    assert_eq!(factors, [Some(10), Some(209), Some(10)]);
    world.stop();
}
