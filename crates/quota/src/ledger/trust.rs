//! Rows of other sites, and how much of them counts.
//!
//! Sent rights are taken once: the receiver counts in its own row how much it has taken of what a site has sent. It
//! takes no more than the sender's row accounts for, by the sender's initial rights and by what others have sent to
//! it, which must be accounted for in turn. So sites that invent rights for each other invent them for themselves
//! only: a coalition cannot send more to others than it was granted and others have sent to it.
//!
//! A site can show different rows to different members. So sent rights are taken only when every other member that
//! can be asked also holds the row and finds it sound (docs/witnesses.md): of two members to whom the same rights
//! were shown, one refuses the other. The caller decides whom to ask and for how long.
//!
//! A site that has lost its store cannot know what it had sent by heads that nobody received. So only the heads of its
//! newest incarnation count, and an older head that arrives late is ignored.
//!
//! Invariant: rows never shrink, those of other sites are of granted slices, and taken rights stay taken. What a site
//! sent before it contradicted itself can be spent where it is; no site takes it from there.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{CoreMillis, Incarnation, SiteId, mutant, mutated};
use serde::{Deserialize, Serialize};

use super::Ledger;
use crate::grants::SliceId;
use crate::row::{Cell, Row};

/// Rights of a slice that one site has sent another, in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Offer {
    /// The slice of the rights.
    pub slice: SliceId,
    /// The sender.
    pub from: SiteId,
    /// Core-milliseconds sent, in total.
    pub sent: CoreMillis,
}

impl Ledger {
    /// Joins rows of one head, checked and complete: all rows if it is the first head of its incarnation, otherwise
    /// those that differ from the head before. Rows of an incarnation before the newest do not count. The exception
    /// is this site's own rows, which come back after a loss from any incarnation, even after the thaw, when a member
    /// that had lost them has its store again: all other members count the larger counters then, and so must this
    /// site.
    pub fn receive(
        &mut self,
        site: SiteId,
        incarnation: Incarnation,
        rows: impl IntoIterator<Item = (SliceId, Row)>,
    ) {
        let newest = self.newest.entry(site).or_default();
        if *newest < incarnation {
            *newest = incarnation;
            self.offers.remove(&site);
        }
        let is_late = *newest > incarnation && site != self.me;
        if is_late && !mutated!(LateHeadsOffer) {
            return;
        }
        for (id, row) in rows {
            // Others may publish rows that are forgotten here, or rows of slices that nobody has granted: keeping
            // those would let a member fill memory. When a slice is granted later, the heads are read again.
            let is_granted = site == self.me || self.grants.slice(id).is_some();
            if self.is_past(id) || !is_granted {
                continue;
            }
            let sent = row.get(Cell::Sent(self.me));
            if sent > 0 {
                let offer = self.offers.entry(site).or_default().entry(id).or_default();
                *offer = sent.max(*offer);
            }
            self.rows
                .entry(id)
                .or_default()
                .entry(site)
                .or_default()
                .join(row);
            if site == self.me {
                self.changes.rows.insert(id);
            }
        }
        if site == self.me && !self.is_frozen() {
            self.find_lost_holds();
        }
        self.take_sent();
    }

    /// Offers to this site that their senders account for and witnesses have not confirmed yet.
    pub fn unconfirmed(&self) -> Vec<Offer> {
        let offers = self.offers.iter();
        let offers = offers.flat_map(|(from, slices)| {
            slices.iter().map(|(slice, sent)| Offer {
                slice: *slice,
                from: *from,
                sent: CoreMillis(*sent),
            })
        });
        let is_open = |offer: &Offer| {
            let taken = self.get(offer.slice, Cell::Taken(offer.from));
            let confirmed = self.confirmed.get(&(offer.from, offer.slice));
            offer.sent.0 > taken.max(confirmed.copied().unwrap_or(0))
                && self.grants.slice(offer.slice).is_some()
                && !self.distrusted.contains(&offer.from)
                && !self.is_frozen()
        };
        let mut sound: BTreeMap<SliceId, BTreeSet<SiteId>> = BTreeMap::new();
        let mut accounts = |offer: &Offer| {
            let id = offer.slice;
            let sound = sound.entry(id).or_insert_with(|| self.sound_sites(id));
            sound.contains(&offer.from)
        };
        let open = offers.filter(is_open);
        open.filter(|offer| accounts(offer) || mutated!(LiarsBelieved))
            .collect()
    }

    /// Takes an offer that every member that can be asked has witnessed.
    pub fn confirm(&mut self, offer: &Offer) {
        let confirmed = self.confirmed.entry((offer.from, offer.slice)).or_default();
        *confirmed = offer.sent.0.max(*confirmed);
        self.take_sent();
    }

    /// Whether this site holds that `offer` was made to `to`, and that its sender accounts for it. Once it has said
    /// so it takes nothing that contradicts it.
    pub fn witnesses(&self, to: SiteId, offer: &Offer) -> bool {
        let id = offer.slice;
        let row = self.row_of(id, offer.from);
        let holds = row.is_some_and(|row| row.get(Cell::Sent(to)) >= offer.sent.0);
        let is_sound = || self.sound_sites(id).contains(&offer.from);
        self.is_past(id)
            || (holds || mutated!(UnseenWitnessed)) && (is_sound() || mutated!(UnsoundWitnessed))
    }

    /// Takes nothing more that `site` sends: it has signed two heads that contradict each other, so it may have sent
    /// the same rights twice.
    pub fn distrust(&mut self, site: SiteId) {
        self.distrusted.insert(site);
    }

    /// Whether nothing more is taken of what `site` sends, because of a proof against it.
    pub fn is_distrusted(&self, site: SiteId) -> bool {
        self.distrusted.contains(&site)
    }

    /// Takes offers that are accounted for and confirmed.
    pub(super) fn take_sent(&mut self) {
        if self.is_frozen() {
            return;
        }
        let offers = self.offers.iter();
        let offers =
            offers.flat_map(|(site, slices)| slices.iter().map(|(id, sent)| (*id, *site, *sent)));
        let more = |(id, site, sent): (SliceId, SiteId, u64)| {
            let confirmed = self.confirmed.get(&(site, id)).copied().unwrap_or(0);
            let sent = mutant!(UnconfirmedTaken, sent.min(confirmed), sent);
            let more = sent.saturating_sub(self.get(id, Cell::Taken(site)));
            let more = mutant!(TakenAgain, more, sent);
            (more > 0 && self.grants.slice(id).is_some()).then_some((id, site, more))
        };
        let offers: Vec<_> = offers.filter_map(more).collect();
        let mut sound: BTreeMap<SliceId, BTreeSet<SiteId>> = BTreeMap::new();
        for (id, site, more) in offers {
            let sound = sound.entry(id).or_insert_with(|| self.sound_sites(id));
            let has_room = self
                .own_row(id)
                .is_none_or(|own| own.has_room_for(Cell::Taken(site)));
            let room = self.room_of(id, self.me);
            let more = mutant!(AtMostUnkept, more.min(room), more);
            if has_room && (sound.contains(&site) || mutated!(LiarsBelieved)) {
                self.add(id, Cell::Taken(site), more);
            }
        }
    }

    /// How much more of a slice a site may have under the allocation's `at_most`, by its last known row.
    pub(super) fn room_of(&self, id: SliceId, site: SiteId) -> u64 {
        let most = self.grants.at_most(id, site);
        if most == u64::MAX {
            return most;
        }
        let (taken, sent) = match self.row_of(id, site) {
            Some(row) => (row.taken(), row.sent()),
            None => (0, 0),
        };
        let has = (u128::from(self.granted(id, site)) + taken).saturating_sub(sent);
        u64::try_from(u128::from(most).saturating_sub(has)).unwrap_or(u64::MAX)
    }

    /// The sound sites: those whose rows for a slice account for what they have sent. It is the largest set in which
    /// each site's row is accounted for by what sites in the set have sent to it.
    fn sound_sites(&self, id: SliceId) -> BTreeSet<SiteId> {
        let rows: BTreeMap<SiteId, &Row> = self.rows(id).collect();
        let trusted = rows.keys().filter(|site| !self.distrusted.contains(site));
        let mut sound: BTreeSet<SiteId> = trusted.copied().collect();
        if let Some(whole) = self.grants.whole(id).filter(|_| !mutated!(PassedBelieved)) {
            // A site that invents rights of the whole could pass them on, so it must be sound there too.
            let of_whole = self.sound_sites(whole);
            let claims = |site: &SiteId| self.row_of(whole, *site).is_some();
            sound.retain(|site| of_whole.contains(site) || !claims(site));
        }
        // The smaller of what the receiver claims to have taken and what the sender shows as sent.
        let taken = |site: SiteId, from: SiteId| -> u128 {
            let amount = rows[&site].get(Cell::Taken(from));
            let sent = rows[&from].get(Cell::Sent(site));
            mutant!(SendersUnasked, amount.min(sent), amount).into()
        };
        let incoming = |site: SiteId| {
            let from = rows[&site].cells().filter_map(|(cell, _)| match cell {
                Cell::Taken(from) if sound.contains(&from) => Some(taken(site, from)),
                _ => None,
            });
            (site, from.sum())
        };
        let mut incoming: BTreeMap<SiteId, u128> = sound.iter().copied().map(incoming).collect();
        let accounts = |site: SiteId, incoming: u128| {
            let row = rows[&site];
            let granted = self.granted(id, site);
            let has = u128::from(granted) + incoming + u128::from(row.get(Cell::Returned));
            let spent = u128::from(row.get(Cell::Used)) + u128::from(row.held());
            let gone = row.sent() + row.passed() + spent;
            let kept = (row.passed() + spent).saturating_sub(row.get(Cell::Returned).into());
            gone <= has && kept <= u128::from(self.grants.at_most(id, site))
        };
        let unsound = incoming
            .iter()
            .filter(|(site, sum)| !accounts(**site, **sum));
        let mut unsound: Vec<SiteId> = unsound.map(|(site, _)| *site).collect();
        // Removing a site can make the sites unsound that it has sent to, and no others. So only those are checked
        // again, and a chain of liars, each resting on the next, costs one pass over their rows.
        while let Some(site) = unsound.pop() {
            if !sound.remove(&site) {
                continue;
            }
            for (cell, _) in rows[&site].cells() {
                let Cell::Sent(to) = cell else { continue };
                let Some(sum) = incoming.get_mut(&to) else {
                    continue;
                };
                *sum = sum.saturating_sub(taken(to, site));
                if !accounts(to, *sum) {
                    unsound.push(to);
                }
            }
        }
        sound
    }
}
