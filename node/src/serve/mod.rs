//! What look-ups and people are answered from: the share tree in the order in which it is served, and
//! what that rests on.
//!
//! An [`Order`] has the rank and the factor of every entry of one moment. It is made anew in the
//! background when anything has changed (`refresh`), never on the site's task, and whoever asks gets
//! all of an answer from one. So a look-up reads two words, and what `share`, `prio` and `explain` say
//! of somebody is what his scheduler is told.
//!
//! Invariant: a handle that a client holds means the same entry for as long as the generation stays the same; every
//! new tree or identity map has a new generation, and so has a tree that got an entry for an account without a line:
//! until then such an account has the handle of all new ones. No look-up waits for the site, nor for an order that is
//! being made. What an answer says that it rests on is in its order.

use std::sync::Arc;
use std::time::Instant;

use fairmesh_api::RestsOn;
use fairmesh_client::protocol::{self, Who};
use fairmesh_fairshare::Order;
use fairmesh_model::{AccountPath, Millis, Now};
use fairmesh_site::{Bands, Site, View, Words};
use futures::FutureExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::driver::{Gone, NodeHandle};
use crate::lookup::{LookupSnapshot, LookupSource};
use crate::projection::ProjectionName;

mod refresh;

/// Where answers come from. The newest is always at hand.
#[derive(Debug)]
pub struct Serving {
    served: watch::Receiver<Arc<Served>>,
    wanted: mpsc::Sender<oneshot::Sender<Arc<Served>>>,
    refresher: JoinHandle<()>,
}

/// One state of the tree in its order, and what it rests on.
#[derive(Debug)]
pub struct Served {
    /// Who is who, and the tree.
    pub view: Arc<View>,
    /// Ranks, factors and the sums behind them.
    pub order: Arc<Order>,
    /// The tree's version that the order is of.
    version: u64,
    projection: ProjectionName,
    /// Who stands behind the others because nothing is left of his quota.
    bands: Bands,
    rests_on: protocol::View,
    /// When the site said so.
    taken: Instant,
    /// What the order rests on: nothing that this states came after its sums were copied.
    made_from: Arc<RestsOn>,
}

/// Requests for a fresh order that wait at most; more are answered with what there is.
const WANTED_MAX: usize = 64;

/// Entries of a tree whose next order no answer waits for: such an order takes 30 ms, and one of a million a second.
const LARGE: usize = 50_000;

/// Asks the site what an answer rests on.
pub type Ask = fn(&Site, Now) -> RestsOn;

impl Serving {
    /// Answers of `node`, on the current tokio runtime, in the order that `projection` says each time. They state what
    /// `rests_on` returns.
    pub async fn start(
        node: NodeHandle,
        projection: impl Fn() -> ProjectionName + Send + Sync + 'static,
        rests_on: Ask,
    ) -> Result<Arc<Self>, Gone> {
        let mut refresh = refresh::Refresh::new(node, projection, rests_on);
        let (sender, served) = watch::channel(refresh.first().await?);
        let (wanted, requests) = mpsc::channel(WANTED_MAX);
        let refresher = tokio::spawn(refresh.run(sender, requests).boxed());
        Ok(Arc::new(Self {
            served,
            wanted,
            refresher,
        }))
    }

    /// What there is now.
    pub fn newest(&self) -> Arc<Served> {
        self.served.borrow().clone()
    }

    /// The newest order of a large tree if it is outdated, and what it rests on. The next one is made without a pause.
    pub fn outdated(&self) -> Option<(Arc<Served>, RestsOn)> {
        let newest = self.newest();
        let is_large = newest.order.snapshot().entries() >= LARGE;
        if !is_large || newest.version == newest.view.reader().version() {
            return None;
        }
        // The next caller gets that order.
        let _ = self.wanted.try_send(oneshot::channel().0);
        let rests_on = RestsOn::clone(&newest.made_from);
        Some((newest, rests_on))
    }

    /// What holds all that the node knew when it was asked.
    pub async fn fresh(&self) -> Result<Arc<Served>, Gone> {
        let (answer, answered) = oneshot::channel();
        if let Err(mpsc::error::TrySendError::Closed(_)) = self.wanted.try_send(answer) {
            return Err(Gone);
        }
        // Where too many wait already, the newest has to do: it is a moment old.
        Ok(answered.await.unwrap_or_else(|_| self.newest()))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl LookupSource for Serving {
    type Snapshot = Served;

    fn snapshot(&self) -> Arc<Served> {
        self.newest()
    }
}

impl LookupSnapshot for Served {
    fn resolve(&self, who: &Who<'_>) -> Option<u32> {
        let entry = match who {
            Who::Path(path) => self
                .order
                .snapshot()
                .entry(&AccountPath::parse(path).ok()?)?,
            Who::Names(names) => {
                let account = self.view.account(Words {
                    user: names.user,
                    account: names.account,
                    group: names.group,
                    subject: names.subject,
                    queue: names.queue,
                    qos: names.qos,
                })?;
                self.view.locate_in(self.order.snapshot(), &account).entry
            }
        };
        u32::try_from(entry.index()).ok()
    }

    fn factor(&self, entry: u32) -> Option<u32> {
        let factor = self.order.factors().get(usize::try_from(entry).ok()?)?;
        Some(factor.units())
    }

    fn view(&self) -> protocol::View {
        // Where the site's task stands still nothing is taken anew, and what there is grows old all the same.
        let since = u64::try_from(self.taken.elapsed().as_millis()).unwrap_or(u64::MAX);
        let age = Millis(self.rests_on.age.0.saturating_add(since));
        protocol::View {
            age,
            ..self.rests_on
        }
    }

    fn tree(&self) -> Option<Arc<View>> {
        Some(Arc::clone(&self.view))
    }

    fn generation(&self) -> u64 {
        self.rests_on.generation
    }
}
