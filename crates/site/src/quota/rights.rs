//! Keeping the ledger of each VO in step with documents, heads and the store.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::PartKey;
use fairmesh_model::{
    AccountPath, CoreMillis, JobKey, Millis, Now, SiteId, VoId, WallTime, mutant, mutated,
};
use fairmesh_quota::{Changes, Committed, Grants, Ledger, Mark, Row, SliceId, State};

use super::{Quota, Quotas, rows};
use crate::identity::Account;
use crate::kinds::RIGHTS;
use crate::parts::{Cx, Own, Vos};
use crate::quota::transfers::{Moved, Transfers};
use crate::store::Write;
use crate::vo::Vo;

/// A job that is listed as running keeps its hold for at least this long; the hold is renewed at half of it, so that
/// not every list writes every mark.
const RENEWED_FOR: Millis = Millis::from_secs(86_400);

/// Persists and publishes the changes of the ledgers.
pub(crate) struct RightsHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
}

impl<'a> RightsHandler<'a> {
    pub(crate) fn new(cx: &'a mut Cx, own: &'a mut Own, vos: &'a mut Vos) -> Self {
        Self { cx, own, vos }
    }

    /// Restores the ledgers from the store's rows and marks, in the VOs with documents. They start frozen: whether
    /// the store is the newest one is known only when every other member has been heard.
    pub(crate) fn restore_quotas(
        &mut self,
        rights: Vec<(VoId, SliceId, Row)>,
        holds: Vec<(VoId, JobKey, Mark)>,
    ) {
        type Held = (BTreeMap<SliceId, Row>, BTreeMap<JobKey, Mark>);
        let mut of_vos: BTreeMap<VoId, Held> = BTreeMap::new();
        for (vo, id, row) in rights {
            of_vos.entry(vo).or_default().0.insert(id, row);
        }
        for (vo, job, mark) in holds {
            of_vos.entry(vo).or_default().1.insert(job, mark);
        }
        for (vo, held) in self.vos.iter_mut() {
            let of_vo = of_vos.remove(vo).unwrap_or_default();
            let (members, grants) = (held.members(), grants_of(held));
            let ledger =
                Ledger::restore(self.cx.id, members, grants, of_vo, mutated!(StoreTrusted));
            held.quota = Quota::of(ledger);
            for (id, row) in held.quota.ledger.own_rows() {
                let bytes = rows::part(id, row);
                self.own.set_part(*vo, rows::part_key(id), Some(bytes));
            }
        }
        for vo in self.vos.ids() {
            self.vos.read_rights(vo);
        }
    }

    /// Follows changed documents of a VO. Heads are read again after a charter, because members may have come back
    /// with heads that were kept, and after a new allocation, because rows of an unknown allocation were not kept.
    pub(crate) fn follow_grants(&mut self, vo: VoId, is_charter: bool) {
        let Some(held) = self.vos.get_mut(&vo) else {
            return;
        };
        let (members, grants) = (held.members(), grants_of(held));
        let known = held.quota.ledger.grants();
        let is_new = grants.iter().any(|(id, _)| known.get(id).is_none());
        held.quota.ledger.set_members(members);
        held.quota.is_on = !grants.is_empty();
        held.quota.ledger.set_grants(grants);
        held.quota.heard();
        // The members of allocations with credit may have changed.
        held.quota.funded = None;
        if is_charter || is_new {
            self.vos.read_rights(vo);
        }
        self.keep_quota(vo);
    }

    /// Receives the rights in a member's head that came into force: the changed rows, or all rows if it is the first
    /// head of its incarnation.
    pub(crate) fn take_rights(
        &mut self,
        vo: VoId,
        head: &fairmesh_gossip::Head,
        parts: &[PartKey],
    ) {
        let held = self.vos.listed(vo);
        let (site, incarnation) = (head.site, head.incarnation);
        let is_first = held.quota.ledger.newest_of(site) < incarnation;
        let is_rights = |key: &&PartKey| key.kind() == RIGHTS;
        let has_rights = parts.iter().any(|key| is_rights(&key));
        if !is_first && !has_rights || mutated!(RightsUnheard) {
            return;
        }
        let replica = &held.replica;
        // A new incarnation ends what earlier heads had sent, so its rows count only as a complete set.
        let rows: Vec<(SliceId, Row)> = if is_first {
            let all = replica.parts_of(site, incarnation, RIGHTS);
            all.filter_map(|(_, bytes)| rows::read_part(bytes))
                .collect()
        } else {
            let changed = parts.iter().filter(is_rights);
            let changed = changed.filter_map(|key| replica.part(site, incarnation, key));
            changed.filter_map(|bytes| rows::read_part(bytes)).collect()
        };
        held.quota.ledger.receive(site, incarnation, rows);
        held.quota.heard();
        self.keep_quota(vo);
    }

    /// Joins rows of this site that a peer gave back. All forms are joined, so that no counter falls.
    pub(crate) fn absorb_own_rights(&mut self, vo: VoId, parts: &[PartKey]) {
        let held = self.vos.listed(vo);
        let own = parts.iter().filter(|key| key.kind() == RIGHTS);
        let forms = own.flat_map(|key| held.replica.variants(self.cx.id, key));
        let rows: Vec<_> = forms.filter_map(|bytes| rows::read_part(bytes)).collect();
        if rows.is_empty() || mutated!(OwnRightsUnread) {
            return;
        }
        let incarnation = self.own.incarnation();
        held.quota.ledger.receive(self.cx.id, incarnation, rows);
        held.quota.has_offers = true;
        self.keep_quota(vo);
    }

    /// Counts a peer as heard if it holds exactly what this site holds of a VO, including a head of this start. Then
    /// the peer takes nothing more that earlier heads had sent, and holds nothing of this site that is missing here.
    pub(crate) fn hear(&mut self, now: Now, from: SiteId, vo: VoId) {
        let incarnation = self.own.incarnation();
        let held = self.vos.listed(vo);
        let is_of_this_start = held
            .replica
            .heads_of(self.cx.id)
            .any(|head| head.body().incarnation == incarnation);
        if !held.quota.ledger.is_frozen() || (!is_of_this_start && !mutated!(HeardBeforeSigned)) {
            return;
        }
        held.quota.ledger.hear(now.wall, from);
        held.quota.heard();
        self.keep_quota(vo);
    }

    /// Persists and publishes the changes of a VO's ledger.
    pub(crate) fn keep_quota(&mut self, vo: VoId) {
        let writes = self.vos.quota_writes(self.own, vo);
        self.cx.persist(writes);
    }

    /// Drops slices and jobs that ended before the VO's history, also from the head.
    pub(crate) fn forget_quota(&mut self, vo: VoId, before: WallTime) {
        let quota = &mut self.vos.listed(vo).quota;
        let ledger = &mut quota.ledger;
        let Changes { rows, marks, .. } = ledger.forget(before);
        let mut writes = Vec::with_capacity(rows.len() + marks.len());
        for id in rows {
            writes.push(rows::rights_row(vo, id, None));
            self.own.set_part(vo, rows::part_key(id), None);
        }
        writes.extend(marks.iter().map(|job| rows::hold_row(vo, job, None)));
        writes.extend(quota.transfers.forget(vo, before));
        self.cx.persist(writes);
    }

    /// Renews the hold of a job that is listed as running.
    pub(crate) fn renew_hold(&mut self, now: Now, job: &JobKey) {
        let Some((vo, quota)) = self.vos.quota_of_hold(job) else {
            return;
        };
        let ledger = &mut quota.ledger;
        let soon = now.wall.after(Millis(RENEWED_FOR.0 / 2));
        if ledger.mark(job).is_some_and(|mark| mark.until < soon) {
            ledger.renew(job, now.wall.after(RENEWED_FOR));
            self.keep_quota(vo);
        }
    }
}

impl Vos {
    /// The VO whose rights a job holds or was charged to, and its quotas. An open hold comes first: a job whose
    /// identity changed may have marks in several VOs.
    pub(crate) fn quota_of_hold(&mut self, job: &JobKey) -> Option<(VoId, &mut Quota)> {
        let marks = self.iter();
        let marks = marks.filter_map(|(vo, held)| Some((*vo, held.quota.ledger.mark(job)?.state)));
        let (vo, _) = marks.min_by_key(|(_, state)| match state {
            State::Held => 0,
            State::Committed => 1,
            _ => 2,
        })?;
        Some((vo, &mut self.get_mut(&vo)?.quota))
    }

    /// Whether a job has an open hold.
    pub(crate) fn has_hold(&self, job: &JobKey) -> bool {
        self.values().any(|held| {
            let mark = held.quota.ledger.mark(job);
            mark.is_some_and(|mark| mark.state == State::Held)
        })
    }

    /// Checks that a job's charge can be given back now; it cannot while the rights are frozen.
    ///
    /// # Errors
    /// The message for the user.
    pub(crate) fn quota_gives_back(&self, job: &JobKey) -> Result<(), String> {
        let mut ledgers = self.values().map(|held| &held.quota.ledger);
        let is_charged = |mark: &Mark| mark.state == State::Committed;
        let charged =
            ledgers.find(|ledger| ledger.is_frozen() && ledger.mark(job).is_some_and(is_charged));
        charged.map_or(Ok(()), |ledger| {
            let unheard = ledger.unheard().count();
            Err(format!(
                "job `{}` was charged to a quota, which this site, just started, gives nothing back to until heads of \
                 {unheard} more sites have been received: take it back then",
                job.job
            ))
        })
    }

    /// Whether jobs of a VO are charged to quotas.
    pub(crate) fn has_quota(&self, vo: Option<VoId>) -> bool {
        let held = vo.and_then(|vo| self.get(&vo));
        held.is_some_and(|held| held.quota.is_on())
    }

    /// The VO and the account whose credit a waiting job would spend; `None` if no quota applies.
    pub(crate) fn credit_of(
        &self,
        now: Now,
        account: Option<&Account>,
    ) -> Option<(VoId, AccountPath)> {
        let account = account?;
        let vo = account.vo.filter(|vo| self.has_quota(Some(*vo)))?;
        let grants = self[&vo].quota.ledger.grants();
        let deepest = grants.accounts(&account.path, now.wall).next();
        Some((vo, deepest.unwrap_or_else(|| account.path.clone())))
    }

    /// Whether a job of a VO is charged to quotas. A job with a hold is, even if its identity maps elsewhere by now.
    pub(crate) fn is_of_quotas(&self, vo: Option<VoId>, job: &JobKey) -> bool {
        self.has_quota(vo) || self.has_hold(job)
    }

    /// The rows that the ledger of a VO has changed; they are also set for the next head.
    pub(crate) fn quota_writes(&mut self, own: &mut Own, vo: VoId) -> Vec<Write> {
        let Some(held) = self.get_mut(&vo) else {
            return Vec::new();
        };
        let Quota {
            ledger,
            transfers: kept,
            wall,
            ..
        } = &mut held.quota;
        let Changes {
            rows,
            marks,
            transfers,
        } = ledger.take_changes();
        let mut writes = Vec::with_capacity(rows.len() + marks.len());
        for id in rows.iter().filter(|_| !mutated!(RightsUnwritten)) {
            writes.push(rows::rights_row(vo, *id, ledger.own_row(*id)));
        }
        for id in mutant!(RightsUnpublished, rows, BTreeSet::new()) {
            let part = ledger.own_row(id).map(|row| rows::part(id, row));
            own.set_part(vo, rows::part_key(id), part);
        }
        for job in mutant!(HoldsUnwritten, marks, BTreeSet::new()) {
            writes.push(rows::hold_row(vo, &job, ledger.mark(&job)));
        }
        let moved = |transfer| Moved {
            at: *wall,
            transfer,
        };
        writes.extend(transfers.into_iter().flat_map(|of| kept.add(vo, moved(of))));
        writes
    }

    /// Own rows and open holds: peers do not have them, or not the newest form. Closed marks can be lost without harm.
    pub(crate) fn quota_rows_held_alone(&self) -> Vec<Write> {
        let vos = self.iter().chain(&self.left);
        let rows = vos.flat_map(|(vo, held)| {
            let ledger = &held.quota.ledger;
            let rights = ledger.own_rows();
            let rights = rights.map(|(id, row)| rows::rights_row(*vo, id, Some(row)));
            let open = ledger.marks().filter(|(_, mark)| mark.is_open());
            rights.chain(open.map(|(job, mark)| rows::hold_row(*vo, job, Some(mark))))
        });
        rows.collect()
    }

    /// Transfers as the store has them.
    pub(crate) fn restore_transfers(&mut self, rows: Vec<(VoId, u64, Moved)>) {
        let mut of_vos: BTreeMap<VoId, Vec<(u64, Moved)>> = BTreeMap::new();
        for (vo, number, moved) in rows {
            of_vos.entry(vo).or_default().push((number, moved));
        }
        for (vo, of_vo) in of_vos {
            if let Some(held) = self.get_mut(&vo) {
                held.quota.transfers = Transfers::restore(of_vo);
            }
        }
    }

    /// Receives the rights in all heads of the replica, from the lowest incarnation, as they would have arrived.
    fn read_rights(&mut self, vo: VoId) {
        let held = self.listed(vo);
        let mut heads: Vec<_> = held
            .replica
            .heads()
            .map(|head| (head.body().incarnation, head.body().site))
            .collect();
        heads.sort_unstable();
        for (incarnation, site) in heads {
            let parts = held.replica.parts_of(site, incarnation, RIGHTS);
            let rows: Vec<_> = parts
                .filter_map(|(_, bytes)| rows::read_part(bytes))
                .collect();
            held.quota.ledger.receive(site, incarnation, rows);
        }
        let forked: Vec<SiteId> = held.replica.forked().collect();
        forked
            .into_iter()
            .for_each(|site| held.quota.ledger.distrust(site));
    }

    /// Distrusts the rights of a site that has signed two contradicting heads.
    pub(crate) fn distrust_rights(&mut self, vo: VoId, site: SiteId) {
        if let Some(held) = self.get_mut(&vo) {
            held.quota.ledger.distrust(site);
            held.quota.has_offers = true;
        }
    }
}

impl Quotas {
    /// Charges a job at the price of its hold; `None` if no quota covers it.
    pub(crate) fn commit(
        &mut self,
        vos: &mut Vos,
        now: Now,
        vo: VoId,
        job: &JobKey,
        charge: CoreMillis,
        user: &AccountPath,
    ) -> Option<Committed> {
        let quota = &mut vos.get_mut(&vo)?.quota;
        let cost = cost(quota.ledger.mark(job), charge);
        let committed = quota.ledger.commit(now.wall, job, cost, user)?;
        quota.has_news = true;
        self.stats.committed += 1;
        Some(committed)
    }
}

/// What a job costs at the price of its hold; at the usual price without a hold.
pub(crate) fn cost(mark: Option<&Mark>, charge: CoreMillis) -> CoreMillis {
    let mark = mark.filter(|_| !mutated!(HoldPriceForgotten));
    mark.map_or(charge, |mark| mark.cost(charge))
}

/// The allocations in force: of each the first version, with the changes that later versions may make.
fn grants_of(vo: &Vo) -> Grants {
    let mut grants = Grants::after(vo.quota.ledger.grants());
    for document in vo.policies.allocations() {
        // A version that is refused changes granted rights, and is not in force at any site.
        let _ = grants.adopt(document);
    }
    grants
}
