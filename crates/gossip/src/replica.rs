//! What a node holds of one VO: of each member its uncovered heads, each with all its parts.
//!
//! Invariant: whoever holds a site's head holds exactly what the site has published, no more and no
//! less. A head comes into force with all its parts at once, after their root came out as signed; until
//! then the one before it stays. Two replicas that were offered each other's heads hold the same ones.
//!
//! Of sites that are no members (any more) nothing is served, and nothing counts; what they had
//! published is kept for as long as it would weigh, so that listing them again loses nothing.
//!
//! Deliberately not here: what parts mean ([`Kinds`]), and whom to ask ([`crate::Gossip`]).

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

/// Most heads that are taken of one site in a minute, pushed and by answers each: a site signs six, and a burst when it
/// starts.
pub const HEADS_A_MINUTE_MAX: usize = 120;

/// Most sites whose parts are kept although they are no members: the latest.
pub const REMOVED_SITES_MAX: usize = 64;

/// What the kinds of parts tell about their bytes. It depends on nothing but its arguments and the
/// VO's first charter, so that all members refuse the same heads.
pub trait Kinds {
    /// Whether `bytes` are a part of that name that `head` may hold: how many rows it counts, or what
    /// is wrong.
    ///
    /// # Errors
    /// What no honest site would sign.
    fn check(&self, head: &Head, key: &PartKey, bytes: &[u8]) -> Result<u32, String>;

    /// Whether `head` may hold a part that a head of a later time does: what of [`Kinds::check`] depends
    /// on when a head was signed. What a head may hold, every one of a later time may.
    ///
    /// # Errors
    /// What no honest site would sign at that time.
    fn check_time(&self, head: &Head, key: &PartKey, bytes: &[u8]) -> Result<(), String> {
        self.check(head, key, bytes).map(drop)
    }

    /// From when a part is that this site leaves out of its own heads where they would hold more than a head may: those
    /// of the earliest time go first. `None` of one that stays in any case.
    fn spare_since(&self, _: &PartKey) -> Option<WallTime> {
        None
    }
}

/// What became of something that was offered.
#[derive(Debug)]
pub enum Absorbed {
    /// It is held, or covered by what is.
    Known,
    /// It cannot be applied to what is held: pull.
    Gap,
    /// A head without its content, which its site has signed and which is news: pull.
    Bare(Arc<Verified<Head>>),
    /// Parts of it are missing and are fetched now, or those of a later head of its site are.
    Wanted,
    /// A head came into force.
    Changed(Change),
}

/// A head that came into force, and what it changed.
#[derive(Debug)]
pub struct Change {
    /// The head.
    pub head: Arc<Verified<Head>>,
    /// Names of parts of the site that are not what they were in its uncovered heads.
    pub parts: Vec<PartKey>,
    /// Parts that this site has left out of its own head, which would have held more than a head may.
    pub left_out: Vec<PartKey>,
    /// Whether the head that the site signed last is of another incarnation than before.
    pub other_newest: bool,
    /// What is to be kept, in one durable change. Empty where only the time of signing is new.
    pub rows: Vec<HeldRow>,
}

/// A row to keep: of a head where there is no part's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRow {
    /// Whose.
    pub site: SiteId,
    /// Of which of its heads.
    pub incarnation: Incarnation,
    /// Which of its parts.
    pub part: Option<PartKey>,
    /// The bytes; `None` where the row goes.
    pub bytes: Option<Arc<[u8]>>,
}

/// Two heads of one seq: a proof of two signatures.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    pub(crate) heads: [Arc<Verified<Head>>; 2],
}

/// What is held of one site.
#[derive(Debug, Default)]
pub(crate) struct SiteState {
    pub(crate) heads: HeadSet,
    pub(crate) contents: BTreeMap<Incarnation, Content>,
    pub(crate) proof: Option<Proof>,
    /// A head whose content was refused: not asked for again.
    refused: Option<ContentHash>,
    /// What changed could not be told: the next pull says that nothing of the site is held.
    needs_manifest: bool,
    /// Rows that were held before the last head came into force, and those that were afterwards.
    gone_through: u64,
    /// Heads that were pushed, and those that answers brought.
    pushed: Minute,
    pulled: Minute,
}

/// Heads of a site that came since a minute began, by their hashes: one that comes again, say beside a delta that does
/// not fit, does not take from the site's budget twice.
#[derive(Debug, Default)]
struct Minute {
    began: MonoTime,
    heads: BTreeSet<ContentHash>,
}

/// What a node holds of one VO.
#[derive(Debug)]
pub struct Replica {
    vo: VoId,
    own: SiteId,
    history: Option<Millis>,
    members: BTreeSet<SiteId>,
    pub(crate) sites: BTreeMap<SiteId, SiteState>,
    /// Of each site the head whose parts are under way: mostly none, so that whoever looks for something
    /// to ask for need not look at all sites.
    fetches: BTreeMap<SiteId, Fetch>,
    /// Of which of these parts are asked for, and which one of the others was let in last, until when.
    let_in: Vec<SiteId>,
    turn: Option<(SiteId, MonoTime)>,
    /// Sites whose further heads wait.
    resting: Rests,
    /// Bytes that were unpacked in vain since the minute began, by who is to blame.
    wasted: BTreeMap<SiteId, (MonoTime, usize)>,
    /// Sites that were found to contradict themselves and have not been told yet (`forks_found`).
    forks_found: Vec<SiteId>,
    /// Equal where all members' heads and proofs are.
    digest: HeadsSum,
}

impl Replica {
    /// Nothing, of a VO without members yet.
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

    /// Takes the charter's members and how long usage weighs.
    pub fn set_members(&mut self, members: BTreeSet<SiteId>, history: Millis) {
        self.members = members;
        self.history = Some(history);
        self.sites
            .values_mut()
            .for_each(|held| held.heads.set_history(history));
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

    /// Lets go of what removed sites had published before `horizon`. Returns the rows to delete.
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

    /// Whether what `site` publishes counts here.
    pub fn is_member(&self, site: SiteId) -> bool {
        self.members.contains(&site)
    }

    /// The uncovered heads of the members, and of this site.
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

    /// The different forms of a part in the site's uncovered heads, by their hashes: one, at rest.
    pub fn variants(&self, site: SiteId, key: &PartKey) -> Vec<&Arc<[u8]>> {
        let Some(held) = self.sites.get(&site) else {
            return Vec::new();
        };
        let parts = held.contents.values().filter_map(|of| of.parts.get(key));
        let forms: BTreeMap<ContentHash, &Arc<[u8]>> =
            parts.map(|part| (part.hash, &part.bytes)).collect();
        let forms = forms.into_values();
        forms.take(mutant!(OneFormCounts, usize::MAX, 1)).collect()
    }

    /// A part of the head that a site has signed in one incarnation, if that head is held.
    pub fn part(
        &self,
        site: SiteId,
        incarnation: Incarnation,
        key: &PartKey,
    ) -> Option<&Arc<[u8]>> {
        let content = self.sites.get(&site)?.contents.get(&incarnation)?;
        content.parts.get(key).map(|part| &part.bytes)
    }

    /// All its parts of a kind.
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

    /// The parts of a kind in the head that the site signed last, by its own clock: what is not added up
    /// but replaced.
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

    /// Incarnation and seq of all heads, as digests say them.
    pub fn vector(&self) -> Vector {
        let row = |head: &Arc<Verified<Head>>| {
            let body = head.body();
            (
                (body.site, body.incarnation),
                (body.seq, Tag::of(head.hash())),
            )
        };
        self.heads().map(row).collect()
    }

    /// One number, equal where the heads and proofs are.
    pub fn digest(&self) -> HeadsSum {
        self.digest
    }

    /// Members, and this site: those whose heads are held for others.
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

/// What is held of a site, in a VO that weighs usage for `history`.
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

/// The one key that signs for a site.
fn role_of(site: SiteId) -> fairmesh_model::Role {
    fairmesh_model::Role::single(site)
}

impl Minute {
    /// Whether this head of the site may be looked at now.
    fn may_take(&mut self, head: ContentHash, now: Now) -> bool {
        if now.mono.since(self.began) >= Millis::from_secs(60) {
            (self.began, self.heads) = (now.mono, BTreeSet::new());
        }
        let heads = &mut self.heads;
        heads.contains(&head) || heads.len() < HEADS_A_MINUTE_MAX && heads.insert(head)
    }
}

/// Verifies the bytes of a head against the key of the site that it names.
pub(crate) fn verify(vo: VoId, bytes: &[u8]) -> Result<Arc<Verified<Head>>, Refusal> {
    verify_signed(vo, Signed::<Head>::parse(bytes)?)
}

fn verify_signed(vo: VoId, signed: Signed<Head>) -> Result<Arc<Verified<Head>>, Refusal> {
    if signed.vo() != vo {
        return Err(Refusal::WrongVo(signed.vo()));
    }
    let role = role_of(signed.claimed().site);
    Ok(Arc::new(signed.verify(&[&role])?))
}
