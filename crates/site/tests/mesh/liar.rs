//! A member that lies: it is in the charter, runs no node, and signs what it likes.

use fairmesh_gossip::wire::{HeadContent, HeadItem, Probe, PullAnswer, Request, Response, Summary};
use fairmesh_gossip::{Head, HeldRow, Kinds, PartKey, Replica};
use fairmesh_model::{AccountPath, Counters, Incarnation, Span, WallTime};
use fairmesh_site::{Event, Verdict};
use fairmesh_usage::cut;
use serde_bytes::ByteBuf;

use crate::mesh::Mesh;
use crate::vo::{path, site_id, site_key};

/// Whatever a liar likes to sign.
struct Anything;

impl Kinds for Anything {
    fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
        Ok(0)
    }
}

/// A member that signs what it likes.
pub(crate) struct Liar {
    index: usize,
    replica: Replica,
    incarnation: u64,
    /// What it says the time is; what it is asked, where it does not lie about that.
    pub(crate) clock: Option<WallTime>,
    pub(crate) needs_full: bool,
    /// How often it tells each head in one answer.
    pub(crate) repeats: usize,
}

/// Parts of usage: what the accounts are charged in a span.
pub(crate) fn usage(span: Span, charges: &[(&str, u64)]) -> Vec<(PartKey, Option<Vec<u8>>)> {
    let mut rows: Vec<(AccountPath, Counters)> = charges
        .iter()
        .map(|(account, charge)| {
            let counters = Counters {
                charge: *charge,
                cpu_ms: *charge,
                ..Counters::default()
            };
            (path(account), counters)
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let rows = rows
        .iter()
        .map(|(path, counters)| (path, Incarnation(1), *counters));
    let tables = cut(span, rows, 60_000).into_iter();
    tables
        .map(|(slice, bytes)| (PartKey::new(1, &slice.to_bytes()), Some(bytes)))
        .collect()
}

impl Liar {
    pub(crate) fn new(mesh: &Mesh, index: usize) -> Self {
        Self {
            index,
            replica: Replica::new(mesh.vo, site_id(index)),
            incarnation: 1,
            clock: None,
            needs_full: false,
            repeats: 1,
        }
    }

    pub(crate) fn start_again(&mut self) {
        self.incarnation += 1;
    }

    /// A push of its next head.
    pub(crate) fn sign(&mut self, at: WallTime, parts: Vec<(PartKey, Option<Vec<u8>>)>) -> Vec<u8> {
        self.sign_as(Incarnation(self.incarnation), at, parts)
    }

    pub(crate) fn sign_as(
        &mut self,
        incarnation: Incarnation,
        at: WallTime,
        parts: Vec<(PartKey, Option<Vec<u8>>)>,
    ) -> Vec<u8> {
        let key = site_key(self.index);
        self.replica
            .publish(&Anything, &key, incarnation, at, parts)
            .1
    }

    /// What it answers to whoever asks: that it holds something else, and then all of it; to questions of rights nothing
    /// that anybody could read.
    pub(crate) fn respond(&self, request: &[u8]) -> Vec<u8> {
        let Ok(request) = Request::from_bytes(request) else {
            return Vec::new();
        };
        let response = match request {
            Request::Probe(theirs) => {
                let lie = |theirs: &Summary| Summary {
                    heads: [7; 32],
                    ..*theirs
                };
                let held = theirs.vos.iter().map(|(vo, theirs)| (*vo, lie(theirs)));
                Response::Probe(Probe {
                    at: self.clock.unwrap_or(theirs.at),
                    vos: held.collect(),
                })
            }
            Request::Pull(_) => Response::Pull(PullAnswer {
                heads: self.items(),
                need_full: self.needs_full,
                ..PullAnswer::default()
            }),
            Request::Parts { .. } => Response::Parts(Vec::new()),
        };
        response.to_bytes()
    }

    fn items(&self) -> Vec<HeadItem> {
        let rows = self.replica.rows_of_site(site_id(self.index)).into_iter();
        let (heads, parts): (Vec<_>, Vec<_>) = rows.partition(|row| row.part.is_none());
        let item = |head: &HeldRow| {
            let of = parts
                .iter()
                .filter(|part| part.incarnation == head.incarnation);
            let of = of.filter_map(|part| {
                Some((
                    part.part.clone()?,
                    ByteBuf::from(part.bytes.as_ref()?.to_vec()),
                ))
            });
            HeadItem {
                head: ByteBuf::from(head.bytes.as_ref().expect("signed").to_vec()),
                content: HeadContent::Whole(of.collect()),
            }
        };
        let heads = heads.iter().map(item);
        heads.flat_map(|head| vec![head; self.repeats]).collect()
    }
}

pub(crate) fn offer(mesh: &mut Mesh, node: usize, bytes: Vec<u8>) -> Verdict {
    push(mesh, node, bytes);
    mesh.nodes[node].verdicts.pop().expect("judged")
}

/// Pushes to a node, which need not judge it at once.
pub(crate) fn push(mesh: &mut Mesh, node: usize, bytes: Vec<u8>) {
    push_by(mesh, 1, node, bytes);
}

/// The same as another site.
pub(crate) fn push_by(mesh: &mut Mesh, by: usize, node: usize, bytes: Vec<u8>) {
    let (from, vo, token) = (site_id(by), mesh.vo, 0);
    mesh.handle(
        node,
        Event::Pushed {
            from,
            vo,
            bytes,
            token,
        },
    );
}
