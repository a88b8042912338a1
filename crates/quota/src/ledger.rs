//! The rights of one site in one VO: its own rows and jobs, and the rows received from other sites.
//!
//! The caller makes the changes of a call durable ([`Ledger::take_changes`]) before anything about them is sent.
//!
//! Invariant: the site holds, sends and uses only what is left of its own rights; overdrafts are counted separately.
//! It takes from another site only what that site's rows, and the rows of those that sent to it, account for, and
//! what other members have confirmed. A site that may have lost counters counts nothing until every other member has
//! sent it what it holds of this site.

mod ask;
mod claim;
mod commit;
mod demand;
mod hold;
mod pass;
mod settle;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use fairmesh_model::{
    AccountPath, CoreMillis, Incarnation, JobKey, Millis, SiteId, WallTime, mutated,
};
use serde::{Deserialize, Serialize};

use crate::grants::{Grants, SliceId};
use crate::mark::{Mark, State};
use crate::row::{Cell, Row};
use claim::OwnClaim;
use demand::Demand;

pub use ask::Want;
pub use claim::Claim;
pub use commit::Committed;
pub use hold::HoldRequest;
pub use trust::Offer;

/// How long a site that thawed under a charter without other members stays ready to freeze again. A site that has
/// lost its documents receives charters one after the other, and an early one may list only itself. After this time a
/// new member is really new, and has nothing to give back.
const ALONE: Millis = Millis::from_secs(60);

/// Names of rows and marks that must be made durable as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The site's own rows that have grown; they are also published.
    pub rows: BTreeSet<SliceId>,
    /// Jobs whose marks are new or changed.
    pub marks: BTreeSet<JobKey>,
    /// Transfers of rights, in the order in which they happened.
    pub transfers: Vec<Transfer>,
}

/// A transfer of rights to or from another site, or to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The slice whose rights moved.
    pub slice: SliceId,
    /// The counter that grew: `Sent`, `Taken` or `Passed`, with the other side.
    pub cell: Cell,
    /// Core-milliseconds moved.
    pub amount: CoreMillis,
    /// The site's spendable rights of the slice before.
    pub before: CoreMillis,
    /// The site's spendable rights of the slice after.
    pub after: CoreMillis,
}

/// The rights of one site in one VO.
#[derive(Debug, Clone)]
pub struct Ledger {
    me: SiteId,
    members: BTreeSet<SiteId>,
    grants: Grants,
    /// All received rows by slice and site, and this site's own.
    rows: BTreeMap<SliceId, BTreeMap<SiteId, Row>>,
    /// The newest incarnation of which a head of each site was received.
    newest: BTreeMap<SiteId, Incarnation>,
    /// What each other site has sent this one of each slice, by the heads of its newest incarnation only: a site that
    /// lost its store cannot know what earlier heads had sent.
    offers: BTreeMap<SiteId, BTreeMap<SliceId, u64>>,
    /// How much of that witnesses have confirmed, so that it may be taken.
    confirmed: BTreeMap<(SiteId, SliceId), u64>,
    marks: BTreeMap<JobKey, Mark>,
    /// Jobs with open holds, by the time of their expiry.
    open: BTreeSet<(WallTime, JobKey)>,
    /// What jobs beyond their quota may cost in addition to what they hold, by account: it counts towards the
    /// overdraft.
    promised: BTreeMap<AccountPath, u64>,
    demand: BTreeMap<AccountPath, Demand>,
    /// Jobs that lack rights which the VO has.
    claims: BTreeMap<JobKey, OwnClaim>,
    /// Holds of unknown jobs: the holds were published and came back from peers, the marks were lost.
    lost: BTreeMap<SliceId, u64>,
    /// Sites with a proof of a fork.
    distrusted: BTreeSet<SiteId>,
    /// Parts to which this site still has to pass rights on; `None` if documents have changed since they were listed.
    due_parts: Option<Vec<SliceId>>,
    /// Slices that ended before this are forgotten.
    forgotten_before: WallTime,
    /// Where counters may be lost: who has handed over what he holds of this site.
    heard: Option<BTreeSet<SiteId>>,
    /// When they thawed though nobody was heard, as the charter listed nobody else: of the last [`ALONE`].
    thawed_alone: Option<WallTime>,
    changes: Changes,
}

/// How it begins, and what its owner tells it.
impl Ledger {
    /// The ledger of a site that has never counted anything.
    pub fn new(me: SiteId, members: BTreeSet<SiteId>, grants: Grants) -> Self {
        Self::restore(
            me,
            members,
            grants,
            (BTreeMap::new(), BTreeMap::new()),
            true,
        )
    }

    /// The ledger after a start, with the durable rows and marks of the site. `is_intact` is false if some may be
    /// missing, or if the rights were frozen when the site stopped. Then the rights are frozen until every other
    /// member has been heard ([`Ledger::hear`]): spending before could spend rights that were sent away under the
    /// lost counters.
    pub fn restore(
        me: SiteId,
        members: BTreeSet<SiteId>,
        grants: Grants,
        (rows, marks): (BTreeMap<SliceId, Row>, BTreeMap<JobKey, Mark>),
        is_intact: bool,
    ) -> Self {
        let of_me = |(id, row)| (id, BTreeMap::from([(me, row)]));
        let is_intact = is_intact || mutated!(LossIgnored);
        let mut ledger = Self {
            me,
            members,
            grants,
            rows: rows.into_iter().map(of_me).collect(),
            newest: BTreeMap::new(),
            offers: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            marks: BTreeMap::new(),
            open: BTreeSet::new(),
            promised: BTreeMap::new(),
            demand: BTreeMap::new(),
            claims: BTreeMap::new(),
            lost: BTreeMap::new(),
            distrusted: BTreeSet::new(),
            due_parts: None,
            forgotten_before: WallTime(0),
            heard: (!is_intact).then(BTreeSet::new),
            thawed_alone: None,
            changes: Changes::default(),
        };
        for (job, mark) in marks {
            ledger.put_mark(job, mark);
        }
        ledger.changes = Changes::default();
        if !ledger.is_frozen() {
            ledger.find_lost_holds();
        }
        ledger
    }

    /// The id of this site.
    pub fn me(&self) -> SiteId {
        self.me
    }

    /// The allocations in force.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Replaces the allocations in force. Rows of other sites for slices that were unknown were not kept, so the
    /// caller must receive their heads again. Rows of slices that are now unknown stay.
    pub fn set_grants(&mut self, grants: Grants) {
        self.grants = grants;
        self.due_parts = None;
        self.take_sent();
    }

    /// Sets the members of a new charter. Frozen rights may thaw at the next [`Ledger::tick`]. Charters arrive one
    /// after the other, and an old one may list only this site: rights that thawed under it freeze again under one
    /// with other members.
    pub fn set_members(&mut self, members: BTreeSet<SiteId>) {
        self.members = members;
        let has_others = self.others().next().is_some();
        if has_others && self.thawed_alone.take().is_some() && !mutated!(AloneTrusted) {
            self.heard = Some(BTreeSet::new());
        }
    }

    /// The other members that must still be heard before frozen rights thaw; none if the rights are not frozen.
    pub fn unheard(&self) -> impl Iterator<Item = SiteId> + '_ {
        let heard = self.heard.iter();
        heard.flat_map(|heard| self.others().filter(|site| !heard.contains(site)))
    }

    /// The changes since the last call, to be made durable before anything is sent.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// The mark of a job, if the job is known.
    pub fn mark(&self, job: &JobKey) -> Option<&Mark> {
        self.marks.get(job)
    }

    /// The marks of jobs after `job`, in the order of their keys; all for `None`.
    pub fn marks_after(&self, job: Option<&JobKey>) -> impl Iterator<Item = (&JobKey, &Mark)> {
        let from = job.map_or(Bound::Unbounded, Bound::Excluded);
        self.marks.range::<JobKey, _>((from, Bound::Unbounded))
    }

    /// All marks.
    pub fn marks(&self) -> impl Iterator<Item = (&JobKey, &Mark)> {
        self.marks.iter()
    }

    /// The newest incarnation of which a head of `site` was received; 0 if none was.
    pub fn newest_of(&self, site: SiteId) -> Incarnation {
        self.newest.get(&site).copied().unwrap_or_default()
    }

    /// This site's row for a slice, if it has ever counted anything of it.
    pub fn own_row(&self, id: SliceId) -> Option<&Row> {
        self.row_of(id, self.me)
    }

    /// This site's rows.
    pub fn own_rows(&self) -> impl Iterator<Item = (SliceId, &Row)> {
        let rows = self.rows.iter();
        rows.filter_map(|(id, rows)| Some((*id, rows.get(&self.me)?)))
    }

    /// The row of any site for a slice, as it was received.
    pub fn row_of(&self, id: SliceId, site: SiteId) -> Option<&Row> {
        self.rows.get(&id)?.get(&site)
    }

    /// All rows of a slice.
    pub fn rows(&self, id: SliceId) -> impl Iterator<Item = (SiteId, &Row)> {
        let rows = self.rows.get(&id).into_iter().flatten();
        rows.map(|(site, row)| (*site, row))
    }

    /// Whether the site's rights are frozen because it may have lost counters.
    pub fn is_frozen(&self) -> bool {
        self.heard.is_some()
    }

    /// Core-milliseconds that the site could hold of a slice if the slice were live; 0 while frozen.
    pub fn spendable(&self, id: SliceId) -> u64 {
        match self.is_frozen() {
            true => 0,
            false => self.left(id),
        }
    }

    /// Core-milliseconds that the site could hold for an account now.
    pub fn spendable_of(&self, account: &AccountPath, now: WallTime) -> u64 {
        let live = self.grants.live(account, now).into_iter();
        live.fold(0, |sum, id| sum.saturating_add(self.spendable(id)))
    }

    /// The part of [`Ledger::spendable_of`] that `user` may spend.
    pub fn spendable_for(&self, account: &AccountPath, user: &AccountPath, now: WallTime) -> u64 {
        let live = self.grants.live_for(account, user, now).into_iter();
        live.fold(0, |sum, id| sum.saturating_add(self.spendable(id)))
    }

    /// Forgets rows of slices that ended before `before` and of which nothing is held or owed, and marks of ended
    /// jobs that would have expired before it. Returns the site's own rows and marks that are gone, to be deleted
    /// from the store.
    pub fn forget(&mut self, before: WallTime) -> Changes {
        // Never earlier again: a forgotten row that a peer still has must not come back.
        self.forgotten_before = self.forgotten_before.max(before);
        let mut gone = Changes::default();
        let known = self.rows.keys().copied();
        let past: Vec<SliceId> = known.filter(|id| self.is_past(*id)).collect();
        for id in past {
            let rows = self.rows.remove(&id).unwrap_or_default();
            self.offers
                .values_mut()
                .for_each(|slices| _ = slices.remove(&id));
            self.confirmed.retain(|(_, slice), _| *slice != id);
            gone.rows.extend(rows.contains_key(&self.me).then_some(id));
        }
        self.marks.retain(|job, mark| {
            let stays = mark.is_open() || mark.until >= before;
            if !stays {
                gone.marks.insert(job.clone());
            }
            stays
        });
        gone
    }
}

/// The parts.
impl Ledger {
    /// The other members.
    fn others(&self) -> impl Iterator<Item = SiteId> + '_ {
        let members = self.members.iter().copied();
        members.filter(|site| *site != self.me)
    }

    /// What is left of the site's rights by its own counters, even while frozen.
    fn left(&self, id: SliceId) -> u64 {
        let granted = self.granted(id, self.me);
        self.own_row(id)
            .map_or(granted, |row| row.spendable(granted))
    }

    /// Whether a slice may be forgotten: it ended long ago, and nothing of it or of its parts is held or owed here.
    fn is_past(&self, id: SliceId) -> bool {
        let is_open = |id: SliceId| {
            let own = self.own_row(id);
            own.is_some_and(|own| own.held() > 0 || own.overdraft() > 0)
        };
        let slice = self.grants.slice(id);
        slice.is_some_and(|slice| slice.end < self.forgotten_before)
            && !is_open(id)
            // A part's rights are justified by the row of the whole.
            && !self.grants.parts(id).any(is_open)
    }

    /// Raises a counter of this site's own row. The only place that writes one, so that no change is missed.
    fn add(&mut self, id: SliceId, cell: Cell, amount: u64) {
        if amount == 0 {
            return;
        }
        let before = CoreMillis(self.left(id));
        let row = self.rows.entry(id).or_default().entry(self.me).or_default();
        row.add(cell, amount);
        self.changes.rows.insert(id);
        if matches!(cell, Cell::Sent(_) | Cell::Taken(_) | Cell::Passed(_)) {
            self.changes.transfers.push(Transfer {
                slice: id,
                cell,
                amount: CoreMillis(amount),
                before,
                after: CoreMillis(self.left(id)),
            });
        }
    }

    fn get(&self, id: SliceId, cell: Cell) -> u64 {
        self.own_row(id).map_or(0, |row| row.get(cell))
    }

    fn put_mark(&mut self, job: JobKey, mark: Mark) {
        // The indexes by expiry and account are kept in step with the marks.
        if let Some(before) = self.marks.get(&job) {
            let promised = before.promised();
            if let Some(all) = self.promised.get_mut(&before.account) {
                *all = all.saturating_sub(promised);
            }
            self.open.remove(&(before.until, job.clone()));
        }
        if mark.state == State::Held {
            self.open.insert((mark.until, job.clone()));
        }
        let all = self.promised.entry(mark.account.clone()).or_default();
        *all = all.saturating_add(mark.promised());
        self.changes.marks.insert(job.clone());
        self.marks.insert(job, mark);
    }
}
