//! Questions to a site about its jobs, quotas, free CPUs, forwarded jobs and notices. Read-only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_broker::Known;
use fairmesh_gossip::GossipStats;
use fairmesh_model::{
    AccountPath, ContentHash, CoreMillis, Factor, Importance, JobKey, Millis, Now, SiteId,
    UsageRecord, VoId, WallTime,
};
use fairmesh_quota::Ledger;

use crate::adoptions::Adoption;
use crate::advert::part::Advert;
use crate::again::JobTerms;
use crate::audit::{AuditEntry, told};
use crate::clocks::by_members;
use crate::config::OwnerQuota;
use crate::cx::SiteStats;
use crate::estimate::Estimate;
use crate::forward::ForwardStats;
use crate::forward::calls::{ForwardedJob, HereJob, Withdrawn};
use crate::notice::Notice;
use crate::parts::Parts;
use crate::quota::QuotaStats;
use crate::quota::calls::{HoldCall, QuotaReply};
use crate::quota::prices::Bands;
use crate::quota::query::{QuotaQuery, Quote};
use crate::quota::transfers::Moved;
use crate::reach::Reach;
use crate::refund::{Refund, Relocation};
use crate::remap::Remapper;
use crate::store::JobMark;
use crate::terms::Terms;
use crate::view::View;

impl Parts {
    pub(crate) fn quota_query(&self) -> QuotaQuery<'_> {
        QuotaQuery {
            cx: &self.cx,
            vos: &self.vos,
            tree: &self.shares.tree,
            sources: &self.jobs.sources,
            gossip: &self.peers.gossip,
        }
    }

    pub(crate) fn job_terms(&self) -> JobTerms<'_> {
        JobTerms::new(self.terms(), &self.own, &self.jobs)
    }

    /// The site's identity.
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

    /// What look-ups read.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.shares.tree.view)
    }

    /// The same moment by the members' clock if the local one is off, by which all that others have signed would be old.
    pub fn by_members(&self, now: Now) -> Now {
        by_members(&self.cx, &self.vos, &self.peers.gossip, now)
    }

    /// Until when counters reach whose jobs' marks are lost; `None` where nothing was lost.
    pub fn recovered(&self, vo: Option<VoId>) -> Option<Reach> {
        self.own.recovered(vo)
    }

    /// Which accounts are within their quotas.
    pub fn bands(&self) -> Bands {
        self.vos.bands(&self.shares.tree.view)
    }

    /// What a site asks of a VO's jobs, and since when; `None` of the usual price.
    pub fn price_at(&self, vo: VoId, site: SiteId) -> Option<(Factor, WallTime)> {
        self.vos.price_at(self.cx.id, vo, site)
    }

    /// What a job of usual importance that spends an account costs here now, × its charge.
    pub fn price_of(&self, vo: VoId, account: &AccountPath, now: Now) -> Factor {
        self.quota_query().price_of(vo, account, now)
    }

    /// What `site` would charge for a job that runs as long as its record says, at the price that it asks now as
    /// far as is known.
    ///
    /// # Errors
    /// Why nobody can say, or why it could not run there.
    pub fn quote(
        &self,
        now: Now,
        record: &UsageRecord,
        importance: Importance,
        site: SiteId,
    ) -> Result<Quote, String> {
        self.quota_query().quote(now, record, importance, site)
    }

    /// What a hold of a job that is not known yet would be answered, without holding anything; `ahead` is what
    /// others are about to hold of the same account.
    pub fn check_quota(&self, now: Now, call: HoldCall, ahead: CoreMillis) -> QuotaReply {
        self.quota_query().check_quota(now, call, ahead)
    }

    /// Whether any quota was charged for a job.
    pub fn is_quota_charged(&self, job: &JobKey) -> bool {
        self.vos.is_quota_charged(job)
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
        self.vos.known_sites(self.cx.id, now, vo)
    }

    /// What a broker makes of an advert of a site. The VO comes with its name, so that it is written out once for all sites.
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

    /// What `record` would count beyond what `mark` says is charged already.
    pub fn estimate(&self, now: Now, record: &UsageRecord, mark: Option<JobMark>) -> Estimate {
        self.job_terms().estimate(now, record, mark)
    }

    /// What `site` charges for the jobs by what it has told the members of their VOs about its
    /// machines and queues, whatever is counted already. Whose jobs they are is decided here.
    pub fn estimate_at(
        &self,
        now: Now,
        records: impl Iterator<Item = UsageRecord>,
        site: SiteId,
    ) -> Vec<Estimate> {
        self.job_terms().estimate_at(now, records, site)
    }

    /// The reasons for which records are refused for good, by their positions.
    pub fn refusals(&self, now: Now, records: &[UsageRecord]) -> BTreeMap<usize, String> {
        self.terms().refusals(now, records)
    }

    /// Whether any of a job was taken back.
    pub fn has_refunds(&self, job: &JobKey) -> bool {
        self.jobs.has_refunds(job)
    }

    /// Whether a job whose mark is known was taken back, and its record counts it again.
    pub fn counts_again(&self, record: &UsageRecord, mark: Option<JobMark>) -> bool {
        self.job_terms().counts_again(record, mark)
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

    /// The names of all jobs that were handed in or taken here and are remembered, of those that were handed in first.
    pub fn forwarded_ids(&self) -> impl Iterator<Item = ContentHash> + '_ {
        self.forward.ids()
    }

    /// One of them.
    pub fn forwarded_job(&self, id: ContentHash) -> Option<ForwardedJob> {
        self.forward.job(id)
    }

    /// Those that are to be handed to the batch system here.
    pub fn forwarded_here(&self) -> impl Iterator<Item = HereJob> + '_ {
        self.forward.here(&self.cx.clock)
    }

    /// Jobs that the batch system here has, and whose users take them back.
    pub fn to_withdraw(&self) -> impl Iterator<Item = Withdrawn> + '_ {
        self.forward.jobs_to_withdraw()
    }

    /// Counters for the metrics.
    pub fn forward_stats(&self) -> ForwardStats {
        self.forward.stats()
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
