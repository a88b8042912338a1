//! Connections counted by owner, and turns: what keeps one of them from taking all of a socket.
//!
//! Invariant: a slot is given back when it is dropped, whatever ended the connection; an owner's turn is known
//! for as long as he has one. The lock is held for a look-up in a map, never over IO.
//! Deliberately not here: what a refused client is told (each server speaks its own protocol).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::geteuid;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::owner::{Owner, Ranges};

/// How many requests of users who are not trusted are answered at the same time.
pub const TURNS: usize = 2;

/// Who is trusted, by number.
#[derive(Clone)]
pub struct Trusted(Arc<dyn Fn(u32) -> bool + Send + Sync>);

impl Trusted {
    /// Whoever `by` holds for.
    pub fn new(by: impl Fn(u32) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(by))
    }
}

impl Default for Trusted {
    /// Root and this process's own user.
    fn default() -> Self {
        Self::new(|uid| uid == 0 || uid == geteuid().as_raw())
    }
}

impl fmt::Debug for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trusted")
    }
}

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLimits {
    /// In all: bounds memory.
    pub all: usize,
    /// Of these, for none but trusted users.
    pub reserved: usize,
    /// Of one user who is not trusted.
    pub of_one: usize,
}

impl SlotLimits {
    /// Of `control.sock`, unless the owner configures a number.
    pub const CONTROL: Self = Self {
        all: 128,
        reserved: 32,
        of_one: 32,
    };

    /// As many in all, divided as these are.
    pub fn scaled_to(self, all: usize) -> Self {
        let part = |of: usize| (all * of / self.all).max(1);
        Self {
            all,
            reserved: part(self.reserved),
            of_one: part(self.of_one),
        }
    }
}

/// The connections of a socket.
#[derive(Debug)]
pub(crate) struct Slots {
    limits: SlotLimits,
    trusted: Trusted,
    ranges: Ranges,
    taken: Mutex<Taken>,
    turns: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Taken {
    of_trusted: usize,
    of_others: BTreeMap<Owner, Held>,
}

#[derive(Debug)]
struct Held {
    slots: usize,
    turn: Arc<Semaphore>,
}

/// One counted connection; it is given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    /// None where it is trusted.
    owner: Option<(Owner, Arc<Semaphore>)>,
}

/// A request's turn, of its owner's and of all, over when dropped. Trusted users need none.
#[derive(Debug)]
pub(crate) struct Turn {
    own: Option<Own>,
    _of_all: Option<OwnedSemaphorePermit>,
}

/// The turn of an owner's alone, which may be held for longer than that of all: nobody but he waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Turn {
    /// That of its owner's.
    pub(crate) fn own(&self) -> Option<Own> {
        self.own.clone()
    }
}

impl Slots {
    pub(crate) fn new(limits: SlotLimits, trusted: Trusted) -> Arc<Self> {
        Arc::new(Self {
            limits,
            trusted,
            ranges: Ranges::default(),
            taken: Mutex::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
        })
    }

    /// Counts a connection of `uid`, which may be unknown; `None` where there are too many.
    pub(crate) fn take(slots: &Arc<Self>, uid: Option<u32>) -> Option<Slot> {
        let SlotLimits {
            all,
            reserved,
            of_one,
        } = slots.limits;
        let is_trusted = uid.is_some_and(|uid| (slots.trusted.0)(uid));
        let owner = (!is_trusted).then(|| slots.ranges.owner(uid));
        let mut taken = slots.taken();
        let others: usize = taken.of_others.values().map(|held| held.slots).sum();
        let total = taken.of_trusted + others;
        let owner = match owner {
            None if total >= all => return None,
            None => {
                taken.of_trusted += 1;
                None
            }
            Some(_) if total >= all || others >= all.saturating_sub(reserved) => return None,
            Some(owner) => {
                let held = taken.of_others.entry(owner).or_insert_with(|| Held {
                    slots: 0,
                    turn: Arc::new(Semaphore::new(1)),
                });
                if held.slots >= of_one {
                    return None;
                }
                held.slots += 1;
                Some((owner, Arc::clone(&held.turn)))
            }
        };
        drop(taken);
        let slots = Arc::clone(slots);
        Some(Slot { slots, owner })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Waits for the turn of a request of this connection. Whoever is trusted has it at once; others wait for
    /// their own requests first, so that many connections of one have no more of it than one of another.
    pub(crate) async fn turn(&self) -> Turn {
        self.turn_after(std::future::ready(())).await
    }

    /// As [`Slot::turn`], where something has to be done before it that takes time: for each owner one at a time, and
    /// nobody else waits for it.
    pub(crate) async fn turn_after(&self, first: impl Future<Output = ()>) -> Turn {
        let (mut own, mut of_all) = (None, None);
        if let Some((_, turns)) = &self.owner {
            // None is ever closed; if one were, there would be nothing to wait for.
            let permit = Arc::clone(turns).acquire_owned().await.ok();
            own = permit.map(|permit| Own {
                _permit: Arc::new(permit),
            });
            first.await;
            of_all = Arc::clone(&self.slots.turns).acquire_owned().await.ok();
        }
        Turn {
            own,
            _of_all: of_all,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        match &self.owner {
            None => taken.of_trusted -= 1,
            Some((owner, _)) => {
                if let Some(held) = taken.of_others.get_mut(owner) {
                    held.slots -= 1;
                    if held.slots == 0 {
                        taken.of_others.remove(owner);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn slots() -> Arc<Slots> {
        let limits = SlotLimits {
            all: 6,
            reserved: 2,
            of_one: 3,
        };
        Slots::new(limits, Trusted::new(|uid| uid == 0))
    }

    #[test]
    fn no_user_takes_all_and_all_users_leave_some_to_whom_the_owner_trusts() {
        let slots = slots();
        let take = |uid| Slots::take(&slots, uid);
        let mut held: Vec<_> = (0..3).map(|_| take(Some(1)).expect("his own")).collect();
        assert!(take(Some(1)).is_none(), "he has three");
        held.push(take(None).expect("a fourth"));
        assert!(take(Some(2)).is_none(), "two are reserved");
        let trusted = [take(Some(0)).expect("one"), take(Some(0)).expect("two")];
        assert!(take(Some(0)).is_none(), "there are six");
        held.pop();
        assert!(take(Some(0)).is_some(), "trusted users may take any");
        drop(trusted);
        assert!(take(Some(2)).is_some());
        drop(held);
        assert!(slots.taken().of_others.is_empty());
    }

    #[test]
    fn what_is_done_before_a_turn_is_done_once_at_a_time_for_each_owner() {
        let slots = slots();
        let take = |uid| Slots::take(&slots, Some(uid)).expect("a slot");
        let [ann, ann_again, bob, carol] = [1, 1, 2, 3].map(take);
        let begun = std::cell::Cell::new(0);
        let slow = || async {
            begun.set(begun.get() + 1);
            std::future::pending().await
        };
        let mut first = std::pin::pin!(ann.turn_after(slow()));
        let mut again = std::pin::pin!(ann_again.turn_after(slow()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(again.as_mut().now_or_never().is_none());
        assert_eq!(begun.get(), 1, "hers waits for hers");
        let others = [bob, carol]
            .each_ref()
            .map(|slot| slot.turn().now_or_never());
        assert!(others.iter().all(Option::is_some), "nobody else does");
    }

    #[test]
    fn users_take_turns_and_nobody_whom_the_owner_trusts_waits() {
        let slots = slots();
        let take = |uid| Slots::take(&slots, Some(uid)).expect("a slot");
        let now = |slot: &Slot| slot.turn().now_or_never();
        let [ann, ann_again, bob, carol, scheduler] = [1, 1, 2, 3, 0].map(take);
        let first = now(&ann).expect("nobody is before her");
        assert!(now(&ann_again).is_none(), "one of hers at a time");
        let second = now(&bob).expect("his own turn");
        assert!(now(&carol).is_none(), "two turns are taken");
        assert!(now(&scheduler).is_some(), "he waits for nobody");
        drop(second);
        assert!(now(&carol).is_some());
        let own = first.own();
        drop(first);
        assert!(now(&bob).and(now(&carol)).is_some(), "hers is over for all");
        assert!(now(&ann_again).is_none(), "she has not read her answer");
        drop(own);
        assert!(now(&ann_again).is_some());
    }
}
