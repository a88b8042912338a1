//! What a scheduler is given of its node's view: the exact order at each pass, or factors as
//! `fairmesh slurm sync` sets them.
//!
//! Invariant: factors are made as the node makes them, by one [`Order`] of one snapshot, and a cluster
//! keeps them until the next round of `sync`, however much is used meanwhile.
//!
//! Deliberately not here: site factors' range and granularity (the default range has as many units as a
//! factor, and granularity never turns the order), and the one round that a new job waits for its
//! first factor: here an account's jobs share one.

use std::collections::BTreeMap;

use fairmesh_cluster::AccountKey;
use fairmesh_fairshare::projection::{BitsProjection, PaperProjection, RankProjection};
use fairmesh_fairshare::{EntryId, Order};
use fairmesh_model::{Millis, Share, WallTime};
use fairmesh_site::View;

use super::rank;

/// How often `fairmesh slurm sync` sets factors.
const ROUND: Millis = Millis::from_secs(30);

/// What schedulers go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Served {
    /// The exact order of the deviation vectors, anew at each pass.
    Exact,
    /// What Slurm gets: a factor by rank, in rounds.
    Slurm,
    /// As Slurm gets it under `projection = "bits"`.
    Bits,
    /// As Slurm gets it under `projection = "paper"`: FSGrid's number in base 200.
    Base200,
}

/// Factors of the accounts at one site, until the next round.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    until: Option<WallTime>,
    factors: BTreeMap<AccountKey, u64>,
}

impl Given {
    /// What the scheduler at a site with this view goes by now, for all accounts that it may have.
    pub(super) fn at(
        &mut self,
        now: WallTime,
        served: Served,
        view: &View,
        entries: &[(AccountKey, EntryId)],
    ) -> BTreeMap<AccountKey, u64> {
        if served == Served::Exact {
            return rank(view.reader(), entries.iter().cloned());
        }
        if self.until.is_none_or(|until| now >= until) {
            let order = order(served, view);
            let factor = |(account, entry): &(AccountKey, EntryId)| {
                let units = u64::from(order.factor(*entry).units());
                let whole = u64::from(Share::ONE);
                (account.clone(), units * u64::from(u32::MAX) / whole)
            };
            self.factors = entries.iter().map(factor).collect();
            self.until = Some(now.after(ROUND));
        }
        self.factors.clone()
    }
}

fn order(served: Served, view: &View) -> Order {
    let snapshot = view.reader().snapshot(1);
    let snapshot = snapshot.expect("nobody writes while schedulers ask");
    match served {
        Served::Exact | Served::Slurm => {
            let ranks = Box::new(RankProjection::prepare(&snapshot));
            Order::of(snapshot, ranks)
        }
        Served::Bits => Order::of(snapshot, Box::new(BitsProjection)),
        Served::Base200 => Order::of(snapshot, Box::new(PaperProjection)),
    }
}
