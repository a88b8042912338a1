//! Heads: what a site signs, and which of two heads stays.
//!
//! Lattice: a set of heads of one site in which no head covers another. A head is covered by a head of the same
//! incarnation with a higher seq (at equal seq, the lower root stays) and by a head that lists it in `covers`.
//! Joining two sets keeps the heads that neither covers, at most [`HEADS_MAX`] of the highest incarnations. `covers`
//! serves garbage collection only: a head that is contained but not listed costs memory and changes no number,
//! because contents are joined by maximum.
//!
//! Invariant: joining is commutative, associative and idempotent for heads whose `covers` is cumulative, as that of
//! every honest site is. For any other heads, two sets that were offered each other are equal.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use crdts::CvRDT;
use fairmesh_model::{
    ContentHash, Document, Incarnation, Millis, Seq, SiteId, Verified, VoId, WallTime, mutated,
};
use serde::{Deserialize, Serialize};

/// Most uncovered heads of one site that are kept. An honest site has one, and two for the moments
/// after a restored backup; a machine that was cloned adds one for each clone.
pub const HEADS_MAX: usize = 4;

/// Most heads that one head names as covered: bounds its size. The newest earlier incarnations are
/// enough, because a head that is not named only costs memory.
pub const COVERS_MAX: usize = 16;

/// What a site has published in a VO, as one signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The VO whose members receive it.
    #[serde(rename = "v")]
    pub vo: VoId,
    /// The site that signs it.
    #[serde(rename = "s")]
    pub site: SiteId,
    /// The start of the site's node that counted the content.
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    /// Counts up in an incarnation, from 1.
    #[serde(rename = "n")]
    pub seq: Seq,
    /// When it was signed, by the site's clock. Says how fresh it is; orders nothing.
    #[serde(rename = "t")]
    pub at: WallTime,
    /// Hash of the manifest ([`ManifestRow`](crate::ManifestRow)s in the order of their names).
    #[serde(rename = "r")]
    pub root: ContentHash,
    /// The last heads of earlier incarnations whose contents this one contains, ascending.
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<(Incarnation, Seq)>,
}

impl Document for Head {
    const TYPE: &'static str = "head";
    const BYTES_MAX: usize = 1_024;

    fn vo(&self) -> Option<VoId> {
        Some(self.vo)
    }

    fn validate(&self) -> Result<(), String> {
        if self.covers.len() > COVERS_MAX {
            return Err(format!("it names more than {COVERS_MAX} earlier heads"));
        }
        if !self.covers.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("the heads that it names are not in order".to_owned());
        }
        // Only earlier incarnations: two heads that cover each other would both be dropped.
        if self
            .covers
            .last()
            .is_some_and(|(last, _)| *last >= self.incarnation)
        {
            return Err("it names an incarnation that is not earlier".to_owned());
        }
        if self.seq == Seq(0) {
            return Err("its seq is 0".to_owned());
        }
        Ok(())
    }
}

/// Whether `by` makes `head`, another head of the site, superfluous.
pub fn covers(by: &Verified<Head>, head: &Verified<Head>) -> bool {
    let (mine, theirs) = (by.body(), head.body());
    if mine.incarnation == theirs.incarnation {
        let is_first = mine.seq == theirs.seq && mutated!(FirstForkStays);
        return rank(by) > rank(head) && !is_first;
    }
    // Across incarnations only an explicit entry covers: a later start from an older backup does not contain the
    // earlier start's last heads.
    let named = |(incarnation, seq): &(Incarnation, Seq)| {
        let contains = *seq >= theirs.seq || mutated!(CoversWhateverSeq);
        *incarnation == theirs.incarnation && contains
    };
    let is_later = mine.incarnation > theirs.incarnation;
    mine.covers.iter().any(named) || is_later && mutated!(LaterAlwaysCovers)
}

/// The order of the heads of one incarnation. At equal seq the lower root wins, then the lower hash: every replica must
/// keep the same one of two contradicting heads, in whatever order they arrive.
fn rank(head: &Verified<Head>) -> (Seq, std::cmp::Reverse<(ContentHash, ContentHash)>) {
    let body = head.body();
    (body.seq, std::cmp::Reverse((body.root, head.hash())))
}

/// What became of a head that was offered to a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offered {
    /// The set contains it, or a head that covers it. Nothing changed.
    Known,
    /// The set contains another head with its seq: the two prove that the site signed both.
    Forks(Arc<Verified<Head>>),
    /// The set would keep it.
    Fresh,
}

/// The uncovered heads of one site.
#[derive(Debug, Clone, Default)]
pub struct HeadSet {
    heads: BTreeMap<Incarnation, Arc<Verified<Head>>>,
    /// Heads signed longer than this before the newest are dropped, because nothing in them has weight; `None` keeps
    /// all.
    history: Option<Millis>,
}

impl HeadSet {
    /// An empty set for a VO in which usage has weight for `history`; `None` while no charter is known.
    pub fn new(history: Option<Millis>) -> Self {
        Self {
            heads: BTreeMap::new(),
            history,
        }
    }

    /// Sets how long usage has weight in the VO. Heads beyond it are dropped with the next insertion.
    pub fn set_history(&mut self, history: Millis) {
        self.history = Some(history);
    }

    /// The heads, lowest incarnation first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Verified<Head>>> {
        self.heads.values()
    }

    /// The head of an incarnation, if it is not covered.
    pub fn get(&self, incarnation: Incarnation) -> Option<&Arc<Verified<Head>>> {
        self.heads.get(&incarnation)
    }

    /// Whether the set contains no head.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The head that the site signed last, by its own clock.
    pub fn newest(&self) -> Option<&Head> {
        let heads = self.iter().map(|head| head.body());
        heads.max_by_key(|head| (head.at, head.incarnation))
    }

    /// When the newest head was signed, by the site's clock.
    pub fn newest_at(&self) -> Option<WallTime> {
        self.newest().map(|head| head.at)
    }

    /// What inserting `head` would do, without doing it: its content is not complete yet.
    pub fn judge(&self, head: &Verified<Head>) -> Offered {
        let body = head.body();
        if let Some(held) = self.heads.get(&body.incarnation) {
            let differs = held.body().seq == body.seq && held.hash() != head.hash();
            if differs && !mutated!(ForkUnseen) {
                return Offered::Forks(held.clone());
            }
        }
        // The same rule as in `insert`, so that no parts are fetched for a head that would be dropped at once.
        let too_low =
            self.heads.len() >= HEADS_MAX && self.heads.keys().next() > Some(&body.incarnation);
        if too_low || self.knows(head) || is_past(self.history, body.at, self.newest_at()) {
            Offered::Known
        } else {
            Offered::Fresh
        }
    }

    /// Joins a head into the set. Returns the incarnations whose head was dropped or replaced.
    pub fn insert(&mut self, head: Arc<Verified<Head>>) -> Vec<Incarnation> {
        if self.knows(&head) {
            return Vec::new();
        }
        let mut gone = self.take_out(|kept| covers(&head, kept));
        self.heads.insert(head.body().incarnation, head);
        // After the insertion: the new head may be the newest, which moves the horizon.
        let (history, newest) = (self.history, self.newest_at());
        gone.extend(self.take_out(|kept| is_past(history, kept.body().at, newest)));
        while self.heads.len() > HEADS_MAX && !mutated!(HeadsUnbounded) {
            gone.extend(self.heads.pop_first().map(|(lowest, _)| lowest));
        }
        gone
    }

    fn take_out(&mut self, goes: impl Fn(&Verified<Head>) -> bool) -> Vec<Incarnation> {
        let gone = self.heads.iter().filter(|(_, kept)| goes(kept));
        let gone: Vec<Incarnation> = gone.map(|(incarnation, _)| *incarnation).collect();
        self.heads
            .retain(|incarnation, _| !gone.contains(incarnation));
        gone
    }

    /// Whether the set contains the head or one that covers it.
    fn knows(&self, head: &Verified<Head>) -> bool {
        let knows = |held: &Arc<Verified<Head>>| held.hash() == head.hash() || covers(held, head);
        self.iter().any(knows)
    }
}

fn is_past(history: Option<Millis>, at: WallTime, newest: Option<WallTime>) -> bool {
    history
        .zip(newest)
        .is_some_and(|(history, newest)| newest.since(at) > history)
}

impl PartialEq for HeadSet {
    fn eq(&self, other: &Self) -> bool {
        self.heads == other.heads
    }
}

impl Eq for HeadSet {}

impl CvRDT for HeadSet {
    type Validation = Infallible;

    fn validate_merge(&self, _: &Self) -> Result<(), Infallible> {
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for head in other.heads.into_values() {
            self.insert(head);
        }
    }
}
