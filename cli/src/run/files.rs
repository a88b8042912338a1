//! How many files and sockets this process may open.
//!
//! Invariant: the limit is raised to what the configured connections need, as far as the system allows, and not beyond
//! that: commands of batch systems inherit it, and old ones close every number up to it. Where it does not suffice, the
//! log says so with both numbers, and fewer peers are dialled at once, so that dials leave room for those who ask.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use fairmesh_node::config::Config;
use fairmesh_node::network::NetworkLimits;
use fairmesh_node::page;

/// For the store, the journal, the log of records, the commands of batch systems, and the runtime's own.
const OTHER_FILES: u64 = 128;

/// Of the files that the process may open, dials take at most one in so many: a peer may have several addresses.
const DIALS_PART: u64 = 8;

/// Dials under way at once, however few files there may be.
const DIALS_MIN: u64 = 8;

/// Sees to it that the process may open what it needs, as far as it may; the mesh's part of it.
pub(super) fn provide(config: &Config) -> NetworkLimits {
    let mut network = NetworkLimits::default();
    let limit = getrlimit(Resource::Nofile);
    let needed = needed(config, &network);
    let wanted = raised(needed, limit);
    let allowed = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => wanted.current,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            limit.current
        }
    };
    let allowed = allowed.unwrap_or(u64::MAX);
    network.dials_max = network.dials_max.min(dials(allowed));
    if allowed < needed {
        tracing::warn!(
            "this process may open {allowed} files and sockets, and its connections may need {needed}: raise \
             LimitNOFILE= of the unit or `ulimit -Hn`; beyond that connections wait"
        );
    }
    network
}

/// As many as all connections that the configuration allows, and what else the node opens.
fn needed(config: &Config, network: &NetworkLimits) -> u64 {
    let local = config.sockets.lookup_slots.all + config.sockets.control_slots.all;
    let page = config.page.as_ref().map_or(0, |_| page::CONNECTIONS_MAX);
    let mesh = u64::from(network.connections_max) + u64::from(network.pending_max);
    mesh + (network.dials_max + local + page) as u64 + OTHER_FILES
}

fn raised(needed: u64, limit: Rlimit) -> Rlimit {
    let current = limit.current.map(|current| {
        let most = limit.maximum.unwrap_or(u64::MAX);
        current.max(needed.min(most))
    });
    Rlimit { current, ..limit }
}

fn dials(allowed: u64) -> usize {
    let dials = (allowed / DIALS_PART).max(DIALS_MIN);
    usize::try_from(dials).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_is_needed_and_never_lowered() {
        let limit = |current, maximum| Rlimit { current, maximum };
        for (is, expected) in [
            (limit(Some(1_024), Some(4_096)), Some(3_000)),
            (limit(Some(1_024), Some(2_000)), Some(2_000)),
            (limit(Some(1_024), None), Some(3_000)),
            (limit(Some(9_000), Some(9_000)), Some(9_000)),
            (limit(None, None), None),
        ] {
            let raised = raised(3_000, is);
            assert_eq!((raised.current, raised.maximum), (expected, is.maximum));
        }
    }

    #[test]
    fn dials_leave_files_to_others() {
        assert_eq!([64, 1_024, 65_536].map(dials), [8, 128, 8_192]);
    }
}
