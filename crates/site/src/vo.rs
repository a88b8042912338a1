//! What a site knows of one VO: its documents, its members' heads, and what these have published.
//!
//! Invariant: usage counts of the sites that the charter in force lists, each up to the capacity that
//! it declares there; and of this site itself, listed or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_fairshare::horizon_windows;
use fairmesh_gossip::{Replica, Shared};
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{
    AccountPath, ChargingRule, Charter, ContentHash, Factor, HashSecret, HistoryRule, MemberSite,
    Millis, MonoTime, SigningKey, SiteId, Span, UsageMode, Verified, VoId, WallTime, WindowLength,
    mutated,
};
use fairmesh_policy::{Adopted, HighestSeen, PolicyError, VoPolicies};
use fairmesh_usage::Capacity;

use crate::advert::OwnAdvert;
use crate::audit::Audit;
use crate::checks::SiteKinds;
use crate::document::{Document, DocumentRefused};
use crate::kinds::{ADVERT, DESCRIPTION, RUNNING};
use crate::moved::Moved;
use crate::own::Bounds;
use crate::published::{Published, Step};
use crate::quota::Quota;
use crate::tickets::PushToken;

#[derive(Debug)]
pub(crate) struct Vo {
    own: SiteId,
    /// Shared with a tree that is built of them beside the site.
    pub(crate) policies: Arc<VoPolicies>,
    pub(crate) replica: Replica,
    pub(crate) published: Published,
    /// How long usage weighs or is kept, and a day: windows of an old day are weighed from the day's middle.
    history: Millis,
    /// What this site has taken back.
    pub(crate) audit: Audit,
    /// Its rights to spend.
    pub(crate) quota: Quota,
    /// What its members are told of free CPUs here.
    pub(crate) advert: OwnAdvert,
    /// Spans of own usage that are not published, as they are more than one head may hold.
    pub(crate) left_out: BTreeSet<Span>,
    /// When silent members were looked for, and until when nothing can have changed since.
    pub(crate) silence_checked: Option<(WallTime, WallTime)>,
    /// When this site signed its last head, in this incarnation.
    pub(crate) published_at: Option<MonoTime>,
    /// Heads of members that were pushed without their content, and by which push.
    pub(crate) bare: BTreeMap<SiteId, (ContentHash, PushToken)>,
    /// When a head of each member last came into force here.
    pub(crate) received: BTreeMap<SiteId, MonoTime>,
    /// Peers of which all that they held at some moment since this start is here: they have sent it, or an exchange
    /// found that both hold the same.
    pub(crate) told_by: BTreeSet<SiteId>,
    /// Documents of other VOs whose policies this one's mount, as far as its members may have them; and a
    /// hash over them, where there are any.
    shown: Vec<(ContentHash, Arc<[u8]>)>,
    shown_digest: Option<ContentHash>,
}

impl Vo {
    /// Knows a VO by its id only, and which versions of its documents were seen before, as the site of `key`.
    pub(crate) fn new(id: VoId, key: &SigningKey, seen: &HighestSeen) -> Self {
        let own = key.site_id();
        Self {
            own,
            policies: Arc::new(VoPolicies::restore(id, seen, []).0),
            replica: Replica::new(id, own),
            published: Published::new(WindowLength::HOUR, HashSecret::of(key)),
            history: Millis(DAY_MS),
            audit: Audit::default(),
            quota: Quota::new(own),
            advert: OwnAdvert::default(),
            left_out: BTreeSet::new(),
            silence_checked: None,
            published_at: None,
            bare: BTreeMap::new(),
            received: BTreeMap::new(),
            told_by: BTreeSet::new(),
            shown: Vec::new(),
            shown_digest: None,
        }
    }

    /// The charter in force.
    pub(crate) fn charter(&self) -> Option<&Charter> {
        self.policies.charter().map(Verified::body)
    }

    pub(crate) fn members(&self) -> BTreeSet<SiteId> {
        let charter = self.charter().into_iter();
        charter
            .flat_map(|charter| charter.sites.iter().map(|member| member.site))
            .collect()
    }

    /// All sites that a charter lists, whether it is in force or an earlier one; those of the newest charters first.
    pub(crate) fn listed(&self) -> impl Iterator<Item = SiteId> {
        let charters: Vec<&Verified<Charter>> = self.policies.charters().collect();
        let charters = charters.into_iter().rev();
        charters.flat_map(|charter| charter.body().sites.iter().map(|member| member.site))
    }

    /// Length of its windows.
    pub(crate) fn window(&self) -> WindowLength {
        self.charter()
            .map_or(WindowLength::HOUR, |charter| charter.window)
    }

    /// What parts of its members must be like.
    pub(crate) fn kinds(&self) -> SiteKinds {
        SiteKinds {
            length: self.window(),
        }
    }

    /// Whether the members' lists of running jobs count: what those are still expected to use, or all of
    /// them where nothing else counts.
    pub(crate) fn counts_running(&self) -> bool {
        let asks = |charter: &Charter| {
            let only_running = charter.history == HistoryRule::RunningOnly;
            charter.usage_mode == UsageMode::Predictive
                || (only_running && !mutated!(RunningOnlyUnread))
        };
        self.charter().is_some_and(asks) || mutated!(AlwaysPredictive)
    }

    /// Whether no other site takes part.
    pub(crate) fn is_alone(&self) -> bool {
        let only_own =
            |charter: &Charter| charter.sites.iter().all(|member| member.site == self.own);
        self.charter().is_some_and(only_own)
    }

    /// The capacity that the charter declares for `site`. This site counts all of its own usage where no
    /// charter says what it has.
    pub(crate) fn capacity(&self, site: SiteId) -> Capacity {
        capacity_by(self.charter(), self.own, site)
    }

    /// Counts some of what heads of members changed: see [`Published::step`].
    pub(crate) fn step(&mut self, room: &mut usize, may_begin: bool) -> Option<(SiteId, Step)> {
        let (charter, own) = (self.policies.charter().map(Verified::body), self.own);
        let capacity = |site| capacity_by(charter, own, site);
        self.published
            .step(&self.replica, capacity, room, may_begin)
    }

    /// What bounds own usage.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            capacity: self.capacity(self.own),
            window: self.window(),
        }
    }

    /// When `site` last signed something that is held, by its own clock.
    pub(crate) fn signed_at(&self, site: SiteId) -> Option<WallTime> {
        let heads = self.replica.heads_of(site);
        heads.map(|head| head.body().at).max()
    }

    /// Whether what a site says of its running jobs counts: where the charter asks for it, and the site
    /// has signed lately. This site knows its own.
    pub(crate) fn counts_expected(&self, site: SiteId, now: WallTime, silence: Millis) -> bool {
        let is_fresh = |at| at >= now.before(silence) || mutated!(SilentRunForEver);
        self.counts_running() && (site == self.own || self.signed_at(site).is_some_and(is_fresh))
    }

    /// Reads what of a site's newest head is replaced and not added up, of the kinds that it touches. Returns
    /// by how much the expected charge of each account changed.
    pub(crate) fn read_newest(
        &mut self,
        site: SiteId,
        touches: impl Fn(u8) -> bool,
        now: WallTime,
        silence: Millis,
    ) -> Vec<Moved<AccountPath>> {
        let counts = self.counts_expected(site, now, silence);
        let capacity = self.capacity(site);
        if touches(DESCRIPTION) && !mutated!(PricesUnread) {
            self.published.update_description(&self.replica, site);
        }
        if touches(ADVERT) {
            self.published.update_advert(&self.replica, site);
        }
        if touches(RUNNING) {
            self.published
                .update_expected(&self.replica, site, capacity, counts)
        } else {
            self.published.count_expected(site, counts)
        }
    }

    /// What ended by this moment weighs nothing any more at `now`; whole days.
    pub(crate) fn horizon(&self, now: WallTime) -> WallTime {
        WallTime(now.before(self.history).0 / DAY_MS * DAY_MS)
    }

    pub(crate) fn adopt(&mut self, document: Document) -> Result<Adopted, DocumentRefused> {
        self.change(|policies| document.adopt(policies))
    }

    /// Takes one from the store, in whatever order they come.
    pub(crate) fn restore(&mut self, document: &Document) -> Result<Adopted, PolicyError> {
        self.change(|policies| policies.offer(document.kind(), document.bytes()))
    }

    fn change<E>(
        &mut self,
        by: impl FnOnce(&mut VoPolicies) -> Result<Adopted, E>,
    ) -> Result<Adopted, E> {
        let before = self.policies.charter().map(Verified::hash);
        let adopted = by(Arc::make_mut(&mut self.policies))?;
        if self.policies.charter().map(Verified::hash) != before {
            self.follow_charter(before.is_none());
        }
        Ok(adopted)
    }

    /// Shows its members these documents of other VOs, beside its own.
    pub(crate) fn show(&mut self, shown: Vec<(ContentHash, Arc<[u8]>)>) {
        let hashes: BTreeSet<ContentHash> = shown.iter().map(|(hash, _)| *hash).collect();
        let hashes: Vec<u8> = hashes.iter().flat_map(|hash| *hash.as_bytes()).collect();
        self.shown_digest = (!shown.is_empty()).then(|| ContentHash::of(&hashes));
        self.shown = shown;
    }

    /// Whether its members may have a document of another VO.
    pub(crate) fn shows(&self, document: ContentHash) -> bool {
        self.shown.iter().any(|(hash, _)| *hash == document)
    }

    /// Forgets what was read of the members' heads, which stay held.
    pub(crate) fn forget_published(&mut self) {
        self.published = Published::new(self.window(), self.published.paths.secret());
    }

    fn follow_charter(&mut self, founded: bool) {
        let members = self.members();
        let Some(charter) = self.charter() else {
            return;
        };
        let window = charter.window;
        let windows = kept_windows(charter.history, window);
        if founded {
            self.forget_published();
        }
        let history = window.millis().times(windows).0;
        self.history = Millis(history.saturating_add(DAY_MS));
        self.replica.set_members(members, self.history);
    }
}

fn capacity_by(charter: Option<&Charter>, own: SiteId, site: SiteId) -> Capacity {
    let strangers_count = mutated!(StrangersCount) || mutated!(RemovedStillCount);
    let listed = charter.and_then(|charter| Some((charter, charter.member(site)?)));
    match listed {
        Some((charter, member)) => Capacity {
            cores: member.cores,
            gpus: member.gpus,
            mem_gib: member.mem_gib,
            charge_cores: charge_cores(&charter.charging, member),
        },
        None if site == own || strangers_count => Capacity::UNBOUNDED,
        None => Capacity::of_cores(0),
    }
}

impl Shared for Vo {
    fn replica(&self) -> &Replica {
        &self.replica
    }

    fn replica_mut(&mut self) -> &mut Replica {
        &mut self.replica
    }

    /// Of its own documents, and of those that they mount.
    fn documents_digest(&self) -> ContentHash {
        let own = self.policies.digest();
        self.shown_digest.map_or(own, |shown| {
            ContentHash::of(&[*own.as_bytes(), *shown.as_bytes()].concat())
        })
    }

    fn documents(&self) -> Vec<(ContentHash, Arc<[u8]>)> {
        let own = self.policies.documents();
        let own = own.map(|(_, hash, bytes)| (hash, Arc::clone(bytes)));
        let shown = self.shown.iter().filter(|_| !mutated!(MountedNotBrought));
        own.chain(shown.cloned()).collect()
    }

    fn is_founded(&self) -> bool {
        self.charter().is_some()
    }

    fn charters(&self) -> Vec<(ContentHash, Arc<[u8]>)> {
        let charters = self.policies.charters();
        let charters = charters.map(|held| (held.hash(), Arc::clone(held.bytes())));
        charters.collect()
    }

    fn is_former_member(&self, site: SiteId) -> bool {
        !self.replica.is_member(site) && self.listed().any(|listed| listed == site)
    }
}

/// Cores that a site may charge: more than it has where the VO's rule says so.
fn charge_cores(rule: &ChargingRule, member: &MemberSite) -> u32 {
    let cores = u128::from(member.cores);
    // Where nobody says how many, each core may bring a GPU with it.
    let gpus = member.gpus.map_or(cores, u128::from);
    let times = |cores: u128, most: Factor| {
        cores * u128::from(most.max(Factor::ONE).millionths()) / u128::from(Factor::UNITS)
    };
    let charged = match rule {
        ChargingRule::CpuTime | ChargingRule::NormalisedTime { .. } => cores,
        ChargingRule::Weights {
            cpu,
            gpu,
            mem_gib,
            energy_kwh,
            ..
        } => {
            let mem = member
                .mem_gib
                .map_or(cores * MEM_GIB_PER_CORE_MAX, u128::from);
            let watts = cores * WATTS_PER_CORE_MAX + gpus * WATTS_PER_GPU_MAX;
            let all = cores * u128::from(*cpu)
                + gpus * u128::from(*gpu)
                + mem * u128::from(*mem_gib)
                + watts * u128::from(*energy_kwh) / 1_000;
            cores.max(all / 1_000)
        }
        // One job may take all CPUs of a machine, another all its memory, and so on; each is
        // charged the whole machine at most. GPUs of a weight are charged beside it.
        ChargingRule::Penalty {
            gpu,
            gpu_weight,
            disk,
            factor_max,
        } => {
            let beside = gpu_weight.map(|weight| gpus * u128::from(weight) / 1_000);
            let jobs = 2 + u128::from(*gpu && beside.is_none()) + u128::from(*disk);
            times(cores * jobs + beside.unwrap_or(0), *factor_max)
        }
    };
    let spec_max = rule.spec_max().filter(|_| !mutated!(BoundWithoutSpec));
    let charged = times(charged, spec_max.unwrap_or_default());
    u32::try_from(charged).unwrap_or(u32::MAX)
}

/// How many windows usage is kept: as long as it weighs, and where only running jobs count as long as it
/// would by default. It weighs nothing in such a VO, but owners weigh it beside that of their own accounts,
/// and there may be a history again.
pub(crate) fn kept_windows(rule: HistoryRule, window: WindowLength) -> u64 {
    match rule {
        HistoryRule::RunningOnly => KEPT_DAYS * window.per_day(),
        rule => horizon_windows(rule),
    }
}

const KEPT_DAYS: u64 = 90;

/// Memory of a core that a charge is believed for, where the charter does not say how much there is: the
/// largest machines on the market have 64 GiB.
const MEM_GIB_PER_CORE_MAX: u128 = 64;

/// Power of a core and of a GPU, with all that is around it, that a charge for energy is believed for.
const WATTS_PER_CORE_MAX: u128 = 100;
const WATTS_PER_GPU_MAX: u128 = 2_000;

#[cfg(test)]
mod tests {
    use fairmesh_model::SigningKey;

    use super::*;

    #[test]
    fn a_charge_is_bounded_by_what_is_declared_and_by_the_dearest_core_where_nothing_is() {
        let weights = ChargingRule::Weights {
            cpu: 1_000,
            gpu: 8_000,
            mem_gib: 250,
            max: true,
            energy_kwh: 0,
            spec_max: None,
        };
        let energy = ChargingRule::Weights {
            cpu: 1_000,
            gpu: 0,
            mem_gib: 0,
            max: false,
            energy_kwh: 2_000,
            spec_max: None,
        };
        let spec_max = Factor::from_millionths;
        let normalised = |millionths| ChargingRule::NormalisedTime {
            spec_max: spec_max(millionths),
        };
        let fast = ChargingRule::Weights {
            cpu: 1_000,
            gpu: 8_000,
            mem_gib: 0,
            max: false,
            energy_kwh: 0,
            spec_max: Some(spec_max(1_500_000)),
        };
        let penalty = |gpu_weight| ChargingRule::Penalty {
            gpu: true,
            gpu_weight,
            disk: false,
            factor_max: spec_max(2_000_000),
        };
        let member = |gpus, mem_gib| MemberSite {
            site: SigningKey::from_secret(&[1; 32]).site_id(),
            name: "a".to_owned(),
            cores: 100,
            gpus,
            mem_gib,
            addresses: Vec::new(),
        };
        let rows = [
            (ChargingRule::CpuTime, None, None, 100),
            (ChargingRule::CpuTime, Some(4), Some(64), 100),
            (weights, None, None, 100 + 800 + 1_600),
            (weights, Some(4), None, 100 + 32 + 1_600),
            (weights, Some(0), Some(401), 100 + 100),
            (energy, Some(4), None, 100 + (10 + 8) * 2),
            (normalised(2_500_000), None, None, 250),
            (normalised(500_000), None, None, 100),
            (fast, Some(4), None, (100 + 32) * 3 / 2),
            (penalty(None), Some(4), None, 100 * 3 * 2),
            (penalty(Some(8_000)), Some(4), None, (100 * 2 + 32) * 2),
            (penalty(Some(8_000)), None, None, (100 * 2 + 800) * 2),
            (penalty(Some(u32::MAX)), Some(u32::MAX), None, u32::MAX),
        ];
        for (rule, gpus, mem_gib, expected) in rows {
            assert_eq!(charge_cores(&rule, &member(gpus, mem_gib)), expected);
        }
    }
}
