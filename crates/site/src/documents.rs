//! Documents: those that somebody hands in here, and those that peers bring.
//!
//! Invariant: a document and the memory against rollback are durable before anybody else is told of it.
//! Deliberately not here: which documents are in force (`fairmesh-policy`).

use fairmesh_gossip::wire::Push;
use fairmesh_model::{ContentHash, Now, SiteId, Verified, VoId, cbor, mutant, mutated};
use fairmesh_policy::VoPolicies;

use crate::event::{Effect, Reply, Ticket, Verdict};
use crate::mounts::vo_named;
use crate::notice::Notice;
use crate::site::Site;
use crate::store::{Table, Write, vo_key};
use crate::vo::{DocumentRefused, adopt};

impl Site {
    /// Takes a document that somebody hands in here, and pushes it to all members.
    pub(crate) fn take_document(&mut self, now: Now, ticket: Ticket, bytes: &[u8]) {
        if mutated!(DocumentDropped) {
            let reply = Reply::Published(Ok("it is adopted".to_owned()));
            return self.effects.push(Effect::Reply { ticket, reply });
        }
        let of = vo_named(bytes);
        let mut vos = self.vo_ids();
        // A VO's own document first; else one that mounts its policy may read it.
        vos.sort_by_key(|vo| Some(*vo) != of);
        let mut result = Err(DocumentRefused::Foreign);
        for vo in vos {
            match self.adopt(now, vo, bytes) {
                Err(DocumentRefused::Foreign) => {}
                other => {
                    result = other;
                    break;
                }
            }
        }
        let result = match result {
            Ok(Some((hash, what))) => {
                self.push_document(of, hash, bytes);
                Ok(format!("{what} is adopted"))
            }
            Ok(None) => Ok("it was known already".to_owned()),
            Err(refusal) => Err(refusal.to_string()),
        };
        let reply = Reply::Published(result);
        self.effects.push(Effect::Reply { ticket, reply });
    }

    /// Pushes a document to all who may have it.
    fn push_document(&mut self, of: Option<VoId>, hash: ContentHash, document: &[u8]) {
        let bytes = Push::Document(serde_bytes::ByteBuf::from(document.to_vec())).to_bytes();
        // A longer one than others pass on at once goes to them in the next exchange.
        if bytes.len() > fairmesh_gossip::wire::PUSH_BYTES_MAX {
            return;
        }
        for (vo, held) in &self.vos {
            if Some(*vo) == of || held.shows(hash) {
                let (vo, bytes) = (*vo, bytes.clone());
                self.effects.push(Effect::Push { vo, bytes });
            }
        }
    }

    /// Takes a document that a peer has sent. Says whether a push of it is passed on.
    pub(crate) fn absorb_document(
        &mut self,
        now: Now,
        from: SiteId,
        vo: VoId,
        bytes: &[u8],
    ) -> Verdict {
        match self.adopt(now, vo, bytes) {
            Ok(Some(_)) => return Verdict::Accept,
            Ok(None) => {}
            Err(refusal) => self.refused(now.mono, vo, from, &refusal.to_string()),
        }
        Verdict::Ignore
    }

    /// Keeps a document that is adopted, and with it the memory against rollback. It is one of `vo`, or of a VO
    /// whose policies that one mounts.
    fn adopt(
        &mut self,
        now: Now,
        vo: VoId,
        bytes: &[u8],
    ) -> Result<Option<(ContentHash, String)>, DocumentRefused> {
        let vo = self.vo_of_document(vo, bytes);
        let charter_of = |site: &Self| {
            let policies = site.policies_of(vo);
            policies.and_then(VoPolicies::charter).map(Verified::hash)
        };
        let charter = charter_of(self);
        let adopted = match (self.vos.get_mut(&vo), self.read.get_mut(&vo)) {
            (Some(held), _) => held.adopt(bytes)?,
            (None, Some(read)) => adopt(read, bytes)?,
            (None, None) => return Err(DocumentRefused::Foreign),
        };
        let Some((hash, what)) = adopted else {
            return Ok(None);
        };
        let is_charter = charter_of(self) != charter;
        let is_first = is_charter && charter.is_none();
        let policies = self.policies_of(vo).expect("it has just adopted");
        let key = vo_key(vo, hash.as_bytes());
        let document = Write::set(Table::Documents, key, bytes.to_vec());
        let seen = cbor::to_vec(&policies.highest_seen());
        let seen = Write::set(Table::Policy, vo.as_bytes().to_vec(), seen);
        let name = policies
            .charter()
            .map(|charter| charter.body().name.clone())
            .unwrap_or_default();
        let rows = mutant!(DocumentsUnwritten, vec![document, seen], Vec::new());
        self.persist(rows);
        if self.vos.contains_key(&vo) {
            if is_charter {
                // Members may have come back, with what was kept of them, or have gone.
                self.read_members(now, vo);
            }
            self.describe(vo);
            self.allow_is_stale = true;
        }
        self.follow_mounts();
        self.tree_is_stale = !mutated!(TreeOutlivesPolicy) || is_first;
        let adopted = what.clone();
        self.notice(now.mono, Notice::Adopted { vo, what: adopted });
        if is_first && self.vos.contains_key(&vo) {
            self.notice(now.mono, Notice::Founded { vo, name });
        }
        Ok(Some((hash, what)))
    }
}
