//! What people may ask a site. Read-only; answers are plain data, tables are made elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_fairshare::Snapshot;
use fairmesh_gossip::{Head, Shared};
use fairmesh_model::{
    AccountPath, ContentHash, CoreMillis, Counters, Millis, MonoTime, Now, Origin, Seq, SiteId,
    Span, StreamId, Verified, VoId, WallTime, Window, cbor, mutant,
};
use fairmesh_policy::{CompiledTree, Warning};

use crate::identity::Account;
use crate::kinds::Description;
use crate::site::Site;
use crate::store::Write;
use crate::view::Coverage;
use crate::vo::Vo;

/// What a site knows of a VO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoStatus {
    /// The VO.
    pub vo: VoId,
    /// Its name, once its charter has come.
    pub name: Option<String>,
    /// Version of the charter in force; 0 where there is none.
    pub charter_version: u64,
    /// Hash over all documents in force.
    pub documents: Option<ContentHash>,
    /// One hash over everything that the members have published, whenever they signed it last.
    pub counters: Option<ContentHash>,
    /// Uncovered heads: of each site and incarnation its seq.
    pub heads: BTreeMap<StreamId, Seq>,
    /// Who contributes, and how old that is.
    pub coverage: Coverage,
    /// What is not as it should be.
    pub warnings: Vec<String>,
}

/// What a site knows of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer.
    pub site: SiteId,
    /// Its name in a charter.
    pub name: Option<String>,
    /// Whether it can be reached now.
    pub connected: bool,
    /// When it last signed something that is held, by its own clock.
    pub heard: Option<WallTime>,
    /// When the last exchange with it ended with nothing to pull.
    pub agreed: Option<MonoTime>,
}

/// Usage of one account at one site in one span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageCell {
    /// The VO; `None` for accounts of the site's own.
    pub vo: Option<VoId>,
    /// Where it was used.
    pub site: SiteId,
    /// By whom.
    pub path: AccountPath,
    /// When.
    pub span: Span,
    /// How much.
    pub counters: Counters,
}

/// What a reader of a factor should be warned of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// A document has expired and is still in force.
    pub expired: bool,
    /// Two valid documents claim one version.
    pub conflicting: bool,
    /// A site has signed two heads with one number.
    pub forked: bool,
    /// No other site can be reached, though there are others.
    pub alone: bool,
}

impl Site {
    /// What a reader of a factor should be warned of.
    pub fn health(&self, now: Now) -> Health {
        let mut health = Health::default();
        let mut others = false;
        for vo in self.vos.values() {
            for warning in vo.policies.warnings(now.wall) {
                health.expired |= matches!(warning, Warning::Expired { .. });
                health.conflicting |= matches!(warning, Warning::Alarm(_));
            }
            health.forked |= vo.replica.forked().next().is_some();
            others |= vo.charter().is_some_and(|charter| charter.sites.len() > 1);
        }
        health.alone = others && self.gossip.peers().next().is_none();
        health
    }

    /// The uncovered heads that are held of each VO: of each site and incarnation its seq.
    pub fn vectors(&self) -> BTreeMap<VoId, BTreeMap<StreamId, Seq>> {
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
        let status = |(id, vo): (&VoId, &Vo)| {
            let charter = vo.charter();
            let warnings = charter
                .map(|_| vo.policies.warnings(now.wall))
                .unwrap_or_default();
            VoStatus {
                vo: *id,
                name: charter.map(|charter| charter.name.clone()),
                charter_version: charter.map_or(0, |charter| charter.version),
                documents: charter.map(|_| vo.policies.digest()),
                counters: charter.map(|_| published_digest(vo)),
                heads: heads_of(vo),
                coverage: self.coverage_of(*id),
                warnings: warnings.iter().map(ToString::to_string).collect(),
            }
        };
        self.vos.iter().map(status).collect()
    }

    /// What answers rest on, over all VOs.
    pub fn coverage(&self) -> Coverage {
        let mut all = Coverage::default();
        let mut capacity: BTreeMap<SiteId, (u64, bool)> = BTreeMap::new();
        for vo in self.vos.values() {
            let Some(charter) = vo.charter() else {
                continue;
            };
            let heard = signed_at(vo);
            for member in &charter.sites {
                let entry = capacity.entry(member.site).or_default();
                entry.0 = entry.0.max(u64::from(member.cores));
                if let Some(at) = heard.get(&member.site) {
                    entry.1 = true;
                    let known = all.heard.entry(member.site).or_default();
                    *known = (*known).max(*at);
                }
            }
        }
        for (cores, heard) in capacity.into_values() {
            all.sites_total += 1;
            all.cores_total += cores;
            if heard {
                all.sites_heard += 1;
                all.cores_heard += cores;
            }
        }
        all
    }

    /// What answers about one VO rest on.
    pub fn coverage_of(&self, vo: VoId) -> Coverage {
        let mut coverage = Coverage::default();
        let Some(held) = self.vos.get(&vo) else {
            return coverage;
        };
        let heard = signed_at(held);
        for member in held
            .charter()
            .into_iter()
            .flat_map(|charter| &charter.sites)
        {
            coverage.sites_total += mutant!(CoverageOfOthers, 1, u32::from(member.site != self.id));
            coverage.cores_total += u64::from(member.cores);
            if let Some(at) = heard.get(&member.site) {
                coverage.sites_heard += 1;
                coverage.cores_heard += u64::from(member.cores);
                coverage.heard.insert(member.site, *at);
            }
        }
        coverage
    }

    /// What is known of each peer.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let coverage = self.coverage();
        let connected: Vec<SiteId> = self.gossip.peers().collect();
        let mut names: BTreeMap<SiteId, Option<String>> = self
            .config
            .introducers
            .iter()
            .map(|site| (*site, None))
            .collect();
        for charter in self.vos.values().filter_map(Vo::charter) {
            names.extend(
                charter
                    .sites
                    .iter()
                    .map(|member| (member.site, Some(member.name.clone()))),
            );
        }
        names.remove(&self.id);
        names
            .into_iter()
            .map(|(site, name)| PeerStatus {
                site,
                name,
                connected: connected.contains(&site),
                heard: coverage.heard.get(&site).copied(),
                agreed: self.gossip.agreed_at(site),
            })
            .collect()
    }

    /// Digest of the VO's view: its documents in force, and every weighted sum below its mount as
    /// seen from the reference window. Two sites with equal vectors and documents have equal ones.
    /// O(entries); the cheap one that travels with the gossip is that of the counters.
    pub fn view_digest(&self, vo: VoId) -> Option<ContentHash> {
        let held = self.vos.get(&vo)?;
        held.charter()?;
        let mount = self.shares.view.mounts().get(&vo)?;
        let reader = self.shares.view.reader();
        let entry = reader.entry(mount)?;
        let mut rows: Vec<(String, Vec<u8>)> = Vec::new();
        self.shares.digest(entry, |path, sum| {
            rows.push((path.to_owned(), sum.to_be_bytes().to_vec()))
        });
        Some(ContentHash::of(&cbor::to_vec(&(
            held.policies.digest(),
            self.shares.reference(vo),
            rows,
        ))))
    }

    /// The window that the VO's sums are seen from: digests of views compare where it is the same.
    pub fn reference(&self, vo: VoId) -> Option<Window> {
        self.shares.reference(vo)
    }

    /// The rows of the store (of [`Table::Ledger`](crate::Table::Ledger)) of all own counters that
    /// nobody but this site is known to hold, as of the last event: what must survive the loss of
    /// the store. O(such rows).
    pub fn rows_held_alone(&self) -> Vec<Write> {
        self.own.rows_held_alone()
    }

    /// Every raw cell that answers are made of: usage of an account at a site in a span, of this
    /// site's own counters and of all that is held of others, joined and not clamped. A cell may come in
    /// parts, which add up.
    pub fn usage_cells(&self) -> impl Iterator<Item = UsageCell> + '_ {
        let all = self.vos.iter().chain(&self.left);
        let own = all.map(|(vo, _)| Some(*vo)).chain([None]);
        let own = own.flat_map(move |vo| {
            let cells = self.own.cells(vo);
            cells.map(move |(_, span, path, counters)| UsageCell {
                vo,
                site: self.id,
                path,
                span,
                counters,
            })
        });
        let held = self.vos.iter().flat_map(|(vo, held)| {
            let published = &held.published;
            let others = published.sites().into_iter();
            others.flat_map(move |site| {
                let cells = published.below(site, &AccountPath::root()).into_iter();
                cells.map(move |((span, path), counters)| UsageCell {
                    vo: Some(*vo),
                    site,
                    path: published.paths.path(path).clone(),
                    span,
                    counters,
                })
            })
        });
        own.chain(held)
    }

    /// What running jobs are still expected to use, as it counts now: VO, site that runs them,
    /// account, and how much.
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

    /// Raw counters by site for the usage at and below an account, over all that is held, as the sites
    /// published it: not clamped. Own usage that is not published yet is included.
    pub fn usage_by_site(&self, account: &Account) -> BTreeMap<SiteId, Counters> {
        let mut by_site = BTreeMap::new();
        let mut add = |site: SiteId, counters: Counters| {
            let sum: &mut Counters = by_site.entry(site).or_default();
            *sum = sum.plus(counters);
        };
        for (_, _, path, counters) in self.own.cells(account.vo) {
            if path.starts_with(&account.path) {
                add(self.id, counters);
            }
        }
        let held = account.vo.and_then(|vo| self.vos.get(&vo));
        if let Some(published) = held.map(|vo| &vo.published) {
            for site in published.sites() {
                let sums = published.below(site, &account.path).into_values();
                sums.for_each(|counters| add(site, counters));
            }
        }
        by_site
    }

    /// Raw counters by account of a VO (or of the site itself), over all sites and windows held.
    pub fn usage_by_account(&self, vo: Option<VoId>) -> BTreeMap<AccountPath, Counters> {
        let mut by_account = BTreeMap::new();
        let mut add = |path: AccountPath, counters: Counters| {
            let sum: &mut Counters = by_account.entry(path).or_default();
            *sum = sum.plus(counters);
        };
        for (_, _, path, counters) in self.own.cells(vo) {
            add(path, counters);
        }
        let held = vo.and_then(|vo| self.vos.get(&vo));
        if let Some(published) = held.map(|vo| &vo.published) {
            for site in published.sites() {
                for ((_, id), counters) in published.below(site, &AccountPath::root()) {
                    add(published.paths.path(id).clone(), counters);
                }
            }
        }
        by_account
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
        self.unmapped
            .iter()
            .map(|(origin, seen)| (origin, seen.records, seen.charge, seen.last))
    }

    /// A copy of all sums, for ranks and explanations: O(entries).
    pub fn snapshot(&self) -> Snapshot {
        self.shares.snapshot()
    }

    /// The tree in force, with where each entry comes from.
    pub fn compiled(&self) -> &CompiledTree {
        &self.shares.compiled
    }

    /// The signed documents held of a VO, as bytes.
    pub fn documents(&self, vo: VoId) -> Vec<Vec<u8>> {
        let documents = self.vos.get(&vo).map(Shared::documents).unwrap_or_default();
        documents.into_iter().map(|(_, bytes)| bytes).collect()
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

fn heads_of(vo: &Vo) -> BTreeMap<StreamId, Seq> {
    let row = |head: &Arc<Verified<Head>>| {
        let (site, incarnation) = (head.body().site, head.body().incarnation);
        (StreamId { site, incarnation }, head.body().seq)
    };
    vo.replica.heads().map(row).collect()
}

/// When each site last signed something that is held, by its own clock.
fn signed_at(vo: &Vo) -> BTreeMap<SiteId, WallTime> {
    let mut signed: BTreeMap<SiteId, WallTime> = BTreeMap::new();
    for head in vo.replica.heads() {
        let known = signed.entry(head.body().site).or_default();
        let at = head.body().at;
        *known = (*known).max(mutant!(SignedYounger, at, at.after(Millis(1_000))));
    }
    signed
}

/// One hash over the roots of the heads: heartbeats, which change their numbers, leave it as it is.
fn published_digest(vo: &Vo) -> ContentHash {
    let roots = vo
        .replica
        .heads()
        .map(|head| (head.body().site, head.body().root));
    ContentHash::of(&cbor::to_vec(&roots.collect::<BTreeSet<_>>()))
}
