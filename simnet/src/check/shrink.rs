//! Making a failing run smaller: what can be taken away while it still fails?
//!
//! Invariant: what is left fails the same invariant from the same seed. Faults that do not matter go
//! first, kind by kind; then their numbers, then the load. Each try is a whole run.
//!
//! Deliberately not here: explaining what is left.

use fairmesh_cluster::Seed;

use super::Run;
use crate::swarm::Options;

/// Numbers that may go, in the order in which they are tried.
const TRIED: [&str; 35] = [
    "faults.clock_years",
    "faults.clock_jumps",
    "faults.clock_drifts",
    "faults.garbage_documents",
    "faults.policies",
    "faults.charters",
    "faults.removals",
    "faults.reconfigurations",
    "faults.departures",
    "faults.full_disks",
    "faults.bit_flips",
    "faults.wipes",
    "faults.wipes_with_side",
    "faults.backups_restored",
    "faults.partitions",
    "faults.islands",
    "faults.bridges",
    "faults.one_way_cuts",
    "faults.clogged_links",
    "faults.crashes",
    "faults.crashes_within",
    "faults.graceful_stops",
    "link.loss_permille",
    "link.duplicate_permille",
    "link.reorder_permille",
    "link.replay_permille",
    "link.garbage_permille",
    "link.jitter_ms",
    "repeat_permille",
    "late_permille",
    "running_s",
    "reports_per_hour",
    "timing.checkpoint_batches",
    "minutes",
    "faults.crashes",
];

/// Takes away what it can within so many runs, and returns what is left.
pub fn shrink(seed: Seed, options: Options, invariant: &str, runs_max: usize) -> Options {
    let mut best = options;
    let mut runs = 0;
    let mut fails = |options: &Options| {
        runs += 1;
        let outcome = Run::new(seed, options.clone()).finish();
        let same = outcome
            .failure
            .is_some_and(|failure| failure.invariant == invariant);
        (same, runs < runs_max)
    };
    for halves in [false, true] {
        for name in TRIED {
            while let Some(smaller) = without(&best, name, halves) {
                let (same, goes_on) = fails(&smaller);
                if same {
                    best = smaller;
                }
                if !goes_on {
                    return best;
                }
                if !same || !halves {
                    break;
                }
            }
        }
    }
    best
}

/// The options with one number at nothing, or at half; `None` where that changes nothing.
fn without(options: &Options, name: &str, halves: bool) -> Option<Options> {
    let mut table: toml::Table = toml::from_str(&options.to_toml()).ok()?;
    let mut at = &mut table;
    let (path, last) = name.rsplit_once('.').unwrap_or(("", name));
    for part in path.split('.').filter(|part| !part.is_empty()) {
        at = at.get_mut(part)?.as_table_mut()?;
    }
    let number = at.get(last)?.as_integer()?;
    let less = match (halves, last) {
        (true, _) => number / 2,
        (false, "minutes") => number,
        (false, "timing.checkpoint_batches" | "checkpoint_batches") => 100_000,
        (false, _) => 0,
    };
    let least = i64::from(last == "minutes" || last == "checkpoint_batches");
    if less == number || less < least {
        return None;
    }
    at.insert(last.to_owned(), toml::Value::Integer(less));
    Options::from_toml(&table.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_one_by_one() {
        let options = Options::draw(Seed(7));
        for name in TRIED {
            if let Some(less) = without(&options, name, false) {
                assert_ne!(less, options, "{name}");
            }
        }
        assert!(without(&options, "minutes", true).is_some());
    }
}
