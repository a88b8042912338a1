//! Where owners want it, accounts with nothing left of their quota stand after all others.
//!
//! Source: docs/quotas.md, "Bands": the factor of such an account is halved, and the others' are in the upper half,
//! each in the order of fairshare.
//!
//! Invariant checked: ranks and factors of both bands are what this makes of the ranks without bands; and at rest those
//! in front are those of whom the oracle finds that they have anything left.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fairmesh_fairshare::projection::RankProjection;
use fairmesh_fairshare::{Bands, Order, Snapshot};
use fairmesh_model::{AccountPath, Millis, Share};
use fairmesh_quota::decision::band;

use super::Look;
use crate::facts::place;
use crate::invariants::Violation;
use crate::oracle::answers::Answer;
use crate::oracle::owner::Owner;

/// Sites look at the hour each second, and ticks may be some seconds late.
const LOOKED_AGO: Millis = Millis(15_000);

pub(super) fn check(
    look: &Look<'_>,
    snapshot: &Snapshot,
    owner: &Owner,
    right: &BTreeMap<AccountPath, Answer>,
) -> Result<u64, Violation> {
    let bands = look.site.bands();
    let mut checks = 0;
    if look.at_rest {
        checks += check_within(look, owner, right)?;
    }
    if bands.is_empty() {
        return Ok(checks);
    }
    let in_bands = Bands {
        is_first: &|entry| bands.is_within(entry),
        factor: band,
    };
    let projected = Box::new(RankProjection::prepare(snapshot));
    let order = Order::in_bands(snapshot.clone(), projected, Some(&in_bands));
    let present = || right.iter().filter(|(_, answer)| answer.is_present);
    let last = present().map(|(_, answer)| answer.rank).max().unwrap_or(1);
    let place = |path: &AccountPath, answer: &Answer| (Reverse(bands.is_within(path)), answer.rank);
    let places: BTreeSet<_> = present()
        .map(|(path, answer)| place(path, answer))
        .collect();
    let ranks: BTreeMap<_, u32> = places.into_iter().zip(1..).collect();
    for entry in snapshot.ids() {
        let path = snapshot.path(entry);
        let Some(answer) = right.get(path).filter(|answer| answer.is_present) else {
            continue;
        };
        let alone = u64::from(last + 1 - answer.rank) * u64::from(Share::ONE) / u64::from(last);
        let half = if bands.is_within(path) { Share::ONE } else { 0 };
        let right = (ranks[&place(path, answer)], (u64::from(half) + alone) / 2);
        let shown = (
            order.ranking().rank(entry),
            u64::from(order.factor(entry).units()),
        );
        if shown != right {
            let message =
                format!("puts {path} at {shown:?} (rank, factor) in its band; right is {right:?}");
            return Err(look.wrong(message));
        }
        checks += 1;
    }
    Ok(checks)
}

/// Who has anything left, by documents and the site's own counters.
fn check_within(
    look: &Look<'_>,
    owner: &Owner,
    right: &BTreeMap<AccountPath, Answer>,
) -> Result<u64, Violation> {
    let (world, node) = (look.seen.world, look.node);
    let config = &world.node(node).config;
    let shown = look.site.bands();
    let mut places = Vec::new();
    for (mount, vo) in owner
        .entries
        .iter()
        .filter_map(|of| Some((&of.path, of.vo?)))
    {
        let wants = config.quotas.get(&vo);
        let place = place(world, node, vo);
        let place = place.filter(|place| !place.allocations.is_empty());
        let (true, Some(place)) = (wants.is_some_and(|of| of.bands && !of.is_off), place) else {
            continue;
        };
        if place.is_frozen || place.has_just_turned(LOOKED_AGO) {
            return Ok(0);
        }
        places.push((mount, place));
    }
    for path in right.keys() {
        let is_within = places.iter().all(|(mount, place)| {
            let account = path.relative_to(mount);
            account.is_none_or(|account| place.is_within(&account))
        });
        if is_within != shown.is_within(path) {
            let band = if is_within { "within" } else { "beyond" };
            return Err(look.wrong(format!("takes {path} for other than {band} its quota")));
        }
    }
    Ok(right.len() as u64)
}
