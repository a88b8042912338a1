//! Who asks on a connection, and what the owner says he sees.
//!
//! Invariant: the system is asked for a name only where it matters, off the task that asks, and not again within
//! [`NAMES_FRESH_FOR`]; what of a tree is a user's own is worked out once for him and that tree, however often and on however
//! many connections he asks; a reload counts at the next question.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use fairmesh_model::AccountPath;
use fairmesh_site::View;

use super::{CurrentAccess, Privacy, PrivateData, Reader, Visibility, own_entries};
use crate::users::name_of;

/// How long a name of a user is remembered: a directory may be slow, and he may ask a thousand times a second.
const NAMES_FRESH_FOR: Duration = Duration::from_secs(60);

/// Names remembered at most; with more all are forgotten.
const NAMES_MAX: usize = 4_096;

/// Names of users by number, and when the directory was asked for each.
type Names = BTreeMap<u32, (Instant, Option<String>)>;

/// Entries of users that are remembered at most; with more all are forgotten. Of most users it is a handful, of some 100 bytes.
const ENTRIES_MAX: usize = 200_000;

/// PrivateData of one tree is each user's own.
#[derive(Debug, Default)]
struct Owned {
    view: Weak<View>,
    of_users: BTreeMap<String, Arc<[AccountPath]>>,
    entries: usize,
}

/// PrivateData a socket knows of those who ask.
#[derive(Debug, Clone)]
pub struct VisibilityResolver {
    access: CurrentAccess,
    names: Arc<Mutex<Names>>,
    owned: Arc<Mutex<Owned>>,
    directory: fn(u32) -> Option<String>,
}

impl VisibilityResolver {
    /// By what the owner says at each time.
    pub fn new(access: CurrentAccess) -> Self {
        Self::asking(access, name_of)
    }

    /// The same, where names are asked of this directory.
    pub(super) fn asking(access: CurrentAccess, directory: fn(u32) -> Option<String>) -> Self {
        Self {
            access,
            names: Arc::default(),
            owned: Arc::default(),
            directory,
        }
    }

    /// The owner's word, where it hides `what` from `uid`.
    pub(crate) fn hidden(&self, uid: Option<u32>, what: PrivateData) -> Option<Arc<Privacy>> {
        let access = self.access.get();
        let is_hidden = access.privacy.hide.contains(&what) && !access.may_read_all(uid);
        is_hidden.then(|| Arc::clone(&access.privacy))
    }

    /// PrivateData `uid` sees of a tree. Where nothing is hidden nobody is asked for his name.
    pub(crate) async fn visibility(&self, uid: Option<u32>, view: Arc<View>) -> Visibility {
        let is_open = self.access.get().privacy.hide.is_empty();
        self.looking(uid.filter(|_| !is_open), uid, view).await
    }

    /// The same, where what is his own is shown whatever is hidden.
    pub(crate) async fn own_sight(&self, uid: Option<u32>, view: Arc<View>) -> Visibility {
        self.looking(uid, uid, view).await
    }

    async fn looking(&self, named: Option<u32>, uid: Option<u32>, view: Arc<View>) -> Visibility {
        let access = self.access.get();
        let privacy = Arc::clone(&access.privacy);
        let reader = match (access.may_read_all(uid), named) {
            (true, _) => Reader::All,
            (false, Some(uid)) => self.name(uid).await.map_or(Reader::Unknown, Reader::User),
            (false, None) => Reader::Unknown,
        };
        let owned = Arc::clone(&self.owned);
        let own = move |user: &str, view: &Arc<View>| Owned::of(&owned, user, view);
        if privacy.hide.is_empty() || !matches!(reader, Reader::User(_)) {
            return Visibility::new(privacy, reader, view, own);
        }
        let made = tokio::task::spawn_blocking(move || Visibility::new(privacy, reader, view, own));
        made.await.expect("paths are compared without a panic")
    }

    /// The entries of a tree that `uid` sees `what` of, by index.
    pub(crate) async fn entries(
        &self,
        uid: Option<u32>,
        view: Arc<View>,
        what: PrivateData,
    ) -> BTreeSet<u32> {
        let visibility = self.visibility(uid, view).await;
        let listed = tokio::task::spawn_blocking(move || visibility.entries(what));
        listed.await.expect("paths are compared without a panic")
    }

    /// Asks for the name of whoever is about to wait for his turn, where it will matter: a directory that takes its time
    /// then keeps nobody else waiting.
    pub(crate) async fn meet(&self, uid: Option<u32>) {
        let access = self.access.get();
        let matters = !access.privacy.hide.is_empty() && !access.may_read_all(uid);
        if let Some(uid) = uid.filter(|_| matters) {
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
            // A range of users has none: theirs go first.
            names.retain(|_, (at, name)| name.is_some() && at.elapsed() < NAMES_FRESH_FOR);
        }
        names.insert(uid, (Instant::now(), name.clone()));
        name
    }
}

impl Owned {
    /// PrivateData of `view` is the user's own, worked out where it is not known. The lock is not held over that.
    fn of(owned: &Mutex<Self>, user: &str, view: &Arc<View>) -> Arc<[AccountPath]> {
        let lock = || owned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |owned: &Self| owned.view.as_ptr() == Arc::as_ptr(view);
        {
            let owned = lock();
            let known = owned.of_users.get(user).filter(|_| is_same(&owned));
            if let Some(known) = known {
                return Arc::clone(known);
            }
        }
        let own = own_entries(user, view);
        let mut owned = lock();
        if !is_same(&owned)
            || owned.entries + own.len() > ENTRIES_MAX
            || owned.of_users.len() >= NAMES_MAX
        {
            *owned = Self {
                view: Arc::downgrade(view),
                ..Self::default()
            };
        }
        owned.entries += own.len();
        owned.of_users.insert(user.to_owned(), Arc::clone(&own));
        own
    }
}
