//! Taking heads from others.
//!
//! Invariant: a head is verified before anything else is looked at, its parts come to its root before
//! anything is kept, and what no honest site signs is refused by every member alike.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{
    ContentHash, Incarnation, Millis, MonoTime, Now, Seq, Signed, SiteId, Verified, mutant, mutated,
};

use super::fetch::Fetch;
use super::{Absorbed, Change, HeldRow, Kinds, Proof, Replica, site_state, verify, verify_signed};
use crate::content::{Content, Delta};
use crate::head::{Head, Offered, covers};
use crate::next::NextHead;
use crate::part::{
    Changes, HEAD_BYTES_MAX, ManifestRow, PART_BYTES_MAX, Part, PartKey, Parts, check_manifest,
    overlaid, root_of,
};
use crate::refusal::Refusal;
use crate::wire::{
    HeadContent, HeadItem, MANIFEST_ROW_BYTES, PUSH_UNPACKED_BYTES_MAX, SIGNED_BYTES,
};

/// Most bytes that the deltas beside one head may unpack to: bounds memory and time before its root is
/// compared. A chain of deltas rewrites some parts again and again; one that is longer is told as the
/// manifest.
const UNPACKED_BYTES_MAX: usize = 32 << 20;

/// Most bytes that what one peer sends may unpack to in vain in a minute: a few kilobytes make as many, and
/// an honest peer's come to the signed root. Beyond it nothing of that peer is unpacked, only pulled.
const WASTED_BYTES_MAX: usize = 32 << 20;

/// When a head is received, and how far its site's clock may be ahead of this node's.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedAt {
    /// This node's clocks.
    pub now: Now,
    /// Longest time that `at` of a head may lie after `now.wall`; a head with a later `at` waits until it is due.
    pub tolerance: Millis,
}

impl Replica {
    /// Takes a head that `from` has pushed, with what changed since the head before.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn take_push(
        &mut self,
        kinds: &dyn Kinds,
        received: ReceivedAt,
        from: SiteId,
        head: &[u8],
        delta: Option<&[u8]>,
    ) -> Result<Absorbed, Refusal> {
        let head = verify(self.vo, head)?;
        self.take_pushed(kinds, received, from, head, delta)
    }

    /// Takes a pushed head that is told in terms of the one before it: where that one is held.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn take_next(
        &mut self,
        kinds: &dyn Kinds,
        received: ReceivedAt,
        from: SiteId,
        next: &NextHead,
    ) -> Result<Absorbed, Refusal> {
        let mut is_here = false;
        let put_together = {
            let sites = self.sites.range(next.first_site()..);
            let sites = sites.take_while(|(site, _)| next.names(**site));
            let mut heads = sites.flat_map(|(_, held)| held.heads.iter());
            heads.find_map(|before| {
                is_here |= next.root() == Some(before.body().root);
                let signed = next.put_together(before.body(), before.hash())?;
                Some((signed, next.delta(before.body())))
            })
        };
        match put_together {
            Some((signed, delta)) => {
                // It may be behind another head whose hash begins alike: who passed it on knows no better, and nobody may have
                // the proof that there are two.
                let Ok(head) = verify_signed(self.vo, signed) else {
                    return Ok(Absorbed::Gap);
                };
                self.take_pushed(kinds, received, from, head, Some(&delta))
            }
            // It may have come another way before.
            None if is_here => Ok(Absorbed::Known),
            None => Ok(Absorbed::Gap),
        }
    }

    fn take_pushed(
        &mut self,
        kinds: &dyn Kinds,
        received: ReceivedAt,
        from: SiteId,
        head: Arc<Verified<Head>>,
        delta: Option<&[u8]>,
    ) -> Result<Absorbed, Refusal> {
        let site = head.body().site;
        if !self.admit(&head, received)? {
            return Ok(Absorbed::Known);
        }
        if self.is_resting(site, from, received.now.mono) {
            return Err(Refusal::Waits(site));
        }
        let held = site_state(&mut self.sites, self.history, site);
        if !held.pushed.may_take(head.hash(), received.now) {
            return Err(Refusal::TooOften(site));
        }
        let Some(delta) = delta else {
            return Ok(Absorbed::Bare(head));
        };
        let most = mutant!(BombUnpacked, PUSH_UNPACKED_BYTES_MAX, usize::MAX);
        let taken = self.take_deltas(kinds, (from, received.now.mono), &head, &[delta], most)?;
        let taken = taken.map_or(Absorbed::Gap, Absorbed::Changed);
        self.rest_after(site, &taken, received.now.mono);
        Ok(taken)
    }

    /// Takes a head from the answer of `from`, with what the peer could tell of its content.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn take_item(
        &mut self,
        kinds: &dyn Kinds,
        received: ReceivedAt,
        from: SiteId,
        item: HeadItem,
    ) -> Result<Absorbed, Refusal> {
        let head = verify(self.vo, &item.head)?;
        let site = head.body().site;
        if !self.admit(&head, received)? {
            // Asked for all of the site, the peer has told what is here: there is no more to ask for.
            if matches!(
                item.content,
                HeadContent::Whole(_) | HeadContent::Manifest(_)
            ) {
                site_state(&mut self.sites, self.history, site).needs_manifest = false;
            }
            return Ok(Absorbed::Known);
        }
        if self.is_resting(site, from, received.now.mono) {
            return Err(Refusal::Waits(site));
        }
        let held = site_state(&mut self.sites, self.history, site);
        if !held.pulled.may_take(head.hash(), received.now) {
            return Err(Refusal::TooOften(site));
        }
        let taken = match item.content {
            HeadContent::Deltas(deltas) => {
                let deltas: Vec<&[u8]> = deltas.iter().map(|delta| delta.as_slice()).collect();
                let (of, most) = ((from, received.now.mono), UNPACKED_BYTES_MAX);
                let taken = self.take_deltas(kinds, of, &head, &deltas, most)?;
                taken.map_or(Absorbed::Gap, Absorbed::Changed)
            }
            HeadContent::Whole(parts) => self.take_whole(kinds, &head, parts)?,
            HeadContent::Since(rows, gone) => {
                let target = self.manifest_after(&head, rows, &gone);
                self.take_manifest(kinds, received, from, &head, target)?
            }
            HeadContent::Manifest(rows) => {
                self.take_manifest(kinds, received, from, &head, rows)?
            }
        };
        self.rest_after(site, &taken, received.now.mono);
        let held = site_state(&mut self.sites, self.history, site);
        held.needs_manifest = matches!(taken, Absorbed::Gap);
        Ok(taken)
    }

    /// The sites that were found to contradict themselves since this was last asked, whatever else became of what showed it.
    pub fn forks_found(&mut self) -> Vec<SiteId> {
        std::mem::take(&mut self.forks_found)
    }

    /// Takes two heads that contradict each other.
    ///
    /// # Errors
    /// That they do not, or that the site is no member.
    pub fn take_proof(&mut self, a: &[u8], b: &[u8]) -> Result<Absorbed, Refusal> {
        let (a, b) = (verify(self.vo, a)?, verify(self.vo, b)?);
        let site = a.body().site;
        if !self.is_member(site) {
            return Err(Refusal::NotMember(site));
        }
        let place =
            |head: &Verified<Head>| (head.body().site, head.body().incarnation, head.body().seq);
        let differ = place(&a) != place(&b) && !mutated!(ProofUnchecked);
        if differ || a.hash() == b.hash() {
            return Err(Refusal::NoProof(site));
        }
        self.keep_proof(a, b);
        Ok(Absorbed::Known)
    }

    /// Takes a head and all its parts from this node's own store. Returns the rows to delete: a head that
    /// was signed again with nothing new is not written again, so the store's may be one that another
    /// covers, though the last was not.
    ///
    /// # Errors
    /// Why it is refused: peers fill the gap.
    pub fn restore(
        &mut self,
        kinds: &dyn Kinds,
        head: &[u8],
        parts: Vec<(PartKey, Vec<u8>)>,
    ) -> Result<Vec<HeldRow>, Refusal> {
        let head = verify(self.vo, head)?;
        let parts = parts
            .into_iter()
            .map(|(key, bytes)| (key, serde_bytes::ByteBuf::from(bytes)));
        match self.take_whole(kinds, &head, parts.collect())? {
            Absorbed::Gap => Err(Refusal::Content {
                site: head.body().site,
                what: "not all of its parts are here".to_owned(),
            }),
            Absorbed::Changed(change) => {
                let gone = change.rows.into_iter().filter(|row| row.bytes.is_none());
                Ok(gone.collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// About as many bytes as taking in a head from an answer goes through: its signature, what it unpacks to, and the
    /// manifest of what is held of its site.
    pub fn cost_of(&self, item: &HeadItem) -> usize {
        let site = Signed::<Head>::parse(&item.head).map(|head| head.claimed().site);
        let held = site.ok().and_then(|site| self.sites.get(&site));
        let contents = held.into_iter().flat_map(|held| held.contents.values());
        let rows: usize = contents.map(|content| content.parts.len()).sum();
        SIGNED_BYTES + item.content.unpacked_bytes() + rows * MANIFEST_ROW_BYTES
    }

    /// Whether the head is to be taken now. If it contradicts one that is held, the proof is kept.
    fn admit(&mut self, head: &Arc<Verified<Head>>, received: ReceivedAt) -> Result<bool, Refusal> {
        let body = head.body();
        let site = body.site;
        if !self.is_member(site) && site != self.own && !mutated!(StrangersCount) {
            return Err(Refusal::NotMember(site));
        }
        // What this site signed itself while its clock was ahead it takes back now, and covers.
        let is_future = site != self.own && body.at > received.now.wall.after(received.tolerance);
        if is_future && !mutated!(FutureBelieved) {
            return Err(Refusal::Future { site, at: body.at });
        }
        let held = site_state(&mut self.sites, self.history, site);
        if held.refused == Some(head.hash()) {
            return Err(Refusal::Content {
                site,
                what: "this head was refused before".to_owned(),
            });
        }
        match held.heads.judge(head) {
            Offered::Known => Ok(false),
            Offered::Fresh => Ok(true),
            Offered::Forks(other) => {
                let stays = covers(head, &other);
                self.keep_proof(other, head.clone());
                Ok(stays)
            }
        }
    }

    /// Keeps a proof that a site signs two heads with one seq.
    fn keep_proof(&mut self, a: Arc<Verified<Head>>, b: Arc<Verified<Head>>) {
        let site = a.body().site;
        let held = site_state(&mut self.sites, self.history, site);
        // Of several proofs the one with the lowest hashes is kept, so that replicas come to agree.
        let order = |proof: &Proof| proof.heads.each_ref().map(|head| head.hash());
        let mut heads = [a, b];
        heads.sort_by_key(|head| head.hash());
        let proof = Proof { heads };
        if held.proof.is_none() {
            self.forks_found.push(site);
        }
        if held
            .proof
            .as_ref()
            .is_none_or(|known| order(&proof) < order(known))
        {
            held.proof = Some(proof);
        }
        self.digest = self.compute_digest();
    }

    /// Takes deltas that `from` has sent, each on what the one before it makes, of `bytes_max` unpacked.
    fn take_deltas(
        &mut self,
        kinds: &dyn Kinds,
        (from, now): (SiteId, MonoTime),
        head: &Arc<Verified<Head>>,
        deltas: &[&[u8]],
        bytes_max: usize,
    ) -> Result<Option<Change>, Refusal> {
        let (site, last) = (head.body().site, head.body().seq);
        let parsed = Delta::read_all(deltas).unwrap_or_default();
        let Some((incarnation, seq)) = parsed.first().map(|delta| delta.base) else {
            return Ok(None);
        };
        // Two heads of one seq make honest peers pass on what does not fit here: their site is to blame.
        let contradicts = self.proof_of(site).is_some();
        let wasted_by = if contradicts { site } else { from };
        self.wasted
            .retain(|_, (began, _)| now.since(*began) < Millis::from_secs(60));
        let wasted = self.wasted.get(&wasted_by).map_or(0, |(_, bytes)| *bytes);
        let unpacked: usize = parsed.iter().map(Delta::unpacked_bytes).sum();
        let content = self.content_at(site, incarnation, seq);
        // The changes are made to what is held of the head's own incarnation, where anything is.
        let own = head.body().incarnation;
        let is_of_own = incarnation == own || self.sites[&site].heads.get(own).is_none();
        let is_read = unpacked <= bytes_max && wasted < WASTED_BYTES_MAX && is_of_own;
        let Some(content) = content.filter(|_| is_read) else {
            return Ok(None);
        };
        let delta = match deltas {
            [one] if incarnation == head.body().incarnation => Some((seq, (*one).into())),
            _ => None,
        };
        let taken = match patched(content, &parsed, last) {
            Some(changes) => self.adopt(kinds, head, Some(incarnation), changes, delta),
            None => Ok(None),
        };
        if !matches!(taken, Ok(Some(_))) {
            let (_, bytes) = self.wasted.entry(wasted_by).or_insert((now, 0));
            *bytes += unpacked;
        }
        taken
    }

    fn take_whole(
        &mut self,
        kinds: &dyn Kinds,
        head: &Arc<Verified<Head>>,
        parts: Vec<(PartKey, serde_bytes::ByteBuf)>,
    ) -> Result<Absorbed, Refusal> {
        let seq = head.body().seq;
        let part = |bytes: serde_bytes::ByteBuf| Part {
            hash: ContentHash::of(&bytes),
            bytes: bytes.into_vec().into(),
            rows: 0,
            since: seq,
        };
        let bytes: u64 = parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let too_long = parts.iter().any(|(_, bytes)| bytes.len() > PART_BYTES_MAX);
        if too_long || bytes > HEAD_BYTES_MAX {
            return Ok(Absorbed::Gap);
        }
        let parts = parts.into_iter().map(|(key, bytes)| (key, part(bytes)));
        self.complete(kinds, head, parts.collect())
    }

    /// The manifest that the peer tells as a difference from what is held.
    fn manifest_after(
        &self,
        head: &Verified<Head>,
        rows: Vec<ManifestRow>,
        gone: &[PartKey],
    ) -> Vec<ManifestRow> {
        let body = head.body();
        let held = self.sites.get(&body.site);
        let content = held.and_then(|held| held.contents.get(&body.incarnation));
        let held = content.map(Content::manifest).unwrap_or_default();
        let mut all: BTreeMap<PartKey, (ContentHash, u32)> = held
            .into_iter()
            .map(|(key, hash, len)| (key, (hash, len)))
            .collect();
        for key in gone {
            all.remove(key);
        }
        all.extend(rows.into_iter().map(|(key, hash, len)| (key, (hash, len))));
        all.into_iter()
            .map(|(key, (hash, len))| (key, hash, len))
            .collect()
    }

    /// Begins to fetch what of a manifest is not here, or adopts the head where all of it is.
    fn take_manifest(
        &mut self,
        kinds: &dyn Kinds,
        received: ReceivedAt,
        from: SiteId,
        head: &Arc<Verified<Head>>,
        rows: Vec<ManifestRow>,
    ) -> Result<Absorbed, Refusal> {
        let site = head.body().site;
        if root_of(rows.iter().map(|(key, hash, len)| (key, hash, *len))) != head.body().root {
            return Ok(Absorbed::Gap);
        }
        let held = site_state(&mut self.sites, self.history, site);
        if let Err(what) = check_manifest(&rows) {
            held.refused = Some(head.hash());
            return Err(Refusal::Content { site, what });
        }
        // Whoever offers an earlier one, which may be a true one, must not end what is under way.
        let under_way = self.fetches.get(&site);
        let goes_first = under_way.is_some_and(|fetch| !fetch.gives_way_to(head));
        let before = (!goes_first).then(|| self.fetches.remove(&site)).flatten();
        let now = received.now.mono;
        let mut fetch = Fetch::new(head.clone(), rows, &held.contents, before, now);
        if let Some(parts) = fetch.finished() {
            return self.complete(kinds, head, parts);
        }
        if !goes_first {
            fetch.offered(from);
            self.fetches.insert(site, fetch);
        }
        Ok(Absorbed::Wanted)
    }

    /// All parts are here: the head comes into force if they come to its root.
    pub(super) fn complete(
        &mut self,
        kinds: &dyn Kinds,
        head: &Arc<Verified<Head>>,
        parts: Parts,
    ) -> Result<Absorbed, Refusal> {
        let (site, incarnation) = (head.body().site, head.body().incarnation);
        let held = self.sites.get(&site);
        // What is known of this incarnation, or else of the one before, mostly stays as it is.
        let base = held.and_then(|held| {
            let same = held
                .contents
                .contains_key(&incarnation)
                .then_some(incarnation);
            same.or(held.contents.keys().next_back().copied())
        });
        let content = base.and_then(|base| held?.contents.get(&base));
        let changes = content.unwrap_or(&Content::default()).changes_to(&parts);
        let adopted = self.adopt(kinds, head, base, changes, None)?;
        Ok(adopted.map_or(Absorbed::Gap, Absorbed::Changed))
    }

    /// Puts a head into force, if its content comes to its root and is one that a head may have.
    fn adopt(
        &mut self,
        kinds: &dyn Kinds,
        head: &Arc<Verified<Head>>,
        base: Option<Incarnation>,
        mut changes: Changes,
        delta: Option<(Seq, Arc<[u8]>)>,
    ) -> Result<Option<Change>, Refusal> {
        let site = head.body().site;
        let empty = Content::default();
        let held = site_state(&mut self.sites, self.history, site);
        let content = base
            .and_then(|base| held.contents.get(&base))
            .unwrap_or(&empty);
        let skips =
            mutated!(RootNotCompared) || mutated!(StaleDeltaTaken) || mutated!(HalfReceived);
        if content.root_after(&changes) != head.body().root && !skips {
            return Ok(None);
        }
        let mut checked = changes
            .iter_mut()
            .filter_map(|(key, part)| Some((key, part.as_mut()?)));
        let checked = checked.try_for_each(|(key, part)| {
            if part.rows > 0 {
                return kinds.check_time(head.body(), key, &part.bytes);
            }
            let rows = kinds.check(head.body(), key, &part.bytes);
            part.rows = mutant!(PartsUnchecked, rows?, rows.unwrap_or(1));
            Ok(())
        });
        // Parts that stay were checked under the head that brought them. Under an earlier time they are
        // checked again, as by whoever does not hold them yet: else the two would differ for ever.
        let before = base.and_then(|base| held.heads.get(base));
        let is_dated_back = before.is_some_and(|before| before.body().at > head.body().at);
        let checked = checked.and_then(|()| {
            let all = is_dated_back.then(|| overlaid(&content.parts, &changes));
            let mut all = all.into_iter().flatten();
            all.try_for_each(|(key, part)| kinds.check_time(head.body(), key, &part.bytes))
        });
        if let Err(what) = checked.and_then(|()| content.check_after(&changes)) {
            held.refused = Some(head.hash());
            return Err(Refusal::Content { site, what });
        }
        let is_done = |fetch: &Fetch| fetch.head.hash() == head.hash() || covers(head, &fetch.head);
        if self.fetches.get(&site).is_some_and(is_done) {
            self.fetches.remove(&site);
        }
        Ok(Some(self.put(head.clone(), base, changes, delta)))
    }

    /// What is held of a site at exactly this head.
    fn content_at(&self, site: SiteId, incarnation: Incarnation, seq: Seq) -> Option<&Content> {
        let held = self.sites.get(&site)?;
        let head = held.heads.get(incarnation)?;
        let fits = head.body().seq == seq || mutated!(StaleDeltaTaken);
        fits.then(|| held.contents.get(&incarnation))?
    }

    /// The rows of all that is held of `site`, to write it anew.
    pub fn rows_of_site(&self, site: SiteId) -> Vec<HeldRow> {
        let Some(held) = self.sites.get(&site) else {
            return Vec::new();
        };
        let rows = held.contents.iter().flat_map(|(incarnation, content)| {
            super::rows_of(site, *incarnation, &content.parts, |part| {
                Some(part.bytes.clone())
            })
        });
        let heads = held.heads.iter().map(|head| HeldRow {
            site,
            incarnation: head.body().incarnation,
            part: None,
            bytes: Some(head.bytes().clone()),
        });
        rows.chain(heads).collect()
    }
}

/// The changes that deltas make together, each on what the one before it makes.
fn patched(content: &Content, deltas: &[Delta], seq: Seq) -> Option<Changes> {
    let (held, mut content) = (&content.parts, Cow::Borrowed(content));
    let (mut changes, mut step) = (Changes::new(), Changes::new());
    for delta in deltas {
        if !step.is_empty() {
            content.to_mut().apply(step, seq, None);
        }
        step = content.patched(delta, seq)?;
        changes.extend(step.clone());
    }
    // What one of them brings and a later one lets go was never here.
    changes.retain(|key, part| part.is_some() || held.contains_key(key));
    Some(changes)
}
