//! A node whose store is lost: what it had acknowledged and published to nobody is still there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fairmesh_model::{
    AccountPath, ChargingRule, Charter, Distance, HistoryRule, JobKey, MemberSite, Millis, Origin,
    Role, Signed, SigningKey, UsageMode, VoId, WallTime, Weight, WindowLength,
};
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{Estimate, IdentityMap, Pattern, Rule, SiteConfig, Timing};

use super::*;
use crate::network::NetworkConfig;

mod pushes;

const SECRET: [u8; 32] = [7; 32];
const JOBS: u64 = 50;

/// A VO that this site is alone in.
fn charter(now: WallTime) -> Signed<Charter> {
    let authority = SigningKey::from_secret(&[9; 32]);
    let charter = Charter {
        version: 1,
        vo: None,
        previous: None,
        name: "grid".to_owned(),
        issued: now,
        expires: now.after(Millis::from_secs(86_400 * 365)),
        authority: Role::single(authority.key_id()),
        policy: Role::single(authority.key_id()),
        sites: vec![MemberSite {
            site: SigningKey::from_secret(&SECRET).site_id(),
            name: "here".to_owned(),
            cores: 1_000,
            gpus: None,
            mem_gib: None,
            addresses: Vec::new(),
        }],
        window: WindowLength::HOUR,
        history: HistoryRule::default(),
        usage_mode: UsageMode::Active,
        charging: ChargingRule::CpuTime,
        discounts: fairmesh_model::Discounts::NONE,
        distance: Distance::Absolute,
        readers: Default::default(),
        snapshot: None,
    };
    Signed::sign(charter, &[&authority]).expect("a valid charter")
}

fn site_config(vo: VoId) -> SiteConfig {
    let path = |text| AccountPath::parse(text).expect("a valid path");
    let rule = |account, vo, path: &str| Rule {
        account: Some(Pattern::parse(account)),
        vo,
        path: path.to_owned(),
        ..Rule::default()
    };
    let entries = BTreeMap::from([
        (path("/local"), SiteEntry::local(Weight::whole(1))),
        (path("/grid"), SiteEntry::mounted(Weight::whole(1), "grid")),
    ]);
    SiteConfig {
        policy: SitePolicy::new(entries).expect("a valid tree"),
        share_rule: fairmesh_model::ShareRule::Weights,
        vos: BTreeMap::from([("grid".to_owned(), vo)]),
        identity: IdentityMap::new(vec![
            rule("grid", Some(vo), "/{user}"),
            rule("local", None, "/local/{user}"),
        ]),
        introducers: BTreeSet::new(),
        advert: None,
        forward: None,
        quotas: Default::default(),
        local_history: HistoryRule::default(),
        local_window: WindowLength::HOUR,
        charging: fairmesh_site::Charging::default(),
        timing: Timing {
            publish: Millis::from_secs(3_600),
            ..Timing::default()
        },
    }
}

async fn node(data_dir: &Path, vo: VoId) -> NodeHandle {
    node_with(data_dir, vo, NetworkConfig::default()).await
}

async fn node_with(data_dir: &Path, vo: VoId, network: NetworkConfig) -> NodeHandle {
    let started = start(options(data_dir, vo, network)).await;
    started.expect("starts").handle
}

fn options(data_dir: &Path, vo: VoId, network: NetworkConfig) -> NodeOptions {
    NodeOptions {
        site: site_config(vo),
        secret: SECRET,
        takes_over: None,
        network,
        data_dir: data_dir.to_owned(),
        clock: Arc::new(SystemClock::start()),
        observer: None,
        random: 1,
    }
}

/// Ended jobs of one second on one core, half of them in the VO and half at the site.
fn jobs(end: WallTime) -> Vec<UsageRecord> {
    let job = |number: u64| UsageRecord {
        key: JobKey {
            cluster: "c".to_owned(),
            job: number.to_string(),
            instance: 0,
        },
        origin: Origin {
            user: Some("ann".to_owned()),
            account: Some(["grid", "local"][usize::from(number % 2 == 1)].to_owned()),
            ..Origin::default()
        },
        start: end.before(Millis(1_000)),
        end,
        cores: 1,
        gpus: 0,
        mem_mib: 0,
        placement: fairmesh_model::Placement::default(),
        running: false,
    };
    (0..JOBS).map(job).collect()
}

/// Core-milliseconds in the VO and at the site itself.
async fn usage(node: &NodeHandle, vo: VoId) -> [u64; 2] {
    let sum = move |site: &Site, _| {
        [Some(vo), None].map(|vo| {
            let by_account = site.usage_by_account(vo);
            by_account.values().map(|counters| counters.cpu_ms).sum()
        })
    };
    node.ask(sum).await.expect("runs")
}

fn flip(store: &Path) {
    let path = store.join("db");
    let mut bytes = std::fs::read(&path).expect("there");
    bytes
        .iter_mut()
        .skip(64)
        .step_by(97)
        .for_each(|byte| *byte ^= 0x10);
    std::fs::write(path, bytes).expect("written");
}

fn cut(store: &Path) {
    let data = std::fs::File::options().write(true).open(store.join("db"));
    let data = data.expect("there");
    let length = data.metadata().expect("there").len();
    data.set_len(length / 2).expect("cut");
}

fn remove(store: &Path) {
    std::fs::remove_dir_all(store).expect("removed");
}

/// Copies a folder of a node that may be running: sled's own files come and go.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("there").flatten() {
        let path = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_files(&entry.path(), &path);
        } else if let Err(error) = std::fs::copy(entry.path(), path) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

async fn publish(node: &NodeHandle, charter: &Signed<Charter>) {
    let published = node.publish(charter.bytes().to_vec(), "a test").await;
    published.expect("runs").expect("is adopted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_lost_again_and_again_loses_and_doubles_nothing() {
    let mut dir = tempfile::tempdir().expect("a folder");
    let clock = SystemClock::start();
    let end = clock.now().wall;
    let charter = charter(end);
    let vo = charter.vo();
    let expected = [JOBS / 2 * 1_000; 2];
    let mut running = node(dir.path(), vo).await;
    publish(&running, &charter).await;
    let reported = running.report(jobs(end)).await.expect("runs");
    assert_eq!(reported.counted, JOBS);
    for lose in [flip, cut, remove, flip] {
        // What a power loss would leave now: nothing was published yet.
        let copy = tempfile::tempdir().expect("a folder");
        copy_files(dir.path(), copy.path());
        running.stop().await;
        dir = copy;
        lose(&dir.path().join("store"));
        running = node(dir.path(), vo).await;
        assert_eq!(usage(&running, vo).await, expected, "without the charter");
        let again = running.report(jobs(end)).await.expect("runs");
        assert_eq!((again.counted, again.known), (0, JOBS));
        publish(&running, &charter).await;
        assert_eq!(usage(&running, vo).await, expected, "kept by a new start");
    }
    assert_eq!(usage(&running, vo).await, expected);
    running.stop().await;
}

/// A node that has the charter of its VO, and a moment at which jobs may have ended.
async fn founded() -> (tempfile::TempDir, WallTime, VoId, NodeHandle) {
    let dir = tempfile::tempdir().expect("a folder");
    let end = SystemClock::start().now().wall;
    let charter = charter(end);
    let running = node(dir.path(), charter.vo()).await;
    publish(&running, &charter).await;
    (dir, end, charter.vo(), running)
}

/// How many of them a report would count.
async fn would_count(node: &NodeHandle, jobs: Vec<UsageRecord>) -> usize {
    let estimates = node.estimate(jobs).await.expect("runs");
    let counted = estimates
        .iter()
        .filter(|of| matches!(of, Estimate::Counted { .. }));
    counted.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_knows_what_is_counted_wherever_its_mark_is() {
    let (dir, end, vo, running) = founded().await;
    let (mut first, second) = (jobs(end), jobs(end));
    let rest = first.split_off(first.len() / 2).len();
    assert_eq!(would_count(&running, second.clone()).await, second.len());
    running.report(first).await.expect("runs");
    assert_eq!(
        would_count(&running, second.clone()).await,
        rest,
        "behind the store"
    );
    running.stop().await;
    let running = node(dir.path(), vo).await;
    assert_eq!(would_count(&running, second).await, rest, "in the store");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_many_things_leaves_the_nodes_task_in_between() {
    let (_dir, _, _, running) = founded().await;
    let slices = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&slices);
    let slow = move |_: &Site, _, some: &mut dyn Iterator<Item = u32>| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let slowly = some.inspect(|_| std::thread::sleep(Duration::from_millis(1)));
        slowly.collect()
    };
    let all: Vec<u32> = (0..40).collect();
    let answers = running.ask_of_each(all.clone(), slow).await.expect("runs");
    assert_eq!(answers, all);
    let slices = slices.load(std::sync::atomic::Ordering::Relaxed);
    assert!(slices > 8, "{slices}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_does_not_wait_for_a_round_of_long_questions() {
    const ASKERS: usize = 4;
    let (_dir, end, _, running) = founded().await;
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let askers: Vec<_> = (0..ASKERS)
        .map(|_| {
            let (running, asked) = (running.clone(), Arc::clone(&asked));
            tokio::spawn(async move {
                let long = |_: &Site, _| std::thread::sleep(Duration::from_millis(10));
                while running.ask(long).await.is_ok() {
                    asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            })
        })
        .collect();
    for job in jobs(end).into_iter().take(5) {
        let before = asked.load(std::sync::atomic::Ordering::Relaxed);
        running.report(vec![job]).await.expect("runs");
        let between = asked.load(std::sync::atomic::Ordering::Relaxed) - before;
        assert!(between <= 2 * ASKERS, "{between} questions came before it");
    }
    askers.iter().for_each(tokio::task::JoinHandle::abort);
    running.stop().await;
}

#[tokio::test]
async fn commands_and_the_network_are_taken_in_turn() {
    let (to_commands, mut commands) = mpsc::channel(8);
    let (to_network, mut network) = mpsc::channel(8);
    for _ in 0..4 {
        let asked = to_commands.send(Command::Ask(Box::new(|_, _, _| ())));
        asked.await.expect("room");
    }
    let peer = SigningKey::from_secret(&SECRET).site_id();
    for _ in 0..2 {
        let event = NetworkEvent::Connected(peer);
        to_network.send(event).await.expect("room");
    }
    let mut was_of_network = false;
    let mut order = String::new();
    while let Some(arrived) = waiting(&mut (&mut commands, &mut network), was_of_network) {
        was_of_network = matches!(arrived, Arrived::Network(_));
        order.push(if was_of_network { 'n' } else { 'c' });
    }
    assert_eq!(order, "ncnccc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_that_waits_for_the_disk_keeps_nobody_else_waiting() {
    let (_dir, end, _, running) = founded().await;
    let mut was_answered = false;
    // Once in a second the driver looks at its disk itself, and waits for it.
    for _ in 0..20 {
        let stored = running.stored.clone();
        let (held, is_held) = oneshot::channel();
        let (free, is_free) = std::sync::mpsc::channel::<()>();
        let holds = tokio::task::spawn_blocking(move || {
            let _disk = stored.0.write().expect("no panic");
            held.send(()).expect("the test waits");
            is_free.recv().expect("the test says so");
        });
        is_held.await.expect("held");
        let mut asking = std::pin::pin!(would_count(&running, jobs(end)));
        assert!(futures::poll!(&mut asking).is_pending());
        // The question behind it.
        let asked = tokio::time::timeout(Duration::from_secs(1), running.ask(|_, _| ()));
        tokio::select! {
            count = &mut asking => panic!("{count} were read from a disk that is held"),
            answered = asked => was_answered = answered.is_ok(),
        }
        free.send(()).expect("it waits");
        holds.await.expect("no panic");
        assert_eq!(asking.await as u64, JOBS);
        if was_answered {
            break;
        }
    }
    assert!(was_answered, "the node's task waits for the disk");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_on_a_folder_is_refused_and_writes_nothing_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let vo = charter(SystemClock::start().now().wall).vo();
    let running = node(dir.path(), vo).await;
    let side = || std::fs::read(dir.path().join("site.state")).expect("there");
    let before = side();
    let second = start(options(dir.path(), vo, NetworkConfig::default())).await;
    let refused = second.err().expect("it is in use").to_string();
    assert!(refused.contains("store"), "{refused}");
    assert_eq!(side(), before);
    running.stop().await;
}

#[test]
fn of_configurations_that_wait_for_room_the_last_is_taken_whatever_else_waits() {
    let vo = charter(WallTime(0)).vo();
    let config = |local_window| {
        let config = SiteConfig {
            local_window,
            ..site_config(vo)
        };
        Arrived::Command(Command::Reconfigure(Box::new(config)))
    };
    let quarter = WindowLength::from_millis(900_000).expect("a window");
    let mut later = VecDeque::new();
    room::keep_for_later(&mut later, config(WindowLength::HOUR));
    for _ in 0..5_000 {
        room::keep_for_later(&mut later, Arrived::Timer);
    }
    room::keep_for_later(&mut later, config(quarter));
    let windows = later.iter().filter_map(|of| match of {
        Arrived::Command(Command::Reconfigure(config)) => Some(config.local_window),
        _ => None,
    });
    assert_eq!(windows.collect::<Vec<_>>(), [quarter]);
    assert!(later.len() < 2_000, "{}", later.len());
}
