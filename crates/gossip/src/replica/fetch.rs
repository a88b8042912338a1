//! Parts that are under way: what a head lacks before it can come into force.
//!
//! Invariant: of each site at most one head is fetched at a time, and its declared bytes are bounded
//! before the first is asked for. What came for a head that never became whole is forgotten when
//! nothing has come for a while, and kept when a later head of the site names it, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{ContentHash, Incarnation, Millis, MonoTime, SiteId, Verified, mutated};

use super::{Absorbed, Kinds, Replica};
use crate::head::{Head, covers};
use crate::part::{ManifestRow, PARTS_MAX, Part, PartKey, Parts};
use crate::refusal::Refusal;
use crate::wire::RequestId;

/// Time without progress after which a head is given up.
const PATIENCE: Millis = Millis::from_secs(60);

/// Most declared bytes of all heads of one VO that are fetched at one time; larger ones wait.
const FETCHED_BYTES_MAX: u64 = 64 << 20;

/// A head whose parts are not all here.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(super) head: Arc<Verified<Head>>,
    rows: BTreeMap<PartKey, (ContentHash, u32)>,
    here: BTreeMap<ContentHash, Arc<[u8]>>,
    missing: BTreeMap<PartKey, Option<RequestId>>,
    offered_by: BTreeSet<SiteId>,
    until: MonoTime,
}

impl Fetch {
    /// What `head` lacks, where `before` was fetched until now.
    pub(super) fn new(
        head: Arc<Verified<Head>>,
        rows: Vec<ManifestRow>,
        before: Option<Self>,
        now: MonoTime,
    ) -> Self {
        let rows: BTreeMap<PartKey, (ContentHash, u32)> = rows
            .into_iter()
            .map(|(key, hash, len)| (key, (hash, len)))
            .collect();
        let is_same = before
            .as_ref()
            .is_some_and(|before| before.head.hash() == head.hash());
        let anew = now.after(PATIENCE);
        let (mut here, asked, offered_by, until) = match before {
            // That it is offered again is no progress: who gives nothing of it must not keep it under way.
            Some(of) if is_same => (of.here, of.missing, of.offered_by, of.until),
            Some(of) => (of.here, BTreeMap::new(), BTreeSet::new(), anew),
            None => (BTreeMap::new(), BTreeMap::new(), BTreeSet::new(), anew),
        };
        let named: BTreeSet<(ContentHash, u32)> = rows.values().copied().collect();
        here.retain(|hash, part| {
            u32::try_from(part.len()).is_ok_and(|len| named.contains(&(*hash, len)))
        });
        let missing = rows
            .iter()
            .filter(|(_, row)| fitting(row, here.get(&row.0)).is_none());
        let missing = missing.map(|(key, _)| (key.clone(), asked.get(key).copied().flatten()));
        Self {
            missing: missing.collect(),
            head,
            rows,
            here,
            offered_by,
            until,
        }
    }

    /// Whether `head` is fetched in its place: the same one, or a later one. Any other comes again with an
    /// exchange after this one.
    pub(super) fn gives_way_to(&self, head: &Verified<Head>) -> bool {
        let is_same = self.head.hash() == head.hash();
        let is_later = head.body().incarnation > self.head.body().incarnation;
        is_same || is_later || covers(head, &self.head)
    }

    /// Takes what is held already under the same names.
    pub(super) fn fill(&mut self, parts: &Parts) {
        self.missing.retain(|key, _| {
            let row = &self.rows[key];
            let held = parts.get(key).filter(|part| part.hash == row.0);
            let held = fitting(row, held.map(|part| &part.bytes));
            if let Some(held) = held {
                self.here.insert(row.0, held.clone());
            }
            held.is_none()
        });
    }

    /// A peer has all of it.
    pub(super) fn offered(&mut self, by: SiteId) {
        self.offered_by.insert(by);
    }

    /// All parts, once they are here.
    pub(super) fn finished(&self) -> Option<Parts> {
        if !self.missing.is_empty() && !mutated!(HalfReceived) {
            return None;
        }
        let seq = self.head.body().seq;
        let part = |(key, (hash, _)): (&PartKey, &(ContentHash, u32))| {
            let part = Part {
                hash: *hash,
                bytes: self.here.get(hash)?.clone(),
                rows: 0,
                since: seq,
            };
            Some((key.clone(), part))
        };
        let is_here = |hash| !mutated!(HalfReceived) || self.here.contains_key(hash);
        let rows = self.rows.iter().filter(|(_, (hash, _))| is_here(hash));
        rows.map(part).collect()
    }

    fn declared(&self) -> u64 {
        self.rows.values().map(|(_, len)| u64::from(*len)).sum()
    }
}

/// The part of that hash, if it is as long as was signed: a longer one is of no head, and takes more memory than its
/// manifest was let in for.
fn fitting<'a>(
    (_, len): &(ContentHash, u32),
    part: Option<&'a Arc<[u8]>>,
) -> Option<&'a Arc<[u8]>> {
    part.filter(|part| part.len() == *len as usize)
}

impl Replica {
    /// Names of parts to ask `peer` for in one request, some `room` bytes of them and as many as a head may have, and
    /// notes them down under its number.
    pub(crate) fn want(
        &mut self,
        peer: SiteId,
        id: RequestId,
        mut room: usize,
    ) -> Vec<(SiteId, Incarnation, Vec<PartKey>)> {
        let mut wanted = Vec::new();
        let (mut declared, mut names) = (0, 0..PARTS_MAX);
        // The smallest first: who signs much and gives nothing of it holds up nobody who signs less.
        let mut fetches: Vec<_> = self.fetches.iter_mut().collect();
        fetches.sort_by_key(|(_, fetch)| fetch.declared());
        for (site, fetch) in fetches {
            declared += fetch.declared();
            if declared > FETCHED_BYTES_MAX && declared > fetch.declared() {
                break;
            }
            if !fetch.offered_by.contains(&peer) {
                continue;
            }
            let mut keys = Vec::new();
            for (key, asked) in fetch
                .missing
                .iter_mut()
                .filter(|(_, asked)| asked.is_none())
            {
                if room == 0 || names.next().is_none() {
                    break;
                }
                let (_, len) = fetch.rows[key];
                room = room.saturating_sub(len as usize + key.as_bytes().len());
                *asked = Some(id);
                keys.push(key.clone());
            }
            if !keys.is_empty() {
                wanted.push((*site, fetch.head.body().incarnation, keys));
            }
        }
        wanted
    }

    /// Peers that have offered heads whose parts are under way; some of them more than once.
    pub(crate) fn offering(&self) -> impl Iterator<Item = SiteId> {
        let offered_by = self.fetches.values().flat_map(|fetch| &fetch.offered_by);
        offered_by.copied()
    }

    /// Whether parts of a head of `site` are under way.
    pub fn is_fetching(&self, site: SiteId) -> bool {
        self.fetches.contains_key(&site)
    }

    /// The request is over: what it asked for and did not bring may be asked for again.
    pub(crate) fn unask(&mut self, id: RequestId, answered_by: Option<SiteId>) {
        for fetch in self.fetches.values_mut() {
            let mut is_short = false;
            for asked in fetch
                .missing
                .values_mut()
                .filter(|asked| **asked == Some(id))
            {
                *asked = asked.filter(|_| mutated!(LostPartsNotAsked));
                is_short = true;
            }
            // Whoever answered without it has moved on: the next exchange finds out to where.
            if let Some(peer) = answered_by.filter(|_| is_short) {
                fetch.offered_by.remove(&peer);
            }
        }
    }

    /// A peer is gone, or gives nothing any more.
    pub(crate) fn forget_offers(&mut self, peer: SiteId) {
        for fetch in self.fetches.values_mut() {
            fetch.offered_by.remove(&peer);
        }
    }

    /// Gives up what has not moved for long.
    pub(crate) fn expire(&mut self, now: MonoTime) {
        self.fetches.retain(|_, fetch| fetch.until > now);
    }

    /// Takes the parts that a request brought. Returns what became of each head that is whole now.
    pub fn take_parts(
        &mut self,
        kinds: &dyn Kinds,
        now: MonoTime,
        from: SiteId,
        id: RequestId,
        parts: Vec<Vec<u8>>,
    ) -> Vec<Result<Absorbed, Refusal>> {
        let came: BTreeMap<ContentHash, Arc<[u8]>> = parts
            .into_iter()
            .map(|bytes| (ContentHash::of(&bytes), bytes.into()))
            .collect();
        let mut whole = Vec::new();
        self.fetches.retain(|_, fetch| {
            let before = fetch.missing.len();
            let (rows, here) = (&fetch.rows, &mut fetch.here);
            fetch.missing.retain(|key, _| {
                let row = &rows[key];
                let part = fitting(row, came.get(&row.0));
                if let Some(part) = part {
                    here.insert(row.0, part.clone());
                }
                part.is_none()
            });
            if fetch.missing.len() < before {
                fetch.until = now.after(PATIENCE);
            }
            let parts = fetch.finished();
            let goes_on = parts.is_none();
            whole.extend(parts.map(|parts| (fetch.head.clone(), parts)));
            goes_on
        });
        self.unask(id, Some(from));
        let whole = whole.into_iter();
        let whole = whole.map(|(head, parts)| {
            let taken = self.complete(kinds, &head, parts)?;
            self.rest_after(head.body().site, &taken, now);
            Ok(taken)
        });
        whole.collect()
    }
}
