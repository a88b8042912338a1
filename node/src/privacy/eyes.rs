//! Who asks on a connection, and what the owner says he sees.
//!
//! Invariant: the system is asked for a name only where it matters, off the task that asks, and not again within
//! [`NAMES_FRESH_FOR`]; a reload counts at the next question.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fairmesh_site::View;
use tokio::sync::watch;

use super::{Privacy, Reader, Sight, What};
use crate::config::name_of;
use crate::control::{ControlSettings, may_read_all};

/// How long a name of a user is remembered: a directory may be slow, and he may ask a thousand times a second.
const NAMES_FRESH_FOR: Duration = Duration::from_secs(60);

/// Names remembered at most; with more all are forgotten.
const NAMES_MAX: usize = 4_096;

/// Names of users by number, and when the directory was asked for each.
type Names = BTreeMap<u32, (Instant, Option<String>)>;

/// What a socket knows of those who ask.
#[derive(Debug, Clone)]
pub struct Eyes {
    settings: watch::Receiver<ControlSettings>,
    names: Arc<Mutex<Names>>,
    directory: fn(u32) -> Option<String>,
}

impl Eyes {
    /// By what the owner says at each time.
    pub fn new(settings: watch::Receiver<ControlSettings>) -> Self {
        Self::asking(settings, name_of)
    }

    /// The same, where names are asked of this directory.
    pub(super) fn asking(
        settings: watch::Receiver<ControlSettings>,
        directory: fn(u32) -> Option<String>,
    ) -> Self {
        Self {
            settings,
            names: Arc::default(),
            directory,
        }
    }

    /// The owner's word, where it hides `what` from `uid`.
    pub(crate) fn hidden(&self, uid: Option<u32>, what: What) -> Option<Arc<Privacy>> {
        let settings = self.settings.borrow();
        let is_hidden = settings.privacy.hide.contains(&what) && !may_read_all(uid, &settings);
        is_hidden.then(|| Arc::clone(&settings.privacy))
    }

    /// What `uid` sees of a tree. Where nothing is hidden nobody is asked for his name.
    pub(crate) async fn sight(&self, uid: Option<u32>, view: Arc<View>) -> Sight {
        let is_open = self.settings.borrow().privacy.hide.is_empty();
        self.looking(uid.filter(|_| !is_open), uid, view).await
    }

    /// The same, where what is his own is shown whatever is hidden.
    pub(crate) async fn own_sight(&self, uid: Option<u32>, view: Arc<View>) -> Sight {
        self.looking(uid, uid, view).await
    }

    async fn looking(&self, named: Option<u32>, uid: Option<u32>, view: Arc<View>) -> Sight {
        let (privacy, sees_all) = {
            let settings = self.settings.borrow();
            let sees_all = may_read_all(uid, &settings);
            (Arc::clone(&settings.privacy), sees_all)
        };
        let reader = match (sees_all, named) {
            (true, _) => Reader::All,
            (false, Some(uid)) => self.name(uid).await.map_or(Reader::Unknown, Reader::User),
            (false, None) => Reader::Unknown,
        };
        if privacy.hide.is_empty() {
            return Sight::new(privacy, reader, view);
        }
        let made = tokio::task::spawn_blocking(move || Sight::new(privacy, reader, view));
        made.await.expect("paths are compared without a panic")
    }

    /// The entries of a tree that `uid` sees `what` of, by index.
    pub(crate) async fn entries(
        &self,
        uid: Option<u32>,
        view: Arc<View>,
        what: What,
    ) -> BTreeSet<u32> {
        let sight = self.sight(uid, view).await;
        let listed = tokio::task::spawn_blocking(move || sight.entries(what));
        listed.await.expect("paths are compared without a panic")
    }

    /// Asks for the name of whoever is about to wait for his turn, where it will matter: a directory that takes its time
    /// then keeps nobody else waiting.
    pub(crate) async fn meet(&self, uid: Option<u32>) {
        let is_open = self.settings.borrow().privacy.hide.is_empty();
        let sees_all = may_read_all(uid, &self.settings.borrow());
        if let Some(uid) = uid.filter(|_| !is_open && !sees_all) {
            self.name(uid).await;
        }
    }

    /// The name of a user, if the system says it.
    pub(crate) async fn name(&self, uid: u32) -> Option<String> {
        let lock = || self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&uid).cloned();
        if let Some((_, name)) = known.filter(|(at, _)| at.elapsed() < NAMES_FRESH_FOR) {
            return name;
        }
        let directory = self.directory;
        let asked = tokio::task::spawn_blocking(move || directory(uid)).await;
        let name = asked.ok().flatten();
        let mut names = lock();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(uid, (Instant::now(), name.clone()));
        name
    }
}
