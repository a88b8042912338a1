//! What other sites say, and how much of it counts.
//!
//! A right that was sent is taken once: the receiver counts, in its own row, how much of what a site has sent it
//! has taken. It takes no more than the sender's row accounts for, by the sender's initial rights and by what
//! others have sent it; and these must account for that in turn. So sites that invent rights for each other
//! invent them for themselves only: what a coalition has sent to others is at most what it was granted and what
//! others have sent to it.
//!
//! Rows can be shown to one member and others to the next. So what was sent is taken only when every other member
//! that can be asked holds it, too, and finds that it is accounted for (docs/witnesses.md): of two members that
//! were shown the same rights one says no to the other. Whom to ask, and for how long, is the owner's.
//!
//! A site that has lost its store cannot know what it had sent by heads that nobody had received. So what counts
//! as sent is what the heads of its newest incarnation say, and an older head that comes late says nothing.
//!
//! Invariant: rows never shrink, and those of others are of slices that are granted; what was taken stays taken. What
//! one that contradicts itself has sent before can be spent where it is, and is not taken from there by others.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{CoreMillis, Incarnation, SiteId, mutant, mutated};
use serde::{Deserialize, Serialize};

use super::Ledger;
use crate::grants::SliceId;
use crate::row::{Cell, Row};

/// What a site has ever sent another of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Offer {
    /// Of which slice.
    pub slice: SliceId,
    /// By whom.
    pub from: SiteId,
    /// How much.
    pub sent: CoreMillis,
}

impl Ledger {
    /// Rows of one head, checked and whole: all of them where it is the first of its incarnation, otherwise
    /// those that differ from the head before. Of an incarnation before the newest one nothing counts any more.
    /// A site's own come back after a loss, of any incarnation; also after it has thawed, when a member that had lost
    /// them, too, has its store again. Everybody else counts the larger of each counter then, and so does the site.
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
            // Others forget in their own time, and say what they like of what nobody has granted; when it is, their heads
            // are read again.
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

    /// What others have sent this site, and account for, that is not confirmed yet.
    pub fn unconfirmed(&self) -> Vec<Offer> {
        let offers = self.offers.iter();
        let offers = offers.flat_map(|(from, of)| {
            of.iter().map(|(slice, sent)| Offer {
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
        open.filter(|of| accounts(of) || mutated!(LiarsBelieved))
            .collect()
    }

    /// Every member that can be asked has witnessed it: it is taken.
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

    /// A site has signed two heads that contradict each other: nothing that it sends is taken any more.
    pub fn distrust(&mut self, site: SiteId) {
        self.distrusted.insert(site);
    }

    /// Whether nothing is taken of what a site sends, because it has contradicted itself.
    pub fn is_distrusted(&self, site: SiteId) -> bool {
        self.distrusted.contains(&site)
    }

    /// Takes what others have sent, account for, and have not told this site alone.
    pub(super) fn take_sent(&mut self) {
        if self.is_frozen() {
            return;
        }
        let offers = self.offers.iter();
        let offers = offers.flat_map(|(site, of)| of.iter().map(|(id, sent)| (*id, *site, *sent)));
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

    /// How much more of a slice a site may have, as far as its row is known.
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

    /// The sites whose rows for a slice account for what they have sent: the largest set in which everybody
    /// does so by what those in the set have sent him.
    fn sound_sites(&self, id: SliceId) -> BTreeSet<SiteId> {
        let rows: BTreeMap<SiteId, &Row> = self.rows(id).collect();
        let trusted = rows.keys().filter(|site| !self.distrusted.contains(site));
        let mut sound: BTreeSet<SiteId> = trusted.copied().collect();
        if let Some(whole) = self.grants.whole(id).filter(|_| !mutated!(PassedBelieved)) {
            // What a site has of a part its row of the whole has to account for.
            let of_whole = self.sound_sites(whole);
            let claims = |site: &SiteId| self.row_of(whole, *site).is_some();
            sound.retain(|site| of_whole.contains(site) || !claims(site));
        }
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
        let unsound = incoming.iter().filter(|(site, of)| !accounts(**site, **of));
        let mut unsound: Vec<SiteId> = unsound.map(|(site, _)| *site).collect();
        // Of those to whom a site has sent that does not account for it, and of nobody else, this is looked at again: a
        // chain of liars of which each rests on the next falls apart in one pass over their rows.
        while let Some(site) = unsound.pop() {
            if !sound.remove(&site) {
                continue;
            }
            for (cell, _) in rows[&site].cells() {
                let Cell::Sent(to) = cell else { continue };
                let Some(of) = incoming.get_mut(&to) else {
                    continue;
                };
                *of = of.saturating_sub(taken(to, site));
                if !accounts(to, *of) {
                    unsound.push(to);
                }
            }
        }
        sound
    }
}
