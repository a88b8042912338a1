//! Making the order anew: when anything has changed, and whoever asks waits for it.
//!
//! Sums are copied by a reader, and only if writers are too busy for that by the site itself; ranks
//! are made on a thread of their own. Ages and coverage are asked of the site each time.
//!
//! Invariant: an order is made only of sums that have changed, or for a tree, a projection or bands that are
//! new; of two that are made one after the other, the pause between them is at least as long as the
//! first took, and [`PAUSES`] times that where nobody waits: so it never takes more than half of a
//! core, and a tenth of one by itself.

use std::sync::Arc;
use std::time::Duration;

use fairmesh_client::protocol;
use fairmesh_fairshare::{self as fairshare, Order, Snapshot};
use fairmesh_model::{Millis, WallTime, Window};
use fairmesh_quota::decision::band;
use fairmesh_site::{Bands, Coverage, Health, Site, View};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::{Ask, Served};
use crate::driver::{Gone, NodeHandle};
use crate::projection::ProjectionName;

/// How often ages and coverage are refreshed, and the order where it has changed: well below the second
/// in which ages are shown.
const INTERVAL: Duration = Duration::from_millis(250);

/// How much longer than an order took to make it serves at least, where nobody asks for another.
const PAUSES: u32 = 9;

/// Copies that are tried before the site is asked for one.
const SNAPSHOT_ATTEMPTS: u32 = 8;

type Wanted = oneshot::Sender<Arc<Served>>;

pub(super) struct Refresh<P> {
    node: NodeHandle,
    /// What the owner wants now.
    projection: P,
    rests_on: Ask,
    /// How long the last order took to make, and when it was made.
    took: Duration,
    made: Instant,
}

impl<P: Fn() -> ProjectionName> Refresh<P> {
    pub(super) fn new(node: NodeHandle, projection: P, rests_on: Ask) -> Self {
        Self {
            node,
            projection,
            rests_on,
            took: Duration::ZERO,
            made: Instant::now(),
        }
    }

    pub(super) async fn first(&mut self) -> Result<Arc<Served>, Gone> {
        self.next(None).await
    }

    /// Refreshes until the node has stopped.
    pub(super) async fn run(
        mut self,
        served: watch::Sender<Arc<Served>>,
        mut requests: mpsc::Receiver<Wanted>,
    ) {
        let mut waiting: Vec<Wanted> = Vec::new();
        loop {
            let due = (Instant::now() + INTERVAL).max(self.made + self.took * PAUSES);
            tokio::select! {
                () = sleep_until(due) => {}
                request = requests.recv() => waiting.extend(request),
            }
            if !waiting.is_empty() {
                sleep_until(self.made + self.took).await;
            }
            // Whoever has asked until now is answered by the order that is made now.
            while let Ok(request) = requests.try_recv() {
                waiting.push(request);
            }
            let last = served.borrow().clone();
            let Ok(next) = self.next(Some(&last)).await else {
                return;
            };
            served.send_replace(next.clone());
            for request in waiting.drain(..) {
                // Who does not wait any more needs no answer.
                let _ = request.send(next.clone());
            }
        }
    }

    async fn next(&mut self, last: Option<&Served>) -> Result<Arc<Served>, Gone> {
        let projection = (self.projection)();
        let (view, bands, mut rests_on) = self.node.ask(seen).await?;
        let taken = std::time::Instant::now();
        let version = view.reader().version();
        if let Some(last) = last.map(|last| &last.rests_on) {
            rests_on.generation = last.generation;
            rests_on.ranking = last.ranking;
            rests_on.step = last.step;
        }
        let is_of = |view: &Arc<View>| last.filter(|last| Arc::ptr_eq(&last.view, view));
        let same = is_of(&view).filter(|last| {
            (last.version, last.projection) == (version, projection) && last.bands.is_same(&bands)
        });
        if let Some(last) = same {
            return Ok(Arc::new(Served {
                view,
                order: last.order.clone(),
                version,
                projection,
                bands,
                rests_on,
                taken,
                made_from: last.made_from.clone(),
            }));
        }
        let began = Instant::now();
        let made_from = Arc::new(self.node.ask(self.rests_on).await?);
        let (view, version, snapshot) = self.snapshot(view).await?;
        let by = bands.clone();
        let made = tokio::task::spawn_blocking(move || {
            let projected = projection.prepare(&snapshot);
            let in_bands = fairshare::Bands {
                is_first: &|entry| by.is_within(entry),
                factor: band,
            };
            let in_bands = (!by.is_empty()).then_some(&in_bands);
            Order::in_bands(snapshot, projected, in_bands)
        });
        let order = Arc::new(made.await.map_err(|_| Gone)?);
        self.made = Instant::now();
        self.took = self.made - began;
        let entries = order.snapshot().entries();
        let same_entries = is_of(&view).filter(|last| last.order.snapshot().entries() == entries);
        rests_on.generation += u64::from(same_entries.is_none());
        rests_on.ranking += 1;
        rests_on.step = order.step();
        let references = order.snapshot().references();
        rests_on.reference_window = references.first().copied().unwrap_or(Window(0));
        Ok(Arc::new(Served {
            view,
            order,
            version,
            projection,
            bands,
            rests_on,
            taken,
            made_from,
        }))
    }

    /// All sums of the tree of `view`, or of the one that has taken its place, and the version that they
    /// are at least of.
    async fn snapshot(&self, view: Arc<View>) -> Result<(Arc<View>, u64, Snapshot), Gone> {
        let reader = view.reader().clone();
        let version = reader.version();
        let copied = tokio::task::spawn_blocking(move || reader.snapshot(SNAPSHOT_ATTEMPTS));
        if let Some(snapshot) = copied.await.map_err(|_| Gone)? {
            return Ok((view, version, snapshot));
        }
        let asked = self.node.ask(|site, _| {
            let view = site.view();
            let version = view.reader().version();
            (view, version, site.snapshot())
        });
        asked.await
    }
}

/// Who is who now, and what answers rest on.
fn seen(site: &Site, now: fairmesh_model::Now) -> (Arc<View>, Bands, protocol::View) {
    let now = site.by_members(now);
    let coverage = site.coverage();
    let view = site.view();
    let references = view.reader().references();
    let rests_on = protocol::View {
        as_of: now.wall,
        age: oldest_age(site, &coverage, now.wall),
        sites_known: coverage.sites_known,
        sites_total: coverage.sites_total,
        reference_window: references.first().copied().unwrap_or(Window(0)),
        digest: site.holdings(),
        flags: flags(site.health(now)),
        generation: 0,
        ranking: 0,
        step: 0,
    };
    (view, site.bands(), rests_on)
}

/// Age of what the longest silent site last said. Our own usage is always current.
fn oldest_age(site: &Site, coverage: &Coverage, now: WallTime) -> Millis {
    let others = coverage
        .signed_at
        .iter()
        .filter(|(id, _)| **id != site.id());
    others
        .map(|(_, at)| now.since(*at))
        .max()
        .unwrap_or_default()
}

fn flags(health: Health) -> u64 {
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    flag(health.expired, protocol::View::POLICY_EXPIRED)
        | flag(health.conflicting, protocol::View::DOCUMENT_CONFLICT)
        | flag(health.forked, protocol::View::SITE_FORKED)
        | flag(health.alone, protocol::View::ALONE)
        | flag(health.unvouched, protocol::View::UNVOUCHED)
}
