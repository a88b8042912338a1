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
        let (was, is) = (&old.sockets, &new.sockets);
        let people_differ =
            old.people_file != new.people_file || old.identity.people() != new.identity.people();
        let kept = |config: &Self| config.records.is_some();
        let records_differ = kept(old) && kept(new) && old.records != new.records;
        // Told in windows, so it goes with these.
        let history =
            |with_window| old.history != new.history && (old.window != new.window) == with_window;
        let applied = [
            ("network.peers", old.peers != new.peers),
            ("sockets.writers", was.writers != is.writers),
            ("privacy", old.privacy != new.privacy),
            ("privacy.readers", old.readers != new.readers),
            ("vos", old.vos != new.vos),
            ("shares", old.policy != new.policy),
            ("policy_file", old.policy_file != new.policy_file),
            ("identity", old.identity.rules() != new.identity.rules()),
            ("people", people_differ),
            ("history", history(false)),
            ("charging", old.charging != new.charging),
            // The Slurm feed holds a copy for jobs that run, and is told of below.
            ("charging.states", old.charge_rule != new.charge_rule),
            ("advert", old.advert != new.advert),
            ("forward", old.forward != new.forward),
            ("quota", old.quotas != new.quotas),
            ("timing", old.timing != new.timing),
            ("order.projection", old.projection != new.projection),
            ("records", records_differ),
        ];
        let lookup_slots_differ = was.lookup_slots != is.lookup_slots;
        let control_slots_differ = was.control_slots != is.control_slots;
        let needs_restart = [
            ("site.name", old.name != new.name),
            ("site.data_dir", old.data_dir != new.data_dir),
            ("site.key_file", old.key_file != new.key_file),
            ("network.listen", old.listen != new.listen),
            ("sockets.lookup", was.lookup != is.lookup),
            ("sockets.control", was.control != is.control),
            ("sockets.lookup_mode", was.lookup_mode != is.lookup_mode),
            ("sockets.lookup_connections", lookup_slots_differ),
            ("sockets.control_connections", control_slots_differ),
            ("page", old.page != new.page),
            // Local usage is stored by window, and moves to others when the site starts.
            ("history.window", old.window != new.window),
            ("history", history(true)),
            ("records.enabled", kept(old) != kept(new)),
            ("slurm", old.slurm != new.slurm),
            ("gridengine", old.gridengine != new.gridengine),
            ("condor", old.condor != new.condor),
            ("pbs", old.pbs != new.pbs),
            ("lsf", old.lsf != new.lsf),
        ];
        let changed = |keys: &[(&str, bool)]| {
            let keys = keys.iter().filter(|(_, is_other)| *is_other);
            keys.map(|(key, _)| (*key).to_owned()).collect()
        };
        Reload {
            applied: changed(&applied),
            needs_restart: changed(&needs_restart),
        }
    }
}
