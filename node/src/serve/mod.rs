//! What `lookup.sock` answers from: the site's share tree, and what it rests on.
//!
//! Factors are read from the tree as it is at that moment; ages and coverage are refreshed a few
//! times a second, so that no look-up ever waits for the site.
//!
//! Invariant: a handle that a client holds means the same entry for as long as the generation stays
//! the same; every new tree or identity map has a new generation.

use std::sync::Arc;
use std::time::Duration;

use fairmesh_client::protocol::{self, Who};
use fairmesh_model::{AccountPath, Millis, Origin, Window};
use fairmesh_site::{Coverage, Health, Site, View};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::driver::{Gone, NodeHandle};
use crate::lookup::{LookupSnapshot, LookupSource};

/// How often ages and coverage are refreshed: well below the second in which they are shown.
const REFRESH: Duration = Duration::from_millis(250);

/// Answers for `lookup.sock`.
#[derive(Debug)]
pub struct ViewSource {
    answers: watch::Receiver<Arc<Answers>>,
    refresher: JoinHandle<()>,
}

/// One state of the tree, and what it rests on.
#[derive(Debug)]
pub struct Answers {
    view: Arc<View>,
    rests_on: protocol::View,
}

impl ViewSource {
    /// Answers of `node`, on the current tokio runtime.
    pub async fn start(node: NodeHandle) -> Result<Arc<Self>, Gone> {
        let first = Arc::new(ask(&node, 1).await?);
        let (sender, answers) = watch::channel(first);
        let refresher = tokio::spawn(async move {
            let mut generation = 1;
            loop {
                tokio::time::sleep(REFRESH).await;
                let Ok(mut next) = ask(&node, generation).await else {
                    return;
                };
                if !Arc::ptr_eq(&next.view, &sender.borrow().view) {
                    generation += 1;
                    next.rests_on.generation = generation;
                }
                sender.send_replace(Arc::new(next));
            }
        });
        Ok(Arc::new(Self { answers, refresher }))
    }
}

impl Drop for ViewSource {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl LookupSource for ViewSource {
    type Snapshot = Answers;

    fn snapshot(&self) -> Arc<Answers> {
        self.answers.borrow().clone()
    }
}

impl LookupSnapshot for Answers {
    fn resolve(&self, who: &Who<'_>) -> Option<u32> {
        let entry = match who {
            Who::Path(path) => self.view.reader().entry(&AccountPath::parse(path).ok()?)?,
            Who::Names(names) => {
                let owned = |name: Option<&str>| name.map(str::to_owned);
                self.view.resolve(&Origin {
                    user: owned(names.user),
                    account: owned(names.account),
                    group: owned(names.group),
                    subject: owned(names.subject),
                })?
            }
        };
        u32::try_from(entry.index()).ok()
    }

    fn factor(&self, entry: u32) -> Option<u32> {
        let reader = self.view.reader();
        Some(reader.lookup(reader.entry_at(entry)?).factor.units())
    }

    fn view(&self) -> protocol::View {
        self.rests_on
    }

    fn generation(&self) -> u64 {
        self.rests_on.generation
    }
}

async fn ask(node: &NodeHandle, generation: u64) -> Result<Answers, Gone> {
    node.ask(move |site, now| {
        let coverage = site.coverage();
        let view = site.view();
        let rests_on = protocol::View {
            as_of: now.wall,
            age: oldest_age(site, &coverage, now.wall),
            sites_known: coverage.sites_known,
            sites_total: coverage.sites_total,
            reference_window: view
                .reader()
                .references()
                .first()
                .copied()
                .unwrap_or(Window(0)),
            digest: site.holdings(),
            flags: flags(site.health(now)),
            generation,
        };
        Answers { view, rests_on }
    })
    .await
}

/// Age of what the longest silent site last said. Our own usage is always current.
fn oldest_age(site: &Site, coverage: &Coverage, now: fairmesh_model::WallTime) -> Millis {
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
}
