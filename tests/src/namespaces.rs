//! Network namespaces with one bridge between them, for tests in which the network is bad.
//!
//! Invariant: nothing leaves the namespaces, and they go when dropped.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;

/// Namespaces with one bridge between them; gone when dropped.
#[derive(Debug)]
pub struct Namespaces {
    name: String,
    sites: usize,
}

/// Calls `ip` with these words.
fn ip(words: &str) -> anyhow::Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output()?;
    ensure!(output.status.success(), "ip {words}: {output:?}");
    Ok(())
}

impl Namespaces {
    /// So many; `None` where this user may not make any.
    ///
    /// # Errors
    /// If one cannot be made as it should be.
    pub fn make(sites: usize) -> anyhow::Result<Option<Self>> {
        // Tests of one process run side by side.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let name = format!("fm{process}-{number}");
        let made = Self { name, sites };
        let name = &made.name;
        if ip(&format!("netns add {name}-b")).is_err() {
            return Ok(None);
        }
        ip(&format!("-n {name}-b link add bridge0 type bridge"))?;
        ip(&format!("-n {name}-b link set bridge0 up"))?;
        ip(&format!("-n {name}-b link add bridge1 type bridge"))?;
        ip(&format!("-n {name}-b link set bridge1 up"))?;
        for site in 0..sites {
            let of = made.of(site);
            ip(&format!("netns add {of}"))?;
            ip(&format!(
                "link add veth0 netns {of} type veth peer name s{site} netns {name}-b"
            ))?;
            ip(&format!("-n {name}-b link set s{site} master bridge0 up"))?;
            ip(&format!("-n {of} addr add {}/24 dev veth0", host(site)))?;
            // What the card would cut up into packets has any size on the way.
            ip(&format!("-n {of} link set veth0 gso_max_segs 1 up"))?;
            ip(&format!("-n {of} link set lo up"))?;
        }
        Ok(Some(made))
    }

    /// The name of a site's namespace.
    pub fn of(&self, site: usize) -> String {
        format!("{}-{site}", self.name)
    }

    /// In a site's namespace, all of 10.99.0.0/16 takes what is sent to it and answers nothing.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn bury(&self, site: usize) -> anyhow::Result<()> {
        let of = self.of(site);
        ip(&format!(
            "-n {of} neigh add 10.77.0.250 lladdr 02:00:00:00:00:01 nud permanent dev veth0"
        ))?;
        ip(&format!("-n {of} route add 10.99.0.0/16 via 10.77.0.250"))
    }

    /// What a site sends to an address vanishes from now on, or arrives again.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn block(&self, site: usize, address: &str, on: bool) -> anyhow::Result<()> {
        let of = self.of(site);
        ip(&format!(
            "-n {of} neigh replace 10.77.0.250 lladdr 02:00:00:00:00:01 nud permanent dev veth0"
        ))?;
        let change = if on { "replace" } else { "del" };
        ip(&format!(
            "-n {of} route {change} {address}/32 via 10.77.0.250"
        ))
    }

    /// Moves a site to the other bridge, so that it reaches only the sites there, or back.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn part(&self, site: usize, on: bool) -> anyhow::Result<()> {
        let bridge = if on { "bridge1" } else { "bridge0" };
        ip(&format!(
            "-n {}-b link set s{site} master {bridge}",
            self.name
        ))
    }

    /// From now on, what a site sends and is sent vanishes without a notice.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn cut(&self, site: usize) -> anyhow::Result<()> {
        ip(&format!("-n {}-b link set s{site} nomaster", self.name))
    }

    /// From now on, larger packets of a site and to it vanish without a notice.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn limit_packets(&self, site: usize, bytes: u16) -> anyhow::Result<()> {
        ip(&format!("-n {}-b link set s{site} mtu {bytes}", self.name))
    }

    /// Ends a cut. The site has another address from now on, so that nothing of before reaches it or comes from it, as
    /// behind a power failure.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn come_back_at(&self, site: usize, address: &str) -> anyhow::Result<()> {
        let of = self.of(site);
        ip(&format!("-n {of} addr flush dev veth0"))?;
        ip(&format!("-n {of} addr add {address}/24 dev veth0"))?;
        ip(&format!(
            "-n {}-b link set s{site} master bridge0",
            self.name
        ))
    }
}

/// A program in a namespace where these files are the system's.
pub fn with_files(namespace: &str, resolv: &Path, hosts: &Path, program: &Path) -> Command {
    let script = "mount --bind \"$1\" /etc/resolv.conf && mount --bind \"$2\" /etc/hosts && shift 2 && exec \"$@\"";
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace, "sh", "-c", script, "sh"])
        .args([resolv, hosts])
        .arg(program);
    command
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let bridge = format!("{}-b", self.name);
        for name in (0..self.sites).map(|site| self.of(site)).chain([bridge]) {
            // It may not have been made.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// The address of a site.
pub fn host(site: usize) -> String {
    format!("10.77.0.{}", site + 1)
}
