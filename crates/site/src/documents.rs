//! Documents: those that somebody hands in here, and those that peers bring.
//!
//! Invariant: a document and the memory against rollback are durable before anybody else is told of it.
//! Deliberately not here: which documents are in force (`fairmesh-policy`).

use std::sync::Arc;

use fairmesh_gossip::wire::{PUSH_BYTES_MAX, Push};
use fairmesh_model::{ContentHash, Now, SiteId, Verified, VoId, cbor, mutant, mutated};
use fairmesh_policy::{Adopted, VoPolicies};

use crate::adoptions::{BroughtBy, note_adoption};
use crate::describe::describe;
use crate::document::{Document, DocumentRefused};
use crate::event::{Effect, Reply, Verdict};
use crate::notice::Notice;
use crate::parts::{Cx, Own, Peers, Shares, Vos};
use crate::quota::rights::RightsHandler;
use crate::store::{Table, Write, vo_key};
use crate::tickets::Ticket;
use crate::trees::warn_of_documents;
use crate::usage::UsageHandler;

pub(crate) struct DocumentHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
    pub(crate) peers: &'a mut Peers,
}

impl DocumentHandler<'_> {
    fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(self.cx, self.own, self.vos, self.shares)
    }

    fn rights(&mut self) -> RightsHandler<'_> {
        RightsHandler::new(self.cx, self.own, self.vos)
    }

    /// Takes a document that somebody hands in here, and pushes it to all members.
    pub(crate) fn take_handed_in(
        &mut self,
        now: Now,
        ticket: Ticket,
        by: &str,
        document: Option<Document>,
    ) {
        let reply = |result| Effect::Reply {
            ticket,
            reply: Reply::Published(result),
        };
        if mutated!(DocumentDropped) {
            return self.cx.effects.push(reply(Ok("it is adopted".to_owned())));
        }
        let brings = |vo: &VoId, document: &Document| self.vos.brings(*vo, document.vo());
        let document = document.filter(|document| self.vos.keys().any(|vo| brings(vo, document)));
        let adopted = document.map(|document| {
            if self.vos.keeps_to_itself(&document) {
                return Err(DocumentRefused::Unread);
            }
            let adopted = self.adopt(now, &document, BroughtBy::user(by))?;
            if adopted != Adopted::Known {
                // Of two forms of one version both: others prove by it what the keys' holders did.
                self.push_document(&document);
            }
            Ok((adopted, document))
        });
        let result = match adopted.unwrap_or(Err(DocumentRefused::Foreign)) {
            Ok((Adopted::InForce, document)) => Ok(format!("{document} is adopted")),
            Ok((Adopted::Known, _)) => Ok("it was known already".to_owned()),
            Ok((Adopted::Concurrent(alarm), document)) if alarm.in_force() == document.hash() => {
                Ok(format!("{document} is adopted; but {alarm}"))
            }
            Ok((Adopted::Concurrent(alarm), _)) => Err(format!("another form is: {alarm}")),
            Err(refusal) => Err(refusal.to_string()),
        };
        self.cx.effects.push(reply(result));
    }

    /// Pushes a document to all who may have it.
    fn push_document(&mut self, document: &Document) {
        // A longer one than others pass on at once goes to them in the next exchange.
        if document.bytes().len() > PUSH_BYTES_MAX {
            return;
        }
        let bytes = serde_bytes::ByteBuf::from(document.bytes().to_vec());
        let bytes = Push::Document(bytes).to_bytes();
        if bytes.len() > PUSH_BYTES_MAX {
            return;
        }
        for (vo, held) in self.vos.iter() {
            if *vo == document.vo() || held.shows(document.hash()) {
                let (vo, bytes) = (*vo, bytes.clone());
                self.cx.effects.push(Effect::Push { vo, bytes });
            }
        }
    }

    /// Takes a document that a peer has sent. Says whether a push of it is passed on.
    pub(crate) fn absorb_document(
        &mut self,
        now: Now,
        from: SiteId,
        vo: VoId,
        document: Option<Document>,
    ) -> Verdict {
        let document = document.filter(|document| self.vos.brings(vo, document.vo()));
        let adopted = document.map(|document| self.adopt(now, &document, BroughtBy::Peer(from)));
        match adopted.unwrap_or(Err(DocumentRefused::Foreign)) {
            Ok(Adopted::Known) => {}
            Ok(_) => return Verdict::Accept,
            Err(refusal) => self.cx.refused(now.mono, vo, from, &refusal.to_string()),
        }
        Verdict::Ignore
    }

    fn snapshot_of(&self, vo: VoId) -> Option<ContentHash> {
        let held = self.vos.policies_of(vo)?.snapshot()?;
        Some(held.hash())
    }

    /// Keeps a document that is adopted, or that shows that its signers have signed two, and with it the memory against
    /// rollback.
    fn adopt(
        &mut self,
        now: Now,
        document: &Document,
        by: BroughtBy,
    ) -> Result<Adopted, DocumentRefused> {
        let vo = document.vo();
        let charter_of = |site: &Self| {
            let policies = site.vos.policies_of(vo);
            policies.and_then(VoPolicies::charter).map(Verified::hash)
        };
        let (charter, snapshot) = (charter_of(self), self.snapshot_of(vo));
        let adopted = match (self.vos.members.get_mut(&vo), self.vos.read.get_mut(&vo)) {
            (Some(held), _) => held.adopt(document.clone())?,
            // Whoever mounts a VO's policies is told nothing of its credit, which its snapshot names as well.
            (None, Some(_))
                if matches!(document, Document::Allocation(_) | Document::Snapshot(_)) =>
            {
                return Err(DocumentRefused::Foreign);
            }
            (None, Some(read)) => document.clone().adopt(Arc::make_mut(read))?,
            (None, None) => return Err(DocumentRefused::Foreign),
        };
        let is_in_force = match &adopted {
            Adopted::Known => return Ok(adopted),
            Adopted::InForce => true,
            Adopted::Concurrent(alarm) => alarm.in_force() == document.hash(),
        };
        let is_charter = charter_of(self) != charter;
        let is_first = is_charter && charter.is_none();
        let policies = self.vos.policies_of(vo).expect("it has just adopted");
        let key = vo_key(vo, document.hash().as_bytes());
        let row = Write::set(Table::Documents, key, document.bytes().to_vec());
        let seen = cbor::to_vec(&policies.highest_seen());
        let seen = Write::set(Table::Policy, vo.as_bytes().to_vec(), seen);
        // One comes every hour, so the one before goes at once. So it does where its role is in force no more.
        let replaced = snapshot.filter(|old| Some(*old) != self.snapshot_of(vo));
        let replaced =
            replaced.map(|old| Write::delete(Table::Documents, vo_key(vo, old.as_bytes())));
        let noted = is_in_force.then(|| note_adoption(&mut self.vos.adoptions, now, document, by));
        let rows = [row, seen]
            .into_iter()
            .chain(replaced.filter(|_| !mutated!(OldSnapshotStays)))
            .chain(noted.into_iter().flatten())
            .collect();
        self.cx
            .persist(mutant!(DocumentsUnwritten, rows, Vec::new()));
        if matches!(document, Document::Snapshot(_)) {
            // It changes no share, no right and no member.
            warn_of_documents(self.cx, self.vos, now);
            return Ok(adopted);
        }
        if is_in_force {
            let what = document.to_string();
            self.cx.notice(now.mono, Notice::Adopted { vo, what });
        }
        self.follow_adopted(now, document, is_charter, is_first);
        Ok(adopted)
    }

    /// Does what follows from a document that came into force, or that shows that its signers have signed two: of
    /// grants, mounts, members and the tree.
    fn follow_adopted(&mut self, now: Now, document: &Document, is_charter: bool, is_first: bool) {
        let vo = document.vo();
        if self.vos.contains_key(&vo) {
            if is_charter {
                // Members may have come back, with what was kept of them, or have gone.
                self.usage().read_members(now, vo);
            }
            if !mutated!(GrantsUnfollowed) {
                self.rights().follow_grants(vo, is_charter);
            }
            describe(&self.cx.config, self.own, self.vos, vo);
            self.peers.are_stale = !mutated!(PeersStale);
        }
        if !mutated!(MountsStale) {
            self.vos.follow_mounts();
        }
        self.shares.is_stale = !mutated!(TreeOutlivesPolicy) || is_first;
        if is_first && self.vos.contains_key(&vo) {
            let charter = self.vos.policies_of(vo).and_then(VoPolicies::charter);
            let name = charter.map(|charter| charter.body().name.clone());
            let name = name.unwrap_or_default();
            self.cx.notice(now.mono, Notice::Founded { vo, name });
        }
    }
}
