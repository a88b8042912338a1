//! Sites, keys and a kind of parts that counts its bytes as rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_gossip::wire::Push;
use fairmesh_gossip::{Absorbed, Head, Kinds, PartKey, ReceivedAt, Refusal, Replica, Shared};
use fairmesh_model::{
    ContentHash, Incarnation, Millis, MonoTime, Now, Role, Seq, Signed, SigningKey, SiteId,
    Verified, VoId, WallTime,
};

pub(crate) const VO: VoId = VoId::from_bytes([7; 32]);
pub(crate) const HISTORY: Millis = Millis::from_secs(90 * 86_400);

pub(crate) fn key(site: u8) -> SigningKey {
    SigningKey::from_secret(&[site + 1; 32])
}

pub(crate) fn site(site: u8) -> SiteId {
    key(site).site_id()
}

/// A kind whose parts are never wrong but where they begin with `!`.
pub(crate) struct Plain;

impl Kinds for Plain {
    fn check(&self, _: &Head, _: &PartKey, bytes: &[u8]) -> Result<u32, String> {
        if bytes.first() == Some(&b'!') {
            return Err("a part that no honest site signs".to_owned());
        }
        Ok(u32::try_from(bytes.len()).expect("short"))
    }
}

pub(crate) fn head(
    of: u8,
    incarnation: u64,
    seq: u64,
    root: u8,
    covers: &[(u64, u64)],
) -> Arc<Verified<Head>> {
    let key = key(of);
    let covers = covers
        .iter()
        .map(|(incarnation, seq)| (Incarnation(*incarnation), Seq(*seq)));
    let body = Head {
        vo: VO,
        site: key.site_id(),
        incarnation: Incarnation(incarnation),
        seq: Seq(seq),
        at: WallTime(seq),
        root: ContentHash::from_bytes([root; 32]),
        covers: covers.collect(),
    };
    let signed = Signed::sign(body, &[&key])
        .and_then(|signed| signed.verify(&[&Role::single(key.site_id())]));
    Arc::new(signed.expect("verifies"))
}

pub(crate) fn received(mono: u64) -> ReceivedAt {
    ReceivedAt {
        now: Now {
            mono: MonoTime(mono),
            wall: WallTime(1_000_000 + mono),
        },
        tolerance: Millis(1_000),
    }
}

/// What one node holds of the one VO.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) replica: Replica,
}

impl Node {
    pub(crate) fn new(own: u8, members: u8) -> Self {
        let mut replica = Replica::new(VO, site(own));
        let members: BTreeSet<SiteId> = (0..members).map(site).collect();
        replica.set_members(members, HISTORY);
        Self { replica }
    }

    /// Signs `changes`; the push.
    pub(crate) fn publish(
        &mut self,
        own: u8,
        incarnation: u64,
        changes: &[(u8, Option<&[u8]>)],
    ) -> Vec<u8> {
        self.publish_at(own, incarnation, 1_000_000, changes)
    }

    pub(crate) fn publish_at(
        &mut self,
        own: u8,
        incarnation: u64,
        at: u64,
        changes: &[(u8, Option<&[u8]>)],
    ) -> Vec<u8> {
        let changes = changes
            .iter()
            .map(|(name, bytes)| (PartKey::new(1, &[*name]), bytes.map(<[u8]>::to_vec)));
        let (incarnation, at) = (Incarnation(incarnation), WallTime(at));
        let changes = changes.collect();
        self.replica
            .publish(&Plain, &key(own), incarnation, at, changes)
            .1
    }

    pub(crate) fn take(&mut self, push: &[u8]) -> Result<Absorbed, Refusal> {
        self.take_from(site(0), received(0), push)
    }

    pub(crate) fn take_from(
        &mut self,
        from: SiteId,
        received: ReceivedAt,
        push: &[u8],
    ) -> Result<Absorbed, Refusal> {
        let (head, delta) = match Push::from_bytes(push) {
            Ok(Push::Head(head, delta)) => (head, delta),
            Ok(Push::Next(next)) => return self.replica.take_next(&Plain, received, from, &next),
            _ => panic!("a push of a head"),
        };
        let delta = delta.as_ref().map(|delta| delta.as_slice());
        self.replica.take_push(&Plain, received, from, &head, delta)
    }

    /// All that is held: of each site its heads, and the forms of each part.
    pub(crate) fn holds(&self) -> BTreeMap<SiteId, BTreeMap<PartKey, Vec<Vec<u8>>>> {
        let sites: BTreeSet<SiteId> = self.replica.heads().map(|head| head.body().site).collect();
        let of = |site: SiteId| {
            let keys = self.replica.part_keys(site).into_iter();
            keys.map(|key| {
                let forms = self.replica.variants(site, &key).into_iter();
                let forms: Vec<Vec<u8>> = forms.map(|bytes| bytes.to_vec()).collect();
                (key, forms)
            })
            .collect()
        };
        sites.into_iter().map(|site| (site, of(site))).collect()
    }
}

impl Shared for Node {
    fn replica(&self) -> &Replica {
        &self.replica
    }

    fn replica_mut(&mut self) -> &mut Replica {
        &mut self.replica
    }

    fn documents_digest(&self) -> ContentHash {
        ContentHash::from_bytes([0; 32])
    }

    fn documents(&self) -> Vec<(ContentHash, Arc<[u8]>)> {
        Vec::new()
    }

    fn is_founded(&self) -> bool {
        true
    }

    fn charters(&self) -> Vec<(ContentHash, Arc<[u8]>)> {
        Vec::new()
    }

    fn is_former_member(&self, _: SiteId) -> bool {
        false
    }
}
