//! What pages are made of: one moment of the tree, and what the node says of itself, each for many requests.
//!
//! Invariant: the node's task is asked once in [`FRESH_FOR`] for what is small (and for the metrics, as often), and for
//! lists of tables only after a pause that is [`PAUSES`] times as long as the last asking took, whatever is requested. Few
//! pages and pieces of tables are made at a time, on threads of their own; who waits too long is told, and a turn is over when
//! its thread has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use fairmesh_api::finding::Finding;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::Refused;
use super::document::Document;
use super::page_data::{Gathered, PageData};
use super::usage::Usage;
use crate::control::namesakes::{self, Held};
use crate::control::{Moment, Shared, metrics, status};
use crate::privacy::PrivateData;

/// How long what the node says of itself is shown as now.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// How long at least the tables of usage are, and how many times as long as it took to list them.
const USAGE_FRESH_FOR: Duration = Duration::from_secs(2);
const PAUSES: u32 = 20;

/// How long at least what was found of people of one name is shown.
const NAMESAKES_FRESH_FOR: Duration = Duration::from_secs(10);

/// Pages that are made at the same time: one core of two stays free.
const MADE_AT_ONCE: usize = 2;

/// How long a request may wait for its turn and its answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// What all requests share.
pub(crate) struct Page {
    pub(super) shared: Arc<Shared>,
    /// Names by which it may be asked for.
    pub(super) hosts: Vec<String>,
    gathered: Mutex<Option<Arc<Gathered>>>,
    usage: Mutex<Option<Arc<Usage>>>,
    metrics: Mutex<Option<Metrics>>,
    namesakes: Mutex<Option<Namesakes>>,
    turns: Arc<Semaphore>,
}

/// What was measured a moment ago.
struct Metrics {
    taken: Instant,
    /// Whether usage was hidden then.
    hides_usage: bool,
    /// Whether it has the counters of each peer.
    sites: bool,
    text: Bytes,
}

/// What was found of people of one name.
struct Namesakes {
    taken: Instant,
    took: Duration,
    finding: Option<Finding>,
}

impl Page {
    pub(super) fn new(shared: Arc<Shared>, hosts: Vec<String>) -> Self {
        Self {
            shared,
            hosts,
            gathered: Mutex::default(),
            usage: Mutex::default(),
            metrics: Mutex::default(),
            namesakes: Mutex::default(),
            turns: Arc::new(Semaphore::new(MADE_AT_ONCE)),
        }
    }

    /// Whether what pages show is hidden from some of those who may read them.
    pub(super) fn is_private(&self) -> bool {
        let settings = self.shared.options.settings.borrow();
        let hide = &settings.access.privacy.hide;
        hide.contains(&PrivateData::Usage) || hide.contains(&PrivateData::Priority)
    }

    /// Makes something of what there is now, when it is its turn.
    pub(super) async fn made<T: Send + 'static>(
        &self,
        make: impl FnOnce(&PageData) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let made = async {
            let turn = self.turn().await;
            let data = self.data().await?;
            in_turn(turn, move || make(&data)).await?
        };
        tokio::time::timeout(ANSWER_MAX, made)
            .await
            .unwrap_or_else(|_| Err(busy()))
    }

    /// Makes the next piece of an answer that is read piece by piece, when it is its turn again.
    pub(super) async fn next_of<P: Iterator + Send + 'static>(
        &self,
        mut pieces: P,
    ) -> Result<Option<(P::Item, P)>, Refused>
    where
        P::Item: Send,
    {
        let turn = self.turn().await;
        in_turn(turn, move || Some((pieces.next()?, pieces))).await
    }

    /// `None` never comes: the turns are not closed.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// So that nobody else has one.
    #[cfg(test)]
    pub(super) async fn all_turns(&self) -> Option<OwnedSemaphorePermit> {
        let all = u32::try_from(MADE_AT_ONCE).expect("few");
        Arc::clone(&self.turns).acquire_many_owned(all).await.ok()
    }

    async fn data(&self) -> Result<PageData, Refused> {
        let said = self.said().await?;
        let served = self.shared.options.serving.newest();
        let moment = Moment::of(&served, said.rests_on.clone());
        Ok(PageData {
            moment,
            said,
            namesakes: self.namesakes().await?,
        })
    }

    /// The warning of people of one name, as of a while ago. Who reads it may see all usage, or no page.
    async fn namesakes(&self) -> Result<Option<Finding>, Refused> {
        let mut last = self.namesakes.lock().await;
        let is_fresh = |of: &&Namesakes| {
            of.taken.elapsed() < NAMESAKES_FRESH_FOR.max(of.took.saturating_mul(PAUSES))
        };
        if let Some(fresh) = last.as_ref().filter(is_fresh) {
            return Ok(fresh.finding.clone());
        }
        let began = Instant::now();
        let held = Held::ask(&self.shared).await?;
        let found = in_turn(None, move || namesakes::finding(&held.body(|_| true)));
        let finding = found.await?;
        *last = Some(Namesakes {
            taken: Instant::now(),
            took: began.elapsed(),
            finding: finding.clone(),
        });
        Ok(finding)
    }

    async fn said(&self) -> Result<Arc<Gathered>, Refused> {
        let mut last = self.gathered.lock().await;
        let is_fresh = |of: &&Arc<Gathered>| of.taken.elapsed() < FRESH_FOR;
        if let Some(fresh) = last.as_ref().filter(is_fresh) {
            return Ok(Arc::clone(fresh));
        }
        let asked = status(&self.shared, false).await;
        let (rests_on, status) = asked.map_err(|_| Refused::from(crate::driver::Gone))?;
        let held: Vec<_> = rests_on
            .views
            .iter()
            .map(|of| of.documents.clone())
            .collect();
        let known = last.as_ref().filter(|last| last.held == held);
        let documents = match known {
            Some(last) => Arc::clone(&last.documents),
            None => Arc::new(Document::all(self.shared.node()).await?),
        };
        let gathered = Arc::new(Gathered {
            taken: Instant::now(),
            rests_on,
            status,
            documents,
            held,
        });
        *last = Some(Arc::clone(&gathered));
        Ok(gathered)
    }

    /// The metrics, as they were a moment ago. Nobody knows who reads them where usage is hidden.
    pub(super) async fn metrics(&self, sites: bool) -> Result<Bytes, Refused> {
        let measured = async {
            let mut last = self.metrics.lock().await;
            let access = Arc::clone(&self.shared.options.settings.borrow().access);
            let hides_usage = access.privacy.hide.contains(&PrivateData::Usage);
            let is_fresh = |of: &&Metrics| {
                let is_same = (of.hides_usage, of.sites) == (hides_usage, sites);
                of.taken.elapsed() < FRESH_FOR && is_same
            };
            if let Some(fresh) = last.as_ref().filter(is_fresh) {
                return Ok(fresh.text.clone());
            }
            let _turn = self.turns.acquire().await;
            let text = metrics::text(&self.shared, hides_usage, sites).await;
            let text = Bytes::from(text.map_err(|_| Refused::from(crate::driver::Gone))?);
            *last = Some(Metrics {
                taken: Instant::now(),
                hides_usage,
                sites,
                text: text.clone(),
            });
            Ok(text)
        };
        tokio::time::timeout(ANSWER_MAX, measured)
            .await
            .unwrap_or_else(|_| Err(busy()))
    }

    /// The tables of usage, as they were a moment ago.
    pub(super) async fn usage(&self) -> Result<Arc<Usage>, Refused> {
        let listed = async {
            let mut last = self.usage.lock().await;
            let is_fresh = |of: &&Arc<Usage>| {
                of.taken.elapsed() < USAGE_FRESH_FOR.max(of.took.saturating_mul(PAUSES))
            };
            if let Some(fresh) = last.as_ref().filter(is_fresh) {
                return Ok(Arc::clone(fresh));
            }
            let usage = Arc::new(Usage::list(self.shared.node(), self.shared.options.site).await?);
            *last = Some(Arc::clone(&usage));
            Ok(usage)
        };
        tokio::time::timeout(ANSWER_MAX, listed)
            .await
            .unwrap_or_else(|_| Err(busy()))
    }
}

/// Works on a thread that has this turn until it ends, whoever waits for it.
async fn in_turn<T: Send + 'static>(
    turn: Option<OwnedSemaphorePermit>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    let worked = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    let failed = |error| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, error);
    worked.await.map_err(failed)
}

fn busy() -> Refused {
    Refused::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the node is busy, or many look at this page: try again in a moment",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::tests::World;

    #[tokio::test(flavor = "multi_thread")]
    async fn however_many_scrape_at_once_the_site_is_asked_once_for_all() {
        let world = World::start().await;
        let page = Page::new(Arc::new(Shared::new(world.options.clone())), Vec::new());
        let scrapes = futures::future::join_all((0..64).map(|_| page.metrics(false))).await;
        let mut texts: Vec<*const u8> = scrapes
            .into_iter()
            .map(|text| text.expect("a text").as_ptr())
            .collect();
        texts.dedup();
        assert!(texts.len() <= 2, "{} were made", texts.len());
        world.end().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_that_nobody_waits_for_any_more_keeps_its_turn() {
        let world = World::start().await;
        let page = Page::new(Arc::new(Shared::new(world.options.clone())), Vec::new());
        let (ends, end) = std::sync::mpsc::channel::<()>();
        let end = Arc::new(std::sync::Mutex::new(end));
        for _ in 0..MADE_AT_ONCE {
            let (began, begun) = tokio::sync::oneshot::channel();
            let end = Arc::clone(&end);
            let long = page.made(move |_| {
                began.send(()).expect("the test waits");
                let end = end.lock().expect("no panic");
                end.recv().expect("the test says so");
                Ok(())
            });
            tokio::select! {
                _ = long => panic!("it goes on"),
                begun = begun => begun.expect("begins"),
            }
        }
        let mut third = std::pin::pin!(page.made(|_| Ok(())));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut third).await;
        assert!(early.is_err(), "two threads are at work");
        ends.send(()).expect("it waits");
        third.await.expect("one has ended");
        ends.send(()).expect("it waits");
        world.end().await;
    }
}
