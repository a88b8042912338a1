//! What the reports of a loop show: it works, fails, hangs, was stopped, or is silent.
//!
//! Invariant: a finding follows from the newest report, the interval that it states and three ages alone, and a loop has
//! one state, so it has one finding. Deliberately not here: keeping the reports (`loops`), and metrics, which show the
//! same findings by code.

use std::collections::BTreeMap;

use fairmesh_api::finding::{Code, Finding};
use fairmesh_api::loops::{LoopsReport, RoundsReport, Trouble};
use fairmesh_api::words::{self, age};
use fairmesh_model::{Millis, Severity};

/// What a report may take in addition: the loop waits for the node for half of it.
const GRACE: Millis = Millis::from_secs(10);

/// Rounds that fail one after the other before it is a finding: one fails whenever a daemon is started again.
const FAILED_MIN: u64 = 2;

/// From when on a loop that was stopped on purpose is a warning: longer than most maintenance of one daemon, and shorter
/// than the time in which nobody would notice that usage is missing.
const STOPPED_WARNED: Millis = Millis::from_secs(3_600);

/// A loop, as its reports show it.
#[derive(Debug, Clone)]
pub(super) struct LoopFacts {
    /// As people call it: `slurm feed`.
    pub(super) name: String,
    pub(super) rounds: RoundsReport,
    /// Since its newest report.
    pub(super) heard_age: Millis,
    /// Since its newest good round, or its first report.
    pub(super) good_age: Millis,
}

impl LoopFacts {
    /// What is to be reported of it.
    fn finding(&self) -> Option<Finding> {
        let (name, rounds) = (&self.name, &self.rounds);
        // A loop of an earlier release promises nothing.
        let interval = Some(Millis(rounds.interval_ms)).filter(|interval| interval.0 > 0)?;
        let (heard, good) = (age(self.heard_age), age(self.good_age));
        if rounds.is_stopped {
            let severity = match self.heard_age > STOPPED_WARNED {
                true => Severity::Warning,
                false => Severity::Info,
            };
            let text = format!("{name} was stopped {heard} ago");
            return Some(Finding::new(Code::LoopStopped, severity, &text));
        }
        let warning = |code, text: &str| Some(Finding::new(code, Severity::Warning, text));
        if self.heard_age > limit(interval) {
            return warning(Code::LoopSilent, &silent(name, self.heard_age, interval));
        }
        match &rounds.trouble {
            Some(trouble) if trouble.rounds < FAILED_MIN => {}
            Some(trouble) if trouble.is_of_source => {
                let text = format!(
                    "{name}: {}; running jobs are reported, jobs that have ended are not (since {good} ago)",
                    trouble.why
                );
                return warning(Code::SourceAway, &text);
            }
            Some(Trouble { rounds, why, .. }) => {
                let failed = words::count(*rounds, "round");
                let text = format!("{name}: the last {failed} failed: {why}");
                return warning(Code::LoopFailing, &text);
            }
            None => {}
        }
        let cycle = Millis(interval.0.saturating_add(rounds.took_ms));
        let text = format!(
            "{name} is alive and has not completed a round for {good}; it pauses {} between rounds",
            age(interval)
        );
        (self.good_age > limit(cycle))
            .then(|| Finding::new(Code::LoopBehind, Severity::Warning, &text))
    }
}

/// One round and half of the next: with the default interval of a minute, that is reported in less than two.
fn limit(interval: Millis) -> Millis {
    Millis((interval.times(3).0 / 2).saturating_add(GRACE.0))
}

fn silent(name: &str, heard_age: Millis, interval: Millis) -> String {
    format!(
        "{name} has not reported for {}; it reports every {}: is its process running?",
        age(heard_age),
        age(interval)
    )
}

/// What all loops show. `expected` are the intervals of the feeds that the configuration names, by system: a node that
/// was started `up` ago and has not heard of one reports that, too.
pub(super) fn findings(
    loops: &[LoopFacts],
    expected: &BTreeMap<&'static str, Millis>,
    up: Millis,
) -> Vec<Finding> {
    let mut found: Vec<Finding> = loops.iter().filter_map(LoopFacts::finding).collect();
    for (system, interval) in expected {
        let name = format!("{system} feed");
        if up > limit(*interval) && loops.iter().all(|of| of.name != name) {
            let text = silent(&name, up, *interval);
            found.push(Finding::new(Code::LoopSilent, Severity::Warning, &text));
        }
    }
    found
}

/// That a log of a batch system was gone before it was read to its end.
pub(super) fn lost_logs(
    loops: &BTreeMap<&'static str, LoopsReport>,
) -> impl Iterator<Item = Finding> {
    let lost = loops.iter().filter_map(|(system, heard)| {
        let lost = heard.feed.as_ref()?.lost;
        (lost > 0).then_some((system, lost))
    });
    lost.map(|(system, lost)| {
        let logs = words::count(lost, "log");
        let text = format!(
            "{logs} of {system} disappeared before the end was read: records may be missing"
        );
        Finding::new(Code::LogLost, Severity::Error, &text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Millis = Millis::from_secs;

    /// A feed that pauses a minute and whose rounds take five seconds; ages are since its report and its good round.
    fn facts(heard_s: u64, good_s: u64) -> LoopFacts {
        let rounds = RoundsReport {
            interval_ms: 60_000,
            took_ms: 5_000,
            ..RoundsReport::default()
        };
        LoopFacts {
            name: "slurm feed".to_owned(),
            rounds,
            heard_age: S(heard_s),
            good_age: S(good_s),
        }
    }

    fn failed(rounds: u64, is_of_source: bool) -> LoopFacts {
        let mut facts = facts(1, 300);
        facts.rounds.trouble = Some(Trouble {
            rounds,
            is_of_source,
            why: "slurmdbd does not answer: `sacct` failed".to_owned(),
        });
        facts
    }

    fn stopped(heard_s: u64) -> LoopFacts {
        let mut facts = facts(heard_s, heard_s);
        facts.rounds.is_stopped = true;
        facts
    }

    #[test]
    fn each_state_of_a_loop_has_its_finding() {
        for (facts, expected) in [
            (facts(60, 65), None),
            (facts(100, 100), None),
            (facts(101, 101), Some(("loop-silent", "warning"))),
            (facts(5, 107), None),
            (facts(5, 108), Some(("loop-behind", "warning"))),
            (stopped(5), Some(("loop-stopped", "info"))),
            (stopped(3_601), Some(("loop-stopped", "warning"))),
            (failed(2, false), Some(("loop-failing", "warning"))),
            (failed(2, true), Some(("source-away", "warning"))),
        ] {
            let found = facts.finding();
            let found = found.as_ref().map(|of| (&*of.code, &*of.severity));
            assert_eq!(found, expected, "{facts:?}");
        }
        let once = LoopFacts {
            good_age: S(65),
            ..failed(1, true)
        };
        assert_eq!(once.finding(), None, "one round is none");
        let mut earlier = facts(9_999, 9_999);
        earlier.rounds.interval_ms = 0;
        assert_eq!(earlier.finding(), None);
    }

    #[test]
    fn the_text_begins_with_what_is_away() {
        let text = failed(5, true).finding().expect("one").text;
        let begin =
            "slurm feed: slurmdbd does not answer: `sacct` failed; running jobs are reported";
        assert!(text.starts_with(begin), "{text}");
    }

    #[test]
    fn a_feed_of_the_configuration_that_never_reports_is_silent() {
        let expected = BTreeMap::from([("slurm", S(60))]);
        assert_eq!(findings(&[], &expected, S(100)), []);
        assert_eq!(findings(&[], &expected, S(101))[0].code, "loop-silent");
        assert_eq!(findings(&[facts(1, 1)], &expected, S(101)), []);
    }
}
