//! All views become one by a fixed time after the heal, and stay so.
//!
//! From the heal on nothing goes wrong any more, and feeds say what is left: at once, and once more
//! when all sites have their charters. Within [`OPENING`] sites
//! have found each other again, within a request timeout what was asked before is answered or given
//! up, within a publish interval a site has signed what it had still to sign, and three sync intervals
//! later all have heard it. The intervals are those of the slowest site. Nothing that a site does
//! moves that time, so a Grid that never comes to rest fails, and so does one that takes too many
//! steps to get there.
//!
//! Invariant checked: then all nodes that mount a VO hold the same documents and counters of it, and the documents are
//! those that its authority has signed last; those that see it from the same window compute the same. A clock that was
//! ahead and is set right waits for its window to end, so windows may differ for that long. What a site does by its
//! clock all do within a tick of each other: they let go of running jobs whose site has fallen silent, say. So views
//! may differ once more for as long, and where days are merged until all have heard of it; but only once for each site.
//! Merging a day, or letting go of what weighs nothing, changes what is held and no number: that a site may do at any
//! time, an hour after its start with what feeds have told it of days ago. Credit is passed on as demand fades, a head
//! each time, for up to [`RESTS_WITHIN`]: then each head must reach everybody in three sync intervals
//! ([`Lag`](super::Lag)). A site that counts a few entries a tick takes its time: while it does, numbers may differ,
//! but not what is held, except for what has been on its way for less than three sync intervals. A Grid in which
//! somebody has credit to tell of that no head says yet is not at rest, however alike all views are.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{ContentHash, Millis, MonoTime, Seq, VoId, Window};
use fairmesh_site::Holding;

use super::Violation;
use crate::vo::Vo;
use crate::world::World;

/// Sync intervals that are allowed.
const INTERVALS: u64 = 3;

/// Until every session is open that the heal allows: what was cut is given up after fifteen seconds
/// and a quarter, at one end later than at the other, and then opened anew.
const OPENING: Millis = Millis::from_secs(20);

/// After this nothing is left of the demand that there was when the last job came: it fades by a fifth a minute.
const RESTS_WITHIN: Millis = Millis::from_secs(3_600);

/// How far apart sites do what they do by the clock, in ticks.
const TICKS: u64 = 2;

/// Steps of a node in a simulated second, over a whole minute, that are no livelock: two hundred
/// times what a node of a swarm takes on average.
const STEPS_PER_NODE_SECOND_MAX: u64 = 200;

/// Length of the minutes in which steps are counted.
const MINUTE_MS: u64 = 60_000;

/// Intervals of the slowest site.
#[derive(Debug, Clone, Copy)]
pub struct Slowest {
    /// Between two exchanges.
    pub sync: Millis,
    /// Until a request is given up.
    pub timeout: Millis,
    /// Between two publications.
    pub publish: Millis,
    /// Between two words of a site that has nothing to publish.
    pub heartbeat: Millis,
    /// Between two moments at which a site sees that time has passed.
    pub tick: Millis,
}

/// How two nodes differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    node: usize,
    how: String,
    apart: Apart,
}

/// In what two nodes differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// They hold the same, and compute other numbers.
    Numbers,
    /// They hold other counters, and compute the same.
    Counters,
    All,
}

/// When the Grid was healed, by when it must have one view, and until when it must keep it.
#[derive(Debug, Clone, Copy)]
pub struct Liveness {
    /// When everything was put right.
    pub healed: MonoTime,
    /// When all have been answered: what a site could not take before may be told it again now.
    pub flushed: MonoTime,
    due: MonoTime,
    end: MonoTime,
    /// Three sync intervals: how long a head may take to every node.
    spread: Millis,
    ticks: Millis,
    /// Whether days may be merged.
    merges: bool,
    /// Until when credit may be passed on, and for how long none must have been before all is published.
    credit_until: MonoTime,
    still: Millis,
    /// How often views may differ again, and how often they have.
    breaks_max: usize,
    breaks: usize,
    /// Whether views are one, and since when that is so or not so.
    is_one: bool,
    since: MonoTime,
    one: MonoTime,
}

impl Liveness {
    /// A Grid of so many sites that is healed now. Where owners have changed `prices` all must have
    /// heard them a heartbeat later; where there is `credit` it may be passed on for a while.
    pub fn new(
        healed: MonoTime,
        slowest: Slowest,
        sites: usize,
        merges: bool,
        (prices, credit): (bool, bool),
    ) -> Self {
        let spread = slowest.sync.times(INTERVALS);
        let flushed = healed.after(OPENING).after(slowest.timeout);
        let due = flushed.after(slowest.publish).after(spread);
        let kept = due.after(slowest.publish).after(slowest.sync);
        let described = due.after(slowest.heartbeat).after(spread);
        Self {
            healed,
            flushed,
            due,
            end: if prices { described.max(kept) } else { kept },
            spread,
            ticks: slowest.tick.times(TICKS).max(Millis::from_secs(10)),
            merges,
            still: if credit {
                Millis(slowest.publish.0 + slowest.sync.0)
            } else {
                Millis(0)
            },
            credit_until: if credit {
                due.after(RESTS_WITHIN)
            } else {
                healed
            },
            breaks_max: sites,
            breaks: 0,
            is_one: false,
            since: healed,
            one: healed,
        }
    }

    /// Takes a look. True once views have been one for as long as they must; what is wrong where
    /// they are not, though it is time. `lacked`: since when a site has lacked a head, if one does; `is_counting`:
    /// whether a site still counts what it holds, a few entries a tick, so that its numbers are not final.
    pub fn look(
        &mut self,
        now: MonoTime,
        difference: Option<Difference>,
        (lacked, is_counting): (Option<MonoTime>, bool),
    ) -> Result<bool, Violation> {
        let was_one = std::mem::replace(&mut self.is_one, difference.is_none());
        if was_one != self.is_one {
            self.since = now;
            let is_first = now <= self.due || self.one == self.healed;
            if self.is_one && self.breaks == 0 && is_first {
                self.one = now;
            }
        }
        let Some(Difference { node, how, apart }) = difference else {
            return Ok(now >= self.end && now.since(self.since) >= self.still);
        };
        if now <= self.due || (is_counting && apart == Apart::Numbers) {
            return Ok(false);
        }
        // Views have differed for other reasons then: what is judged is how long a head is on its way.
        let may_differ = is_counting || now < self.credit_until;
        let is_on_its_way = now.since(lacked.unwrap_or(self.since)) < self.spread;
        if apart == Apart::Counters && may_differ && is_on_its_way {
            return Ok(false);
        }
        self.breaks += usize::from(was_one);
        let allowed = match apart {
            _ if self.merges => self.spread,
            Apart::Counters => self.spread,
            Apart::Numbers => self.ticks,
            Apart::All => Millis(0),
        };
        let was_ever_one = self.since > self.healed;
        let is_short = now.since(self.since) < allowed;
        if was_ever_one && is_short && self.breaks <= self.breaks_max {
            return Ok(false);
        }
        let again = if was_one { ", again" } else { "" };
        let behind = now.since(self.healed).0 / 1_000;
        Err(Violation::at(
            node,
            format!("{how}{again}, {behind} s behind the heal"),
        ))
    }

    /// Whether what a site does by its clock with credit may still keep a Grid from rest.
    pub fn may_wait(&self, now: MonoTime) -> bool {
        now < self.credit_until
    }

    /// Since when views had been one when they had to be.
    pub fn one_since(&self) -> MonoTime {
        self.one
    }

    /// Who of the honest differs, if anybody does now.
    pub fn difference(world: &World, vos: &[Vo], liars: &BTreeSet<usize>) -> Option<Difference> {
        for founded in vos {
            let vo = &founded.id;
            let mut first: Option<(usize, Holding)> = None;
            let mut views: BTreeMap<Window, (usize, Option<ContentHash>)> = BTreeMap::new();
            let honest = world.nodes().iter();
            for node in honest.filter(|node| !liars.contains(&node.index)) {
                let Some(site) = node.site() else {
                    if node.config.vos.values().any(|of| of == vo) {
                        return held_otherwise(node.index, "it does not run".to_owned());
                    }
                    continue;
                };
                let Some(held) = site.held_of(*vo) else {
                    continue;
                };
                match &first {
                    None => {
                        let documents = site.documents(*vo);
                        let lacks = |last: &[u8]| documents.iter().all(|of| of[..] != *last);
                        if founded.documents().any(lacks) {
                            let message = format!(
                                "it lacks a document of VO {} that the authority has signed",
                                vo.short()
                            );
                            return held_otherwise(node.index, message);
                        }
                        first = Some((node.index, held));
                    }
                    Some((who, before)) if !says_the_same(before, &held) => {
                        let other = world.site(*who);
                        // Numbers as of different windows tell nothing: one site has looked at its clock already. Nor
                        // do those of a site that has not yet counted a head that it holds.
                        let computes_same = before.documents == held.documents
                            && other.is_some_and(|other| {
                                let view = site.view_digest(*vo);
                                other.reference(*vo) != site.reference(*vo)
                                    || [site, other].iter().any(|of| of.is_counting(*vo))
                                    || view.is_some() && view == other.view_digest(*vo)
                            });
                        return Some(Difference {
                            node: node.index,
                            how: tell(*who, *vo, before, &held),
                            apart: if computes_same {
                                Apart::Counters
                            } else {
                                Apart::All
                            },
                        });
                    }
                    Some(_) => {}
                }
                let Some(window) = site.reference(*vo) else {
                    continue;
                };
                let view = (node.index, site.view_digest(*vo));
                let (who, known) = *views.entry(window).or_insert(view);
                if known != view.1 {
                    let place = apart(world, *vo, who, node.index);
                    let vo = vo.short();
                    return Some(Difference {
                        node: node.index,
                        how: format!("it computes other numbers for {vo} than site {who}{place}"),
                        apart: Apart::Numbers,
                    });
                }
            }
        }
        None
    }
}

fn held_otherwise(node: usize, how: String) -> Option<Difference> {
    Some(Difference {
        node,
        how,
        apart: Apart::All,
    })
}

/// Steps in the minute that passes, so that no run goes on for ever without time passing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Steps {
    minute: u64,
    taken: u64,
}

impl Steps {
    /// Counts a step of a Grid of so many nodes; says so where there were too many.
    pub fn count(&mut self, at: MonoTime, nodes: usize) -> Result<(), String> {
        let minute = at.0 / MINUTE_MS;
        if minute != self.minute {
            *self = Self { minute, taken: 0 };
        }
        self.taken += 1;
        let most = STEPS_PER_NODE_SECOND_MAX * (MINUTE_MS / 1_000) * nodes as u64;
        if self.taken > most {
            return Err(format!("{most} steps in minute {minute}: a livelock"));
        }
        Ok(())
    }
}

/// Whether two nodes hold the same of a VO. Heartbeats, which change heads and nothing else, are always
/// on their way to somebody.
fn says_the_same(a: &Holding, b: &Holding) -> bool {
    a.documents == b.documents && a.counters == b.counters
}

/// The first entry of which two nodes have other sums.
fn apart(world: &World, vo: VoId, a: usize, b: usize) -> String {
    let sums = |node: usize| {
        let site = world.site(node)?;
        let view = site.view();
        let mount = view.mounts().get(&vo)?.clone();
        let snapshot = site.snapshot();
        let rows = snapshot.ids().filter_map(|entry| {
            let path = snapshot.path(entry).relative_to(&mount)?;
            Some((path, snapshot.sums(entry).global))
        });
        Some(rows.collect::<Vec<_>>())
    };
    let (Some(a), Some(b)) = (sums(a), sums(b)) else {
        return String::new();
    };
    let rows = a.iter().zip(&b).rev();
    let mut apart = rows.filter(|(a, b)| a != b);
    apart.next().map_or(String::new(), |((path, a), (_, b))| {
        format!(" ({path}: {b} here, {a} there)")
    })
}

fn tell(who: usize, vo: VoId, a: &Holding, b: &Holding) -> String {
    let what = if a.documents != b.documents {
        "other documents".to_owned()
    } else if a.heads != b.heads {
        let of = |seq: Option<&Seq>| seq.map_or(0, |seq| seq.0);
        let streams: BTreeSet<_> = a.heads.keys().chain(b.heads.keys()).collect();
        let apart = streams
            .into_iter()
            .filter(|stream| a.heads.get(stream) != b.heads.get(stream));
        let lines: Vec<String> = apart
            .map(|stream| {
                let (theirs, ours) = (of(a.heads.get(stream)), of(b.heads.get(stream)));
                format!("{} {theirs}/{ours}", stream.site.short())
            })
            .collect();
        format!("other heads ({})", lines.join(", "))
    } else {
        "other counters".to_owned()
    };
    format!("it holds {what} of VO {} than site {who}", vo.short())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of views that were one when they had to be, and of which one differs again for a minute.
    fn differs_for_a_minute(apart: Apart) -> Result<bool, Violation> {
        let mut liveness = healed(false);
        assert!(!liveness.look(after(liveness.due, 1), None, (None, false))?);
        for secs in [10, 40, 70] {
            assert!(!liveness.look(after(liveness.due, secs), differs(apart), (None, false))?);
        }
        liveness.look(liveness.end, None, (None, false))
    }

    fn after(time: MonoTime, secs: u64) -> MonoTime {
        time.after(Millis::from_secs(secs))
    }

    fn differs(apart: Apart) -> Option<Difference> {
        Some(Difference {
            node: 1,
            how: "it differs".to_owned(),
            apart,
        })
    }

    fn healed(credit: bool) -> Liveness {
        let slowest = Slowest {
            sync: Millis::from_secs(35),
            timeout: Millis::from_secs(15),
            publish: Millis::from_secs(88),
            heartbeat: Millis::from_secs(528),
            tick: Millis::from_secs(2),
        };
        Liveness::new(MonoTime(0), slowest, 2, false, (true, credit))
    }

    /// Seed 9000298: three sites whose demand faded gave a fourth more credit each minute, and each of their heads
    /// was held by all within seconds.
    #[test]
    fn credit_may_be_passed_on_for_an_hour_while_each_head_reaches_everybody() {
        let looks = |lacks_for: u64, until: u64| {
            let mut liveness = healed(true);
            let mut looks = (1..until).step_by(30).map(|secs| {
                let now = after(liveness.due, secs);
                let lacked = after(liveness.due, secs.saturating_sub(lacks_for));
                liveness.look(now, differs(Apart::Counters), (Some(lacked), false))
            });
            looks.all(|looked| matches!(looked, Ok(false)))
        };
        assert!(looks(30, 3_500));
        assert!(!looks(30, 4_000), "it never comes to rest");
        assert!(!looks(200, 3_500), "a head does not arrive");
    }

    /// A site signed what it has free, while another still counted tables of hours ago, one a tick.
    #[test]
    fn a_head_may_be_on_its_way_while_a_site_counts() {
        let mut liveness = healed(false);
        let mut look = |secs, apart, lacked: u64| {
            let lacked = Some(after(liveness.due, lacked));
            liveness.look(after(liveness.due, secs), differs(apart), (lacked, true))
        };
        assert_eq!(look(1, Apart::Numbers, 1).ok(), Some(false));
        assert_eq!(look(600, Apart::Counters, 599).ok(), Some(false));
        look(900, Apart::Counters, 599).expect_err("it does not arrive");
    }

    /// Seed 3000730: a site heard of jobs that had ended days before, was started again, and merged their days
    /// an hour later, when all views had long been one.
    #[test]
    fn a_merged_day_takes_its_time_and_other_numbers_have_none() {
        assert_eq!(differs_for_a_minute(Apart::Counters).ok(), Some(true));
        for apart in [Apart::Numbers, Apart::All] {
            let broken = differs_for_a_minute(apart).expect_err("for too long");
            assert!(broken.message.contains("it differs"), "{}", broken.message);
        }
    }
}
