//! Fetches: the parts that a head lacks before it can come into force.
//!
//! Invariant: at most one head of each site is fetched at a time, and its declared bytes are bounded before the first
//! part is requested. Parts of a head that never becomes complete are dropped when no part has arrived for a while;
//! they are kept if a later head of the site also names them. A reply costs what its request asked for, and a search
//! for parts to request costs the number of incomplete heads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{ContentHash, Incarnation, Millis, MonoTime, SiteId, Verified, mutated};

use super::{Absorbed, Kinds, Replica};
use crate::content::Content;
use crate::head::{Head, covers};
use crate::part::{ManifestRow, PARTS_MAX, Part, PartKey, Parts};
use crate::refusal::Refusal;
use crate::wire::RequestId;

/// Time without a new part after which a fetch is given up. Parts already received are lost then, so it is longer
/// than any honest peer needs for one reply.
const PATIENCE: Millis = Millis::from_secs(60);

/// Most bytes that the heads fetched at one time lack, for one VO. Bounds memory: 2,000 members could each offer 16
/// MiB. Further heads wait, except one that has its turn.
const FETCHED_BYTES_MAX: u64 = 64 << 20;

/// How long a waiting head may be fetched before the next one has its turn. The largest head needs 56 kB/s for that,
/// unpacked.
const TURN: Millis = Millis::from_secs(300);

/// A head with missing parts.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(super) head: Arc<Verified<Head>>,
    rows: BTreeMap<PartKey, (ContentHash, u32)>,
    here: BTreeMap<ContentHash, Arc<[u8]>>,
    /// Rows of the parts that were checked on arrival. Checking 16 MB at once, when the head comes into force, would
    /// block the node for tenths of a second.
    checked: BTreeMap<PartKey, u32>,
    /// Parts to be requested, and parts of pending requests.
    missing: BTreeSet<PartKey>,
    asked: BTreeMap<RequestId, Vec<PartKey>>,
    /// Declared bytes of the parts that were missing when the head was offered.
    lacked: u64,
    offered_by: BTreeSet<SiteId>,
    until: MonoTime,
}

impl Fetch {
    /// The fetch of `head`: `held` are the contents of its site, `before` is the fetch that it replaces.
    pub(super) fn new(
        head: Arc<Verified<Head>>,
        rows: Vec<ManifestRow>,
        held: &BTreeMap<Incarnation, Content>,
        before: Option<Self>,
        now: MonoTime,
    ) -> Self {
        let rows = rows.into_iter().map(|(key, hash, len)| (key, (hash, len)));
        let mut fetch = Self {
            head,
            rows: rows.collect(),
            here: BTreeMap::new(),
            checked: BTreeMap::new(),
            missing: BTreeSet::new(),
            asked: BTreeMap::new(),
            lacked: 0,
            offered_by: BTreeSet::new(),
            until: now.after(PATIENCE),
        };
        for (key, row) in &fetch.rows {
            let named = held.values().filter_map(|content| content.parts.get(key));
            let mut named = named.filter(|part| part.hash == row.0);
            let held = named.find_map(|part| fitting(row, Some(&part.bytes)));
            let came = || fitting(row, before.as_ref()?.here.get(&row.0));
            fetch.lacked += held.map_or(u64::from(row.1), |_| 0);
            match held.or_else(came) {
                Some(part) => drop(fetch.here.insert(row.0, part.clone())),
                None => drop(fetch.missing.insert(key.clone())),
            }
        }
        if let Some(before) = before {
            let is_same = before.head.hash() == fetch.head.hash();
            fetch.continue_from(before, is_same);
        }
        fetch
    }

    /// Takes over pending requests and checks of the fetch that it replaces, as far as parts are the same.
    fn continue_from(&mut self, mut before: Self, is_same: bool) {
        before
            .checked
            .retain(|key, _| before.rows.get(key) == self.rows.get(key));
        self.checked = before.checked;
        before.asked.retain(|_, keys| {
            let stays = |key: &PartKey| before.rows.get(key) == self.rows.get(key);
            keys.retain(|key| stays(key) && self.missing.remove(key));
            !keys.is_empty()
        });
        self.asked = before.asked;
        // An offer of the same head is no progress: a peer that repeats it and sends no parts must not keep the fetch
        // alive.
        if is_same {
            (self.offered_by, self.until) = (before.offered_by, before.until);
        }
    }

    /// Whether `head` replaces this one: it is the same or a later head. Any other head comes again in a later
    /// exchange.
    pub(super) fn gives_way_to(&self, head: &Verified<Head>) -> bool {
        let is_same = self.head.hash() == head.hash();
        let is_later = head.body().incarnation > self.head.body().incarnation;
        is_same || is_later || covers(head, &self.head)
    }

    /// Notes that a peer holds all parts.
    pub(super) fn offered(&mut self, by: SiteId) {
        self.offered_by.insert(by);
    }

    /// All parts, or `None` while some are missing.
    pub(super) fn finished(&self) -> Option<Parts> {
        let is_whole = self.missing.is_empty() && self.asked.values().all(Vec::is_empty);
        if !is_whole && !mutated!(HalfReceived) {
            return None;
        }
        let seq = self.head.body().seq;
        let part = |(key, (hash, _)): (&PartKey, &(ContentHash, u32))| {
            let part = Part {
                hash: *hash,
                bytes: self.here.get(hash)?.clone(),
                rows: self.checked.get(key).copied().unwrap_or(0),
                since: seq,
            };
            Some((key.clone(), part))
        };
        let is_here = |hash| !mutated!(HalfReceived) || self.here.contains_key(hash);
        let rows = self.rows.iter().filter(|(_, (hash, _))| is_here(hash));
        rows.map(part).collect()
    }
}

/// The part, if it has the declared length. The hash decides the content; the length decides how much memory the
/// fetch was admitted for, and a manifest can declare a wrong one.
fn fitting<'a>(
    (_, len): &(ContentHash, u32),
    part: Option<&'a Arc<[u8]>>,
) -> Option<&'a Arc<[u8]>> {
    part.filter(|part| part.len() == *len as usize)
}

impl Replica {
    /// Chooses the heads whose parts are requested. Heads that lack the least go first: a site that signs much and
    /// sends no parts cannot delay those that sign less. In addition one of the waiting heads has its turn: sites
    /// that sign little, and send it slowly, cannot keep a larger head away for ever.
    pub(crate) fn let_in(&mut self, now: MonoTime) {
        let fetches = self.fetches.iter();
        let mut fetches: Vec<(u64, SiteId)> =
            fetches.map(|(site, fetch)| (fetch.lacked, *site)).collect();
        fetches.sort_unstable();
        let mut bytes = 0;
        let fits = fetches.iter().take_while(|(lacked, _)| {
            bytes += lacked;
            bytes <= FETCHED_BYTES_MAX
        });
        let fits = fits.count();
        let mut sites = fetches.into_iter().map(|(_, site)| site);
        self.let_in = sites.by_ref().take(fits).collect();
        let waiting: BTreeSet<SiteId> = sites.collect();
        let continues = |(site, until): (SiteId, MonoTime)| until > now && waiting.contains(&site);
        if !self.turn.is_some_and(continues) {
            let last = self.turn.map(|(site, _)| site);
            let next = waiting
                .iter()
                .min_by_key(|site| (Some(**site) <= last, **site));
            let Some(fetch) = next.and_then(|next| self.fetches.get_mut(next)) else {
                return;
            };
            fetch.until = now.after(PATIENCE);
            self.turn = next.map(|next| (*next, now.after(TURN)));
        }
        self.let_in.extend(self.turn.map(|(site, _)| site));
    }

    /// Names of parts to request from `peer`: about `room` bytes of parts, and no more names than a head may have.
    /// They are pending under the request's number `id` from now on.
    pub(crate) fn want(
        &mut self,
        peer: SiteId,
        id: RequestId,
        mut room: usize,
    ) -> Vec<(SiteId, Incarnation, Vec<PartKey>)> {
        let mut wanted = Vec::new();
        let mut names = PARTS_MAX;
        for site in &self.let_in {
            let fetch = self.fetches.get_mut(site);
            let Some(fetch) = fetch.filter(|fetch| fetch.offered_by.contains(&peer)) else {
                continue;
            };
            let mut keys = Vec::new();
            while room > 0
                && names > 0
                && let Some(key) = fetch.missing.pop_first()
            {
                let (_, len) = fetch.rows[&key];
                room = room.saturating_sub(len as usize + key.as_bytes().len());
                names -= 1;
                keys.push(key);
            }
            if !keys.is_empty() {
                fetch.asked.insert(id, keys.clone());
                wanted.push((*site, fetch.head.body().incarnation, keys));
            }
        }
        wanted
    }

    /// Peers that have offered a head with parts to request; a peer may occur more than once.
    pub(crate) fn offering(&self) -> impl Iterator<Item = SiteId> {
        let let_in = self.let_in.iter();
        let let_in = let_in.filter_map(|site| self.fetches.get(site));
        let short = let_in.filter(|fetch| !fetch.missing.is_empty());
        short.flat_map(|fetch| fetch.offered_by.iter().copied())
    }

    /// Whether a head of `site` is being fetched.
    pub fn is_fetching(&self, site: SiteId) -> bool {
        self.fetches.contains_key(&site)
    }

    /// Ends a request: the parts that it did not bring may be requested again. `answered_by` is the peer, if it
    /// replied.
    pub(crate) fn unask(&mut self, id: RequestId, answered_by: Option<SiteId>) {
        for fetch in self.fetches.values_mut() {
            let lost = fetch.asked.remove(&id).unwrap_or_default();
            // A peer that replied without a part has a newer head by now; the next exchange brings that head.
            if let Some(peer) = answered_by.filter(|_| !lost.is_empty()) {
                fetch.offered_by.remove(&peer);
            }
            fetch.missing.extend(lost);
        }
    }

    /// Requests nothing more from a peer that has disconnected.
    pub(crate) fn forget_offers(&mut self, peer: SiteId) {
        for fetch in self.fetches.values_mut() {
            fetch.offered_by.remove(&peer);
        }
    }

    /// Gives up fetches without progress for [`PATIENCE`].
    pub(crate) fn expire(&mut self, now: MonoTime) {
        self.fetches.retain(|_, fetch| fetch.until > now);
    }

    /// Takes the parts of a reply and ends its request. Returns the result for each head that is complete now.
    pub fn take_parts(
        &mut self,
        kinds: &dyn Kinds,
        now: MonoTime,
        from: SiteId,
        id: RequestId,
        parts: Vec<Vec<u8>>,
    ) -> Vec<Result<Absorbed, Refusal>> {
        let taken = self.take_some_parts(kinds, now, id, parts);
        self.unask(id, Some(from));
        taken
    }

    /// Takes some of the parts of a reply, in slices, so that one large reply does not block the node.
    pub fn take_some_parts(
        &mut self,
        kinds: &dyn Kinds,
        now: MonoTime,
        id: RequestId,
        parts: Vec<Vec<u8>>,
    ) -> Vec<Result<Absorbed, Refusal>> {
        let came: BTreeMap<ContentHash, Arc<[u8]>> = parts
            .into_iter()
            .map(|bytes| (ContentHash::of(&bytes), bytes.into()))
            .collect();
        let mut whole = Vec::new();
        self.fetches.retain(|_, fetch| {
            // Parts that this request did not ask for are ignored: a peer must not fill memory with data of its choice.
            let Some(asked) = fetch.asked.get_mut(&id) else {
                return true;
            };
            let before = asked.len();
            let (rows, here, checked) = (&fetch.rows, &mut fetch.here, &mut fetch.checked);
            let head = fetch.head.body();
            asked.retain(|key| {
                let row = &rows[key];
                let part = fitting(row, came.get(&row.0));
                if let Some(part) = part {
                    here.insert(row.0, part.clone());
                    // A bad part refuses the head only when it is complete, so that all members refuse it for the
                    // same reason.
                    checked.extend(
                        kinds
                            .check(head, key, part)
                            .ok()
                            .map(|rows| (key.clone(), rows)),
                    );
                }
                part.is_none()
            });
            if asked.len() < before {
                fetch.until = now.after(PATIENCE);
            }
            let parts = fetch.finished();
            let goes_on = parts.is_none();
            whole.extend(parts.map(|parts| (fetch.head.clone(), parts)));
            goes_on
        });
        let whole = whole.into_iter();
        let whole = whole.map(|(head, parts)| {
            let taken = self.complete(kinds, &head, parts)?;
            self.rest_after(head.body().site, &taken, now);
            Ok(taken)
        });
        whole.collect()
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{Now, Seq, Signed, SigningKey, VoId, WallTime};
    use serde_bytes::ByteBuf;

    use super::*;
    use crate::part::root_of;
    use crate::replica::ReceivedAt;
    use crate::wire::{HeadContent, HeadItem};

    /// Counts what was checked.
    #[derive(Default)]
    struct Any(std::cell::Cell<usize>);

    impl Kinds for Any {
        fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
            self.0.set(self.0.get() + 1);
            Ok(1)
        }

        fn check_time(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<(), String> {
            Ok(())
        }
    }

    /// A replica to which `site` has offered a head of these parts.
    fn offered(parts: &[&[u8]]) -> (Replica, SiteId) {
        let key = SigningKey::from_secret(&[1; 32]);
        let (vo, site) = (VoId::from_bytes([7; 32]), key.site_id());
        let row = |(name, part): (u8, &&[u8])| (PartKey::new(1, &[name]), ContentHash::of(part), 4);
        let rows: Vec<ManifestRow> = (0..).zip(parts).map(row).collect();
        let head = Head {
            vo,
            site,
            incarnation: Incarnation(1),
            seq: Seq(1),
            at: WallTime(1),
            root: root_of(rows.iter().map(|(key, hash, len)| (key, hash, *len))),
            covers: Vec::new(),
        };
        let head = Signed::sign(head, &[&key]).expect("a head");
        let mut replica = Replica::new(vo, SiteId::from_bytes([2; 32]));
        replica.set_members(BTreeSet::from([site]), Millis::from_secs(60));
        let (mono, wall) = (MonoTime(1), WallTime(1));
        let received = ReceivedAt {
            now: Now { mono, wall },
            tolerance: Millis(1),
        };
        let item = HeadItem {
            head: ByteBuf::from(head.bytes().to_vec()),
            content: HeadContent::Manifest(rows),
        };
        let taken = replica.take_item(&Any::default(), received, site, item);
        assert!(matches!(taken, Ok(Absorbed::Wanted)), "{taken:?}");
        replica.let_in(mono);
        (replica, site)
    }

    #[test]
    fn parts_are_checked_as_they_come_and_not_all_with_the_last_one() {
        let (mut replica, site) = offered(&[b"one.", b"two.", b"last"]);
        assert_eq!(replica.want(site, 1, 100)[0].2.len(), 3);
        let kinds = Any::default();
        let take = |replica: &mut Replica, part: &[u8]| {
            let taken = replica.take_some_parts(&kinds, MonoTime(1), 1, vec![part.to_vec()]);
            (taken.len(), kinds.0.replace(0))
        };
        let taken = [b"two.", b"one."].map(|part| take(&mut replica, part));
        assert_eq!(taken, [(0, 1), (0, 1)]);
        assert_eq!(take(&mut replica, b"last"), (1, 1));
        assert_eq!(replica.heads_of(site).count(), 1);
    }

    #[test]
    fn peers_of_whom_all_that_is_missing_is_asked_are_not_gone_through() {
        let (mut replica, site) = offered(&[b"part"]);
        assert_eq!(replica.offering().count(), 1);
        assert_eq!(replica.want(site, 1, 1).len(), 1);
        assert_eq!(replica.offering().count(), 0);
        replica.unask(1, None);
        assert_eq!(replica.offering().count(), 1);
    }
}
