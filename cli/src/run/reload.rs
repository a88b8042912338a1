//! SIGHUP: the configuration, the share tree and the people map, read again while the node runs.
//!
//! Invariant: the files are read and compared on a thread of their own, so the watchdog is fed however large they
//! are; a configuration that is rejected changes nothing, and `status` reports it until one is taken. Deliberately
//! not here: which changes need a restart (`Config::diff`).

use std::sync::Arc;

use fairmesh_node::config::{Config, Reload};
use fairmesh_node::control::ControlSettings;
use fairmesh_node::driver::NodeHandle;
use fairmesh_site::SiteConfig;
use tokio::sync::watch;

use super::{say, settings_of};

/// What the files came to.
struct Loaded {
    config: Arc<Config>,
    site: SiteConfig,
    changes: Reload,
}

/// Reads the configuration again and applies what can be applied while the node runs. What needs a
/// restart is said in relation to what the node was `started` with, until it is restarted.
pub(super) async fn run(
    started: &Arc<Config>,
    current: &Arc<Config>,
    handle: &NodeHandle,
    settings: &watch::Sender<ControlSettings>,
) -> anyhow::Result<Arc<Config>> {
    let (at_start, before) = (Arc::clone(started), Arc::clone(current));
    let loaded = tokio::task::spawn_blocking(move || load(&at_start, &before));
    let Loaded {
        config,
        site,
        changes,
    } = loaded.await??;
    handle.reconfigure(site).await?;
    handle.know_peers(config.peer_addresses()).await?;
    let known = {
        let settings = settings.borrow();
        [&settings.access.writers, &settings.access.readers].map(Clone::clone)
    };
    settings.send_replace(ControlSettings {
        name: started.name.clone(),
        ..settings_of(&config, known).await?
    });
    if changes == Reload::default() {
        say("reload: nothing has changed");
    }
    for change in changes.applied {
        say(&format!("reload: applied: {change}"));
    }
    for change in changes.needs_restart {
        say(&format!("reload: needs a restart: {change}"));
    }
    Ok(config)
}

/// Reports a rejected configuration: the whole error in the log, and in `status` without the wrong line.
pub(super) fn reject(error: &anyhow::Error, settings: &watch::Sender<ControlSettings>) {
    let text = format!("{error:#}");
    say(&format!("reload: rejected, nothing changed: {text}"));
    let first = text.lines().next().unwrap_or_default().to_owned();
    settings.send_modify(|settings| settings.rejected = Some(first));
}

fn load(started: &Config, current: &Config) -> anyhow::Result<Loaded> {
    let config = Config::load(&started.file)?;
    let needs_restart = Config::diff(started, &config).needs_restart;
    let mut applied = Config::diff(current, &config).applied;
    applied.retain(|change| !needs_restart.contains(change));
    Ok(Loaded {
        site: config.to_site_config(),
        config: Arc::new(config),
        changes: Reload {
            applied,
            needs_restart,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_people_map_is_read_again_and_a_bad_one_is_refused_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        write(
            "fairmesh.toml",
            "people = \"people.csv\"\n[site]\nname = \"s\"\n",
        );
        write("people.csv", "user,path\nann,/ann\n");
        let file = folder.path().join("fairmesh.toml");
        let started = Config::load(&file).expect("valid");
        assert_eq!(started.identity.people().rows().len(), 1);
        let same = load(&started, &started).expect("valid");
        assert_eq!(same.changes, Reload::default());
        write("people.csv", "user,path\nann,/ann\nbob,/bob\n");
        let changed = load(&started, &started).expect("valid");
        assert_eq!(changed.changes.applied, ["people"]);
        write("people.csv", "user,path\nann,/ann\nann,/bob\n");
        let error = load(&started, &started).err().expect("a user twice");
        let text = format!("{error:#}");
        assert!(
            text.contains("people.csv:3:1: `user`: the row of line 2"),
            "{text}"
        );
    }
}
