//! Putting heads into force: this site's own, which are signed here, and complete ones of others.
//!
//! Invariant: a [`Change`] is exact. It names the parts whose forms in the site's uncovered heads changed, and its
//! rows make the store equal to the replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{
    ContentHash, Incarnation, Seq, Signed, SigningKey, SiteId, Verified, WallTime, cbor, mutant,
    mutated,
};
use serde_bytes::ByteBuf;

use super::{Change, HeldRow, Kinds, Replica, SiteState, role_of, rows_of, site_state};
use crate::content::{Content, Delta};
use crate::head::{COVERS_MAX, Head, HeadSet};
use crate::next::NextHead;
use crate::part::{
    Changes, HEAD_BYTES_MAX, HEAD_ROWS_MAX, PARTS_MAX, Part, PartKey, Parts, length, overlaid,
};
use crate::sum::HeadsSum;
use crate::wire::{PUSH_BYTES_MAX, PUSH_UNPACKED_BYTES_MAX, Push};

impl Replica {
    /// Signs the next head of this site. The first head of `incarnation` covers every head of this site in the
    /// replica; so the caller has joined their contents into `changes`, which then contain everything. If the head
    /// would exceed a limit, the oldest parts that `kinds` can spare are left out. Returns the change, and the push
    /// for the other members.
    ///
    /// # Panics
    /// If the key is not this site's, or the content is no content: bugs of the caller.
    pub fn publish(
        &mut self,
        kinds: &dyn Kinds,
        key: &SigningKey,
        incarnation: Incarnation,
        at: WallTime,
        changes: Vec<(PartKey, Option<Vec<u8>>)>,
    ) -> (Change, Vec<u8>) {
        let own = self.own;
        assert_eq!(key.site_id(), own, "a site signs for itself");
        let held = site_state(&mut self.sites, self.history, own);
        let last = held.heads.get(incarnation).map(|last| last.body().seq);
        // Another machine with the same key may have covered this one's head, which is then not held any more. The
        // next seq must follow the covered one; otherwise every replica would take the new head for the covered one.
        let covered_seq = covered(&held.heads, Incarnation(u64::MAX))
            .into_iter()
            .find_map(|(earlier, seq)| (earlier == incarnation).then_some(seq));
        let newest_seq = last.max(covered_seq);
        let mut body = Head {
            vo: self.vo,
            site: own,
            incarnation,
            seq: newest_seq.map_or(Seq(1), |last| mutant!(SeqStays, last.next(), last)),
            at,
            root: ContentHash::from_bytes([0; 32]),
            covers: covered(&held.heads, incarnation),
        };
        let mut parts = parts_of(kinds, &body, changes);
        let empty = Content::default();
        let stands = last.and_then(|_| held.contents.get(&incarnation));
        let left_out = leave_out(kinds, stands.unwrap_or(&empty), &mut parts);
        // The first head of an incarnation is pushed as a difference from the head before it: after a restart most
        // parts are the same.
        let newest = held
            .heads
            .iter()
            .next_back()
            .map(|head| head.body().incarnation);
        let before = last.map(|_| incarnation).or(newest);
        let base = before.and_then(|base| held.heads.get(base).zip(held.contents.get(&base)));
        if let (None, Some((_, content))) = (last, base) {
            let target = parts
                .into_iter()
                .filter_map(|(name, part)| Some((name, part?)));
            parts = content.changes_to(&target.collect::<Parts>());
        }
        body.root = base
            .map_or(&empty, |(_, content)| content)
            .root_after(&parts);
        let delta = base.map(|(head, content)| {
            let base = (head.body().incarnation, head.body().seq);
            content.delta(base, &parts)
        });
        let signed = Signed::sign(body, &[key]).expect("our own head is well-formed");
        let push = push_of(base.map(|(head, _)| &**head), &signed, delta.as_ref());
        let head = signed.verify(&[&role_of(own)]);
        let head = Arc::new(head.expect("our own head is well-formed"));
        let delta = delta.map(|delta| cbor::to_vec(&delta));
        let told = last.zip(delta).map(|(last, delta)| (last, delta.into()));
        let change = self.put(head, before, parts, told);
        (Change { left_out, ..change }, push)
    }

    /// Puts a head into force. Its content is that of the head of `base` after `changes`; the caller has checked the
    /// root.
    pub(super) fn put(
        &mut self,
        head: Arc<Verified<Head>>,
        base: Option<Incarnation>,
        changes: Changes,
        delta: Option<(Seq, Arc<[u8]>)>,
    ) -> Change {
        let (site, incarnation) = (head.body().site, head.body().incarnation);
        // A former member is in no digest: its heads are kept, not compared with peers.
        let counts = self.counts(site);
        let held = site_state(&mut self.sites, self.history, site);
        let (before, rows_before) = (held.digest(), held.rows());
        let newest = |held: &SiteState| held.heads.newest().map(|head| head.incarnation);
        let newest_before = newest(held);
        let mut touched: BTreeSet<PartKey> = changes.keys().cloned().collect();
        let mut rows = held.bring_in(&head, base, changes, delta);
        held.needs_manifest = false;
        // After `bring_in`: the new content may be made from that of a head which the insertion drops.
        let gone = held.heads.insert(head.clone());
        let is_gone = |lost: &Incarnation| *lost != incarnation || held.heads.get(*lost).is_none();
        for lost in gone.into_iter().filter(is_gone).collect::<Vec<_>>() {
            rows.extend(held.drop_covered(site, lost, incarnation, &mut touched));
        }
        held.gone_through = rows_before + held.rows();
        if counts {
            let rest = self
                .digest
                .minus(mutant!(DigestKeepsOld, before, HeadsSum::default()));
            self.digest = rest.plus(held.digest());
        }
        Change {
            head,
            parts: touched.into_iter().collect(),
            left_out: Vec::new(),
            other_newest: newest(held) != newest_before,
            rows,
        }
    }
}

impl SiteState {
    /// Makes the content of a head. Returns the rows to store: none if only its time is new.
    fn bring_in(
        &mut self,
        head: &Verified<Head>,
        base: Option<Incarnation>,
        changes: Changes,
        delta: Option<(Seq, Arc<[u8]>)>,
    ) -> Vec<HeldRow> {
        let Head {
            site,
            incarnation,
            seq,
            root,
            ..
        } = *head.body();
        let row = |part: Option<&PartKey>, bytes| HeldRow {
            site,
            incarnation,
            part: part.cloned(),
            bytes,
        };
        let bytes_of = |part: &Part| part.bytes.clone();
        let old_root = self.heads.get(incarnation).map(|old| old.body().root);
        let mut rows: Vec<HeldRow>;
        let content = match self.contents.remove(&incarnation) {
            Some(mut content) => {
                let parts = changes.iter();
                rows = parts
                    .map(|(key, part)| row(Some(key), part.as_ref().map(bytes_of)))
                    .collect();
                content.apply(changes, seq, delta);
                content
            }
            // The head of another incarnation stays in force until it is covered, so its content is copied.
            None => {
                let copied = base.and_then(|base| self.contents.get(&base)).cloned();
                let mut parts = copied.unwrap_or_default().parts;
                // Seqs of the other incarnation say nothing here: a peer with any head of this one gets all rows.
                parts.values_mut().for_each(|part| part.since = seq);
                let mut content = Content::whole(parts, seq);
                content.apply(changes, seq, delta);
                rows = rows_of(site, incarnation, &content.parts, |part| {
                    Some(bytes_of(part))
                });
                content
            }
        };
        // A head that only has a new time is not written: an idle site signs again and again, and peers give back the
        // newest.
        if old_root != Some(root) {
            rows.push(row(None, Some(head.bytes().clone())));
        }
        self.contents.insert(incarnation, content);
        rows
    }

    /// Drops a covered head. Returns the rows to delete; parts that its successor lacks or has in another form are
    /// added to `touched`.
    fn drop_covered(
        &mut self,
        site: SiteId,
        lost: Incarnation,
        successor: Incarnation,
        touched: &mut BTreeSet<PartKey>,
    ) -> Vec<HeldRow> {
        let Some(content) = self.contents.remove(&lost) else {
            return Vec::new();
        };
        let stays = self.contents.get(&successor);
        for (key, part) in &content.parts {
            let same = stays.and_then(|content| content.parts.get(key));
            if same.is_none_or(|same| same.hash != part.hash) {
                touched.insert(key.clone());
            }
        }
        if mutated!(CoveredRowsStay) {
            return Vec::new();
        }
        let mut rows = rows_of(site, lost, &content.parts, |_| None);
        rows.push(HeldRow {
            site,
            incarnation: lost,
            part: None,
            bytes: None,
        });
        rows
    }
}

/// This site's parts, checked as every member checks them: a head that members refuse would end this site's publishing.
fn parts_of(kinds: &dyn Kinds, head: &Head, changes: Vec<(PartKey, Option<Vec<u8>>)>) -> Changes {
    let part = |name: &PartKey, bytes: Vec<u8>| Part {
        hash: ContentHash::of(&bytes),
        rows: kinds
            .check(head, name, &bytes)
            .expect("our own part is well-formed"),
        bytes: bytes.into(),
        since: head.seq,
    };
    let changes = changes.into_iter().map(|(name, bytes)| {
        let part = bytes.map(|bytes| part(&name, bytes));
        (name, part)
    });
    changes.collect()
}

/// Leaves the oldest spare parts out of the content after `changes` until it is within the limits of a head. Returns
/// their names.
fn leave_out(kinds: &dyn Kinds, held: &Content, changes: &mut Changes) -> Vec<PartKey> {
    let size = |part: &Part| [1, u64::from(length(part)), u64::from(part.rows)];
    let mut all = [0; 3];
    for (_, part) in overlaid(&held.parts, changes) {
        all = zipped(all, size(part), u64::saturating_add);
    }
    let most = [PARTS_MAX as u64, HEAD_BYTES_MAX, HEAD_ROWS_MAX];
    let fits = |all: [u64; 3]| zipped(all, most, u64::saturating_sub) == [0; 3];
    if fits(all) {
        return Vec::new();
    }
    let parts = overlaid(&held.parts, changes);
    let spare =
        |(key, part): (&PartKey, &Part)| Some((kinds.spare_since(key)?, key.clone(), size(part)));
    // By time, then name: the same parts are left out after every start.
    let mut spare: Vec<_> = parts.filter_map(spare).collect();
    spare.sort_unstable();
    let mut left_out = Vec::new();
    for (_, key, size) in spare {
        if fits(all) {
            break;
        }
        all = zipped(all, size, u64::saturating_sub);
        match held.parts.contains_key(&key) {
            true => changes.insert(key.clone(), None),
            false => changes.remove(&key),
        };
        left_out.push(key);
    }
    left_out
}

fn zipped(a: [u64; 3], b: [u64; 3], by: impl Fn(u64, u64) -> u64) -> [u64; 3] {
    std::array::from_fn(|index| by(a[index], b[index]))
}

/// What the next head of `incarnation` covers: the heads of earlier incarnations in the replica and what they cover, of
/// these the newest incarnations. It is cumulative, so that joining heads is associative.
fn covered(heads: &HeadSet, incarnation: Incarnation) -> Vec<(Incarnation, Seq)> {
    let mut covers: BTreeMap<Incarnation, Seq> = BTreeMap::new();
    for head in heads.iter() {
        let body = head.body();
        let itself = std::iter::once((body.incarnation, body.seq));
        let named = body.covers.iter().filter(|_| !mutated!(CoversDirectOnly));
        for (earlier, seq) in named.copied().chain(itself) {
            let known = covers.entry(earlier).or_default();
            *known = (*known).max(mutant!(CoversBeyondHeld, seq, Seq(u64::MAX)));
        }
    }
    // Another machine with the same key may use a later incarnation. Its head covers this one, never the reverse: two
    // heads that cover each other would both be dropped.
    covers.retain(|earlier, _| *earlier < incarnation);
    let excess = covers.len().saturating_sub(COVERS_MAX);
    covers.into_iter().skip(excess).collect()
}

/// The push of a head: as the difference from the one before it if possible, otherwise whole. Changes that are too long
/// are left out, and receivers pull.
fn push_of(before: Option<&Verified<Head>>, head: &Signed<Head>, delta: Option<&Delta>) -> Vec<u8> {
    let delta = delta.filter(|delta| delta.unpacked_bytes() <= PUSH_UNPACKED_BYTES_MAX);
    let next = before.zip(delta);
    let next = next.and_then(|(before, delta)| NextHead::new(before, head, delta));
    let bytes = || ByteBuf::from(head.bytes().to_vec());
    let whole = next.map_or_else(
        || Push::Head(bytes(), delta.map(|delta| cbor::to_vec(delta).into())),
        Push::Next,
    );
    let whole = whole.to_bytes();
    if whole.len() <= PUSH_BYTES_MAX {
        return whole;
    }
    Push::Head(bytes(), None).to_bytes()
}
