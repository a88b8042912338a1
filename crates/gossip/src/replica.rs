//! A node's copy of one VO: the uncovered heads of each member, each with all its parts.
//!
//! Invariant: a replica that holds a site's head holds exactly what the site has published. A head comes into force
//! with all its parts at once, after their root equals the signed one; until then the head before it stays in force.
//! Two replicas that were offered each other's heads hold the same heads.
//!
//! The data of former members is neither served nor counted. It is kept while it would have weight, so nothing is lost
//! when a charter lists the site again.
//!
//! Deliberately not here: what parts mean ([`Kinds`]), and which peer to ask ([`crate::Gossip`]).

mod answer;
mod fetch;
mod force;
mod rest;
mod take;

pub use take::ReceivedAt;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{
    ContentHash, Incarnation, Millis, MonoTime, Now, Signed, SiteId, Verified, VoId, WallTime,
    mutant,
};

use crate::content::Content;
use crate::digest::{Tag, Vector};
use crate::head::{Head, HeadSet};
use crate::part::{Part, PartKey, Parts};
use crate::refusal::Refusal;
use crate::sum::HeadsSum;
use fetch::Fetch;
use rest::Rests;

/// Most heads of one site that are accepted in a minute, from pushes and from replies each. An honest site signs six a
/// minute, and more when it starts. Each head costs a pass over the site's rows.
pub const HEADS_A_MINUTE_MAX: usize = 120;

/// Most former members whose parts are kept, those with the newest heads. Bounds what a coordinator that replaces
/// members again and again can make a node keep.
pub const REMOVED_SITES_MAX: usize = 64;

/// The checks of the kinds of parts. They depend only on their arguments and the VO's first charter, so that all
/// members refuse the same heads.
pub trait Kinds {
    /// Checks a part of `head` and returns how many rows it counts.
    ///
    /// # Errors
    /// Why no honest site would sign it.
    fn check(&self, head: &Head, key: &PartKey, bytes: &[u8]) -> Result<u32, String>;

    /// The part of [`Kinds::check`] that depends on when the head was signed, for a part that a later head contains.
    /// A part that a head may contain, every later head may contain.
    ///
    /// # Errors
    /// Why no honest site would sign it at that time.
    fn check_time(&self, head: &Head, key: &PartKey, bytes: &[u8]) -> Result<(), String> {
        self.check(head, key, bytes).map(drop)
    }

    /// The time of a part that this site may leave out of its own head if the head would exceed a limit; the earliest
    /// part is left out first. `None` for a part that must stay.
    fn spare_since(&self, _: &PartKey) -> Option<WallTime> {
        None
    }
}

/// What a replica did with data that a peer offered.
#[derive(Debug)]
pub enum Absorbed {
    /// Nothing: the replica holds it or something that covers it.
    Known,
    /// Nothing: its changes do not apply to what the replica holds. Pull.
    Gap,
    /// Nothing: a new head without its content. Pull.
    Bare(Arc<Verified<Head>>),
    /// It fetches the head's missing parts, or those of a later head of the site.
    Wanted,
    /// A head came into force.
    Changed(Change),
}

/// The change that a head made when it came into force.
#[derive(Debug)]
pub struct Change {
    /// The head that is in force now.
    pub head: Arc<Verified<Head>>,
    /// Names of the site's parts whose forms in its uncovered heads changed.
    pub parts: Vec<PartKey>,
    /// Parts that this site left out of its own head to stay within the limits; empty for other sites' heads.
    pub left_out: Vec<PartKey>,
    /// Whether the site's newest head is of another incarnation than before.
    pub other_newest: bool,
    /// The rows to store, in one durable change. Empty if only the time of signing is new.
    pub rows: Vec<HeldRow>,
}

/// A row of the store: a part, or a head if `part` is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRow {
    /// The site that signed the head.
    pub site: SiteId,
    /// The head's incarnation: a replica holds at most one head of each.
    pub incarnation: Incarnation,
    /// Name of the part; `None` for the head itself.
    pub part: Option<PartKey>,
    /// The row's bytes; `None` to delete it.
    pub bytes: Option<Arc<[u8]>>,
}

/// Two different heads with one site, incarnation and seq: they prove that the site signed both.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    pub(crate) heads: [Arc<Verified<Head>>; 2],
}

/// What a replica holds of one site.
#[derive(Debug, Default)]
pub(crate) struct SiteState {
    pub(crate) heads: HeadSet,
    pub(crate) contents: BTreeMap<Incarnation, Content>,
    pub(crate) proof: Option<Proof>,
    /// The last head whose content was refused. It is not fetched again: its content cannot change.
    refused: Option<ContentHash>,
    /// The last reply's changes did not apply: the next pull leaves the site out, so that the peer sends a manifest.
    needs_manifest: bool,
    /// Rows before the last head came into force plus those after it: the work that the head caused.
    gone_through: u64,
    /// Heads from pushes and from replies. Apart, so that a flood of pushes does not stop anti-entropy.
    pushed: Minute,
    pulled: Minute,
}

/// Heads of a site since a minute began, by hash. A head that arrives again, say with a delta that does not apply,
/// uses the site's budget only once: other peers must not be able to exhaust it with copies.
#[derive(Debug, Default)]
struct Minute {
    began: MonoTime,
    heads: BTreeSet<ContentHash>,
}

/// A node's copy of one VO.
#[derive(Debug)]
pub struct Replica {
    vo: VoId,
    own: SiteId,
    history: Option<Millis>,
    members: BTreeSet<SiteId>,
    pub(crate) sites: BTreeMap<SiteId, SiteState>,
    /// For each site the head whose parts are being fetched. Apart from `sites`, because there are few and a search for
    /// parts to request must not visit all sites.
    fetches: BTreeMap<SiteId, Fetch>,
    /// The sites whose parts may be requested now; and the last of the waiting ones that got a turn, and until when.
    let_in: Vec<SiteId>,
    turn: Option<(SiteId, MonoTime)>,
    /// Sites whose next heads must wait.
    resting: Rests,
    /// Bytes unpacked in vain in the current minute, by the site at fault, with the minute's start.
    wasted: BTreeMap<SiteId, (MonoTime, usize)>,
    /// Sites with a new proof since [`Replica::forks_found`] was last called.
    forks_found: Vec<SiteId>,
    /// The sum over all members, kept up to date: computing it costs a hash for each member.
    digest: HeadsSum,
}

impl Replica {
    /// An empty replica of a VO without known members.
    pub fn new(vo: VoId, own: SiteId) -> Self {
        Self {
            vo,
            own,
            history: None,
            members: BTreeSet::new(),
            sites: BTreeMap::new(),
            fetches: BTreeMap::new(),
            let_in: Vec::new(),
            turn: None,
            resting: Rests::default(),
            wasted: BTreeMap::new(),
            forks_found: Vec::new(),
            digest: HeadsSum::default(),
        }
    }

    /// Sets the charter's members, and for how long usage has weight in the VO.
    pub fn set_members(&mut self, members: BTreeSet<SiteId>, history: Millis) {
        self.members = members;
        self.history = Some(history);
        self.sites
            .values_mut()
            .for_each(|held| held.heads.set_history(history));
        // Of too many former members those with the oldest heads go: their data loses its weight first.
        let removed = |site: &SiteId| !self.counts(*site);
        let mut removed: Vec<(WallTime, SiteId)> = self
            .sites
            .iter()
            .filter(|(site, _)| removed(site))
            .map(|(site, held)| (held.heads.newest_at().unwrap_or_default(), *site))
            .collect();
        removed.sort_unstable();
        let excess = removed.len().saturating_sub(REMOVED_SITES_MAX);
        for (_, site) in removed.drain(..excess) {
            self.sites.remove(&site);
            self.fetches.remove(&site);
        }
        self.digest = self.compute_digest();
    }

    /// Drops the data of former members whose newest head is older than `horizon`. Returns the rows to delete.
    pub fn forget_removed(&mut self, horizon: WallTime) -> Vec<HeldRow> {
        let is_past = |site: &SiteId, held: &SiteState| {
            let newest = held.heads.newest_at().unwrap_or_default();
            !self.counts(*site) && newest < horizon
        };
        let past = self.sites.iter().filter(|(site, held)| is_past(site, held));
        let past: Vec<SiteId> = past.map(|(site, _)| *site).collect();
        let mut rows = Vec::new();
        for site in past {
            let Some(held) = self.sites.remove(&site) else {
                continue;
            };
            self.fetches.remove(&site);
            for (incarnation, content) in &held.contents {
                rows.extend(rows_of(site, *incarnation, &content.parts, |_| None));
                rows.push(HeldRow {
                    site,
                    incarnation: *incarnation,
                    part: None,
                    bytes: None,
                });
            }
        }
        rows
    }

    /// Whether the charter lists `site`.
    pub fn is_member(&self, site: SiteId) -> bool {
        self.members.contains(&site)
    }

    /// The uncovered heads of all members and of this site.
    pub fn heads(&self) -> impl Iterator<Item = &Arc<Verified<Head>>> {
        self.counted().flat_map(|(_, held)| held.heads.iter())
    }

    /// The uncovered heads of one site, member or not.
    pub fn heads_of(&self, site: SiteId) -> impl Iterator<Item = &Arc<Verified<Head>>> {
        self.sites
            .get(&site)
            .into_iter()
            .flat_map(|held| held.heads.iter())
    }

    /// The proof that a site signed two heads with one seq, if there is one.
    pub fn proof_of(&self, site: SiteId) -> Option<[&Arc<Verified<Head>>; 2]> {
        let proof = self.sites.get(&site)?.proof.as_ref()?;
        Some(proof.heads.each_ref())
    }

    /// Sites that are proved to have signed two heads with one seq.
    pub fn forked(&self) -> impl Iterator<Item = SiteId> {
        let forked = self.counted().filter(|(_, held)| held.proof.is_some());
        forked.map(|(site, _)| site)
    }

    /// Names of all parts that `site` publishes.
    pub fn part_keys(&self, site: SiteId) -> BTreeSet<PartKey> {
        let contents = self
            .sites
            .get(&site)
            .into_iter()
            .flat_map(|held| held.contents.values());
        contents
            .flat_map(|content| content.parts.keys().cloned())
            .collect()
    }

    /// The different forms of a part in the site's uncovered heads, in the order of their hashes, so that every replica
    /// joins them in the same order. At rest there is one.
    pub fn variants(&self, site: SiteId, key: &PartKey) -> Vec<&Arc<[u8]>> {
        let Some(held) = self.sites.get(&site) else {
            return Vec::new();
        };
        let parts = held
            .contents
            .values()
            .filter_map(|content| content.parts.get(key));
        let forms: BTreeMap<ContentHash, &Arc<[u8]>> =
            parts.map(|part| (part.hash, &part.bytes)).collect();
        let forms = forms.into_values();
        forms.take(mutant!(OneFormCounts, usize::MAX, 1)).collect()
    }

    /// A part of the site's head of one incarnation, if the replica holds that head.
    pub fn part(
        &self,
        site: SiteId,
        incarnation: Incarnation,
        key: &PartKey,
    ) -> Option<&Arc<[u8]>> {
        let content = self.sites.get(&site)?.contents.get(&incarnation)?;
        content.parts.get(key).map(|part| &part.bytes)
    }

    /// All parts of a kind in the site's head of one incarnation.
    pub fn parts_of(
        &self,
        site: SiteId,
        incarnation: Incarnation,
        kind: u8,
    ) -> impl Iterator<Item = (&PartKey, &Arc<[u8]>)> {
        let held = self.sites.get(&site);
        let content = held.and_then(|held| held.contents.get(&incarnation));
        let parts = content.into_iter().flat_map(|content| &content.parts);
        let parts = parts.filter(move |(key, _)| key.kind() == kind);
        parts.map(|(key, part)| (key, &part.bytes))
    }

    /// The parts of a kind in the site's newest head by its own clock: for kinds that are replaced, not joined.
    pub fn newest_parts(
        &self,
        site: SiteId,
        kind: u8,
    ) -> impl Iterator<Item = (&PartKey, &Arc<[u8]>)> {
        let held = self.sites.get(&site);
        let newest = |held: &SiteState| {
            mutant!(
                OldestSays,
                Some(held.heads.newest()?.incarnation),
                held.contents.keys().next().copied()
            )
        };
        let content = held.and_then(|held| held.contents.get(&newest(held)?));
        let parts = content.into_iter().flat_map(|content| &content.parts);
        let parts = parts.filter(move |(key, _)| key.kind() == kind);
        parts.map(|(key, part)| (key, &part.bytes))
    }

    /// Incarnation, seq and tag of all heads of members and of this site.
    pub fn vector(&self) -> Vector {
        let row = |head: &Arc<Verified<Head>>| {
            let body = head.body();
            (
                (body.site, body.incarnation),
                (body.seq, Tag::from_hash(head.hash())),
            )
        };
        self.heads().map(row).collect()
    }

    /// Equal in two replicas if and only if the members' heads and proofs are.
    pub fn digest(&self) -> HeadsSum {
        self.digest
    }

    /// The sites whose heads are served to peers and counted: members and this site.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (SiteId, &SiteState)> {
        let all = self.sites.iter().map(|(site, held)| (*site, held));
        all.filter(|(site, _)| self.counts(*site))
    }

    fn counts(&self, site: SiteId) -> bool {
        self.members.contains(&site) || site == self.own
    }

    fn compute_digest(&self) -> HeadsSum {
        let addends = self.counted().map(|(_, held)| held.digest());
        addends.fold(HeadsSum::default(), HeadsSum::plus)
    }
}

/// The state of a site, created if nothing is held yet. `history` is how long usage has weight in the VO.
fn site_state(
    sites: &mut BTreeMap<SiteId, SiteState>,
    history: Option<Millis>,
    site: SiteId,
) -> &mut SiteState {
    sites.entry(site).or_insert_with(|| SiteState {
        heads: HeadSet::new(history),
        ..SiteState::default()
    })
}

/// The rows of all parts of a head.
fn rows_of(
    site: SiteId,
    incarnation: Incarnation,
    parts: &Parts,
    bytes: impl Fn(&Part) -> Option<Arc<[u8]>>,
) -> Vec<HeldRow> {
    let row = |(key, part): (&PartKey, &Part)| HeldRow {
        site,
        incarnation,
        part: Some(key.clone()),
        bytes: bytes(part),
    };
    parts.iter().map(row).collect()
}

impl SiteState {
    fn digest(&self) -> HeadsSum {
        let proof = self.proof.iter().flat_map(|proof| proof.heads.iter());
        let heads = self.heads.iter().map(|head| head.hash());
        HeadsSum::for_member(heads, proof.map(|head| head.hash()))
    }
}

/// The role of the one key that signs for a site: its id is the key.
fn role_of(site: SiteId) -> fairmesh_model::Role {
    fairmesh_model::Role::single(site)
}

impl Minute {
    /// Whether the site's budget has room for this head.
    fn may_take(&mut self, head: ContentHash, now: Now) -> bool {
        if now.mono.since(self.began) >= Millis::from_secs(60) {
            (self.began, self.heads) = (now.mono, BTreeSet::new());
        }
        let heads = &mut self.heads;
        heads.contains(&head) || heads.len() < HEADS_A_MINUTE_MAX && heads.insert(head)
    }
}

/// Verifies a head with the key of the site that it names.
pub(crate) fn verify(vo: VoId, bytes: &[u8]) -> Result<Arc<Verified<Head>>, Refusal> {
    verify_signed(vo, Signed::<Head>::parse(bytes)?)
}

fn verify_signed(vo: VoId, signed: Signed<Head>) -> Result<Arc<Verified<Head>>, Refusal> {
    // Before the signature: a head that is valid in another VO must not be merged here.
    if signed.vo() != vo {
        return Err(Refusal::WrongVo(signed.vo()));
    }
    let role = role_of(signed.claimed().site);
    Ok(Arc::new(signed.verify(&[&role])?))
}
