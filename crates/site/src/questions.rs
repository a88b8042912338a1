//! Questions to a site about its jobs, quotas, free CPUs, forwarded jobs and notices. Read-only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_broker::Known;
use fairmesh_gossip::GossipStats;
use fairmesh_model::{AccountPath, JobKey, Millis, Now, SiteId, UsageRecord, VoId, WallTime};
use fairmesh_quota::{Ledger, Mark, State};

use crate::adoptions::Adoption;
use crate::advert::part::Advert;
use crate::again::{AfterCorrection, JobTerms};
use crate::audit::{AuditEntry, told};
use crate::clocks::median_clock;
use crate::config::OwnerQuota;
use crate::cx::SiteStats;
use crate::notice::Notice;
use crate::parts::Parts;
use crate::quota::QuotaStats;
use crate::quota::query::QuotaQuery;
use crate::quota::transfers::Moved;
use crate::reach::Reach;
use crate::refund::{Refund, Relocation};
use crate::remap::Remapper;
use crate::store::JobMark;
use crate::terms::{Payers, Terms};
use crate::time::{Standing, standing};
use crate::view::View;

impl Parts {
    pub(crate) fn quota_query(&self) -> QuotaQuery<'_> {
        QuotaQuery {
            cx: &self.cx,
            vos: &self.vos,
            tree: &self.shares.tree,
            sources: &self.jobs.sources,
        }
    }

    pub(crate) fn job_terms(&self) -> JobTerms<'_> {
        JobTerms::new(self.terms(), &self.own, &self.jobs)
    }

    /// The id of this site.
    pub fn id(&self) -> SiteId {
        self.cx.id
    }

    /// Counters for the metrics.
    pub fn stats(&self) -> SiteStats {
        self.cx.stats
    }

    /// Counters of the anti-entropy, for the metrics.
    pub fn gossip_stats(&self) -> GossipStats {
        self.peers.gossip.stats()
    }

    /// The view that look-ups read.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.shares.tree.view)
    }

    /// The same moment by the members' clock if the own one is off, by which all that others have signed would be old.
    pub fn by_members(&self, now: Now) -> Now {
        let median = median_clock(&self.vos, &self.peers.gossip, now);
        let tolerance = self.cx.config.timing.clock_tolerance;
        match standing(now.wall, median, self.cx.clock.last_head_at, tolerance) {
            Standing::Off { .. } => Now {
                wall: median.unwrap_or(now.wall),
                ..now
            },
            _ => now,
        }
    }

    /// Until when counters reach whose jobs' marks are lost; `None` where nothing was lost.
    pub fn recovered(&self, vo: Option<VoId>) -> Option<Reach> {
        self.own.recovered(vo)
    }

    /// Whether any quota was charged for a job.
    pub fn is_quota_charged(&self, job: &JobKey) -> bool {
        let mut ledgers = self.vos.values().map(|held| &held.quota.ledger);
        let is_charged = |mark: &Mark| mark.state == State::Committed;
        ledgers.any(|ledger| ledger.mark(job).is_some_and(is_charged))
    }

    /// Whether a job has an open hold.
    pub fn has_hold(&self, job: &JobKey) -> bool {
        self.vos.has_hold(job)
    }

    /// What the owner says of a VO's quotas.
    pub fn owner_quota(&self, vo: VoId) -> Option<&OwnerQuota> {
        self.cx.config.quotas.get(&vo)
    }

    /// The rights of a VO as this site knows them.
    pub fn ledger(&self, vo: VoId) -> Option<&Ledger> {
        self.vos.get(&vo).map(|held| &held.quota.ledger)
    }

    /// Rights of a VO that went to other members and came from them, the oldest first.
    pub fn transfers(&self, vo: VoId) -> impl Iterator<Item = &Moved> {
        let held = self.vos.get(&vo).into_iter();
        held.flat_map(|held| held.quota.transfers.iter())
    }

    /// What an account of a VO spends at all sites, core-milliseconds a day; none before it was watched for an hour.
    pub fn burn(&self, vo: VoId, account: &AccountPath) -> Option<u64> {
        self.vos.get(&vo)?.quota.burns.per_day(account)
    }

    /// Counters for the metrics.
    pub fn quota_stats(&self) -> QuotaStats {
        self.quotas.stats
    }

    /// The member sites of a VO, each with what it has said last of its free CPUs; of this site as it is now.
    pub fn adverts(&self, vo: VoId) -> impl Iterator<Item = (SiteId, Option<&Advert>)> {
        self.vos.adverts(self.cx.id, vo)
    }

    /// What a broker of a VO's jobs here knows of each member; `None` of one that says nothing. The VO's name
    /// in views is its id.
    pub fn known_sites(&self, now: Now, vo: VoId) -> Vec<(SiteId, Option<Known>)> {
        let adverts = self.adverts(vo);
        let named = (vo, &vo.to_string().into());
        let known = adverts.map(|(site, advert)| {
            let known = advert.map(|advert| self.known_by(now, named, site, advert));
            (site, known)
        });
        known.collect()
    }

    /// What a broker makes of an advert of a site. The VO comes with its name, so that it is written out once for all
    /// sites.
    pub fn known_by(
        &self,
        now: Now,
        vo: (VoId, &Arc<str>),
        site: SiteId,
        advert: &Advert,
    ) -> Known {
        self.vos.known_by(self.cx.id, now, vo, site, advert)
    }

    /// After which a site of which nothing is heard is silent.
    pub fn silence(&self) -> Millis {
        self.cx.config.timing.silence
    }

    /// Whether the owner lets VOs know what is free.
    pub fn tells_what_is_free(&self) -> bool {
        self.cx.config.advert.is_some()
    }

    /// The name of a site in the charter of a VO: no other VO's says what it is called there.
    pub fn site_name_in(&self, vo: VoId, site: SiteId) -> Option<&str> {
        self.vos.site_name_in(vo, site)
    }

    /// The reasons for which records are refused for good, by their positions.
    pub fn refusals(&self, now: Now, records: &[UsageRecord]) -> BTreeMap<usize, String> {
        // What a wrong clock refuses passes.
        if self.cx.clock.refuses_all().is_some() {
            return BTreeMap::new();
        }
        let mut payers = Payers::new();
        let terms = self.terms();
        let refusal = |(index, record): (usize, _)| {
            let payer = terms.payer_of(record, now.wall, &mut payers);
            let (vo, charging) = (payer.account.vo, &self.cx.config.charging);
            let charged = terms
                .check(record)
                .and_then(|()| terms.check_capacity(vo, record))
                .and_then(|()| terms.charge_of(record, None, (vo, &payer.rules), charging));
            let why = charged.err()?;
            (!terms.passes(vo, record)).then_some((index, why))
        };
        records.iter().enumerate().filter_map(refusal).collect()
    }

    /// Whether any of a job was taken back.
    pub fn has_refunds(&self, job: &JobKey) -> bool {
        self.jobs.refunds_of(job).next().is_some()
    }

    /// Whether a job whose mark is known was taken back, and its record counts it again.
    pub fn counts_again(&self, record: &UsageRecord, mark: Option<JobMark>) -> bool {
        let after = self.job_terms().after_correction(record, mark);
        matches!(after, AfterCorrection::Again(_))
    }

    /// What compares jobs that ended at or after `since` with the rules in force.
    pub fn remapper(&self, now: Now, since: WallTime) -> Remapper {
        Remapper::new(&self.job_terms(), now, since)
    }

    /// What other members of a VO have taken back, by their newest heads.
    pub fn audit_of_members(&self, vo: VoId) -> impl Iterator<Item = (SiteId, Vec<AuditEntry>)> {
        let held = self.vos.get(&vo).into_iter();
        held.flat_map(|held| {
            let sites: BTreeSet<SiteId> =
                held.replica.heads().map(|head| head.body().site).collect();
            let others = sites.into_iter().filter(|site| *site != self.cx.id);
            others.map(|site| (site, told(&held.replica, site)))
        })
    }

    /// What was taken back here, by when.
    pub fn refunds(&self) -> impl Iterator<Item = &Refund> {
        self.jobs.refunds.values()
    }

    /// Usage that moved here, by when.
    pub fn relocations(&self) -> impl Iterator<Item = &Relocation> {
        self.jobs.relocations.values()
    }

    /// The documents that came into force here, by VO, in the order in which they did.
    pub fn adoptions(&self) -> impl Iterator<Item = (VoId, &Adoption)> {
        let adoptions = self.vos.adoptions.iter();
        adoptions.map(|((vo, _), adoption)| (*vo, adoption))
    }

    /// How many of its kind a peer has made new since the one that was said before this one.
    pub fn held_back(&self, notice: &Notice) -> u64 {
        self.cx.notices.held_back(notice)
    }

    /// What an operator should know now.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.cx.notices.iter()
    }

    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms::new(&self.cx, &self.vos, &self.shares.tree)
    }
}
