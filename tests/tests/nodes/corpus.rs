//! State that a released version stored is read by every later one: for each version a node that was stopped, and one as
//! a kill leaves it, whose last changes only its journal has.
//!
//! Invariant: an archive of a version that was released is never made anew.
//! `FAIRMESH_WRITE_CORPUS=NAME cargo test -p fairmesh-tests --test nodes corpus` makes the two of this version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use fairmesh_model::{
    AccountPath, HistoryRule, JobKey, Millis, Origin, Placement, SigningKey, SiteId, UsageRecord,
    VoId, WallTime, WindowLength,
};
use fairmesh_node::driver::{
    Clock as _, FastClock, NodeHandle, NodeOptions, Running, SystemClock, start,
};
use fairmesh_node::network::{Multiaddr, NetworkConfig};
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{IdentityMap, Pattern, Rule, SiteConfig};
use fairmesh_tests::Vo;
use tokio::time::{sleep, timeout};

/// The key of the site whose state is kept, and of the other member.
const SITE: [u8; 32] = [1; 32];
const OTHER: [u8; 32] = [2; 32];

/// How long a change may take to the other member.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn what_earlier_versions_have_stored_is_read_and_counts_on() -> anyhow::Result<()> {
    if let Ok(name) = std::env::var("FAIRMESH_WRITE_CORPUS") {
        store(&name).await?;
    }
    let mut archives: Vec<PathBuf> = corpus()
        .read_dir()?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    archives.sort();
    ensure!(archives.len() >= 2, "the archives are missing");
    for archive in archives {
        let read = timeout(PATIENCE, is_read(&archive)).await;
        read?.map_err(|error| error.context(archive.display().to_string()))?;
    }
    Ok(())
}

/// Starts on what an archive holds: everything is there, what was acknowledged is known, and what is new counts.
async fn is_read(archive: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    tar(&["-xzf", path(archive)?, "-C", path(folder.path())?])?;
    let vo: VoId = std::fs::read_to_string(folder.path().join("vo"))?.parse()?;
    // The node runs at the time of its state, whenever the test does.
    let then = WallTime(std::fs::read_to_string(folder.path().join("then"))?.parse()?);
    let data = folder.path().join("data");
    let node = site(SITE, &data, then, vo, Vec::new()).await?;
    let hour = 3_600_000;
    let stored = usage(&node.handle, vo).await?;
    ensure!(
        stored == [("/ann", 3 * hour), ("/bob", 5 * hour)].map(owned).into(),
        "{stored:?}"
    );
    let entries = node.handle.ask(|site, _| site.compiled().entries.len());
    ensure!(entries.await? == 3, "the VO, and its two users");
    let again = node.handle.report(reported(then)).await?;
    ensure!((again.counted, again.known) == (0, 2), "{again:?}");
    let new = node.handle.report(vec![job(then, 7, "ann", 2)]).await?;
    ensure!(new.counted == 1, "{new:?}");
    let counted = usage(&node.handle, vo).await?;
    ensure!(counted["/ann"] == 5 * hour, "{counted:?}");
    stop(node).await
}

/// What one site and another count, of which the first one's folder is kept: as it is, and when it has stopped.
async fn store(name: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let members = [SITE, OTHER].map(|secret| SigningKey::from_secret(&secret).site_id());
    let sites = [(members[0], "here"), (members[1], "there")];
    let founded = Vo::found("physics", &sites, &["ann", "bob"])?;
    let (vo, then) = (founded.vo(), SystemClock::start().now().wall);
    std::fs::write(folder.path().join("vo"), vo.to_string())?;
    std::fs::write(folder.path().join("then"), then.0.to_string())?;
    let here = site(SITE, &data, then, vo, Vec::new()).await?;
    let introducer = vec![(members[0], here.listening.clone())];
    let other = folder.path().join("other");
    let there = site(OTHER, &other, then, vo, introducer).await?;
    for document in founded.documents() {
        let published = here.handle.publish(document.to_vec(), "the test").await?;
        published.map_err(anyhow::Error::msg)?;
    }
    let reported_there = async {
        // Before its charter has come, usage of the VO is no usage.
        while there
            .handle
            .ask(|site, _| site.compiled().entries.len())
            .await?
            < 3
        {
            sleep(Duration::from_millis(20)).await;
        }
        there.handle.report(vec![job(then, 1, "bob", 3)]).await?;
        while usage(&here.handle, vo).await?.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    timeout(PATIENCE, reported_there).await??;
    here.handle.report(reported(then)).await?;
    archive(folder.path(), &format!("{name}-killed"))?;
    stop(here).await?;
    // A start takes into the store what only the journal had.
    stop(site(SITE, &data, then, vo, Vec::new()).await?).await?;
    archive(folder.path(), &format!("{name}-stopped"))?;
    stop(there).await
}

async fn stop(node: Running) -> anyhow::Result<()> {
    node.handle.stop().await;
    node.driver.await??;
    Ok(())
}

/// A node whose clock stands at `then`, on a folder that it has or makes.
async fn site(
    secret: [u8; 32],
    data_dir: &Path,
    then: WallTime,
    vo: VoId,
    peers: Vec<(SiteId, Vec<Multiaddr>)>,
) -> anyhow::Result<Running> {
    let mount = AccountPath::parse("/physics")?;
    let rule = |user: &str| Rule {
        user: Some(Pattern::Exact(user.to_owned())),
        vo: Some(vo),
        path: format!("/{user}"),
        ..Rule::default()
    };
    let introducers = [SITE, OTHER].map(|secret| SigningKey::from_secret(&secret).site_id());
    let site = SiteConfig {
        share_rule: fairmesh_model::ShareRule::Weights,
        policy: SitePolicy::new(
            [(
                mount,
                SiteEntry::mounted(fairmesh_model::Weight::HUNDRED, "physics"),
            )]
            .into(),
        )?,
        vos: [("physics".to_owned(), vo)].into(),
        identity: IdentityMap::new(["ann", "bob"].map(rule).into()),
        introducers: introducers.into(),
        advert: None,
        forward: None,
        quotas: Default::default(),
        local_history: HistoryRule::default(),
        local_window: WindowLength::HOUR,
        charging: Default::default(),
        timing: fairmesh_site::Timing {
            publish: Millis(50),
            sync: Millis(500),
            ..Default::default()
        },
    };
    start(NodeOptions {
        site,
        secret,
        takes_over: None,
        network: NetworkConfig {
            listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?],
            peers,
            allow_private: true,
            ..NetworkConfig::default()
        },
        data_dir: data_dir.to_owned(),
        clock: Arc::new(FastClock::new(then, 1_000)),
        observer: None,
        random: 7,
    })
    .await
}

/// What the site itself reports before its state is kept.
fn reported(then: WallTime) -> Vec<UsageRecord> {
    vec![job(then, 1, "ann", 3), job(then, 2, "bob", 2)]
}

/// A job of one core that ran so many hours, and ended an hour ago.
fn job(then: WallTime, number: u64, user: &str, hours: u64) -> UsageRecord {
    let end = then.before(Millis::from_secs(3_600));
    UsageRecord {
        key: JobKey {
            cluster: "cluster".to_owned(),
            job: number.to_string(),
            instance: 0,
        },
        origin: Origin {
            user: Some(user.to_owned()),
            ..Origin::default()
        },
        start: end.before(Millis::from_secs(hours * 3_600)),
        end,
        cores: 1,
        gpus: 0,
        mem_mib: 0,
        placement: Placement::default(),
        running: false,
    }
}

/// Core-milliseconds of each account.
async fn usage(node: &NodeHandle, vo: VoId) -> anyhow::Result<BTreeMap<String, u64>> {
    let accounts = node.ask(move |site, _| site.usage_by_account(Some(vo)));
    let accounts = accounts.await?.into_iter();
    Ok(accounts
        .map(|(path, counters)| (path.to_string(), counters.cpu_ms))
        .collect())
}

fn owned((path, usage): (&str, u64)) -> (String, u64) {
    (path.to_owned(), usage)
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn archive(folder: &Path, name: &str) -> anyhow::Result<()> {
    let to = corpus().join(format!("{name}.tar.gz"));
    tar(&[
        "-czf",
        path(&to)?,
        "-C",
        path(folder)?,
        "data",
        "vo",
        "then",
    ])
}

fn tar(arguments: &[&str]) -> anyhow::Result<()> {
    ensure!(Command::new("tar").args(arguments).status()?.success());
    Ok(())
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().ok_or_else(|| anyhow::anyhow!("no UTF-8"))
}
