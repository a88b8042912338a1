//! Making a failing run smaller: what can be taken away while it still fails?
//!
//! Invariant: what is left fails the same invariant from the same seed. What goes wrong is written
//! out first, and actions that do not matter go in halves, quarters and so on down to single ones;
//! then the numbers of links and load. Each try is a whole run.
//!
//! Deliberately not here: explaining what is left.

use fairmesh_cluster::Seed;

use super::Run;
use crate::swarm::{FaultOptions, Options, plan_faults};

/// Numbers that may go, in the order in which they are tried.
const TRIED: [&str; 11] = [
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
    "minutes",
];

/// Takes away what it can within so many runs, and returns what is left.
pub fn shrink(seed: Seed, options: Options, invariant: &str, runs_max: usize) -> Options {
    let mut search = Search {
        seed,
        invariant,
        runs_left: runs_max,
        best: written_out(seed, options),
    };
    search.without_actions();
    for halves in [false, true] {
        for name in TRIED {
            while let Some(smaller) = without(&search.best, name, halves) {
                if !search.fails(smaller) || !halves {
                    break;
                }
            }
        }
    }
    search.best
}

/// The same run, with everything that goes wrong in it listed.
fn written_out(seed: Seed, options: Options) -> Options {
    let listed = plan_faults(seed, &options, options.minutes * 60_000);
    Options {
        step: Some(listed),
        faults: FaultOptions::default(),
        ..options
    }
}

struct Search<'a> {
    seed: Seed,
    invariant: &'a str,
    runs_left: usize,
    best: Options,
}

impl Search<'_> {
    /// Whether a run still fails; if it does it is the best so far.
    fn fails(&mut self, options: Options) -> bool {
        if self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        let failure = Run::new(self.seed, options.clone()).finish().failure;
        let fails = failure.is_some_and(|failure| failure.invariant == self.invariant);
        if fails {
            self.best = options;
        }
        fails
    }

    fn without_actions(&mut self) {
        let mut size = self.listed();
        while size > 0 && self.runs_left > 0 {
            let mut at = 0;
            while at < self.listed() {
                let mut smaller = self.best.clone();
                let steps = smaller.step.get_or_insert_default();
                steps.drain(at..(at + size).min(steps.len()));
                if !self.fails(smaller) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn listed(&self) -> usize {
        self.best.step.as_ref().map_or(0, Vec::len)
    }
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
        (false, _) => 0,
    };
    let least = i64::from(last == "minutes");
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
    fn what_is_written_out_is_the_same_run() {
        let drawn = Options {
            minutes: 90,
            ..Options::draw(Seed(4))
        };
        let written = written_out(Seed(4), drawn.clone());
        assert!(written.step.as_ref().is_some_and(|steps| steps.len() > 4));
        let read = Options::from_toml(&written.to_toml());
        assert_eq!(read.as_ref(), Ok(&written));
        let trace = |options| Run::new(Seed(4), options).finish().trace_hash;
        assert_eq!(trace(drawn), trace(written));
    }

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
