//! `fairmesh run`: a node for real, until it is told to stop; and `fairmesh check-config`.
//!
//! SIGTERM and SIGINT publish what is pending, close the store and end. SIGHUP reads the
//! configuration again and says what was applied, what needs a restart and what was rejected; a
//! configuration that is rejected changes nothing. systemd hears when the node is ready, reloads
//! and stops, and is fed its watchdog for as long as the site answers.
//!
//! Invariant: the sockets are made when the site answers, and gone before the store is closed. A signal is seen
//! whatever is stuck.

mod files;
mod private;
mod reload;

use std::io::Write;
use std::num::NonZero;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use fairmesh_api::finding::Finding;
use fairmesh_model::SiteId;
use fairmesh_node::config::Config;
use fairmesh_node::control::{ControlLimits, ControlOptions, ControlSettings};
use fairmesh_node::driver::{
    NodeHandle, NodeOptions, NodeTask, Running, Starting, SystemClock, start_or_show,
};
use fairmesh_node::log::say;
use fairmesh_node::lookup::{LookupConfig, LookupServer};
use fairmesh_node::network::NetworkConfig;
use fairmesh_node::page::PageServer;
use fairmesh_node::privacy::{Access, VisibilityResolver};
use fairmesh_node::record_log::RecordLog;
use fairmesh_node::refused::Refused;
use fairmesh_node::serve::Serving;
use fairmesh_node::sockets::TURNS;
use fairmesh_node::store::StoreError;
use fairmesh_node::users::{Uids, uids};
use fairmesh_node::{control, log};
use futures::FutureExt as _;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::doctor;
use crate::init::load_key;
use crate::output::Exit;
use crate::schedulers;

/// A start that takes longer says so, and again each time it has taken so long.
const START_QUIET: Duration = Duration::from_secs(5);

/// How much longer systemd waits for a start that gets on, in microseconds: two minutes.
const START_MORE_US: u32 = 120_000_000;

/// Threads of the look-ups at the most: a batch takes one of them for a fraction of a millisecond.
const LOOKUP_THREADS_MAX: usize = 4;

// What the commands are about is said with their names (`cli`).
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Take over the data folder of the site with this id, whose key was replaced
    #[arg(long, value_name = "OLD-ID")]
    take_over: Option<SiteId>,
}

/// Which configuration.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/fairmesh/fairmesh.toml"
    )]
    config: PathBuf,
}

/// Runs `check-config`. The file is judged alike everywhere; what a machine lacks counts only where the site's
/// key can be read, which is on the site's own.
pub(crate) fn check_config(args: &ConfigArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let config = Config::load(&args.config)?;
    let key = doctor::key_of(&config)?;
    let site = key.as_ref().map(|key| format!(" ({})", key.site_id()));
    writeln!(out, "{}: valid", args.config.display())?;
    writeln!(out, "site     {}{}", config.name, site.unwrap_or_default())?;
    writeln!(out, "listens  {}", words(&config.listen))?;
    writeln!(out, "look-ups {}", config.sockets.lookup.display())?;
    writeln!(out, "control  {}", config.sockets.control.display())?;
    if let Some(page) = &config.page {
        let who = match page.listen.ip().is_loopback() {
            true => "all users of this machine",
            false => "whoever can reach that address",
        };
        writeln!(out, "page     http://{}/ for {who}", page.listen)?;
    }
    for (alias, vo) in &config.vos {
        writeln!(out, "VO       {alias} ({vo})")?;
    }
    if let Some(file) = &config.people_file {
        let people = config.identity.people().rows().len();
        writeln!(out, "people   {people} in {}", file.display())?;
    }
    let found = doctor::of_config(&config, key.is_some());
    for finding in &found {
        let (severity, code) = (&finding.severity, &finding.code);
        writeln!(out, "{severity}: {} [{code}]", finding.text)?;
    }
    Ok(match found.iter().any(Finding::needs_somebody) {
        false => Exit::Success,
        true => Exit::Failure,
    })
}

/// The signals that a node obeys. A SIGHUP that comes before the node runs waits until it does.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn take() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until somebody wants the node to end.
    async fn end(terminate: &mut Signal, interrupt: &mut Signal) {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// Runs a node.
pub(crate) async fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    let config = Config::load(&args.config.config)?;
    // Before anybody can be told that the node is there: a reload right behind that would end it.
    let mut signals = Signals::take()?;
    private::guard(&config)?;
    let key = load_key(&config.key_file)?;
    let site = key.site_id();
    let options = NodeOptions {
        site: config.to_site_config(),
        secret: key.to_secret(),
        takes_over: args.take_over,
        network: NetworkConfig {
            listen: config.listen.clone(),
            peers: config.peer_addresses(),
            limits: files::provide(&config),
            ..NetworkConfig::default()
        },
        data_dir: config.data_dir.clone(),
        clock: Arc::new(SystemClock::start()),
        observer: None,
        random: random()?,
    };
    let running = start(options, private::place_of_copies(&config), &mut signals).await?;
    tracing::info!(%site, name = config.name, "the node runs");
    let settings = settings_of(&config, Default::default()).await?;
    let (settings_sender, settings) = watch::channel(settings);
    let (stop_sender, stop) = watch::channel(false);
    let records = open_records(&config, &running).await?;
    let servers =
        start_servers(&config, &running, site, (settings, records.clone()), &stop).await?;
    say(&format!(
        "fairmesh: site {} ({site}) listens on {}",
        config.name,
        words(&running.listening)
    ));
    let loops = schedulers::loops(&config);
    notify(&[
        sd_notify::NotifyState::Ready,
        sd_notify::NotifyState::Status("running"),
    ]);
    let Running {
        handle, mut driver, ..
    } = running;
    let ended = serve(
        Arc::new(config),
        (&handle, &mut driver),
        signals,
        &settings_sender,
        records.as_deref(),
    );
    let ended = ended.await;
    notify(&[sd_notify::NotifyState::Stopping]);
    loops.end().await;
    stop_sender.send_replace(true);
    for server in servers {
        server.await?;
    }
    if let Some(ended) = ended {
        let ended = ended?;
        if let Err(StoreError::Writable(_)) = &ended {
            return Err(start_anew());
        }
        ended.context("the store failed, and the node with it: start it again")?;
        return Err(anyhow!("the node ended by itself"));
    }
    tracing::info!("stopping: publishing what is pending");
    handle.stop().await;
    driver.await??;
    Ok(Exit::Success)
}

/// Starts the node on a thread of its own: a start waits for the disk, and whoever wants it to end is to be heard.
async fn start(
    options: NodeOptions,
    copies: Option<PathBuf>,
    signals: &mut Signals,
) -> anyhow::Result<Running> {
    let starting = Starting::default();
    let patience = tokio::spawn(say_that_it_starts(starting.clone()));
    let (runtime, told) = (tokio::runtime::Handle::current(), starting.clone());
    let start = move || runtime.block_on(start_or_show(options, copies, &told).boxed_local());
    let running = tokio::select! {
        running = tokio::task::spawn_blocking(start) => running?,
        () = Signals::end(&mut signals.terminate, &mut signals.interrupt) => leave(&starting),
    };
    patience.abort();
    running
}

/// Ends a node that is not there yet. Nothing was taken, so there is nothing to be told or written; what the disk is
/// asked for may never come, and returning would wait for it.
fn leave(starting: &Starting) -> ! {
    tracing::info!("stopping while the node {starting}");
    log::finish();
    std::process::exit(0)
}

/// Becomes a node that has just been started, with the same arguments. Returns why it could not.
fn start_anew() -> anyhow::Error {
    tracing::info!("the disk may be written again: the node starts anew");
    log::finish();
    let mut again = std::process::Command::new("/proc/self/exe");
    let error = again.args(std::env::args_os().skip(1)).exec();
    anyhow::Error::new(error).context("the disk may be written again: start the node anew")
}

/// Reports the stage and the progress of a long start, in the log and to systemd, until it is aborted. A start that makes
/// progress has no time limit; a stage that cannot be counted has the time that the unit gives it.
async fn say_that_it_starts(starting: Starting) {
    let began = std::time::Instant::now();
    let mut known = 0;
    loop {
        tokio::time::sleep(START_QUIET).await;
        let s = began.elapsed().as_secs();
        let status = format!("starting for {s} s: {starting}");
        // In the log: the first line on stdout is where the node listens.
        tracing::info!("{status}");
        notify(&[sd_notify::NotifyState::Status(&status)]);
        let told = starting.told();
        if std::mem::replace(&mut known, told) != told {
            notify(&[sd_notify::NotifyState::ExtendTimeoutUsec(START_MORE_US)]);
        }
    }
}

/// The log of job records, if one is kept, and may be written. Opening it waits for the disk.
async fn open_records(
    config: &Config,
    running: &Running,
) -> anyhow::Result<Option<Arc<RecordLog>>> {
    let Some(keep) = config.records.filter(|_| !running.is_read_only) else {
        return Ok(None);
    };
    let (folder, believed) = (config.data_dir.clone(), running.handle.believed());
    let opened = move || RecordLog::open_by(&folder, keep, believed);
    let opened = tokio::task::spawn_blocking(opened).await?;
    Ok(Some(Arc::new(opened?)))
}

/// The list of what was refused; in memory where the folder may not be written. Opening it waits for the disk.
async fn open_refused(config: &Config, is_read_only: bool) -> anyhow::Result<Arc<Refused>> {
    let folder = config.data_dir.clone();
    let opened = move || match is_read_only {
        true => Refused::in_memory(),
        false => Refused::open(&folder),
    };
    Ok(Arc::new(tokio::task::spawn_blocking(opened).await??))
}

/// Starts the servers of the two sockets, and of the page where it is wanted.
async fn start_servers(
    config: &Config,
    running: &Running,
    site: SiteId,
    (settings, records): (watch::Receiver<ControlSettings>, Option<Arc<RecordLog>>),
    stop: &watch::Receiver<bool>,
) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let wanted = settings.clone();
    let projection = move || wanted.borrow().projection;
    let serving = Serving::start(running.handle.clone(), projection, control::rests_on).await?;
    let lookup_config = LookupConfig {
        mode: config.sockets.lookup_mode,
        slots: config.sockets.lookup_slots,
        trusted: control::trusted(&settings),
        resolver: Some(VisibilityResolver::new(control::current_access(&settings))),
        ..LookupConfig::default()
    };
    let (threads, socket) = (lookup_threads()?, config.sockets.lookup.clone());
    let source = serving.clone();
    let bound = async move { LookupServer::bind(&socket, source, lookup_config).await };
    let lookup = threads.spawn(bound.boxed()).await??;
    let options = ControlOptions {
        node: running.handle.clone(),
        serving,
        site,
        listening: running.listening.iter().map(ToString::to_string).collect(),
        settings,
        lookups: Some(lookup.stats()),
        records,
        refused: open_refused(config, running.is_read_only).await?,
        limits: ControlLimits {
            slots: config.sockets.control_slots,
            ..ControlLimits::default()
        },
    };
    let control = control::bind(&config.sockets.control, options).await?;
    let mut servers = Vec::new();
    if let Some(settings) = &config.page {
        let bound = PageServer::bind(settings, &control).await;
        let bound = bound.with_context(|| format!("page.listen: {}", settings.listen))?;
        tracing::info!(address = %bound.address()?, "the share page is served");
        servers.push(tokio::spawn(bound.run(stop.clone()).boxed()));
    }
    servers.push(threads.spawn(lookup.run(stop.clone()).boxed()));
    servers.push(tokio::spawn(control.run(stop.clone()).boxed()));
    Ok(servers)
}

/// Threads of the look-ups' own, for as long as the program runs: what else the node has to do, as handshakes of
/// strangers, keeps an answer waiting no longer than the kernel lets it. One more than users can keep busy with all
/// that they may ask at once.
fn lookup_threads() -> std::io::Result<&'static Runtime> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("look-ups")
        .worker_threads(threads.clamp(TURNS + 1, LOOKUP_THREADS_MAX))
        .enable_all()
        .build()?;
    Ok(Box::leak(Box::new(runtime)))
}

/// Waits for signals, until one says that the node is to end; what the node says where it ends by itself.
async fn serve(
    started: Arc<Config>,
    (handle, driver): (&NodeHandle, &mut NodeTask),
    mut signals: Signals,
    settings: &watch::Sender<ControlSettings>,
    records: Option<&RecordLog>,
) -> Option<<NodeTask as Future>::Output> {
    let mut current = Arc::clone(&started);
    let watchdog = feed_watchdog(handle);
    let end = Signals::end(&mut signals.terminate, &mut signals.interrupt);
    tokio::pin!(watchdog, end);
    loop {
        tokio::select! {
            ended = &mut *driver => return Some(ended),
            () = &mut end => return None,
            () = &mut watchdog => {}
            _ = signals.hang_up.recv() => {
                notify(&[sd_notify::NotifyState::Reloading]);
                // A node that is stuck takes no configuration, and can be ended all the same.
                let reloaded = tokio::select! {
                    reloaded = reload::run(&started, &current, handle, settings) => reloaded,
                    () = &mut end => return None,
                    // A directory of users that is away takes its time.
                    () = &mut watchdog => continue,
                };
                match reloaded {
                    Ok(reloaded) => {
                        if let (Some(log), Some(keep)) = (records, reloaded.records) {
                            log.keep(keep);
                        }
                        // A large one is not dropped on the task that feeds the watchdog.
                        let before = std::mem::replace(&mut current, reloaded);
                        tokio::task::spawn_blocking(move || drop(before));
                    }
                    Err(error) => reload::reject(&error, settings),
                }
                notify(&[sd_notify::NotifyState::Ready]);
            }
        }
    }
}

/// Feeds systemd's watchdog, for ever: only a site that answers is alive.
async fn feed_watchdog(handle: &NodeHandle) {
    let mut watchdog = tokio::time::interval(watchdog_interval());
    loop {
        watchdog.tick().await;
        if handle.ask(|site, _| site.id()).await.is_ok() {
            notify(&[sd_notify::NotifyState::Watchdog]);
        } else {
            std::future::pending::<()>().await;
        }
    }
}

/// What the configuration says to the sockets, with whom of the writers and readers was `known`.
async fn settings_of(config: &Config, known: [Uids; 2]) -> anyhow::Result<ControlSettings> {
    let users = [config.sockets.writers.clone(), config.readers.clone()];
    let asked = tokio::task::spawn_blocking(move || {
        let [writers, readers] = [0, 1].map(|of| uids(&users[of], &known[of]));
        (writers, readers)
    });
    let ((writers, no_writers), (readers, no_readers)) = asked.await?;
    for name in no_writers.into_iter().chain(no_readers) {
        tracing::warn!(
            user = name,
            "a writer or reader in the configuration is no user of this machine, or the directory of users is away"
        );
    }
    Ok(ControlSettings {
        name: config.name.clone(),
        access: Arc::new(Access {
            writers,
            readers,
            privacy: Arc::new(config.privacy.clone()),
        }),
        timing: config.timing,
        vos: config
            .vos
            .iter()
            .map(|(alias, vo)| (*vo, alias.clone()))
            .collect(),
        charge_rule: config.charge_rule.clone(),
        projection: config.projection,
        rejected: None,
        feeds: schedulers::feeds(config),
    })
}

fn words(items: &[impl ToString]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn random() -> anyhow::Result<u64> {
    getrandom::u64().map_err(|error| anyhow!("no randomness: {error}"))
}

/// Half of what systemd allows; a minute where there is no watchdog.
fn watchdog_interval() -> Duration {
    sd_notify::watchdog_enabled().map_or(Duration::from_secs(60), |allowed| allowed / 2)
}

/// Tells systemd, if it is there. It is no reason to stop that it is not.
fn notify(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd was not told");
    }
}
