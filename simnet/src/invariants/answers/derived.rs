//! Everything that follows from the cells that a site shows, worked out once more.
//!
//! Invariant: the site is given nothing but its own cells, its owner's configuration and the
//! documents that it holds; the windows that it looks back from are those of its clock, wherever no
//! clock was wrong.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_fairshare::projection::{BitsProjection, RankProjection};
use fairmesh_fairshare::{Context, EntryId, EntryKind, Order, Projection, Snapshot};
use fairmesh_model::{AccountPath, Counters, Millis, Share, SiteId, VoId};
use fairmesh_site::Notice;

use super::{Look, bands, name};
use crate::facts::owner_of;
use crate::invariants::Violation;
use crate::oracle::answers::{Answer, Given, Level, Row, Rules, answers};
use crate::oracle::clamp::{beyond, clamped};
use crate::oracle::cost::ratio;
use crate::oracle::owner::Owner;
use crate::oracle::tree::Tree;

/// How long ago a site may have looked at its clock, once all is at rest.
const LOOKED_AGO: Millis = Millis(20_000);

pub(super) fn check(look: &Look<'_>) -> Result<u64, Violation> {
    // The tree of before answers until the next one holds everything; at rest it does.
    if look.site.is_feeding() && !look.at_rest {
        return Ok(0);
    }
    // A large day moves in steps, and the cells that are shown are those of before until all of it has moved.
    let mut held = look.held.keys();
    if held.any(|vo| look.site.is_counting(*vo)) && !look.at_rest {
        return Ok(0);
    }
    let owner = owner_of(&look.seen.world.node(look.node).config);
    let tree = Tree::of(&owner, &look.held, &look.read);
    let (local, vos) = rules(look, &owner);
    // While sums are worked out anew, step by step, all of them are still those of the windows before.
    if !look.site.is_sweeping() {
        check_references(look, &local, &vos)?;
    }
    let newest = look.seen.oracle.documents.newest();
    let charter_of = |vo| {
        let held = look.held.get(&vo).or_else(|| newest.get(&vo));
        held.map(|held| held.charter)
    };
    let rows = clamped(&look.rows, look.site.id(), charter_of);
    check_counted(look, &rows)?;
    if look.at_rest {
        check_named(look, &beyond(&look.rows, look.site.id(), charter_of))?;
    }
    let given = Given {
        site: look.site.id(),
        tree: &tree,
        rows: &rows,
        expected: &look.expected,
        running: &look.running,
        local,
        vos: &vos,
    };
    let right = answers(&given);
    let snapshot = look.site.snapshot();
    let order = Order::of(
        snapshot.clone(),
        Box::new(RankProjection::prepare(&snapshot)),
    );
    let present = right.values().filter(|answer| answer.is_present);
    let last = present.map(|answer| answer.rank).max();
    let mut checks = 0;
    for entry in snapshot.ids() {
        let path = snapshot.path(entry);
        let Some(answer) = right.get(path) else {
            // An account that has used nothing that counts stands where a new one does.
            if !snapshot.is_present(entry) && as_new(&order, entry) {
                continue;
            }
            return Err(look.wrong(format!(
                "has {path} in its tree, which no document names and nobody has used"
            )));
        };
        check_entry(look, &order, entry, (answer, last.unwrap_or(1)))?;
        checks += 1;
    }
    check_vectors(look, &snapshot, &right)?;
    if checks != right.len() as u64 {
        let missing = right
            .keys()
            .find(|path| look.site.view().reader().entry(path).is_none());
        return Err(look.wrong(format!("has no {missing:?} in its tree")));
    }
    Ok(checks + bands::check(look, &snapshot, &owner, &right)?)
}

/// What counts of each account in a span, in all columns, is what the charter's capacities leave of it.
fn check_counted(look: &Look<'_>, right: &[Row]) -> Result<(), Violation> {
    let columns = |of: &Counters| [of.net(), of.cpu_ms, of.gpu_ms, of.mem_mib_s, of.jobs];
    let mut counted = BTreeMap::new();
    let cells = look.site.counted_cells().into_iter();
    for cell in cells.filter(|cell| cell.vo.is_some_and(|vo| look.held.contains_key(&vo))) {
        let of = (cell.site, (cell.vo, cell.path), cell.span);
        counted.insert(of, columns(&cell.counters));
    }
    let is_held = |row: &&Row| row.account.0.is_some_and(|vo| look.held.contains_key(&vo));
    for row in right.iter().filter(is_held) {
        let of = (row.site, row.account.clone(), row.span);
        let (right, shown) = (
            columns(&row.counters),
            counted.remove(&of).unwrap_or_default(),
        );
        if right != shown {
            return Err(look.wrong(format!(
                "counts {shown:?} (net charge, CPU, GPU, memory, jobs) for {} at site {} in {:?}; its capacity \
                 leaves {right:?}",
                row.account.1,
                row.site.short(),
                row.span
            )));
        }
    }
    let mut others = counted.into_iter();
    match others.find(|(_, shown)| *shown != [0; 5]) {
        None => Ok(()),
        Some(((site, account, span), shown)) => Err(look.wrong(format!(
            "counts {shown:?} for {} at site {} in {span:?}, of which it holds nothing",
            account.1,
            site.short()
        ))),
    }
}

/// A node names the sites that publish more than they can have run, and no others.
fn check_named(look: &Look<'_>, right: &BTreeSet<(VoId, SiteId)>) -> Result<(), Violation> {
    let is_judged =
        |(vo, site): &(VoId, SiteId)| look.held.contains_key(vo) && !look.seen.lies(*site);
    let named = look.site.notices().filter_map(|notice| match notice {
        Notice::OverCapacity { vo, site } => Some((*vo, *site)),
        _ => None,
    });
    let named: BTreeSet<_> = named.filter(is_judged).collect();
    let right: BTreeSet<_> = right.iter().copied().filter(is_judged).collect();
    match named == right {
        true => Ok(()),
        false => Err(look.wrong(format!(
            "names {named:?} for more than they can have run; right is {right:?}"
        ))),
    }
}

/// How the owner weighs usage, and every VO; from which windows, the site says.
fn rules(look: &Look<'_>, owner: &Owner) -> (Rules, BTreeMap<VoId, Rules>) {
    let (newest, view) = (look.seen.oracle.documents.newest(), look.site.view());
    let local = view.reader().local_reference();
    let local = Rules {
        history: owner.history,
        window: owner.window,
        reference: local.0,
    };
    let of_vo = |(vo, newest): (&VoId, &crate::oracle::tree::Held<'_>)| {
        // The charter of a VO that it has left is kept, though it is not shown.
        let charter = look
            .held
            .get(vo)
            .map_or(newest.charter, |held| held.charter);
        let reference = look.site.reference(*vo);
        let rules = Rules {
            history: charter.history,
            window: charter.window,
            reference: reference.map_or(0, |window| window.0),
        };
        (*vo, rules)
    };
    // A site that has lost its store and leaves a VO before the charter comes back has none to keep: what
    // it has recovered of its own usage counts nowhere.
    let is_left = |vo: &VoId| look.site.left_vos().any(|of| of == *vo);
    let known = newest
        .iter()
        .filter(|(vo, _)| look.held.contains_key(*vo) || is_left(vo));
    (local, known.map(of_vo).collect())
}

/// Where no clock was wrong usage is seen from the window that it is now.
fn check_references(
    look: &Look<'_>,
    local: &Rules,
    vos: &BTreeMap<VoId, Rules>,
) -> Result<(), Violation> {
    if look.clocks_off() && !look.at_rest {
        return Ok(());
    }
    let now = look.seen.world.now_at(look.node).wall;
    let since = if look.at_rest {
        // Sites see that time has passed at their ticks alone.
        now.before(LOOKED_AGO.max(look.seen.world.tick().times(2)))
    } else {
        now
    };
    let held = vos
        .iter()
        .filter(|(vo, _)| look.site.reference(**vo).is_some());
    let held = held.map(|(vo, rules)| (Some(*vo), rules));
    for (vo, rules) in held.chain([(None, local)]) {
        let length = rules.window.millis().0;
        let good = since.0 / length..=now.0 / length;
        if !good.contains(&u64::from(rules.reference)) {
            return Err(look.wrong(format!(
                "sees usage of {} from window {}, and it is {good:?}",
                name(vo),
                rules.reference
            )));
        }
    }
    Ok(())
}

/// Vectors compare as the ranks of their entries do: it is enough to compare neighbours.
fn check_vectors(
    look: &Look<'_>,
    snapshot: &Snapshot,
    right: &BTreeMap<AccountPath, Answer>,
) -> Result<(), Violation> {
    let rank = |entry: EntryId| right[snapshot.path(entry)].rank;
    let mut order: Vec<EntryId> = snapshot
        .ids()
        .filter(|entry| {
            right
                .get(snapshot.path(*entry))
                .is_some_and(|of| of.is_present)
        })
        .collect();
    order.sort_by_key(|entry| rank(*entry));
    for (first, then) in order.iter().zip(order.iter().skip(1)) {
        let (a, b) = (snapshot.vector(*first), snapshot.vector(*then));
        if b.compare(&a) != rank(*first).cmp(&rank(*then)) {
            let (first, then) = (snapshot.path(*first), snapshot.path(*then));
            return Err(look.wrong(format!(
                "compares {first} with {then} otherwise: {a:?}, {b:?}"
            )));
        }
    }
    Ok(())
}

/// Whether an account without a line stands where its `*` does.
fn as_new(order: &Order, entry: EntryId) -> bool {
    let snapshot = order.snapshot();
    let same = |others| {
        let rank = |entry| order.ranking().rank(entry);
        rank(entry) == rank(others) && order.factor(entry) == order.factor(others)
    };
    snapshot.kind(entry) == EntryKind::Unlisted && snapshot.parent(entry).is_some_and(same)
}

fn check_entry(
    look: &Look<'_>,
    order: &Order,
    entry: EntryId,
    (right, last): (&Answer, u32),
) -> Result<(), Violation> {
    let snapshot = order.snapshot();
    let shown = snapshot.level(entry);
    let vector = look.site.view().reader().vector(entry);
    let bits = BitsProjection.priority_of(snapshot, entry);
    let bits_factor = BitsProjection.factor(&bits, &Context::of(snapshot, entry));
    let (part, whole) = shown.target.ratio();
    let level = Level {
        target: ratio(part, whole),
        is_last: shown.target.is_last(),
        at_most: shown.at_most,
        distance: shown.distance,
        usage: (shown.usage, shown.parent_usage),
    };
    let packed = ethnum::I256::from(right.priority);
    let path = snapshot.path(entry);
    let rank = order.ranking().rank(entry);
    // One more than the ranks behind it, and that as a part of all ranks, rounded down.
    let of_rank = last + 1 - right.rank;
    let factor = u64::from(of_rank) * u64::from(Share::ONE) / u64::from(last);
    let same = [
        ("presence", snapshot.is_present(entry) == right.is_present),
        ("level", level == right.level),
        (
            "vector",
            vector
                .levels()
                .last()
                .unwrap_or(&fairmesh_fairshare::Level::MISSING)
                == &shown,
        ),
        ("rank", rank == right.rank),
        (
            "rank as a priority",
            order.priority(entry).units() == ethnum::I256::from(of_rank),
        ),
        (
            "rank as a factor",
            u64::from(order.factor(entry).units()) == factor,
        ),
        ("priority in bits", bits.units() == packed),
        ("factor in bits", bits_factor == right.factor),
    ];
    match same.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((what, _)) => Err(look.wrong(format!(
            "answers another {what} for {path}: {level:?}, rank {rank}, bits {bits}, factors {bits_factor} and {}; right is {right:?}",
            order.factor(entry)
        ))),
    }
}
