//! What leaders pass on of an allocation, and what sites may have of one at most.
//!
//! Invariant: what is drawn here comes from a stream of its own, so a run without parts and bounds asks for, holds and
//! grants what it would without this file. Leaders may pass on more than there is left: it is for sites to see to that.
//! Deliberately not here: judging (`invariants::quotas`).

use std::collections::BTreeMap;

use fairmesh_cluster::Stream;
use fairmesh_model::{
    AccountPath, Allocation, AllocationSlice, CoreMillis, PartOf, Role, Share, Signed, SigningKey,
    SiteId,
};

use crate::check::Run;
use crate::vo::{allocation, key, path, site_id};

/// The key of those who pass on parts of a VO's allocations.
pub(super) fn leader_key(vo: usize) -> SigningKey {
    key("leader", vo)
}

pub(super) fn leaders(vo: usize) -> Role {
    Role::single(leader_key(vo).key_id())
}

/// What some sites may have at most: a quarter more than the split gives them, or twice that.
pub(super) fn bounds(
    random: &mut Stream,
    split: &BTreeMap<SiteId, u64>,
) -> BTreeMap<SiteId, Share> {
    let all: u64 = split.values().sum();
    let mut bounds = BTreeMap::new();
    for (site, weight) in split {
        let quarters = [5, 8][random.index(2)];
        if random.below(2) == 0 {
            bounds.insert(*site, Share::from_ratio(weight * quarters, all * 4));
        }
    }
    bounds
}

impl Run {
    /// Leaders of an allocation pass a part of it on, to a group or to one of its users.
    pub(super) fn pass_on(&mut self) {
        let all = self.credit.granted.iter().map(Signed::claimed);
        let wholes = all.enumerate().filter(|(_, body)| body.leaders.is_some());
        let wholes: Vec<usize> = wholes.map(|(at, _)| at).collect();
        if wholes.is_empty() {
            return;
        }
        let now = self.world.true_wall();
        let at = wholes[self.credit.of_parts.index(wholes.len())];
        let whole = self.credit.granted[at].clone();
        let body = whole.claimed();
        let vo = self.number_of(body.vo);
        let to = self.account_below(vo, &body.path);
        let random = &mut self.credit.of_parts;
        let percent = random.between(5, 90);
        let live = (0..).zip(&body.slices).filter(|(_, of)| now < of.end);
        let parts = live.map(|(place, of)| {
            let amount = CoreMillis((of.amount.0 * percent / 100).max(1));
            (place, AllocationSlice { amount, ..*of })
        });
        let (places, slices): (Vec<u32>, Vec<AllocationSlice>) = parts.unzip();
        if slices.is_empty() {
            return;
        }
        let members = self.options.vos[vo].members.iter();
        let split = members.map(|site| (site_id(*site), random.between(0, 3)));
        let mut split: BTreeMap<SiteId, u64> = split.collect();
        if let Some(mut first) = split.first_entry() {
            *first.get_mut() += 1;
        }
        let part = Allocation {
            issued: now,
            split,
            part_of: Some(PartOf {
                allocation: body.id.unwrap_or_else(|| whole.hash().into()),
                slices: places,
            }),
            ..allocation(body.vo, to, slices, 1)
        };
        let signed = Signed::sign(part, &[&leader_key(vo)]).expect("a valid part");
        self.hand_in(vo, &signed);
        self.credit.granted.push(signed);
    }

    /// A group below the root, or a user below either.
    fn account_below(&mut self, vo: usize, above: &AccountPath) -> AccountPath {
        let of = &self.options.vos[vo];
        let random = &mut self.credit.of_parts;
        let user = format!("/u{}", random.index(of.users));
        let group = format!("/g{}", random.index(of.groups));
        match (above.is_root(), random.below(2)) {
            (true, 0) => path(&group),
            (true, _) => path(&(group + &user)),
            (false, _) => path(&format!("{above}{user}")),
        }
    }
}
