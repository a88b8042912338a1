//! What people may ask a site. Read-only; answers are plain data, tables are made elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_fairshare::{EntryId, Snapshot};
use fairmesh_gossip::{Exchanges, Head, Shared};
use fairmesh_model::{
    AccountPath, ContentHash, CoreMillis, Counters, IncarnationId, Millis, MonoTime, Now, Origin,
    Seq, SiteId, Span, Verified, VoId, WallTime, Window, WindowLength, cbor, mutant,
};
use fairmesh_policy::{CompiledTree, DocumentRef, Vouched, Warning};
use serde_bytes::ByteBuf;

use crate::identity::Account;
use crate::kinds::Description;
use crate::parts::Parts;
use crate::reach::Reach;
use crate::store::Write;
use crate::view::Coverage;
use crate::vo::Vo;

/// What a site knows of a VO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoStatus {
    /// The VO of the status.
    pub vo: VoId,
    /// Its name, once its charter has come.
    pub name: Option<String>,
    /// What is held of it.
    pub held: Holding,
    /// Who contributes, and how old that is.
    pub coverage: Coverage,
    /// The first document in force to expire, and when it does.
    pub expires: Option<(WallTime, DocumentRef)>,
    /// What is not as it should be.
    pub warnings: Vec<String>,
    /// What is known of its snapshot.
    pub snapshot: Option<Vouched>,
    /// What is not as it should be with that.
    pub snapshot_warnings: Vec<String>,
    /// Whether members have told what they hold of this site's earlier starts, all that are connected, or there is no
    /// other.
    pub past_known: bool,
    /// The CPUs that the charter gives this site.
    pub cpus: Option<u32>,
    /// Until when own counters reach whose jobs' marks are lost.
    pub recovered_until: Option<WallTime>,
}

/// What a site holds of a VO: what tells whether two sites hold the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Version of the charter in force; 0 where there is none.
    pub charter_version: u64,
    /// Hash over all documents in force.
    pub documents: Option<ContentHash>,
    /// One hash over everything that the members have published, whenever they signed it last.
    pub counters: Option<ContentHash>,
    /// Uncovered heads: of each site and incarnation its seq.
    pub heads: BTreeMap<IncarnationId, Seq>,
}

/// What a site knows of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer's id.
    pub site: SiteId,
    /// Its name in a charter.
    pub name: Option<String>,
    /// Whether it can be reached now.
    pub connected: bool,
    /// When it last signed something that is held, by its own clock.
    pub signed_at: Option<WallTime>,
    /// When the last exchange with it ended with nothing to pull.
    pub agreed: Option<MonoTime>,
    /// How exchanges with it end.
    pub exchanges: Exchanges,
    /// Whether its last connection that has ended saw no exchange, and none has ended since.
    pub had_no_exchange: bool,
    /// When a head of it last came into force here, through whomever.
    pub received: Option<MonoTime>,
    /// The newest moment of a job in what it published, by its own clock. At a site whose feed works and where jobs run
    /// it is the last report of running jobs.
    pub usage_until: Option<WallTime>,
    /// Whether a charter in force lists it, or none is here yet.
    pub is_member: bool,
}

/// Usage of one account at one site in one span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageCell {
    /// The VO; `None` for accounts of the site's own.
    pub vo: Option<VoId>,
    /// Where it was used.
    pub site: SiteId,
    /// The account that used it.
    pub path: AccountPath,
    /// The hour or day of the usage.
    pub span: Span,
    /// The used amounts, joined and clamped.
    pub counters: Counters,
}

/// What a reader of a factor should be warned of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// A document has expired and is still in force.
    pub expired: bool,
    /// Nobody vouches that the documents are the newest, or some that the VO's snapshot names are not here.
    pub unvouched: bool,
    /// Two valid documents claim one version.
    pub conflicting: bool,
    /// A site has signed two heads with one number.
    pub forked: bool,
    /// No other site can be reached, though there are others.
    pub alone: bool,
}

/// The view of a VO at one moment.
#[derive(Debug, Clone)]
pub struct Viewed {
    documents: ContentHash,
    reference: Option<Window>,
    length: WindowLength,
    mount: EntryId,
    sums: Arc<Snapshot>,
}

impl Viewed {
    /// When the window begins that the sums are seen from. Sites enter a window by their own clocks, so digests of
    /// different windows say nothing of each other.
    pub fn window_start(&self) -> Option<WallTime> {
        Some(self.length.start_of(self.reference?))
    }

    /// The digest of [`Parts::view_digest`], computed outside the site's task.
    pub fn digest(&self) -> ContentHash {
        let mut rows: Vec<(String, ByteBuf)> = Vec::new();
        self.sums.digest(self.mount, |path, sum| {
            rows.push((path.to_owned(), ByteBuf::from(sum.to_be_bytes())));
        });
        ContentHash::of(&cbor::to_vec(&(self.documents, self.reference, rows)))
    }
}

impl Parts {
    /// What a reader of a factor should be warned of.
    pub fn health(&self, now: Now) -> Health {
        let mut health = Health::default();
        let mut others = false;
        let own = self.vos.values().map(|vo| &*vo.policies);
        let policies = own.chain(self.vos.read_policies().map(|(_, policies)| policies));
        for warning in policies.flat_map(|policies| policies.warnings(now.wall)) {
            health.expired |= matches!(warning, Warning::Expired { .. });
            health.conflicting |= matches!(warning, Warning::Alarm(_));
        }
        for vo in self.vos.values() {
            health.unvouched |= !vo.policies.snapshot_warnings(now.wall).is_empty();
            health.forked |= vo.replica.forked().next().is_some();
            others |= vo.charter().is_some_and(|charter| charter.sites.len() > 1);
        }
        health.alone = others && self.peers.gossip.peers().next().is_none();
        health
    }

    /// The uncovered heads that are held of each VO: of each site and incarnation its seq.
    pub fn vectors(&self) -> BTreeMap<VoId, BTreeMap<IncarnationId, Seq>> {
        self.vos
            .iter()
            .map(|(id, vo)| (*id, heads_of(vo)))
            .collect()
    }

    /// One hash of everything held of all VOs: equal for sites that take part in the same VOs and
    /// hold the same. O(documents), whatever the number of accounts.
    pub fn holdings(&self) -> ContentHash {
        let summaries: Vec<_> = self
            .vos
            .iter()
            .map(|(id, vo)| (*id, vo.summary()))
            .collect();
        ContentHash::of(&cbor::to_vec(&summaries))
    }

    /// What is known of each VO.
    pub fn vo_status(&self, now: Now) -> Vec<VoStatus> {
        let connected: Vec<SiteId> = self.peers.gossip.peers().collect();
        let has_told = |vo: &Vo, peer: SiteId| {
            let is_member = vo.replica.is_member(peer);
            !is_member || vo.told_by.contains(&peer) || self.peers.gossip.agreed_at(peer).is_some()
        };
        let status = |(id, vo): (&VoId, &Vo)| {
            let charter = vo.charter();
            let warnings = charter
                .map(|_| vo.policies.warnings(now.wall))
                .unwrap_or_default();
            VoStatus {
                vo: *id,
                name: charter.map(|charter| charter.name.clone()),
                held: holding_of(vo),
                coverage: self.coverage_of(*id),
                expires: vo.policies.expiries().into_iter().next(),
                warnings: warnings.iter().map(ToString::to_string).collect(),
                snapshot: vo.policies.vouched(),
                snapshot_warnings: vo
                    .policies
                    .snapshot_warnings(now.wall)
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                cpus: charter.and_then(|charter| Some(charter.member(self.cx.id)?.cores)),
                past_known: vo.is_founded()
                    && self.vos.knows_own_past(self.cx.id, *id)
                    && connected.iter().all(|peer| has_told(vo, *peer)),
                recovered_until: self.own.recovered(Some(*id)).map(Reach::newest),
            }
        };
        self.vos.iter().map(status).collect()
    }

    /// What is held of each VO.
    pub fn held(&self) -> impl Iterator<Item = (VoId, Holding)> {
        self.vos.iter().map(|(id, vo)| (*id, holding_of(vo)))
    }

    /// What is held of one VO.
    pub fn held_of(&self, vo: VoId) -> Option<Holding> {
        self.vos.get(&vo).map(holding_of)
    }

    /// What answers rest on, over all VOs.
    pub fn coverage(&self) -> Coverage {
        self.coverage_over(self.vos.values())
    }

    /// What answers about one VO rest on.
    pub fn coverage_of(&self, vo: VoId) -> Coverage {
        self.coverage_over(self.vos.get(&vo))
    }

    fn coverage_over<'a>(&self, vos: impl IntoIterator<Item = &'a Vo>) -> Coverage {
        let mut coverage = Coverage::default();
        // A member of several VOs has the cores that any of them declares for it.
        let mut cores: BTreeMap<SiteId, u64> = BTreeMap::new();
        for vo in vos {
            let members = vo.charter().into_iter().flat_map(|charter| &charter.sites);
            for member in members {
                let most = cores.entry(member.site).or_default();
                *most = (*most).max(u64::from(member.cores));
                if let Some(at) = vo.signed_at(member.site) {
                    let at = mutant!(SignedYounger, at, at.after(Millis(1_000)));
                    let last = coverage.signed_at.entry(member.site).or_default();
                    *last = (*last).max(at);
                }
            }
        }
        for (site, cores) in cores {
            let is_known = coverage.signed_at.contains_key(&site);
            coverage.sites_total += mutant!(CoverageOfOthers, 1, u32::from(site != self.cx.id));
            coverage.cores_total += cores;
            coverage.sites_known += u32::from(is_known);
            coverage.cores_known += if is_known { cores } else { 0 };
        }
        coverage
    }

    /// What is known of each peer.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let coverage = self.coverage();
        let connected: Vec<SiteId> = self.peers.gossip.peers().collect();
        let introducers = self.cx.config.introducers.iter();
        let mut names: BTreeMap<SiteId, Option<String>> =
            introducers.map(|site| (*site, None)).collect();
        for charter in self.vos.values().filter_map(Vo::charter) {
            let members = charter.sites.iter();
            names.extend(members.map(|member| (member.site, Some(member.name.clone()))));
        }
        names.remove(&self.cx.id);
        let has_charter = self.vos.values().any(|vo| vo.charter().is_some());
        let received = |site: &SiteId| {
            let of_vos = self.vos.values();
            of_vos.filter_map(|vo| vo.received.get(site)).max().copied()
        };
        names
            .into_iter()
            .map(|(site, name)| PeerStatus {
                site,
                exchanges: self.peers.gossip.exchanges_with(site),
                had_no_exchange: self.peers.gossip.had_no_exchange(site),
                received: received(&site),
                is_member: name.is_some() || !has_charter,
                name,
                connected: connected.contains(&site),
                signed_at: coverage.signed_at.get(&site).copied(),
                usage_until: self.vos.reach_of(site),
                agreed: self.peers.gossip.agreed_at(site),
            })
            .collect()
    }

    /// Digest of the VO's view: its documents in force and those that they mount, and every weighted sum below its
    /// mount as seen from the reference window. Two sites with equal vectors, documents and [`Parts::reference`] have
    /// equal ones. The cheap one that travels with the gossip is that of the counters.
    pub fn view_digest(&self, vo: VoId) -> Option<ContentHash> {
        let sums = Arc::new(self.snapshot());
        self.viewed(vo, &sums).as_ref().map(Viewed::digest)
    }

    /// What that is made of, to be made elsewhere of a copy of all `sums`; `None` while a head is held that is not
    /// counted.
    pub fn viewed(&self, vo: VoId, sums: &Arc<Snapshot>) -> Option<Viewed> {
        let held = self
            .vos
            .get(&vo)
            .filter(|held| !held.published.is_behind())?;
        held.charter()?;
        let mount = self.shares.tree.view.mounts().get(&vo)?;
        Some(Viewed {
            documents: held.documents_digest(),
            reference: self.reference(vo),
            length: held.window(),
            mount: self.shares.tree.view.reader().entry(mount)?,
            sums: Arc::clone(sums),
        })
    }

    /// The window that the VO's sums are seen from: digests of views compare where it is the same.
    pub fn reference(&self, vo: VoId) -> Option<Window> {
        self.shares.tree.reference(vo)
    }

    /// The rows of the store of all own counters that nobody but this site is known to hold, of its rights of open
    /// holds, of forwarded jobs and of what came back from peers, as of the last event: what must survive the loss of
    /// the store. O(such rows).
    pub fn rows_held_alone(&self) -> Vec<Write> {
        let mut rows = self.own.rows_held_alone();
        rows.extend(self.vos.quota_rows_held_alone());
        rows.extend(self.forward.rows());
        rows.extend(self.own.reach_rows());
        rows.extend(self.jobs.instalment_rows());
        rows
    }

    /// Every raw cell that answers are made of: usage of an account at a site in a span, of this
    /// site's own counters and of all that is held of others, joined and not clamped. A cell may come in
    /// parts, which add up.
    pub fn usage_cells(&self) -> impl Iterator<Item = UsageCell> + '_ {
        let vos = self.vos.keys().chain(self.vos.left.keys());
        let vos = vos.map(|vo| Some(*vo)).chain([None]);
        vos.flat_map(|vo| self.cells_below(vo, AccountPath::root()))
    }

    /// Those at and below an account.
    fn cells_below(
        &self,
        vo: Option<VoId>,
        below: AccountPath,
    ) -> impl Iterator<Item = UsageCell> + '_ {
        let cell = move |site, path, span, counters| UsageCell {
            vo,
            site,
            path,
            span,
            counters,
        };
        let held = vo.and_then(|vo| self.vos.get(&vo)).into_iter();
        let sites = held.flat_map(|held| {
            let sites = held.published.sites().into_iter();
            sites.map(move |site| (site, &held.published))
        });
        let path = below.clone();
        let others = sites.flat_map(move |(site, published)| {
            let sums = published.below(site, &path);
            sums.map(move |((span, id), counters)| {
                cell(site, published.paths.path(id).clone(), span, counters)
            })
        });
        let own = self
            .own
            .cells(vo)
            .filter(move |own| own.2.starts_with(&below));
        let own = own.map(move |(_, span, path, counters)| cell(self.cx.id, path, span, counters));
        own.chain(others)
    }

    /// What running jobs count for in their VO now: VO, site that runs them, account, and how much.
    pub fn expected_usage(
        &self,
    ) -> impl Iterator<Item = (VoId, SiteId, &AccountPath, CoreMillis)> + '_ {
        self.vos.iter().flat_map(|(vo, held)| {
            held.published.sites().into_iter().flat_map(move |site| {
                let rows = held.published.expected_of(site).iter();
                rows.map(move |(path, charge)| (*vo, site, path, CoreMillis(*charge)))
            })
        })
    }

    /// What running jobs count for at this site's own levels and in no counter: in a span, or as a whole.
    pub fn running_usage(&self) -> impl Iterator<Item = (&Account, Option<Span>, u64)> {
        let rows = self.jobs.running.rows();
        rows.map(|(place, charge)| (&place.account, place.span, charge))
    }

    /// Raw counters by site for the usage at and below an account, over all that is held, as the sites
    /// published it: not clamped. Own usage that is not published yet is included.
    pub fn usage_by_site(&self, account: &Account) -> BTreeMap<SiteId, Counters> {
        let cells = self.cells_below(account.vo, account.path.clone());
        sums(cells.map(|cell| (cell.site, cell.counters)))
    }

    /// Raw counters by account of a VO (or of the site itself), over all sites and windows held.
    pub fn usage_by_account(&self, vo: Option<VoId>) -> BTreeMap<AccountPath, Counters> {
        let cells = self.cells_below(vo, AccountPath::root());
        sums(cells.map(|cell| (cell.path, cell.counters)))
    }

    /// Whether anything that this site counts of a VO differs from what its newest head names.
    pub fn has_unpublished(&self, vo: VoId) -> bool {
        self.own.has_unpublished(vo)
    }

    /// What the sites of `vo` say about their machines and queues.
    pub fn descriptions(&self, vo: VoId) -> impl Iterator<Item = (SiteId, &Description)> {
        let published = self.vos.get(&vo).map(|vo| &vo.published).into_iter();
        published.flat_map(|published| {
            let sites = published.sites().into_iter();
            sites.filter_map(|site| Some((site, published.description(site)?)))
        })
    }

    /// Origins that map nowhere: records, charge in core-milliseconds, and when the last one ended.
    pub fn unmapped(&self) -> impl Iterator<Item = (&Origin, u64, u64, WallTime)> {
        self.jobs
            .unmapped
            .iter()
            .map(|(origin, seen)| (origin, seen.records, seen.charge, seen.last))
    }

    /// A copy of all sums, for ranks and explanations: O(entries).
    pub fn snapshot(&self) -> Snapshot {
        self.shares.tree.snapshot()
    }

    /// What time it is by the clock of a connected peer, as it said last.
    pub fn clock_of(&self, peer: SiteId, now: MonoTime) -> Option<WallTime> {
        self.peers.gossip.clock_of(peer, now)
    }

    /// Whether the tree in force is that of earlier documents or an earlier configuration, while the next
    /// one is built and fed.
    pub fn is_feeding(&self) -> bool {
        self.shares.next.is_some() || self.shares.is_stale
    }

    /// Whether something has come that is not taken in yet: a large answer, or a document that is read.
    pub fn is_taking_in(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Whether all is still seen from the windows before, while sums are worked out for the next.
    pub fn is_sweeping(&self) -> bool {
        self.shares.tree.is_sweeping
    }

    /// Whether heads of a VO are held of which not everything is counted yet.
    pub fn is_counting(&self, vo: VoId) -> bool {
        let held = self.vos.get(&vo);
        held.is_some_and(|held| held.published.is_behind())
    }

    /// The tree in force, with where each entry comes from.
    pub fn compiled(&self) -> &CompiledTree {
        &self.shares.tree.compiled
    }

    /// Windows of a VO's usage.
    pub fn window_of(&self, vo: VoId) -> Option<WindowLength> {
        self.vos.get(&vo).map(Vo::window)
    }

    /// The signed documents held of a VO, as they were signed; nothing is copied.
    pub fn documents(&self, vo: VoId) -> Vec<Arc<[u8]>> {
        let held = self.vos.get(&vo).into_iter();
        let documents = held.flat_map(|held| held.policies.documents());
        documents.map(|(_, _, bytes)| bytes.clone()).collect()
    }

    /// Where the charters in force say that their members are.
    pub fn member_addresses(&self) -> BTreeMap<SiteId, Vec<String>> {
        let mut addresses: BTreeMap<SiteId, Vec<String>> = BTreeMap::new();
        let charters = self.vos.values().filter_map(Vo::charter);
        for member in charters.flat_map(|charter| &charter.sites) {
            let known = addresses.entry(member.site).or_default();
            for address in &member.addresses {
                if !known.contains(address) {
                    known.push(address.clone());
                }
            }
        }
        addresses
    }

    /// The signed allocations in force of a VO, as they were signed; nothing is copied.
    pub fn allocations(&self, vo: VoId) -> Vec<Arc<[u8]>> {
        let held = self.vos.get(&vo).into_iter();
        let allocations = held.flat_map(|held| held.policies.allocations());
        allocations
            .map(|signed| Arc::clone(signed.bytes()))
            .collect()
    }

    /// VOs that the owner has left and whose charter is kept: what was used for them counts at the root.
    pub fn left_vos(&self) -> impl Iterator<Item = VoId> {
        let founded = self.vos.left.iter().filter(|(_, held)| held.is_founded());
        founded.map(|(vo, _)| *vo)
    }

    /// The signed documents of VOs that the site takes no part in, and whose policies others mount.
    pub fn read_documents(&self) -> impl Iterator<Item = (VoId, Arc<[u8]>)> {
        self.vos.read.iter().flat_map(|(vo, policies)| {
            let documents = policies.documents();
            documents.map(|(_, _, bytes)| (*vo, bytes.clone()))
        })
    }

    /// The name of a site in any charter.
    pub fn site_name(&self, site: SiteId) -> Option<&str> {
        let charters = self.vos.values().filter_map(Vo::charter);
        charters
            .filter_map(|charter| charter.member(site))
            .map(|member| member.name.as_str())
            .next()
    }
}

fn holding_of(vo: &Vo) -> Holding {
    let charter = vo.charter();
    Holding {
        charter_version: charter.map_or(0, |charter| charter.version),
        documents: charter.map(|_| vo.documents_digest()),
        counters: charter.map(|_| published_digest(vo)),
        heads: heads_of(vo),
    }
}

fn heads_of(vo: &Vo) -> BTreeMap<IncarnationId, Seq> {
    let row = |head: &Arc<Verified<Head>>| {
        let (site, incarnation) = (head.body().site, head.body().incarnation);
        (IncarnationId { site, incarnation }, head.body().seq)
    };
    vo.replica.heads().map(row).collect()
}

/// What is counted, by who or where.
fn sums<K: Ord>(counted: impl Iterator<Item = (K, Counters)>) -> BTreeMap<K, Counters> {
    let mut sums = BTreeMap::new();
    for (key, counters) in counted {
        let sum: &mut Counters = sums.entry(key).or_default();
        *sum = sum.plus(counters);
    }
    sums
}

/// One hash over the roots of the heads: heartbeats, which change their numbers, leave it as it is.
fn published_digest(vo: &Vo) -> ContentHash {
    let roots = vo.replica.heads();
    let roots = roots.map(|head| (head.body().site, head.body().root));
    let mut roots: Vec<_> = roots.collect();
    roots.sort_unstable();
    roots.dedup();
    ContentHash::of(&cbor::to_vec(&roots))
}
