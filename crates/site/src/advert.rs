//! What a site says of its free CPUs to its VOs, and what it knows of the others'.
//!
//! It comes from the list of running jobs, and from what the site's scheduler tells beside it: CPUs that are free
//! or waited for. Nothing is said where the owner does not want it, or where neither has come. What is said is
//! brought up to date with every head that is signed. It makes a head of its own only where it has changed much,
//! and once in an interval: jobs that start and end make no heads.
//!
//! Invariant: an advert is one of its moment (`at`), so its age is known whenever the head was signed; each VO is
//! told of what it holds itself, and of all others in one sum only.
//! Deliberately not here: which site is best (`fairmesh-broker`), and machines (`describe`).
//! Sources: GRUBER (Euro-Par 2005), section 2; Vasques, algorithm 1.

pub(crate) mod confirm;
mod known;
pub(crate) mod own;
pub(crate) mod part;
pub(crate) mod pending;
pub(crate) mod sources;

use fairmesh_broker::Sla;
use fairmesh_model::{Millis, MonoTime, Origin, Share, SiteId, VoId, WallTime};

use part::Advert;

/// Most accounts that a scheduler names with what they wait for, and with what they have staged: bounds memory.
pub const WAITING_MAX: usize = 10_000;

/// What an owner wants his VOs to know of free CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertRules {
    /// CPUs of all machines; those of the price list, or of the charter, where it is not said.
    pub total: Option<u64>,
    /// MiB of disk for VOs' files in all: what percentages of it are of.
    pub disk_mib: Option<u64>,
    /// What is promised to VOs, by `/alias`; without it nothing binds them.
    pub sla: Option<Sla>,
    /// Shortest time between two heads that are signed for an advert's sake.
    pub interval: Millis,
    /// Of all CPUs, how many more or fewer have to be free for that.
    pub change: Share,
}

impl Default for AdvertRules {
    fn default() -> Self {
        Self {
            total: None,
            disk_mib: None,
            sla: None,
            interval: Millis::from_secs(30),
            change: Share::from_percent(5).expect("a percentage"),
        }
    }
}

/// What a scheduler tells of itself, beside its list of running jobs. All of it may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// CPUs of all machines that are up.
    pub total: Option<u64>,
    /// CPUs that nobody holds.
    pub free: Option<u64>,
    /// How long a job would wait now.
    pub wait: Option<Millis>,
    /// CPUs that waiting jobs ask for, by whose they are.
    pub waiting: Vec<(Origin, u64)>,
    /// MiB of files that lie on the site's disk, by whose they are; `None`: as it was told before.
    pub staged: Option<Vec<(Origin, u64)>>,
}

/// A call about adverts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvertCall {
    /// The scheduler's report; it replaces the one before.
    Report(Occupancy),
    /// What these sites would say now: each is asked itself.
    Confirm {
        /// The VO whose members are asked.
        vo: VoId,
        /// The members to ask; each answers for itself.
        sites: Vec<SiteId>,
    },
}

/// What it comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvertAnswer {
    /// The report counts from now on.
    Noted,
    /// What each site says, or why it does not.
    Confirmed(Vec<(SiteId, Result<Advert, String>)>),
}

/// What a VO is told, and when it was told last.
#[derive(Debug, Default)]
pub(crate) struct OwnAdvert {
    /// As of the last event that changed it.
    live: Option<Advert>,
    /// For how long the VO had been over what it may have when it was last known, and when that was.
    over: Option<(WallTime, Millis)>,
    said: Option<Advert>,
    said_at: Option<MonoTime>,
    /// Whether `live` is worth a head.
    is_news: bool,
}

impl OwnAdvert {
    /// Goes on from what was published before this start.
    pub(crate) fn restore(&mut self, earlier: Option<Advert>) {
        self.over = earlier.and_then(|of| of.over());
    }

    pub(crate) fn live(&self) -> Option<&Advert> {
        self.live.as_ref()
    }

    /// When a head is due for its sake, if one is; never before `first`.
    pub(crate) fn due(&self, interval: Millis, first: MonoTime) -> Option<MonoTime> {
        let next = self.said_at.map_or(MonoTime(0), |at| at.after(interval));
        self.is_news.then(|| next.max(first))
    }
}
