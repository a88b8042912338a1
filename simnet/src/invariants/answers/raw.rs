//! Cells and running jobs against what feeds have told.
//!
//! In motion a site must count all that it has acknowledged, and may count what any member has ever
//! been told. At rest everybody counts what all have acknowledged.
//!
//! Invariant: windows are compared one by one, or day by day where the site has merged the day; where
//! clocks were wrong when usage was reported, it may lie in other windows, and only sums over all of
//! them are compared.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::window::DAY_MS;
use fairmesh_model::{AccountPath, Counters, MonoTime, SiteId, Span, VoId};

use super::{ByAccount, Look, name};
use crate::invariants::{Seen, Violation};
use crate::oracle::Cells;

/// Where amounts are compared: a window, a whole day, or all time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    Window(u32),
    Day(u32),
    Ever,
}

/// Days after its beginning at which a day may be counted as a whole: it has ended two days before.
const WHOLE_AFTER_DAYS: u64 = 3;

/// The least that must count, what counts, and the most that may.
type Bounds = [Counters; 3];

pub(super) fn check(look: &Look<'_>) -> Result<u64, Violation> {
    let mut counted: ByAccount<'_, BTreeMap<Span, Counters>> = BTreeMap::new();
    for row in &look.rows {
        let (vo, path) = &row.account;
        let spans = counted.entry((row.site, *vo, path)).or_default();
        let cell = spans.entry(row.span).or_default();
        *cell = cell.plus(row.counters);
    }
    check_members(look, &counted)?;
    check_days(look)?;
    let vos = look.seen.world.node(look.node).config.vos.values();
    let vos: BTreeSet<Option<VoId>> = vos.copied().map(Some).chain([None]).collect();
    let mut checks = 0;
    let honest = look.seen.world.nodes().iter().enumerate();
    for (of, node) in honest.filter(|(of, _)| !look.seen.is_liar(*of)) {
        for vo in &vos {
            if vo.is_some() || of == look.node {
                checks += check_site(look, (of, node.id), *vo, &counted)?;
            }
        }
    }
    Ok(checks + check_expected(look)?)
}

/// A day is counted as a whole two days after its end at the earliest.
fn check_days(look: &Look<'_>) -> Result<(), Violation> {
    if look.clocks_off() {
        return Ok(());
    }
    let today = look.seen.world.now_at(look.node).wall.0 / DAY_MS;
    let early = look.rows.iter().find_map(|row| match row.span {
        Span::Day(day) if u64::from(day) + WHOLE_AFTER_DAYS > today => Some((row.site, day)),
        _ => None,
    });
    early
        .filter(|(site, _)| !look.seen.lies(*site))
        .map_or(Ok(()), |(site, day)| {
            let message = format!(
                "counts day {day} of site {} as a whole on day {today}",
                site.short()
            );
            Err(look.wrong(message))
        })
}

/// Usage of a VO is that of its members, and one's own.
fn check_members(
    look: &Look<'_>,
    counted: &ByAccount<'_, BTreeMap<Span, Counters>>,
) -> Result<(), Violation> {
    let sites = counted
        .iter()
        .filter(|(_, spans)| spans.values().any(|of| !of.is_zero()));
    let sites = sites.map(|((site, vo, _), _)| (*site, *vo));
    let expecting = look
        .expected
        .iter()
        .map(|(vo, site, ..)| (*site, Some(*vo)));
    for (site, vo) in sites.chain(expecting) {
        let charter = vo
            .and_then(|vo| look.held.get(&vo))
            .map(|held| held.charter);
        let is_member = charter.is_some_and(|charter| charter.member(site).is_some());
        if site != look.site.id() && !is_member {
            let (site, vo) = (site.short(), name(vo));
            return Err(look.wrong(format!("counts usage of site {site}, no member of {vo}")));
        }
    }
    Ok(())
}

fn check_site(
    look: &Look<'_>,
    (of, id): (usize, SiteId),
    vo: Option<VoId>,
    counted: &ByAccount<'_, BTreeMap<Span, Counters>>,
) -> Result<u64, Violation> {
    let oracle = look.seen.oracle;
    let none = Cells::new();
    let least = oracle.certain_cells(of, vo).unwrap_or(&none);
    let most = oracle.most_cells(of, vo).unwrap_or(&none);
    let must_know = look.at_rest || (of == look.node && look.seen.whole[of]);
    let shown = counted
        .keys()
        .filter(|(site, of, _)| (*site, *of) == (id, vo));
    let accounts: BTreeSet<&AccountPath> = shown
        .map(|(_, _, path)| *path)
        .chain(least.keys())
        .collect();
    let window_ms = vo
        .map(|vo| look.held.get(&vo).map(|held| held.charter.window))
        .unwrap_or(Some(look.seen.world.node(of).config.local_window));
    let Some(window_ms) = window_ms.map(|window| window.millis().0) else {
        return Ok(0);
    };
    let mut checks = 0;
    for path in accounts {
        let (nothing, no_windows) = (BTreeMap::new(), BTreeMap::new());
        let spans = counted.get(&(id, vo, path)).unwrap_or(&nothing);
        let least = least.get(path).filter(|_| must_know).unwrap_or(&no_windows);
        let least = least.range(oracle.first_window(vo)..);
        let least = &least.map(|(window, of)| (*window, *of)).collect();
        let most = most.get(path).unwrap_or(&no_windows);
        let sums = side_by_side(spans, least, most, window_ms, oracle.is_displaced(of));
        for (when, [least, counted, most]) in sums {
            checks += 1;
            if counted.join(least) != counted || counted.join(most) != most {
                return Err(look.wrong(format!(
                    "counts {counted:?} for {path} of {} at site {} in {when:?}; told were {least:?} to {most:?}",
                    name(vo),
                    id.short()
                )));
            }
        }
    }
    Ok(checks)
}

fn side_by_side(
    spans: &BTreeMap<Span, Counters>,
    least: &BTreeMap<u32, Counters>,
    most: &BTreeMap<u32, Counters>,
    window_ms: u64,
    is_displaced: bool,
) -> BTreeMap<When, Bounds> {
    let day_of = |window: u32| u32::try_from(u64::from(window) * window_ms / DAY_MS).expect("less");
    let merged: BTreeSet<u32> = spans
        .keys()
        .filter_map(|span| match span {
            Span::Day(day) => Some(*day),
            Span::Window(_) => None,
        })
        .collect();
    let when = |span: Span| match span {
        _ if is_displaced => When::Ever,
        Span::Day(day) => When::Day(day),
        Span::Window(window) if merged.contains(&day_of(window.0)) => When::Day(day_of(window.0)),
        Span::Window(window) => When::Window(window.0),
    };
    let mut sums: BTreeMap<When, Bounds> = BTreeMap::new();
    let mut add = |span: Span, place: usize, counters: Counters| {
        let sum = &mut sums.entry(when(span)).or_default()[place];
        *sum = sum.plus(counters);
    };
    let window = |index: u32| Span::Window(fairmesh_model::Window(index));
    least
        .iter()
        .for_each(|(index, of)| add(window(*index), 0, *of));
    spans.iter().for_each(|(span, of)| add(*span, 1, *of));
    most.iter()
        .for_each(|(index, of)| add(window(*index), 2, *of));
    sums
}

/// What running jobs of a site are expected to use is what a list of that site said: at rest the last
/// one, nothing where the node has started since, or one from before the site lost its memory of it,
/// which fades when it is too old.
fn check_expected(look: &Look<'_>) -> Result<u64, Violation> {
    let mut shown: BTreeMap<(VoId, SiteId), BTreeMap<AccountPath, u64>> = BTreeMap::new();
    for (vo, site, path, charge) in &look.expected {
        let rows = shown.entry((*vo, *site)).or_default();
        *rows.entry(path.clone()).or_default() += charge;
    }
    let mut checks = 0;
    let silence = look.seen.world.node(look.node).config.timing.silence;
    let silent_ms = silence.0 / 10 * 11;
    for vo in look.held.keys() {
        let honest = look.seen.world.nodes().iter().enumerate();
        for (of, node) in honest.filter(|(of, _)| !look.seen.is_liar(*of)) {
            let rows = shown.remove(&(*vo, node.id)).unwrap_or_default();
            let told = look.seen.oracle.expected(of, *vo);
            let is_told = |since: MonoTime| {
                let mut lists = told.into_iter().flat_map(|told| &told.told);
                lists.any(|(at, list)| *at >= since && *list == rows)
            };
            let is_last = told.map_or(rows.is_empty(), |told| {
                told.acknowledged == rows || (rows.is_empty() && told.life != node.life())
            });
            let is_right = match look.at_rest {
                true => {
                    is_last || is_told(MonoTime(look.seen.world.now().0.saturating_sub(silent_ms)))
                }
                false => rows.is_empty() || is_told(MonoTime(0)),
            };
            checks += 1;
            if !is_right {
                return Err(look.wrong(format!(
                    "expects {rows:?} of running jobs of site {} in {}, which its feed has not told; it told {:?}",
                    node.id.short(),
                    name(Some(*vo)),
                    told.and_then(|told| told.told.last())
                )));
            }
        }
    }
    check_silence(look)?;
    Ok(checks)
}

/// What jobs that run here count for at the owner's levels is what the last list said, less those that
/// have ended; nothing where the node has started since.
pub(super) fn check_running(seen: &Seen<'_>, node: usize) -> Result<u64, Violation> {
    let told = seen.oracle.running(node);
    let has_started = told.life != seen.world.node(node).life();
    let right = if has_started {
        Some(BTreeMap::new())
    } else {
        told.sums()
    };
    let right = right.filter(|_| !seen.is_liar(node));
    let Some((right, site)) = right.zip(seen.world.site(node)) else {
        return Ok(0);
    };
    let mut shown = BTreeMap::new();
    for (account, _, charge) in site.running_usage() {
        let account = (account.vo, account.path.clone());
        *shown.entry(account).or_default() += charge;
    }
    if shown != right {
        return Err(Violation::at(
            node,
            format!("counts {shown:?} for jobs that run here, and its feed has told {right:?}"),
        ));
    }
    Ok(1)
}

/// What a site expects of its own running jobs, as soon as it has acknowledged a list, is what the list says.
pub(super) fn check_list(seen: &Seen<'_>, node: usize) -> Result<u64, Violation> {
    let Some(site) = seen.world.site(node).filter(|_| !seen.is_liar(node)) else {
        return Ok(0);
    };
    let mut checks = 0;
    for vo in seen.vos {
        let told = seen.oracle.expected(node, *vo);
        let last = told.and_then(|told| Some((told.told.last()?, &told.acknowledged)));
        let now = seen.world.now();
        let Some(((_, list), _)) = last.filter(|((at, list), of)| *at == now && list == *of) else {
            continue;
        };
        let own = |(of, id, ..): &(VoId, SiteId, _, _)| (*of, *id) == (*vo, site.id());
        let mut shown: BTreeMap<AccountPath, u64> = BTreeMap::new();
        for (.., path, charge) in site.expected_usage().filter(own) {
            *shown.entry(path.clone()).or_default() += charge.0;
        }
        checks += 1;
        if shown != *list {
            return Err(Violation::at(
                node,
                format!(
                    "expects {shown:?} of its running jobs in {}, and has just acknowledged {list:?}",
                    name(Some(*vo))
                ),
            ));
        }
    }
    Ok(checks)
}

/// Running jobs of a site that has been silent for too long count no more.
fn check_silence(look: &Look<'_>) -> Result<(), Violation> {
    if look.clocks_off() {
        return Ok(());
    }
    let now = look.seen.world.now_at(look.node).wall;
    let silence = look.seen.world.node(look.node).config.timing.silence;
    for (vo, site, ..) in &look.expected {
        let signed_at = look.site.coverage_of(*vo).signed_at.get(site).copied();
        let is_own = *site == look.site.id();
        if !is_own && signed_at.is_none_or(|at| at.after(silence) < now) {
            return Err(look.wrong(format!(
                "counts running jobs of site {}, which last signed at {signed_at:?}",
                site.short()
            )));
        }
    }
    Ok(())
}
