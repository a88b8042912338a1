//! What a changed file means for a node that runs: what SIGHUP applies, and what needs a restart.
//!
//! Invariant: every difference between two configurations is in exactly one of the two lists, so
//! that a reload is never silently partial. Deliberately not here: applying it.

use super::Config;

/// The differences between two configurations, by key.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Reload {
    /// What can be applied at once.
    pub applied: Vec<String>,
    /// What stays as it was until the node is started anew.
    pub needs_restart: Vec<String>,
}

impl Config {
    /// Compares what runs with what the file says now.
    pub fn diff(old: &Self, new: &Self) -> Reload {
        let mut reload = Reload::default();
        let (live, restart) = (&mut reload.applied, &mut reload.needs_restart);
        let note = |list: &mut Vec<String>, changed: bool, key: &str| {
            if changed {
                list.push(key.to_owned());
            }
        };
        note(restart, old.name != new.name, "site.name");
        note(restart, old.data_dir != new.data_dir, "site.data_dir");
        note(restart, old.key_file != new.key_file, "site.key_file");
        note(restart, old.listen != new.listen, "network.listen");
        note(live, old.peers != new.peers, "network.peers");
        let (was, is) = (&old.sockets, &new.sockets);
        note(restart, was.lookup != is.lookup, "sockets.lookup");
        note(restart, was.control != is.control, "sockets.control");
        note(
            restart,
            old.sockets.lookup_mode != new.sockets.lookup_mode,
            "sockets.lookup_mode",
        );
        note(
            restart,
            old.sockets.lookup_slots != new.sockets.lookup_slots,
            "sockets.lookup_connections",
        );
        note(
            restart,
            old.sockets.control_slots != new.sockets.control_slots,
            "sockets.control_connections",
        );
        note(
            live,
            old.sockets.writers != new.sockets.writers,
            "sockets.writers",
        );
        note(live, old.privacy != new.privacy, "privacy");
        note(live, old.readers != new.readers, "privacy.readers");
        note(restart, old.page != new.page, "page");
        note(live, old.vos != new.vos, "vos");
        note(live, old.policy != new.policy, "shares");
        note(live, old.policy_file != new.policy_file, "policy_file");
        note(live, old.identity != new.identity, "identity");
        note(live, old.history != new.history, "history");
        // Local usage is stored by window: other windows need another ledger.
        note(restart, old.window != new.window, "history.window");
        note(live, old.charging != new.charging, "charging");
        // The Slurm feed holds a copy for jobs that run, and is told of below.
        note(live, old.charge_rule != new.charge_rule, "charging.states");
        note(live, old.advert != new.advert, "advert");
        note(live, old.forward != new.forward, "forward");
        note(live, old.quotas != new.quotas, "quota");
        note(live, old.timing != new.timing, "timing");
        let is_other = old.projection != new.projection;
        note(live, is_other, "order.projection");
        let kept = |config: &Self| config.records.is_some();
        note(restart, kept(old) != kept(new), "records.enabled");
        let both = kept(old) && kept(new);
        note(live, both && old.records != new.records, "records");
        note(restart, old.slurm != new.slurm, "slurm");
        note(restart, old.gridengine != new.gridengine, "gridengine");
        note(restart, old.condor != new.condor, "condor");
        note(restart, old.pbs != new.pbs, "pbs");
        note(restart, old.lsf != new.lsf, "lsf");
        reload
    }
}
