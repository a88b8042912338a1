//! Documents: those that somebody hands in here, and those that peers bring.
//!
//! Invariant: a document and the memory against rollback are durable before anybody else is told of it.
//! Deliberately not here: which documents are in force (`fairmesh-policy`).

use fairmesh_gossip::wire::Push;
use fairmesh_model::{Now, SiteId, Verified, VoId, cbor, mutant, mutated};

use crate::event::{Effect, Reply, Ticket, Verdict};
use crate::notice::Notice;
use crate::site::Site;
use crate::store::{Table, Write, vo_key};
use crate::vo::DocumentRefused;

impl Site {
    /// Takes a document that somebody hands in here, and pushes it to all members.
    pub(crate) fn take_document(&mut self, now: Now, ticket: Ticket, bytes: &[u8]) {
        if mutated!(DocumentDropped) {
            let reply = Reply::Published(Ok("it is adopted".to_owned()));
            return self.effects.push(Effect::Reply { ticket, reply });
        }
        let mut result = Err(DocumentRefused::Foreign);
        for vo in self.vo_ids() {
            match self.adopt(now, vo, bytes) {
                Err(DocumentRefused::Foreign) => {}
                other => {
                    result = other.map(|what| (vo, what));
                    break;
                }
            }
        }
        let result = match result {
            Ok((vo, Some(what))) => {
                let bytes = Push::Document(serde_bytes::ByteBuf::from(bytes.to_vec())).to_bytes();
                // A longer one than others pass on at once goes to them in the next exchange.
                if bytes.len() <= fairmesh_gossip::wire::PUSH_BYTES_MAX {
                    self.effects.push(Effect::Push { vo, bytes });
                }
                Ok(format!("{what} is adopted"))
            }
            Ok((_, None)) => Ok("it was known already".to_owned()),
            Err(refusal) => Err(refusal.to_string()),
        };
        let reply = Reply::Published(result);
        self.effects.push(Effect::Reply { ticket, reply });
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

    /// Keeps a document that is adopted, and with it the memory against rollback.
    fn adopt(
        &mut self,
        now: Now,
        vo: VoId,
        bytes: &[u8],
    ) -> Result<Option<String>, DocumentRefused> {
        let held = self.vos.get_mut(&vo).ok_or(DocumentRefused::Foreign)?;
        let charter = held.policies.charter().map(Verified::hash);
        let Some((hash, what)) = held.adopt(bytes)? else {
            return Ok(None);
        };
        let is_charter = held.policies.charter().map(Verified::hash) != charter;
        let is_first = is_charter && charter.is_none();
        let key = vo_key(vo, hash.as_bytes());
        let document = Write::set(Table::Documents, key, bytes.to_vec());
        let seen = cbor::to_vec(&held.policies.highest_seen());
        let seen = Write::set(Table::Policy, vo.as_bytes().to_vec(), seen);
        let name = held
            .charter()
            .map(|charter| charter.name.clone())
            .unwrap_or_default();
        let rows = mutant!(DocumentsUnwritten, vec![document, seen], Vec::new());
        self.persist(rows);
        if is_charter {
            // Members may have come back, with what was kept of them, or have gone.
            self.read_members(now, vo);
        }
        self.describe(vo);
        self.tree_is_stale = !mutated!(TreeOutlivesPolicy) || is_first;
        self.allow_is_stale = true;
        let adopted = what.clone();
        self.notice(now.mono, Notice::Adopted { vo, what: adopted });
        if is_first {
            self.notice(now.mono, Notice::Founded { vo, name });
        }
        Ok(Some(what))
    }
}
