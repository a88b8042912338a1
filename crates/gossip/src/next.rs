//! A head as the difference from the head before it.
//!
//! A signed head takes 290 bytes. Its VO, its site (twice), its incarnation and its form are those of the head
//! before. A receiver that holds that head needs only the root, the time and the signature: 120 bytes. From these it
//! rebuilds the signed document byte for byte.
//!
//! Invariant: a rebuilt head is the one that was signed, or its signature does not verify.

use fairmesh_model::{ContentHash, KeyId, Millis, Seq, Signed, SiteId, Verified, cbor};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::content::Delta;
use crate::head::Head;
use crate::part::PartKey;

/// A head in terms of the one before it in its incarnation, and what changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHead(
    /// The first bytes of its site's name.
    u64,
    /// The first bytes of the hash of the head before.
    u32,
    /// How much later it was signed, milliseconds.
    u64,
    /// Its root; where nothing changed, that of the head before.
    Option<ContentHash>,
    /// Its signature.
    ByteBuf,
    /// Parts that changed, as patches on what they were.
    Vec<(PartKey, ByteBuf)>,
    /// Parts that went.
    Vec<PartKey>,
);

impl NextHead {
    /// `head` as the difference from `before`; `None` if more differs than a `NextHead` can express.
    pub(crate) fn new(before: &Verified<Head>, head: &Signed<Head>, delta: &Delta) -> Option<Self> {
        let (old, new) = (before.body(), head.claimed());
        let later = new.at.since(old.at);
        let root = (new.root != old.root).then_some(new.root);
        // Built as the receiver will build it: whatever that does not reproduce (a new `covers`, say) is pushed whole.
        if after(old, later, root) != *new {
            return None;
        }
        let (_, signature) = head.signatures().next()?;
        Some(Self(
            site_tag(new.site),
            tag_of(before.hash()),
            later.0,
            root,
            ByteBuf::from(signature.to_vec()),
            delta.patches.clone(),
            delta.gone.clone(),
        ))
    }

    /// Whether it may be a head of `site`. Several sites can share the 8 bytes; the signature decides.
    pub(crate) fn names(&self, site: SiteId) -> bool {
        self.0 == site_tag(site)
    }

    /// The lowest site id with its 8 bytes, to find candidates by a range look-up.
    pub(crate) fn first_site(&self) -> SiteId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.0.to_be_bytes());
        SiteId::from_bytes(bytes)
    }

    /// Its root; `None` if it is that of the head before.
    pub(crate) fn root(&self) -> Option<ContentHash> {
        self.3
    }

    /// The head, if `before`, which has that hash, is the head before it. The signature is not checked.
    pub fn put_together(&self, before: &Head, hash: ContentHash) -> Option<Signed<Head>> {
        if !self.names(before.site) || self.1 != tag_of(hash) {
            return None;
        }
        let head = after(before, Millis(self.2), self.3);
        let key = KeyId::from_bytes(*head.site.as_bytes());
        Signed::assemble(&head, &[(key, &self.4)]).ok()
    }

    /// Bytes of its patches and part names, packed.
    pub fn changed_bytes(&self) -> usize {
        let patches = self.5.iter();
        let patches: usize = patches
            .map(|(key, patch)| key.as_bytes().len() + patch.len())
            .sum();
        patches + self.6.iter().map(|key| key.as_bytes().len()).sum::<usize>()
    }

    /// The delta from `before`, encoded as a replica logs it.
    pub fn delta(&self, before: &Head) -> Vec<u8> {
        cbor::to_vec(&Delta {
            base: (before.incarnation, before.seq),
            patches: self.5.clone(),
            gone: self.6.clone(),
        })
    }
}

fn after(before: &Head, later: Millis, root: Option<ContentHash>) -> Head {
    Head {
        // Saturating, because `before` may be a liar's head; the signature then fails.
        seq: Seq(before.seq.0.saturating_add(1)),
        at: before.at.after(later),
        root: root.unwrap_or(before.root),
        ..before.clone()
    }
}

fn site_tag(site: SiteId) -> u64 {
    let first = site.as_bytes().first_chunk().expect("32 bytes hold eight");
    u64::from_be_bytes(*first)
}

/// The first bytes of a head's hash, by which the head before is found. A site can make two heads with the same tag; a
/// head rebuilt from the wrong one does not verify.
fn tag_of(hash: ContentHash) -> u32 {
    let first = hash.as_bytes().first_chunk().expect("32 bytes hold four");
    u32::from_be_bytes(*first)
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{Incarnation, Role, SigningKey, VoId, WallTime};

    use super::*;
    use crate::wire::Push;

    fn signed(head: Head, key: &SigningKey) -> Signed<Head> {
        Signed::sign(head, &[key]).expect("a head")
    }

    #[test]
    fn a_next_head_is_put_together_byte_for_byte_and_takes_less_than_half() {
        let key = SigningKey::from_secret(&[7; 32]);
        let first = Head {
            vo: VoId::from_bytes([1; 32]),
            site: key.site_id(),
            incarnation: Incarnation(0x1234_5678_9abc_def0),
            seq: Seq(900),
            at: WallTime(1_767_615_600_000),
            root: ContentHash::of(b"one"),
            covers: vec![(Incarnation(1), Seq(5))],
        };
        let next = Head {
            seq: Seq(901),
            at: first.at.after(Millis(11_000)),
            root: ContentHash::of(b"two"),
            ..first.clone()
        };
        let (before, head) = (signed(first, &key), signed(next, &key));
        let role = Role::single(key.site_id());
        let before = before.verify(&[&role]).expect("signed");
        let delta = Delta {
            base: (Incarnation(0), Seq(0)),
            patches: Vec::new(),
            gone: Vec::new(),
        };
        let told = NextHead::new(&before, &head, &delta).expect("it follows");
        let again = told.put_together(before.body(), before.hash());
        assert_eq!(again.expect("its base").bytes(), head.bytes());
        assert!(told.put_together(head.claimed(), head.hash()).is_none());
        let bytes = Push::Next(told).to_bytes().len();
        assert!(
            bytes <= 130 && bytes * 2 < head.bytes().len(),
            "{bytes} of {}",
            head.bytes().len()
        );
        let other = Head {
            covers: Vec::new(),
            ..head.claimed().clone()
        };
        assert_eq!(NextHead::new(&before, &signed(other, &key), &delta), None);
    }
}
