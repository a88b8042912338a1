//! What people may ask a site. Read-only; answers are plain data, tables are made elsewhere.

use std::collections::BTreeMap;

use fairmesh_fairshare::Snapshot;
use fairmesh_model::{
    AccountPath, ContentHash, CoreMillis, Counters, MonoTime, Now, Origin, Seq, SiteId, Span,
    StreamId, VoId, WallTime, Window, cbor, mutant,
};
use fairmesh_policy::{CompiledTree, Warning};
use fairmesh_usage::VoUsage;

use crate::identity::Account;
use crate::site::Site;
use crate::store::Write;
use crate::view::Coverage;

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
    /// Digest of the counters.
    pub counters: Option<ContentHash>,
    /// Last batch of each stream.
    pub streams: BTreeMap<StreamId, Seq>,
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
    /// A site has forked its counters.
    pub forked: bool,
    /// No other site can be reached, though there are others.
    pub alone: bool,
}

impl Site {
    /// What a reader of a factor should be warned of.
    pub fn health(&self, now: Now) -> Health {
        let mut health = Health::default();
        let mut others = false;
        for replica in self.replicas.values() {
            for warning in replica.policies().warnings(now.wall) {
                health.expired |= matches!(warning, Warning::Expired { .. });
                health.conflicting |= matches!(warning, Warning::Alarm(_));
            }
            health.forked |= replica
                .usage()
                .is_some_and(|usage| usage.forks().next().is_some());
            others |= replica
                .charter()
                .is_some_and(|charter| charter.sites.len() > 1);
        }
        health.alone = others && self.gossip.peers().next().is_none();
        health
    }

    /// The last batch held of each stream of each VO.
    pub fn vectors(&self) -> BTreeMap<VoId, BTreeMap<StreamId, Seq>> {
        self.replicas
            .iter()
            .map(|(vo, replica)| (*vo, replica.vector()))
            .collect()
    }

    /// One hash of everything held of all VOs: equal for sites that take part in the same VOs and
    /// hold the same. O(streams + documents), whatever the number of accounts.
    pub fn holdings(&self) -> ContentHash {
        let summaries: Vec<_> = self
            .replicas
            .iter()
            .map(|(vo, replica)| (*vo, replica.summary()))
            .collect();
        ContentHash::of(&cbor::to_vec(&summaries))
    }

    /// What is known of each VO.
    pub fn vo_status(&self, now: Now) -> Vec<VoStatus> {
        let status = |(vo, replica): (&VoId, &fairmesh_gossip::Replica)| {
            let charter = replica.charter();
            VoStatus {
                vo: *vo,
                name: charter.map(|charter| charter.name.clone()),
                charter_version: charter.map_or(0, |charter| charter.version),
                documents: charter.map(|_| replica.policies().digest()),
                counters: replica
                    .usage()
                    .map(|usage| ContentHash::from_bytes(usage.state_digest())),
                streams: replica.vector(),
                coverage: self.coverage_of(*vo),
                warnings: charter
                    .map(|_| replica.policies().warnings(now.wall))
                    .unwrap_or_default()
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
            }
        };
        self.replicas.iter().map(status).collect()
    }

    /// What answers rest on, over all VOs.
    pub fn coverage(&self) -> Coverage {
        let mut all = Coverage::default();
        let mut capacity: BTreeMap<SiteId, (u64, bool)> = BTreeMap::new();
        for replica in self.replicas.values() {
            let Some(charter) = replica.charter() else {
                continue;
            };
            let heard = replica.heard();
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
        let Some(replica) = self.replicas.get(&vo) else {
            return coverage;
        };
        let heard = replica.heard();
        for member in replica
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
        for charter in self
            .replicas
            .values()
            .filter_map(fairmesh_gossip::Replica::charter)
        {
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
        let replica = self.replicas.get(&vo)?;
        replica.charter()?;
        let mount = self.shares.view.mounts().get(&vo)?;
        let reader = self.shares.view.reader();
        let entry = reader.entry(mount)?;
        let mut rows: Vec<(String, Vec<u8>)> = Vec::new();
        self.shares.digest(entry, |path, sum| {
            rows.push((path.to_owned(), sum.to_be_bytes().to_vec()))
        });
        Some(ContentHash::of(&cbor::to_vec(&(
            replica.policies().digest(),
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
        self.ledger.rows_held_alone()
    }

    /// Every raw cell that answers are made of: usage of an account at a site in a span, of this
    /// site's ledger and of all that is held of others. A cell may come in parts, which add up.
    pub fn usage_cells(&self) -> impl Iterator<Item = UsageCell> + '_ {
        let own = self
            .ledger
            .cells()
            .map(|(vo, span, path, counters)| UsageCell {
                vo,
                site: self.id,
                path: path.clone(),
                span,
                counters,
            });
        let current = self.stream_id();
        let held = self.replicas.iter().flat_map(move |(vo, replica)| {
            let cells = replica.usage().into_iter().flat_map(VoUsage::cells);
            cells
                .filter(move |cell| cell.stream != current)
                .map(|cell| UsageCell {
                    vo: Some(*vo),
                    site: cell.stream.site,
                    path: cell.path,
                    span: cell.span,
                    counters: cell.counters,
                })
        });
        own.chain(held)
    }

    /// What running jobs are still expected to use, as it counts now: VO, site that runs them,
    /// account, and how much.
    pub fn expected_usage(
        &self,
    ) -> impl Iterator<Item = (VoId, SiteId, &AccountPath, CoreMillis)> + '_ {
        self.replicas.iter().flat_map(|(vo, replica)| {
            let sheets = replica.sheets();
            sheets.flat_map(move |(site, rows)| {
                rows.iter()
                    .map(move |(path, charge)| (*vo, site, path, *charge))
            })
        })
    }

    /// Raw counters by site for the usage at and below an account, over all that is held. Own usage
    /// that is not published yet is included.
    pub fn usage_by_site(&self, account: &Account) -> BTreeMap<SiteId, Counters> {
        let mut by_site = BTreeMap::new();
        let mut add = |site: SiteId, counters: Counters| {
            let sum: &mut Counters = by_site.entry(site).or_default();
            *sum = sum.plus(counters);
        };
        for (vo, _, path, counters) in self.ledger.cells() {
            if vo == account.vo && path.starts_with(&account.path) {
                add(self.id, counters);
            }
        }
        let current = self.stream_id();
        if let Some(usage) = account.vo.and_then(|vo| self.replicas.get(&vo)?.usage()) {
            let published = usage
                .cells()
                .filter(|cell| cell.stream != current && cell.path.starts_with(&account.path));
            published.for_each(|cell| add(cell.stream.site, cell.counters));
        }
        by_site
    }

    /// Raw counters by account of a VO (or of the site itself), over all sites and windows held.
    pub fn usage_by_account(&self, vo: Option<VoId>) -> BTreeMap<AccountPath, Counters> {
        let mut by_account = BTreeMap::new();
        let mut add = |path: &AccountPath, counters: Counters| {
            let sum: &mut Counters = by_account.entry(path.clone()).or_default();
            *sum = sum.plus(counters);
        };
        for (of, _, path, counters) in self.ledger.cells() {
            if of == vo {
                add(path, counters);
            }
        }
        let current = self.stream_id();
        if let Some(usage) = vo.and_then(|vo| self.replicas.get(&vo)?.usage()) {
            usage
                .cells()
                .filter(|cell| cell.stream != current)
                .for_each(|cell| add(&cell.path, cell.counters));
        }
        by_account
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
        self.replicas
            .get(&vo)
            .map(|replica| {
                replica
                    .policies()
                    .documents()
                    .map(|(_, _, bytes)| bytes.to_vec())
                    .collect()
            })
            .unwrap_or_default()
    }

    /// The name of a site in any charter.
    pub fn site_name(&self, site: SiteId) -> Option<&str> {
        let charters = self
            .replicas
            .values()
            .filter_map(fairmesh_gossip::Replica::charter);
        charters
            .filter_map(|charter| charter.member(site))
            .map(|member| member.name.as_str())
            .next()
    }
}
