//! Forged statements: the one file about liars that knows how usage is signed and sent.
//!
//! A forger has the liar's key and has seen what its node pushed; it signs what that node never
//! would. Another protocol replaces this file and nothing else of the liars.

use std::collections::BTreeMap;

use fairmesh_cluster::Stream;
use fairmesh_model::documents::PathCells;
use fairmesh_model::{
    AccountPath, CoreMillis, Counters, InFlightSheet, Incarnation, Millis, Seq, Signed, SigningKey,
    Span, UsageBatch, VoId, Window,
};
use fairmesh_site::Event;
use fairmesh_site::gossip::wire::{PullAnswer, Push, Response};
use serde_bytes::ByteBuf;

use super::Forged;
use crate::vo::{key, path, site_id, site_key};

/// Ten years.
const YEARS: Millis = Millis(10 * 365 * 86_400_000);

/// Empty cells of one forged batch: what fits into a push.
const CELLS: usize = 800;

/// Statements of countless incarnations that are made at a time.
const INCARNATIONS: usize = 16;

/// Bytes of the longest push.
const PUSH_BYTES: usize = 60_000;

/// What a liar has seen its own node sign, and its key.
pub(super) struct Forger {
    site: usize,
    key: SigningKey,
    last: BTreeMap<VoId, UsageBatch>,
    made: u64,
}

impl Forger {
    pub(super) fn new(site: usize) -> Self {
        Self {
            site,
            key: site_key(site),
            last: BTreeMap::new(),
            made: 0,
        }
    }

    /// Its node pushes something.
    pub(super) fn sees(&mut self, vo: VoId, bytes: &[u8]) {
        if let Ok(Push::Batch(bytes)) = Push::from_bytes(bytes, bytes.len())
            && let Ok(signed) = Signed::<UsageBatch>::parse(&bytes)
            && signed.claimed().site == site_id(self.site)
        {
            self.last.insert(vo, signed.claimed().clone());
        }
    }

    /// What is pushed beside what the node pushes.
    pub(super) fn forge(&mut self, what: Forged, random: &mut Stream) -> Vec<(VoId, Vec<u8>)> {
        let last = self.last.clone();
        let forged = last.into_iter().flat_map(|(vo, batch)| {
            self.made += 1;
            let pushes = self.forge_from(what, &batch, random);
            pushes.into_iter().map(move |push| (vo, push.to_bytes()))
        });
        forged.collect()
    }

    fn forge_from(&self, what: Forged, last: &UsageBatch, random: &mut Stream) -> Vec<Push> {
        let ahead = last.incarnation.0 + self.made;
        let fresh = |incarnation: u64| UsageBatch {
            incarnation: Incarnation(incarnation),
            seq: Seq(1),
            previous: None,
            retired_below: Incarnation(0),
            settled_below: Incarnation(0),
            cells: PathCells::from_rows([]),
            ..last.clone()
        };
        let made = match what {
            Forged::Contradiction => {
                let at = last.at.after(Millis(self.made));
                vec![self.batch(UsageBatch { at, ..last.clone() })]
            }
            Forged::Ahead => {
                let at = last.at.after(YEARS);
                vec![self.batch(UsageBatch { at, ..fresh(ahead) })]
            }
            Forged::Running => vec![self.running(last)],
            Forged::Incarnations => {
                let any = |_| self.batch(fresh(random.between(1, u64::MAX >> 1)));
                (0..INCARNATIONS).map(any).collect()
            }
            Forged::EmptyCells => {
                let window = Window(u32::try_from(last.at.0 / 3_600_000).unwrap_or(0));
                let row = |cell: usize| {
                    let name = format!("/g{}/u{cell}", self.made);
                    (Span::Window(window), path(&name), Counters::default())
                };
                let cells = PathCells::from_rows((0..CELLS).map(row));
                vec![self.batch(UsageBatch {
                    cells,
                    ..fresh(ahead)
                })]
            }
            Forged::TakenBack => {
                let below = Incarnation(ahead);
                vec![self.batch(UsageBatch {
                    retired_below: below,
                    ..fresh(ahead)
                })]
            }
            Forged::OtherSite => {
                let site = site_id((self.site + 1) % 3);
                vec![self.batch(UsageBatch {
                    site,
                    ..fresh(ahead)
                })]
            }
            Forged::Stranger => {
                let stranger = key("stranger", self.site);
                let body = UsageBatch {
                    site: stranger.site_id(),
                    ..fresh(ahead)
                };
                vec![sign(body, &stranger)]
            }
            Forged::Documents => {
                let bytes = (0..PUSH_BYTES).map(|_| random.below(256).to_le_bytes()[0]);
                vec![Some(Push::Policy(ByteBuf::from(
                    bytes.collect::<Vec<u8>>(),
                )))]
            }
            Forged::AskAgain => Vec::new(),
        };
        made.into_iter().flatten().collect()
    }

    fn batch(&self, body: UsageBatch) -> Option<Push> {
        sign(body, &self.key)
    }

    fn running(&self, last: &UsageBatch) -> Option<Push> {
        let sheet = InFlightSheet {
            vo: last.vo,
            site: site_id(self.site),
            incarnation: Incarnation(u64::MAX >> 1),
            version: self.made,
            at: last.at.after(YEARS),
            rows: vec![(AccountPath::parse("/g0/u0").ok()?, CoreMillis(u64::MAX / 2))],
        };
        let signed = Signed::sign(sheet, &[&self.key]).ok()?;
        Some(Push::Sheet(ByteBuf::from(signed.bytes().to_vec())))
    }
}

/// A push of a batch; `None` where it cannot even be written down.
fn sign(body: UsageBatch, key: &SigningKey) -> Option<Push> {
    let signed = Signed::sign(body, &[key]).ok()?;
    Some(Push::Batch(ByteBuf::from(signed.bytes().to_vec())))
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

/// A forger's node is not shown what was forged in its name: it would fall over it.
pub(super) fn hide_own_forgeries(event: &mut Event) {
    match event {
        Event::Pushed { bytes, .. } => {
            if matches!(
                Push::from_bytes(bytes, bytes.len()),
                Ok(Push::Fork(..) | Push::Batch(_))
            ) {
                bytes.clear();
            }
        }
        Event::Answered {
            bytes: Some(bytes), ..
        } => {
            if let Ok(Response::Pull(mut answer)) = Response::from_bytes(bytes) {
                answer.forks.clear();
                answer.items.clear();
                *bytes = Response::Pull(answer).to_bytes();
            }
        }
        _ => {}
    }
}
