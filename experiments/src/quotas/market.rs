//! What sites ask for their machines: each has the product's own price, by what runs and waits at its cluster.
//!
//! Invariant: a price is looked at each minute, as a node's feed would tell its load; where prices are fixed nothing
//! is looked at.
//! Deliberately not here: how long a price takes to others (half a second); users see what is asked now.

use fairmesh_cluster::Cluster;
use fairmesh_model::{Factor, Millis, MonoTime, Now, WallTime};
use fairmesh_quota::price::{Poster, Pricing, load};

use simnet::vo::START;

/// How often a site looks at its load.
const LOOK: Millis = Millis::from_secs(60);

/// The prices of all sites.
pub(super) struct Market {
    pricing: Pricing,
    posters: Vec<Poster>,
    prices: Vec<Factor>,
    looks_at: Option<WallTime>,
}

impl Market {
    pub(super) fn new(sites: usize, pricing: &Pricing) -> Self {
        Self {
            pricing: pricing.clone(),
            posters: vec![Poster::default(); sites],
            prices: vec![Factor::ONE; sites],
            looks_at: (*pricing != Pricing::Fixed).then_some(START),
        }
    }

    /// What each site asks.
    pub(super) fn prices(&self) -> &[Factor] {
        &self.prices
    }

    pub(super) fn next_at(&self) -> Option<WallTime> {
        self.looks_at
    }

    pub(super) fn look(&mut self, wall: WallTime, clusters: &[Cluster]) {
        if self.looks_at.is_none_or(|at| wall < at) {
            return;
        }
        self.looks_at = Some(wall.after(LOOK));
        let mono = MonoTime(wall.since(START).0);
        let sites = self.posters.iter_mut().zip(&mut self.prices);
        for ((poster, price), cluster) in sites.zip(clusters) {
            // Jobs have one core each.
            let wanted = u64::from(cluster.cores_used()) + cluster.queued() as u64;
            let of = load(wanted, u64::from(cluster.cores()));
            poster.look(Now { mono, wall }, &self.pricing, of);
            *price = poster.price();
        }
    }

    /// Where it costs least; `usual` where nowhere else does.
    pub(super) fn cheapest(&self, usual: usize) -> usize {
        let cheapest =
            (0..self.prices.len()).min_by_key(|site| (self.prices[*site], *site != usual));
        cheapest.expect("there are sites")
    }
}
