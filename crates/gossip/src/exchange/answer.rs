//! Answering what peers ask, and learning from it what they hold.
//!
//! Invariant: only members of a VO hear anything of it; and a request makes us ask back only where
//! one of the two sides has moved since the last time.

use fairmesh_model::{ContentHash, Now, SiteId, VoId};

use super::held::{shared, summaries};
use super::{Asked, Gossip, Parts, Replicas, STREAMS_MAX};
use crate::digest::vector_hash;
use crate::wire::{Probe, Pull, PullAnswer, Request, Response, Summary};

impl Gossip {
    /// Answers a peer's request, and learns from it what the peer holds.
    pub fn answer(
        &mut self,
        now: Now,
        from: SiteId,
        bytes: &[u8],
        replicas: &Replicas,
    ) -> Response {
        let request = match Request::from_bytes(bytes) {
            Ok(request) => request,
            Err(error) => return Response::Refused(error.to_string()),
        };
        self.stats.answered += 1;
        match request {
            Request::Probe(theirs) => {
                if self.peers.contains_key(&from) {
                    self.clocks.hear(from, theirs.at, now.mono);
                }
                Response::Probe(Probe {
                    at: now.wall,
                    vos: self.answer_probe(from, &theirs.vos, replicas),
                })
            }
            Request::Pull(pull) => self.answer_pull(from, &pull, replicas),
            Request::Seals { vo, hashes } => match shared(replicas, vo, from) {
                Some(replica) => Response::Seals(replica.seals(&hashes)),
                None => Response::Refused(format!("VO {vo} is not shared with you")),
            },
        }
    }

    fn answer_probe(
        &mut self,
        from: SiteId,
        theirs: &[(VoId, Summary)],
        replicas: &Replicas,
    ) -> Vec<(VoId, Summary)> {
        let mine = summaries(replicas, from);
        for (vo, summary) in theirs {
            match replicas.get(vo) {
                Some(replica) if replica.serves(from) => {
                    self.note_divergence(&replica.summary(), summary);
                }
                Some(replica) if replica.is_founded() => {
                    self.hear_stranger(from, *vo, replica.summary(), summary);
                }
                _ => {}
            }
        }
        mine.into_iter()
            .filter(|(vo, _)| theirs.iter().any(|(asked, _)| asked == vo))
            .collect()
    }

    /// Somebody whom our charter does not list holds other documents of a VO. A newer charter may list
    /// him, and he may be the only one who has it: documents prove themselves, so ask for them.
    fn hear_stranger(&mut self, from: SiteId, vo: VoId, mine: Summary, theirs: &Summary) {
        let shown = ContentHash::of(&theirs.documents);
        if mine.documents == theirs.documents || !self.is_news(from, vo, (mine, shown)) {
            return;
        }
        let parts = Parts {
            documents: true,
            ..Parts::default()
        };
        self.enqueue(
            from,
            Asked::Pull {
                vo,
                parts,
                sent: None,
                unless: None,
            },
        );
    }

    fn answer_pull(&mut self, from: SiteId, pull: &Pull, replicas: &Replicas) -> Response {
        let Some(replica) = shared(replicas, pull.vo, from) else {
            return Response::Refused(format!("VO {} is not shared with you", pull.vo));
        };
        let mut theirs = None;
        if let (Some(frame), Some(peer)) = (&pull.usage, self.peers.get_mut(&from)) {
            let Some(vector) = frame.resolve(peer.received.get(&pull.vo)) else {
                return Response::Pull(PullAnswer {
                    need_full: true,
                    ..PullAnswer::default()
                });
            };
            if vector.len() > STREAMS_MAX {
                return Response::Refused(format!("more than {STREAMS_MAX} streams"));
            }
            peer.received.insert(pull.vo, vector.clone());
            theirs = Some(vector);
        }
        let behind = Parts {
            documents: pull
                .documents
                .as_ref()
                .is_some_and(|hashes| replica.lacks_documents(hashes)),
            usage: theirs.as_ref().is_some_and(|vector| replica.lacks(vector))
                || replica.lacks_forks(&pull.forks),
            heads: false,
            sheets: pull
                .sheets
                .as_ref()
                .is_some_and(|versions| replica.lacks_sheets(versions)),
            descriptions: pull
                .descriptions
                .as_ref()
                .is_some_and(|versions| replica.descriptions().is_behind(versions)),
        };
        let shown = ContentHash::of(&fairmesh_model::cbor::to_vec(&(
            theirs.as_ref().map(vector_hash),
            &pull.forks,
            &pull.documents,
            &pull.sheets,
            &pull.descriptions,
        )));
        if behind != Parts::default() && self.is_news(from, pull.vo, (replica.summary(), shown)) {
            self.enqueue(
                from,
                Asked::Pull {
                    vo: pull.vo,
                    parts: behind,
                    sent: None,
                    unless: None,
                },
            );
        }
        Response::Pull(replica.answer(pull, theirs.as_ref()))
    }

    /// Whether pulling back may bring anything: not where neither side has moved since the last
    /// time. Two nodes that refuse something of each other would else go on for ever.
    fn is_news(&mut self, from: SiteId, vo: VoId, seen: (Summary, ContentHash)) -> bool {
        let peer = self.peers.get_mut(&from);
        peer.is_some_and(|peer| peer.pulled_back.insert(vo, seen) != Some(seen))
    }
}
