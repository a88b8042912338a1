//! The rights of one site in one VO: its own rows and jobs, and the rows of others as they were received.
//!
//! Its owner makes durable what a call has changed ([`Ledger::take_changes`]) before anybody hears of it.
//!
//! Invariant: the site holds, sends and uses only what is left of its own rights, but for overdrafts, which are
//! counted by themselves; it takes from another site only what that site's rows and those behind it account
//! for, and what others have confirmed. A site that may have lost counters counts nothing until everybody has
//! told it what he holds of it.

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

/// For so long a site that thawed by a charter that lists nobody else waits for a later one that does: whoever has lost
/// his documents hands them in one after the other. Later a member that is new is one, and nobody waits for it.
const ALONE: Millis = Millis::from_secs(60);

/// What is to be made durable: rows and marks as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Rows of the site that have grown. They are published, too.
    pub rows: BTreeSet<SliceId>,
    /// Jobs whose marks are new or changed.
    pub marks: BTreeSet<JobKey>,
    /// Rights that went or came, in that order.
    pub transfers: Vec<Transfer>,
}

/// Rights that went to another site, came from it, or were passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Of which slice.
    pub slice: SliceId,
    /// Sent to whom, taken from whom, or passed on to which part.
    pub cell: Cell,
    /// How much.
    pub amount: CoreMillis,
    /// What the site had left of the slice before.
    pub before: CoreMillis,
    /// And afterwards.
    pub after: CoreMillis,
}

/// The rights of one site in one VO.
#[derive(Debug, Clone)]
pub struct Ledger {
    me: SiteId,
    members: BTreeSet<SiteId>,
    grants: Grants,
    /// By slice, then by site, all that was ever received; this site's own among them.
    rows: BTreeMap<SliceId, BTreeMap<SiteId, Row>>,
    /// The newest incarnation of each other site.
    newest: BTreeMap<SiteId, Incarnation>,
    /// What each other site has sent this one of each slice, by the heads of its newest incarnation.
    offers: BTreeMap<SiteId, BTreeMap<SliceId, u64>>,
    /// How much of that may be taken: others hold it, too.
    confirmed: BTreeMap<(SiteId, SliceId), u64>,
    marks: BTreeMap<JobKey, Mark>,
    /// Jobs with open holds, by when these expire.
    open: BTreeSet<(WallTime, JobKey)>,
    /// What running jobs are promised beyond what they hold, by account.
    promised: BTreeMap<AccountPath, u64>,
    demand: BTreeMap<AccountPath, Demand>,
    /// Jobs that lack rights which the VO has.
    claims: BTreeMap<JobKey, OwnClaim>,
    /// What is held for jobs that are not known any more: their marks were lost, their holds were published.
    lost: BTreeMap<SliceId, u64>,
    /// Sites that have contradicted themselves.
    distrusted: BTreeSet<SiteId>,
    /// Parts that are still to be passed on here; none where documents have changed since they were listed.
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
    /// A site that has never counted anything, with the members of the VO as its charter lists them.
    pub fn new(me: SiteId, members: BTreeSet<SiteId>, grants: Grants) -> Self {
        Self::restore(
            me,
            members,
            grants,
            (BTreeMap::new(), BTreeMap::new()),
            true,
        )
    }

    /// The site after a start, with what was durable of its own. Where that may be less than what it once
    /// was, or its rights were frozen when it stopped ([`Ledger::is_frozen`], which is durable with the rest),
    /// `is_intact` is false, and its rights are frozen until every other member has been heard
    /// ([`Ledger::hear`]).
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

    /// The site.
    pub fn me(&self) -> SiteId {
        self.me
    }

    /// The allocations in force.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// The allocations that are in force from now on. What others have said of slices that were not known was not
    /// remembered: their heads are to be received again. Counters of slices that are not known any more stay.
    pub fn set_grants(&mut self, grants: Grants) {
        self.grants = grants;
        self.due_parts = None;
        self.take_sent();
    }

    /// The members, by a new charter. Frozen rights thaw at the next [`Ledger::tick`]. Charters come one after the
    /// other, and an old one may list nobody else: what thawed by such a one freezes again where the next lists others.
    pub fn set_members(&mut self, members: BTreeSet<SiteId>) {
        self.members = members;
        let has_others = self.others().next().is_some();
        if has_others && self.thawed_alone.take().is_some() && !mutated!(AloneTrusted) {
            self.heard = Some(BTreeSet::new());
        }
    }

    /// The other members that are still to be heard before frozen rights thaw.
    pub fn unheard(&self) -> impl Iterator<Item = SiteId> + '_ {
        let heard = self.heard.iter();
        heard.flat_map(|heard| self.others().filter(|site| !heard.contains(site)))
    }

    /// What has changed since this was last asked.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// A job's mark.
    pub fn mark(&self, job: &JobKey) -> Option<&Mark> {
        self.marks.get(job)
    }

    /// The marks of jobs behind this one, in their order.
    pub fn marks_after(&self, job: Option<&JobKey>) -> impl Iterator<Item = (&JobKey, &Mark)> {
        let from = job.map_or(Bound::Unbounded, Bound::Excluded);
        self.marks.range::<JobKey, _>((from, Bound::Unbounded))
    }

    /// All marks.
    pub fn marks(&self) -> impl Iterator<Item = (&JobKey, &Mark)> {
        self.marks.iter()
    }

    /// The newest incarnation of another site of which anything was received; 0 where nothing was.
    pub fn newest_of(&self, site: SiteId) -> Incarnation {
        self.newest.get(&site).copied().unwrap_or_default()
    }

    /// This site's row for a slice.
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

    /// Whether the site's rights are frozen, because it may have lost counters.
    pub fn is_frozen(&self) -> bool {
        self.heard.is_some()
    }

    /// What the site could hold of a slice if it were live.
    pub fn spendable(&self, id: SliceId) -> u64 {
        match self.is_frozen() {
            true => 0,
            false => self.left(id),
        }
    }

    /// What it could hold for an account now.
    pub fn spendable_of(&self, account: &AccountPath, now: WallTime) -> u64 {
        let live = self.grants.live(account, now).into_iter();
        live.fold(0, |sum, id| sum.saturating_add(self.spendable(id)))
    }

    /// What it could hold of that for a user.
    pub fn spendable_for(&self, account: &AccountPath, user: &AccountPath, now: WallTime) -> u64 {
        let live = self.grants.live_for(account, user, now).into_iter();
        live.fold(0, |sum, id| sum.saturating_add(self.spendable(id)))
    }

    /// Forgets rows of slices that ended before `before` and hold nothing for anybody, and marks of jobs that
    /// have ended and would have expired before it: what the site's history has passed over. What is gone of the
    /// site's own comes back.
    pub fn forget(&mut self, before: WallTime) -> Changes {
        self.forgotten_before = self.forgotten_before.max(before);
        let mut gone = Changes::default();
        let known = self.rows.keys().copied();
        let past: Vec<SliceId> = known.filter(|id| self.is_past(*id)).collect();
        for id in past {
            let rows = self.rows.remove(&id).unwrap_or_default();
            self.offers.values_mut().for_each(|of| _ = of.remove(&id));
            self.confirmed.retain(|(_, of), _| *of != id);
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

    /// What is left of the site's rights by its own counters.
    fn left(&self, id: SliceId) -> u64 {
        let granted = self.granted(id, self.me);
        self.own_row(id)
            .map_or(granted, |row| row.spendable(granted))
    }

    /// Whether a slice is forgotten: it ended long ago, and nothing of it or of its parts is held or owed here.
    fn is_past(&self, id: SliceId) -> bool {
        let is_open = |id: SliceId| {
            let own = self.own_row(id);
            own.is_some_and(|own| own.held() > 0 || own.overdraft() > 0)
        };
        let slice = self.grants.slice(id);
        slice.is_some_and(|slice| slice.end < self.forgotten_before)
            && !is_open(id)
            && !self.grants.parts(id).any(is_open)
    }

    /// Lets a counter of the site's own grow.
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
