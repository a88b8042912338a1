//! Forged statements: the one file about liars that knows how usage is signed and sent.
//!
//! A forger has the liar's key and has seen what its node stored and pushed; it signs what that node
//! never would. Another protocol replaces this file and nothing else of the liars.

use std::collections::BTreeMap;

use fairmesh_cluster::Stream;
use fairmesh_model::{
    AccountPath, Counters, Incarnation, Millis, Signed, SigningKey, Span, VoId, WallTime, Window,
};
use fairmesh_site::gossip::wire::{PullAnswer, Push, Response};
use fairmesh_site::gossip::{Head, Kinds, PART_BYTES_MAX, PartKey, Replica};
use fairmesh_site::{Effect, HeadId, Table};
use fairmesh_usage::cut;
use serde_bytes::ByteBuf;

use super::Forged;
use crate::vo::{key, path, site_id, site_key};

/// Ten years.
const YEARS: Millis = Millis(10 * 365 * 86_400_000);

/// Empty cells of one forged table: what fits into a push.
const CELLS: usize = 800;

/// Statements of countless incarnations that are made at a time.
const INCARNATIONS: usize = 16;

/// Bytes of the longest push.
const PUSH_BYTES: usize = 60_000;

/// Kinds of parts, as a site's own code names them.
const USAGE: u8 = 1;
const RUNNING: u8 = 2;

/// Parts of a head.
type Parts = BTreeMap<PartKey, Vec<u8>>;

/// What a liar has seen its own node sign, and its key.
pub(super) struct Forger {
    site: usize,
    key: SigningKey,
    /// The parts of its node's heads.
    parts: BTreeMap<HeadId, Parts>,
    /// The last head of each VO.
    last: BTreeMap<VoId, Signed<Head>>,
    made: u64,
}

/// Takes any part.
struct AnyKind;

impl Kinds for AnyKind {
    fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
        Ok(1)
    }
}

impl Forger {
    pub(super) fn new(site: usize) -> Self {
        Self {
            site,
            key: site_key(site),
            parts: BTreeMap::new(),
            last: BTreeMap::new(),
            made: 0,
        }
    }

    /// Its node does something.
    pub(super) fn sees(&mut self, effect: &Effect) {
        match effect {
            Effect::Persist(writes) => {
                for write in writes.iter().filter(|write| write.table == Table::Parts) {
                    let Some((id, part)) = HeadId::of_key(&write.key) else {
                        continue;
                    };
                    let parts = self.parts.entry(id).or_default();
                    match (PartKey::from_bytes(part), &write.value) {
                        (Some(part), Some(bytes)) => parts.insert(part, bytes.clone()),
                        (Some(part), None) => parts.remove(&part),
                        (None, _) => None,
                    };
                }
            }
            Effect::Push { vo, bytes } => {
                if let Ok(Push::Head(head, _)) = Push::from_bytes(bytes)
                    && let Ok(signed) = Signed::<Head>::parse(&head)
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
        for (vo, last) in &self.last {
            self.made += 1;
            let forging = Forging {
                of: self,
                last,
                made: self.made,
            };
            let pushes = forging.forge(what, random);
            forged.extend(pushes.into_iter().map(|push| (*vo, push)));
        }
        forged
    }
}

/// Forging from one head.
struct Forging<'a> {
    of: &'a Forger,
    last: &'a Signed<Head>,
    made: u64,
}

impl Forging<'_> {
    fn forge(&self, what: Forged, random: &mut Stream) -> Vec<Vec<u8>> {
        let last = self.last.claimed();
        let ahead = last.incarnation.0 + self.made;
        let made = match what {
            Forged::Contradiction => {
                let at = last.at.after(Millis(self.made));
                vec![bare(Head { at, ..last.clone() }, &self.of.key)]
            }
            Forged::Ahead => {
                let (at, seq) = (last.at.after(YEARS), last.seq.next());
                let head = Head {
                    at,
                    seq,
                    ..last.clone()
                };
                vec![bare(head, &self.of.key)]
            }
            Forged::Running => vec![self.with(ahead, running())],
            Forged::Incarnations => {
                let any = |_| self.with(random.between(1, u64::MAX >> 1), Parts::new());
                (0..INCARNATIONS).map(any).collect()
            }
            Forged::EmptyCells => vec![self.with(ahead, empty_cells(last.at, self.made))],
            Forged::TakenBack => vec![self.head(ahead, Parts::new())],
            Forged::OtherSite => {
                let site = site_id((self.of.site + 1) % 3);
                vec![bare(
                    Head {
                        site,
                        ..last.clone()
                    },
                    &self.of.key,
                )]
            }
            Forged::Stranger => {
                let stranger = key("stranger", self.of.site);
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
            Forged::AskAgain => Vec::new(),
        };
        made.into_iter().flatten().collect()
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
        replica
            .restore(
                &AnyKind,
                self.last.bytes(),
                self.parts().into_iter().collect(),
            )
            .ok()?;
        let parts = parts.into_iter().map(|(key, bytes)| (key, Some(bytes)));
        let (at, of) = (last.at.after(Millis(1)), Incarnation(incarnation));
        let head = replica.publish(&AnyKind, &self.of.key, of, at, parts.collect());
        Some(head.1)
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
}

/// A push of a head alone; `None` where it cannot even be written down.
fn bare(head: Head, key: &SigningKey) -> Option<Vec<u8>> {
    let signed = Signed::sign(head, &[key]).ok()?;
    let head = ByteBuf::from(signed.bytes().to_vec());
    Some(Push::Head(head, None).to_bytes())
}

/// Running jobs that will use all that can be written.
fn running() -> Parts {
    let all = Counters {
        charge: u64::MAX / 2,
        ..Counters::default()
    };
    let path = path("/g0/u0");
    tables(RUNNING, Span::Day(0), &[(path, all)])
}

/// A table of accounts that nobody has heard of, none of which has used anything.
fn empty_cells(at: WallTime, of: u64) -> Parts {
    let window = Window(u32::try_from(at.0 / 3_600_000).unwrap_or(0));
    let one = Counters {
        charge: 1,
        ..Counters::default()
    };
    let mut cells: Vec<_> = (0..CELLS)
        .map(|cell| (path(&format!("/g{of}/u{cell}")), one))
        .collect();
    cells.sort_by(|a, b| a.0.cmp(&b.0));
    let mut parts = tables(USAGE, Span::Window(window), &cells);
    // The charges are the last column of the table, of a byte each.
    for bytes in parts.values_mut() {
        let from = bytes.len() - CELLS;
        bytes[from..].fill(0);
    }
    parts
}

fn tables(kind: u8, span: Span, cells: &[(AccountPath, Counters)]) -> Parts {
    let cells = cells
        .iter()
        .map(|(path, counters)| (path, Incarnation(1), *counters));
    let tables = cut(span, cells, PART_BYTES_MAX).into_iter();
    tables
        .map(|(slice, bytes)| (PartKey::new(kind, &slice.to_bytes()), bytes))
        .collect()
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
