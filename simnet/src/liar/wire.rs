//! Forged statements: the one file about liars that knows how usage is signed and sent.
//!
//! A forger has the liar's key and has seen what its node stored and pushed; it signs what that node
//! never would. What fits into a push is pushed. The rest it serves: it tells everybody who probes that
//! it holds something else, and puts the forgery into the answer to the pull that follows. Another
//! protocol replaces this file and nothing else of the liars.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_cluster::Stream;
use fairmesh_gossip::wire::{FRAME_BYTES_MAX, HeadContent, HeadItem, PullAnswer, Push, Response};
use fairmesh_gossip::{Head, Kinds, ManifestRow, PART_BYTES_MAX, PARTS_MAX, PartKey, Replica};
use fairmesh_model::{
    AccountPath, ContentHash, Counters, Incarnation, Millis, Seq, Signed, SigningKey, SiteId, Span,
    VoId, WallTime, WindowLength,
};
use fairmesh_quota::{Row, SliceId};
use fairmesh_site::{Effect, HeadId, Table};
use fairmesh_usage::cut;
use serde_bytes::ByteBuf;

use super::Forged;
use super::caught::Caught;
use crate::vo::{key, path, site_id, site_key};

mod bomb;

/// Ten years: beyond every history.
const YEARS: Millis = Millis(10 * 365 * 86_400_000);

/// Empty cells of one forged table: what fits into a push.
const CELLS: usize = 800;

/// Statements of countless incarnations that are made at a time.
const INCARNATIONS: usize = 16;

/// Windows in which a forged head claims all that can be written.
const WINDOWS: u64 = 24;

/// Bytes of the longest push.
const PUSH_BYTES: usize = 60_000;

/// Parts of the largest head that is served: with their names just what an answer holds, so that nothing
/// else goes into it.
const LARGEST_PARTS: usize = FRAME_BYTES_MAX / PART_BYTES_MAX;

/// What an answer counts for a part beside its bytes.
const PART_NAMED_BYTES: usize = 16;

/// Large heads that are served in a run: each costs everybody milliseconds, which is not the point.
const LARGE_HEADS: u64 = 24;

/// Parts that are signed and never given.
const WITHHELD_PARTS: u32 = 256;

/// Kinds of parts, as a site's own code names them, and one that no site knows.
const USAGE: u8 = 1;
const RUNNING: u8 = 2;
const RIGHTS: u8 = 5;
const UNKNOWN: u8 = 200;

/// Parts of a head.
type Parts = BTreeMap<PartKey, Vec<u8>>;

/// What a liar has seen its own node sign and keep, and its key.
pub(super) struct Forger {
    site: usize,
    key: SigningKey,
    windows: BTreeMap<VoId, WindowLength>,
    /// The parts of its node's heads.
    parts: BTreeMap<HeadId, Parts>,
    /// The last head of each VO.
    last: BTreeMap<VoId, Signed<Head>>,
    /// The last two heads of other sites.
    others: BTreeMap<(VoId, SiteId), Vec<Vec<u8>>>,
    /// Its heads that other nodes have kept.
    kept: BTreeSet<ContentHash>,
    /// Who has been shown that it contradicts itself.
    pub(super) caught: Caught,
    /// Its heads that were only ever pushed, by pushes that unpack to more than any may.
    bombs: BTreeSet<ContentHash>,
    made: u64,
}

pub(super) struct AnyKind;

impl Kinds for AnyKind {
    fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
        Ok(1)
    }
}

impl Forger {
    pub(super) fn new(site: usize, windows: BTreeMap<VoId, WindowLength>) -> Self {
        Self {
            site,
            key: site_key(site),
            windows,
            parts: BTreeMap::new(),
            last: BTreeMap::new(),
            others: BTreeMap::new(),
            kept: BTreeSet::new(),
            caught: Caught::default(),
            bombs: BTreeSet::new(),
            made: 0,
        }
    }

    /// Another node does something.
    pub(super) fn sees_other(&mut self, node: usize, effect: &Effect) {
        let Effect::Persist(writes) = effect else {
            return;
        };
        let own = self.key.site_id();
        for write in writes.iter().filter(|write| write.table == Table::Heads) {
            let is_own = HeadId::of_key(&write.key).is_some_and(|(id, _)| id.site == own);
            let kept = write.value.as_ref().filter(|_| is_own);
            self.kept.extend(kept.map(|head| ContentHash::of(head)));
            self.caught.keeps(node, own, write);
        }
    }

    /// Whether another node has kept a head that it can only have from a push that unpacks to more than any may.
    pub(super) fn is_unpacked(&self) -> bool {
        !self.bombs.is_disjoint(&self.kept)
    }

    /// Whether anybody can read what is forged of a VO: not what it changes of a head that no other node has ever had.
    /// Who contradicts himself is caught by who gets both heads (`caught`).
    pub(super) fn is_read(&self, what: Forged, vo: VoId) -> bool {
        let last = self.last.get(&vo);
        let is_kept = last.is_some_and(|last| self.kept.contains(&ContentHash::of(last.bytes())));
        match what {
            Forged::Contradiction => false,
            what => is_kept || !what.is_change(),
        }
    }

    /// Its node does something.
    pub(super) fn sees(&mut self, effect: &Effect) {
        match effect {
            Effect::Persist(writes) => {
                for write in writes {
                    let Some((id, part)) = HeadId::of_key(&write.key) else {
                        continue;
                    };
                    let is_own = id.site == self.key.site_id();
                    match (write.table, PartKey::from_bytes(part), &write.value) {
                        (Table::Parts, Some(part), Some(bytes)) if is_own => {
                            self.parts
                                .entry(id)
                                .or_default()
                                .insert(part, bytes.clone());
                        }
                        (Table::Parts, Some(part), None) if is_own => {
                            self.parts.entry(id).or_default().remove(&part);
                        }
                        (Table::Heads, None, Some(bytes)) if !is_own => {
                            let seen = self.others.entry((id.vo, id.site)).or_default();
                            seen.push(bytes.clone());
                            let excess = seen.len().saturating_sub(2);
                            seen.drain(..excess);
                        }
                        _ => {}
                    }
                }
            }
            Effect::Push { vo, bytes } => {
                let push = Push::from_bytes(bytes).ok();
                if let Some(signed) = push.and_then(|push| push.head(self.last.get(vo)))
                    && signed.claimed().site == self.key.site_id()
                {
                    self.last.insert(*vo, signed);
                }
            }
            _ => {}
        }
    }

    /// What is pushed beside what the node pushes.
    pub(super) fn forge(&mut self, what: Forged, random: &mut Stream) -> Vec<(VoId, Vec<u8>)> {
        let mut forged = Vec::new();
        for vo in self.last.keys().copied().collect::<Vec<_>>() {
            self.made += 1;
            let pushes = self.forging(vo).map(|forging| forging.forge(what, random));
            let pushes = pushes.into_iter().flatten();
            forged.extend(pushes.map(|push| (vo, push)));
        }
        if what == Forged::Contradiction {
            let pushes = forged.iter().map(|(_, push)| push);
            pushes.for_each(|push| self.caught.forges(push));
        }
        if what == Forged::Bomb {
            let heads = forged.iter().filter_map(|(_, push)| bomb::head_of(push));
            self.bombs.extend(heads.map(|head| ContentHash::of(&head)));
        }
        forged
    }

    /// Changes an answer so that who gets it asks for more, and gets what is forged: whether it has.
    pub(super) fn serve(&mut self, what: Forged, asked: Option<VoId>, bytes: &mut Vec<u8>) -> bool {
        let is_enough = self.made >= LARGE_HEADS && what != Forged::WithheldParts;
        match (Response::from_bytes(bytes), asked) {
            _ if is_enough => false,
            (Ok(Response::Probe(mut probe)), _) => {
                probe
                    .vos
                    .iter_mut()
                    .for_each(|(_, held)| held.heads[0] ^= 1);
                *bytes = Response::Probe(probe).to_bytes();
                false
            }
            (Ok(Response::Pull(mut answer)), Some(vo)) => {
                let item = self.forging(vo).and_then(|forging| forging.item(what));
                let is_made = item.is_some();
                self.made += u64::from(is_made);
                answer.heads.extend(item);
                *bytes = Response::Pull(answer).to_bytes();
                is_made
            }
            _ => false,
        }
    }

    /// A push of the head that would follow its node's last one, with another row of rights.
    pub(super) fn with_rights(&self, vo: VoId, id: SliceId, row: &Row) -> Option<Vec<u8>> {
        let forging = self.forging(vo)?;
        let (name, whole) = (
            id.to_bytes(),
            [&id.to_bytes()[..], &row.to_bytes()].concat(),
        );
        let (allocation, index) = name.split_at(32);
        let key = PartKey::new(RIGHTS, &[&allocation[..16], index].concat());
        let incarnation = forging.last.claimed().incarnation;
        forging.with(incarnation.0, Parts::from([(key, whole)]))
    }

    fn forging(&self, vo: VoId) -> Option<Forging<'_>> {
        Some(Forging {
            of: self,
            last: self.last.get(&vo)?,
            window: self.windows.get(&vo).copied().unwrap_or(WindowLength::HOUR),
            made: self.made,
        })
    }
}

/// Forging from one head.
struct Forging<'a> {
    of: &'a Forger,
    last: &'a Signed<Head>,
    window: WindowLength,
    made: u64,
}

impl Forging<'_> {
    fn forge(&self, what: Forged, random: &mut Stream) -> Vec<Vec<u8>> {
        let last = self.last.claimed();
        let ahead = last.incarnation.0 + self.made;
        let made = match what {
            Forged::Contradiction => self.contradictions(),
            Forged::Ahead => {
                let push = self.with(ahead, Parts::new());
                let at = last.at.after(YEARS);
                vec![push.and_then(|push| self.signed_anew(&push, |head| Head { at, ..head }))]
            }
            Forged::Running => vec![self.with(ahead, running())],
            Forged::Bomb => vec![self.bomb(ahead)],
            Forged::Incarnations => {
                let any = |_| self.with(random.between(1, u64::MAX >> 1), Parts::new());
                let beside = |head| Head {
                    covers: Vec::new(),
                    ..head
                };
                let pushes = (0..INCARNATIONS).map(any);
                pushes
                    .map(|push| self.signed_anew(&push?, beside))
                    .collect()
            }
            Forged::EmptyCells => vec![self.with(ahead, self.empty_cells())],
            Forged::OverClaim => {
                let back = |windows| last.at.before(self.window.millis().times(windows));
                let claims = (0..WINDOWS).flat_map(|of| self.claims(back(of)));
                vec![self.with(ahead, claims.collect())]
            }
            Forged::FutureUsage => vec![self.with(ahead, self.claims(last.at.after(YEARS)))],
            Forged::OldUsage => vec![self.with(ahead, self.claims(WallTime(0)))],
            Forged::TakenBack if self.parts().keys().any(|part| part.kind() == USAGE) => {
                vec![self.head(ahead, Parts::new())]
            }
            Forged::FalseProof => vec![self.false_proof(random)],
            Forged::OtherSite if self.made.is_multiple_of(2) => vec![self.altered(random)],
            Forged::OtherSite => {
                let site = site_id((self.of.site + 1) % 3);
                vec![self.bare(Head {
                    site,
                    ..last.clone()
                })]
            }
            Forged::Stranger => {
                let stranger = key("stranger", usize::try_from(self.made).unwrap_or(0));
                let site = stranger.site_id();
                vec![bare(
                    Head {
                        site,
                        ..last.clone()
                    },
                    &stranger,
                )]
            }
            Forged::Documents => {
                let bytes = (0..PUSH_BYTES).map(|_| random.below(256).to_le_bytes()[0]);
                let document = Push::Document(ByteBuf::from(bytes.collect::<Vec<u8>>()));
                vec![Some(document.to_bytes())]
            }
            _ => Vec::new(),
        };
        made.into_iter().flatten().collect()
    }

    /// A head that is served, with what is told of its parts.
    fn item(&self, what: Forged) -> Option<HeadItem> {
        let stamp = |part: u32| [part, u32::try_from(self.made).unwrap_or(0)].map(u32::to_be_bytes);
        let row = |part: u32, len: usize| {
            let name = PartKey::new(UNKNOWN, &part.to_be_bytes());
            let hash = ContentHash::of(stamp(part).as_flattened());
            (name, hash, u32::try_from(len).expect("parts are short"))
        };
        match what {
            Forged::ManyParts => {
                let most = u32::try_from(PARTS_MAX).expect("some thousands");
                let rows: Vec<ManifestRow> = (0..=most).map(|part| row(part, 8)).collect();
                self.served(&rows, HeadContent::Manifest(rows.clone()))
            }
            Forged::WithheldParts => {
                let rows = (0..WITHHELD_PARTS).map(|part| row(part, PART_BYTES_MAX));
                let rows: Vec<ManifestRow> = rows.collect();
                self.served(&rows, HeadContent::Manifest(rows.clone()))
            }
            Forged::Largest => {
                let named = FRAME_BYTES_MAX - LARGEST_PARTS * PART_NAMED_BYTES;
                let part = |part: usize| {
                    let byte = part.to_le_bytes()[0];
                    let name = PartKey::new(UNKNOWN, &[byte]);
                    let rest = named - part * PART_BYTES_MAX;
                    (name, ByteBuf::from(vec![byte; rest.min(PART_BYTES_MAX)]))
                };
                let parts: Vec<_> = (0..LARGEST_PARTS).map(part).collect();
                let rows = parts.iter().map(|(name, bytes)| {
                    let len = u32::try_from(bytes.len()).expect("parts are short");
                    (name.clone(), ContentHash::of(bytes), len)
                });
                let rows: Vec<ManifestRow> = rows.collect();
                self.served(&rows, HeadContent::Whole(parts))
            }
            _ => None,
        }
    }

    fn served(&self, rows: &[ManifestRow], content: HeadContent) -> Option<HeadItem> {
        let last = self.last.claimed();
        let head = Head {
            incarnation: Incarnation(last.incarnation.0 + 1),
            seq: Seq(self.made + 1),
            root: root_of(rows),
            covers: Vec::new(),
            ..last.clone()
        };
        let signed = Signed::sign(head, &[&self.of.key]).ok()?;
        let head = ByteBuf::from(signed.bytes().to_vec());
        Some(HeadItem { head, content })
    }

    /// Now another head with the number of the last one and its content, now one of other content, now
    /// two with the next number, of which some hear the one first and some the other.
    fn contradictions(&self) -> Vec<Option<Vec<u8>>> {
        let last = self.last.claimed();
        let at = last.at.after(Millis(self.made));
        let with = |charge, seq| {
            let ahead = last.incarnation.0 + self.made;
            let cells = self.cells(last.at, &[(path("/g0/u0"), charge)]);
            self.signed_anew(&self.with(ahead, cells)?, |head| Head {
                at,
                seq,
                root: head.root,
                ..last.clone()
            })
        };
        match self.made % 3 {
            0 => vec![self.bare(Head { at, ..last.clone() })],
            1 => vec![with(1, last.seq)],
            _ => vec![with(1, last.seq.next()), with(2, last.seq.next())],
        }
    }

    /// A push of another head beside what the pushed one changes.
    fn signed_anew(&self, push: &[u8], other: impl FnOnce(Head) -> Head) -> Option<Vec<u8>> {
        let Ok(Push::Head(head, delta)) = Push::from_bytes(push) else {
            return None;
        };
        let head = other(Signed::<Head>::parse(&head).ok()?.claimed().clone());
        let signed = Signed::sign(head, &[&self.of.key]).ok()?;
        let head = ByteBuf::from(signed.bytes().to_vec());
        Some(Push::Head(head, delta).to_bytes())
    }

    /// A head of another site, signed by it a millisecond later than it has: what its signature is not
    /// good for.
    fn altered(&self, random: &mut Stream) -> Option<Vec<u8>> {
        let vo = self.last.claimed().vo;
        let of_vo = self.of.others.iter().filter(|((of, _), _)| *of == vo);
        let heads: Vec<&Vec<u8>> = of_vo.filter_map(|(_, heads)| heads.last()).collect();
        let mut bytes = (*heads.get(random.index(heads.len().max(1)))?).clone();
        let at = Signed::<Head>::parse(&bytes).ok()?.claimed().at;
        let (old, new) = (at.0.to_be_bytes(), at.after(Millis(1)).0.to_be_bytes());
        let place = bytes.windows(old.len()).position(|of| *of == old)?;
        bytes[place..place + new.len()].copy_from_slice(&new);
        Some(Push::Head(ByteBuf::from(bytes), None).to_bytes())
    }

    /// Two heads of another site that follow each other, as a proof that they contradict each other.
    fn false_proof(&self, random: &mut Stream) -> Option<Vec<u8>> {
        let vo = self.last.claimed().vo;
        let of_vo = self.of.others.iter().filter(|((of, _), _)| *of == vo);
        let pairs: Vec<_> = of_vo.filter(|(_, heads)| heads.len() == 2).collect();
        let (_, heads) = pairs.get(random.index(pairs.len().max(1)))?;
        let [a, b] = [&heads[0], &heads[1]].map(|head| ByteBuf::from(head.clone()));
        Some(Push::Proof(a, b).to_bytes())
    }

    /// A head of another incarnation that holds what the last one holds, and `more`.
    fn with(&self, incarnation: u64, more: Parts) -> Option<Vec<u8>> {
        let mut parts = self.parts();
        parts.extend(more);
        self.head(incarnation, parts)
    }

    /// A head of another incarnation, pushed as what it changes of the last one.
    fn head(&self, incarnation: u64, parts: Parts) -> Option<Vec<u8>> {
        let last = self.last.claimed();
        let mut replica = Replica::new(last.vo, last.site);
        let held = self.parts().into_iter().collect();
        replica.restore(&AnyKind, self.last.bytes(), held).ok()?;
        let parts = parts.into_iter().map(|(key, bytes)| (key, Some(bytes)));
        let (at, of) = (last.at.after(Millis(1)), Incarnation(incarnation));
        let head = replica.publish(&AnyKind, &self.of.key, of, at, parts.collect());
        Some(head.1)
    }

    fn bare(&self, head: Head) -> Option<Vec<u8>> {
        bare(head, &self.of.key)
    }

    fn parts(&self) -> Parts {
        let Head {
            vo,
            site,
            incarnation,
            ..
        } = *self.last.claimed();
        let id = HeadId {
            vo,
            site,
            incarnation,
        };
        self.of.parts.get(&id).cloned().unwrap_or_default()
    }

    /// Usage of all that can be written, at a moment.
    fn claims(&self, at: WallTime) -> Parts {
        self.cells(at, &[(path("/g0/u0"), u64::MAX / 2)])
    }

    fn cells(&self, at: WallTime, charges: &[(AccountPath, u64)]) -> Parts {
        let span = Span::Window(self.window.window_at(at));
        tables(USAGE, span, charges)
    }

    /// A table of accounts that nobody knows, none of which has used anything.
    fn empty_cells(&self) -> Parts {
        let cell = |cell| (path(&format!("/g{}/u{cell}", self.made)), 1);
        let mut cells: Vec<_> = (0..CELLS).map(cell).collect();
        cells.sort();
        let mut parts = self.cells(self.last.claimed().at, &cells);
        // The charges are the last column of the table, of a byte each; a column of zeros is none.
        for bytes in parts.values_mut() {
            let from = bytes.len() - CELLS + 1;
            bytes[from..].fill(0);
        }
        parts
    }
}

/// A push of a head alone; `None` where it cannot even be written down.
fn bare(head: Head, key: &SigningKey) -> Option<Vec<u8>> {
    let signed = Signed::sign(head, &[key]).ok()?;
    let head = ByteBuf::from(signed.bytes().to_vec());
    Some(Push::Head(head, None).to_bytes())
}

/// Running jobs that will use all that can be written.
fn running() -> Parts {
    tables(RUNNING, Span::Day(0), &[(path("/g0/u0"), u64::MAX / 2)])
}

fn tables(kind: u8, span: Span, charges: &[(AccountPath, u64)]) -> Parts {
    let cell = |(path, charge): &(AccountPath, u64)| {
        let charge = *charge;
        (
            path.clone(),
            Counters {
                charge,
                ..Counters::default()
            },
        )
    };
    let cells: Vec<_> = charges.iter().map(cell).collect();
    let cells = cells
        .iter()
        .map(|(path, counters)| (path, Incarnation(1), *counters));
    let tables = cut(span, cells, PART_BYTES_MAX).into_iter();
    tables
        .map(|(slice, bytes)| (PartKey::new(kind, &slice.to_bytes()), bytes))
        .collect()
}

/// What a manifest is signed by.
fn root_of(rows: &[ManifestRow]) -> ContentHash {
    let mut bytes = Vec::new();
    for (name, hash, len) in rows {
        bytes.push(u8::try_from(name.as_bytes().len()).expect("names are short"));
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(hash.as_bytes());
        bytes.extend_from_slice(&len.to_be_bytes());
    }
    ContentHash::of(&bytes)
}

/// Leaves heads out of what is pushed and answered. Documents, which others may lack, stay.
pub(super) fn leave_out_heads(effects: &mut Vec<Effect>) {
    effects.retain_mut(|effect| match effect {
        Effect::Push { bytes, .. } => {
            matches!(
                Push::from_bytes(bytes),
                Ok(Push::Document(_) | Push::Proof(..))
            )
        }
        Effect::Answer { bytes, .. } => {
            if let Ok(Response::Pull(mut answer)) = Response::from_bytes(bytes) {
                answer.heads.clear();
                *bytes = Response::Pull(answer).to_bytes();
            }
            true
        }
        _ => true,
    });
}

/// Makes the answer to a pull one that wants to be asked again.
pub(super) fn ask_again(bytes: &mut Vec<u8>) {
    if matches!(Response::from_bytes(bytes), Ok(Response::Pull(_))) {
        let again = PullAnswer {
            need_full: true,
            ..PullAnswer::default()
        };
        *bytes = Response::Pull(again).to_bytes();
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_usage::TableError;

    use super::*;

    #[test]
    fn empty_cells_are_refused_because_they_are_empty() {
        let cells = [(path("/g0/u0"), 1), (path("/g0/u1"), 1)];
        let [bytes] = <[Vec<u8>; 1]>::try_from(
            tables(USAGE, Span::Day(1), &cells)
                .into_values()
                .collect::<Vec<_>>(),
        )
        .expect("one table");
        assert_eq!(fairmesh_usage::check(&bytes), Ok(2));
        let mut empty = bytes;
        let from = empty.len() - cells.len() + 1;
        empty[from..].fill(0);
        assert_eq!(fairmesh_usage::check(&empty), Err(TableError::Zero));
    }
}
