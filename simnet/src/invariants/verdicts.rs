//! What becomes of a job that asks follows from the documents and the counters of its site.
//!
//! Invariant checked, at honest sites: a job that is decided at once gets the verdict, the credit, the parts and the
//! price that the oracle works out for the site as it was. A job that may wait does so only for rights that are not
//! there, and for six seconds; afterwards it is refused only while its account lacks rights and room for an overdraft.
//! Of jobs that wait the first that asked is decided first. A job that runs gets the same answer again. No site has more
//! of a slice than the split, the part or its bound allow, and a debt that the next rights settle does not stay while
//! there are such rights.
//!
//! A calendar's new price may be asked some seconds late, so there may be two prices; the verdict has to be that of one.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Factor, Millis, MonoTime, VoId};
use fairmesh_quota::{Answer, Verdict};
use fairmesh_site::QuotaAnswer;

use super::{Invariant, Seen, Violation, clocks_were_wrong};
use crate::facts::{Booked, Decided, HoldContext, place};
use crate::oracle::rights::{Expected, Job, Place, Ruling};
use crate::world::StepKind;

/// A call waits for six seconds; its site looks at the time once a tick, which may be late by as much.
const WAIT_MAX: Millis = Millis(6_000);

/// A debt is settled at the next look of its site at quotas, each second.
const SETTLED_WITHIN: Millis = Millis(5_000);

/// The checker.
#[derive(Default)]
pub(super) struct Verdicts {
    /// Since when, in which life of its site, an account owes what rights that are there would settle.
    unsettled: BTreeMap<(usize, VoId, AccountPath), (u32, MonoTime)>,
}

/// The ruling that a verdict is; none of a job that waits, or has ended.
fn ruling(verdict: Verdict) -> Option<Ruling> {
    match verdict {
        Verdict::Granted => Some(Ruling::Granted),
        Verdict::OverQuota | Verdict::Idle => Some(Ruling::OverQuota),
        Verdict::Exempt => Some(Ruling::Exempt),
        Verdict::Refused => Some(Ruling::Refused),
        Verdict::Waiting | Verdict::Ended => None,
    }
}

/// What the oracle expects, at each price that may be asked.
fn expected<'a>(place: &'a Place, asked: &'a HoldContext) -> impl Iterator<Item = Expected> + 'a {
    let job = asked.job.iter();
    job.flat_map(move |job| {
        let of = move |price: &Factor| {
            place.expected(&Job {
                asked: *price,
                ..job.clone()
            })
        };
        asked.prices.iter().map(of)
    })
}

fn is_as_expected(answer: &Answer, expected: &Expected) -> bool {
    if ruling(answer.verdict) != Some(expected.ruling) {
        return false;
    }
    if matches!(expected.ruling, Ruling::Exempt) {
        return true;
    }
    let parts = answer.parts.iter();
    let parts = parts.map(|part| ((part.slice.allocation, part.slice.index), part.amount.0));
    let runs = expected.ruling != Ruling::Refused;
    let is_same = !runs || parts.eq(expected.parts.iter().copied());
    let account = expected.account.is_none() || answer.account == expected.account;
    is_same && account && (!runs || expected.account.is_none() || answer.price == expected.price)
}

/// A job that was decided at once.
fn check_at_once(decided: &Decided, before: &Place, answer: &Answer) -> Result<(), String> {
    let mut all = expected(before, &decided.asked).peekable();
    if all.peek().is_none() || all.any(|expected| is_as_expected(answer, &expected)) {
        return Ok(());
    }
    let expected = expected(before, &decided.asked).next();
    Err(format!(
        "job {} gets {answer:?}, of {:?}; expected {expected:?}",
        decided.asked.call.record.key.job, decided.asked.job,
    ))
}

/// A job that was decided after it had waited: by the rights that are left now.
fn check_after_waiting(decided: &Decided, after: &Place, answer: &Answer) -> Result<(), String> {
    let runs = |of: Expected| of.ruling != Ruling::Refused;
    let mut all = expected(after, &decided.asked).peekable();
    if answer.verdict != Verdict::Refused || all.peek().is_none() || !all.all(runs) {
        return Ok(());
    }
    let job = &decided.asked.call.record.key.job;
    Err(format!(
        "job {job} is refused after it has waited, and it may run"
    ))
}

/// The same answer as before, where documents and the owner ask as much of the job as then.
fn check_again(decided: &Decided, known: &Booked, answer: &Answer) -> Result<(), String> {
    let was = &known.answer;
    let is_same =
        (answer.verdict, &answer.parts, answer.price) == (was.verdict, &was.parts, was.price);
    // Whether it should be open still is for `holds` to see.
    let has_ended = answer.verdict == Verdict::Ended;
    let amount = was.parts.iter().map(|part| part.amount.0).sum::<u64>() + was.short.0;
    let asks_the_same =
        |of: Expected| of.amount == amount && of.price == was.price && of.account == was.account;
    let mut now = decided
        .before
        .iter()
        .flat_map(|place| expected(place, &decided.asked));
    if is_same || has_ended || known.is_lost || known.is_ending || !now.any(asks_the_same) {
        return Ok(());
    }
    Err(format!(
        "job {} got {:?} and now gets {answer:?}",
        decided.asked.call.record.key.job, known.answer
    ))
}

/// Who asked first and could have been decided instead.
fn check_order(seen: &Seen<'_>, decided: &Decided) -> Result<(), String> {
    let asked = &decided.asked;
    let Some(job) = &asked.job else {
        return Ok(());
    };
    let of_same = |other: &&HoldContext| {
        let is_like = |of: &Job| {
            let same =
                (&of.user, &of.named, of.importance) == (&job.user, &job.named, job.importance);
            same && of.charge <= job.charge
        };
        (other.node, other.vo) == (asked.node, asked.vo)
            && other.ticket < asked.ticket
            && other.prices == asked.prices
            && asked.prices.len() == 1
            && other.job.as_ref().is_some_and(is_like)
    };
    let waiting = seen.books.waiting.iter().find(of_same);
    let answered = seen
        .books
        .decided
        .iter()
        .filter(|of| verdict(of) == Some(Verdict::Refused));
    let refused = answered.map(|of| &of.asked).find(of_same);
    let Some(first) = waiting.or(refused) else {
        return Ok(());
    };
    Err(format!(
        "job {} waited and is granted before job {}, which asked before it for no more",
        asked.call.record.key.job, first.call.record.key.job
    ))
}

fn answer(decided: &Decided) -> Option<&Answer> {
    match &decided.reply {
        Ok(QuotaAnswer::Held { answer, .. }) => Some(answer),
        _ => None,
    }
}

fn verdict(decided: &Decided) -> Option<Verdict> {
    answer(decided).map(|answer| answer.verdict)
}

fn check_decided(seen: &Seen<'_>, decided: &Decided) -> Result<(), Violation> {
    let (node, vo) = (decided.asked.node, seen.vos[decided.asked.vo]);
    let at = |message| Violation::at(node, message);
    let Some(answer) = answer(decided) else {
        return Ok(());
    };
    if let Some(known) = &decided.known {
        return check_again(decided, known, answer).map_err(at);
    }
    if let Some(before) = &decided.before {
        return check_at_once(decided, before, answer).map_err(at);
    }
    if answer.verdict == Verdict::Granted {
        check_order(seen, decided).map_err(at)?;
    }
    // What arrives when its time is over may come behind the decision, in one step.
    let now = seen.world.now_at(node).mono;
    match place(seen.world, node, vo).filter(|_| now < decided.asked.at.after(WAIT_MAX)) {
        Some(after) => check_after_waiting(decided, &after, answer).map_err(at),
        None => Ok(()),
    }
}

/// Who waits: lacks something, and not for long.
fn check_waiting(seen: &Seen<'_>) -> Result<u64, Violation> {
    for (asked, before) in &seen.books.began {
        let mut all = before.iter().flat_map(|place| expected(place, asked));
        let is_needless =
            |of: Expected| of.is_final || matches!(of.ruling, Ruling::Granted | Ruling::Exempt);
        let has_one = !asked.prices.is_empty() && asked.job.is_some() && before.is_some();
        if !asked.call.may_wait || has_one && all.all(is_needless) {
            let message = format!("job {} waits, and lacks nothing", asked.call.record.key.job);
            return Err(Violation::at(asked.node, message));
        }
    }
    let node = seen.node.filter(|_| seen.kind == StepKind::Tick);
    let of_node = seen
        .books
        .waiting
        .iter()
        .filter(|asked| Some(asked.node) == node);
    for asked in of_node {
        let life = seen.world.node(asked.node).life();
        let now = seen.world.now_at(asked.node).mono;
        if life == asked.life && now >= asked.at.after(WAIT_MAX) {
            let job = &asked.call.record.key.job;
            let message = format!("job {job} waits for {} ms", now.since(asked.at).0);
            return Err(Violation::at(asked.node, message));
        }
    }
    Ok(seen.books.began.len() as u64)
}

impl Verdicts {
    /// What a site has of each slice, and what its jobs owe.
    fn check_place(&mut self, seen: &Seen<'_>, node: usize, vo: VoId) -> Result<u64, Violation> {
        let Some(place) = place(seen.world, node, vo) else {
            return Ok(0);
        };
        let mut checks = 0;
        let is_whole = !seen.books.lost.contains(&node);
        if let Some(excess) = place.excesses().filter(|_| is_whole) {
            return Err(Violation::at(node, excess));
        }
        let (life, now) = (seen.world.node(node).life(), seen.world.now());
        for account in place.accounts() {
            checks += 1;
            let key = (node, vo, account);
            if place.is_frozen || clocks_were_wrong(seen.world) || place.is_settled(&key.2) {
                self.unsettled.remove(&key);
                continue;
            }
            let since = self.unsettled.entry(key.clone()).or_insert((life, now));
            if since.0 != life {
                *since = (life, now);
            }
            if seen.kind == StepKind::Tick && now >= since.1.after(SETTLED_WITHIN) {
                let owed = place.owed(&key.2);
                let message = format!("{} owes {owed} core-ms, and has rights", key.2);
                return Err(Violation::at(node, message));
            }
        }
        Ok(checks)
    }
}

impl Invariant for Verdicts {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        for decided in &seen.books.decided {
            check_decided(seen, decided)?;
            *checks += 1;
        }
        *checks += check_waiting(seen)?;
        if let Some(node) = seen.node.filter(|node| seen.deep && !seen.is_liar(*node)) {
            for vo in seen.vos {
                *checks += self.check_place(seen, node, *vo)?;
            }
        }
        Ok(())
    }
}
