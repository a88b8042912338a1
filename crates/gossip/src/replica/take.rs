//! Taking heads from peers.
//!
//! Invariant: a head is verified before anything else is read, its parts equal its root before anything is kept, and
//! every member refuses what no honest site signs.

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

/// Most bytes that the deltas of one head may unpack to: bounds memory and time before the root is compared. A chain of
/// deltas rewrites some parts again and again; with a longer chain the replica pulls the manifest.
const UNPACKED_BYTES_MAX: usize = 32 << 20;

/// Most bytes that one peer's deltas may unpack to in vain in a minute. A few kilobytes can unpack to as many, and an
/// honest peer's deltas lead to the signed root. Above the limit the peer's deltas are not unpacked; its heads are
/// pulled.
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
    /// Takes a head that `from` pushed, with the delta from the head before.
    ///
    /// # Errors
    /// Why the head is refused; the heads in force stay.
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

    /// Takes a head that `from` pushed as the difference from the head before it.
    ///
    /// # Errors
    /// Why the head is refused; the heads in force stay.
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
                // A wrong signature is no lie of the sender: the difference may refer to another head whose hash
                // begins with the same bytes, and the sender cannot know that we hold the other one.
                let Ok(head) = verify_signed(self.vo, signed) else {
                    return Ok(Absorbed::Gap);
                };
                self.take_pushed(kinds, received, from, head, Some(&delta))
            }
            // Another peer may have brought it before.
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
        // After `admit` and the rest: a head that is known, or that waits, must not use up the site's minute.
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

    /// Takes a head from a reply of `from`, with as much of its content as the reply contains.
    ///
    /// # Errors
    /// Why the head is refused; the heads in force stay.
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
            // We asked for the whole site, and the peer holds the head that we hold: nothing more is needed.
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
                let (sent, most) = ((from, received.now.mono), UNPACKED_BYTES_MAX);
                let taken = self.take_deltas(kinds, sent, &head, &deltas, most)?;
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
        // Deltas that did not apply would be sent again for the same vector, so the next pull leaves the site out.
        let held = site_state(&mut self.sites, self.history, site);
        held.needs_manifest = matches!(taken, Absorbed::Gap);
        Ok(taken)
    }

    /// The sites of which a fork was proved since the last call, even if the head that proved it was refused.
    pub fn forks_found(&mut self) -> Vec<SiteId> {
        std::mem::take(&mut self.forks_found)
    }

    /// Takes a proof of a fork: two heads of one site, incarnation and seq.
    ///
    /// # Errors
    /// The heads do not contradict each other, a signature is wrong, or the site is not a member.
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

    /// Takes a head and all its parts from this node's own store. Returns the rows to delete. There may be some
    /// because a head with only a new time is not written: the stored head may be covered where the last one was not.
    ///
    /// # Errors
    /// Why it is refused. The start continues, and peers give back the head.
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

    /// Bytes of work that taking a head from a reply costs, an estimate: its signature, what it unpacks to, and the
    /// manifest of the site's parts in this replica. The node takes a reply in slices of bounded cost.
    pub fn cost_of(&self, item: &HeadItem) -> usize {
        let site = Signed::<Head>::parse(&item.head).map(|head| head.claimed().site);
        let held = site.ok().and_then(|site| self.sites.get(&site));
        let contents = held.into_iter().flat_map(|held| held.contents.values());
        let rows: usize = contents.map(|content| content.parts.len()).sum();
        SIGNED_BYTES + item.content.unpacked_bytes() + rows * MANIFEST_ROW_BYTES
    }

    /// Whether the head is news. If it contradicts a head in the replica, the proof is kept.
    fn admit(&mut self, head: &Arc<Verified<Head>>, received: ReceivedAt) -> Result<bool, Refusal> {
        let body = head.body();
        let site = body.site;
        if !self.is_member(site) && site != self.own && !mutated!(StrangersCount) {
            return Err(Refusal::NotMember(site));
        }
        // This site's own heads are exempt: it may have signed them while its clock was ahead, and must cover them now.
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
                // Both sides keep the same one of the two, whichever arrived first.
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
        // One proof is enough. All replicas keep the one with the lowest hashes; otherwise their digests would never
        // agree.
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

    /// Applies deltas from `from`, each to the result of the one before, if they unpack to at most `bytes_max` bytes.
    /// `None` if they do not apply: the caller pulls.
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
        // After a fork honest peers forward deltas that do not apply here. The site is charged for them, not the
        // sender.
        let contradicts = self.proof_of(site).is_some();
        let wasted_by = if contradicts { site } else { from };
        self.wasted
            .retain(|_, (began, _)| now.since(*began) < Millis::from_secs(60));
        let wasted = self.wasted.get(&wasted_by).map_or(0, |(_, bytes)| *bytes);
        let unpacked: usize = parsed.iter().map(Delta::unpacked_bytes).sum();
        let content = self.content_at(site, incarnation, seq);
        // `put` applies the changes to the content of the head's own incarnation, if there is one. So a delta from
        // another incarnation is used only while there is none.
        let own = head.body().incarnation;
        let is_of_own = incarnation == own || self.sites[&site].heads.get(own).is_none();
        let is_read = unpacked <= bytes_max && wasted < WASTED_BYTES_MAX && is_of_own;
        let Some(content) = content.filter(|_| is_read) else {
            return Ok(None);
        };
        // Only a single delta within one incarnation can be forwarded later as it came.
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

    /// The manifest after a difference that a peer sent. Too many rows do no harm; the root decides.
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

    /// Starts to fetch the parts of a manifest that are missing, or adopts the head if none is.
    fn take_manifest(
        &mut self,
        kinds: &dyn Kinds,
        received: ReceivedAt,
        from: SiteId,
        head: &Arc<Verified<Head>>,
        rows: Vec<ManifestRow>,
    ) -> Result<Absorbed, Refusal> {
        let site = head.body().site;
        // The root first: a manifest that the site did not sign must not start a fetch.
        if root_of(rows.iter().map(|(key, hash, len)| (key, hash, *len))) != head.body().root {
            return Ok(Absorbed::Gap);
        }
        let held = site_state(&mut self.sites, self.history, site);
        if let Err(what) = check_manifest(&rows) {
            held.refused = Some(head.hash());
            return Err(Refusal::Content { site, what });
        }
        // An earlier head, though it is genuine, must not end the fetch of a later one: a peer could offer old heads
        // forever.
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

    /// Adopts a head whose parts are all here, if they equal its root.
    pub(super) fn complete(
        &mut self,
        kinds: &dyn Kinds,
        head: &Arc<Verified<Head>>,
        parts: Parts,
    ) -> Result<Absorbed, Refusal> {
        let (site, incarnation) = (head.body().site, head.body().incarnation);
        let held = self.sites.get(&site);
        // Most parts are those of this incarnation's last head, or of the incarnation before. Only the others are
        // checked and written.
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

    /// Puts a head into force if its content equals its root and passes all checks; `None` if the root differs.
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
        // The root first: only then a bad part is the site's fault, and the refusal the same for every member.
        let mut checked = changes
            .iter_mut()
            .filter_map(|(key, part)| Some((key, part.as_mut()?)));
        let checked = checked.try_for_each(|(key, part)| {
            // Checked on arrival, under the head that was being fetched then; only its time may be another.
            if part.rows > 0 {
                return kinds.check_time(head.body(), key, &part.bytes);
            }
            let rows = kinds.check(head.body(), key, &part.bytes);
            part.rows = mutant!(PartsUnchecked, rows?, rows.unwrap_or(1));
            Ok(())
        });
        // Parts that stay were checked under the head that brought them. Under an earlier time they are checked
        // again, as a replica that does not hold them checks them; otherwise the two replicas would differ for ever.
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

    /// The content of a site at exactly this head.
    fn content_at(&self, site: SiteId, incarnation: Incarnation, seq: Seq) -> Option<&Content> {
        let held = self.sites.get(&site)?;
        let head = held.heads.get(incarnation)?;
        let fits = head.body().seq == seq || mutated!(StaleDeltaTaken);
        fits.then(|| held.contents.get(&incarnation))?
    }

    /// The rows of everything in the replica of `site`, to write them again.
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

/// The changes that deltas make together, each applied to the result of the one before.
fn patched(content: &Content, deltas: &[Delta], seq: Seq) -> Option<Changes> {
    let (held, mut content) = (&content.parts, Cow::Borrowed(content));
    let (mut changes, mut step) = (Changes::new(), Changes::new());
    for delta in deltas {
        // Copied only for a chain: a push has one delta, and a content may be 16 MB.
        if !step.is_empty() {
            content.to_mut().apply(step, seq, None);
        }
        step = content.patched(delta, seq)?;
        changes.extend(step.clone());
    }
    // A part that one delta adds and a later one removes was never here.
    changes.retain(|key, part| part.is_some() || held.contains_key(key));
    Some(changes)
}
