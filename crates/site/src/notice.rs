//! What an operator may want to know, as data: said once when it changes, never every time.

use std::fmt;

use fairmesh_model::{Millis, SiteId, VoId};

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Look at it this week.
    Warning,
    /// Look at it today.
    Error,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// A VO's first charter has come: the site takes part from now on.
    Founded {
        /// The VO.
        vo: VoId,
        /// Its name.
        name: String,
    },
    /// A document is in force from now on.
    Adopted {
        /// The VO.
        vo: VoId,
        /// Which document.
        what: String,
    },
    /// Something about a VO's documents is not as it should be.
    Policy {
        /// The VO.
        vo: VoId,
        /// What.
        what: String,
    },
    /// A document or a counter was refused.
    Refused {
        /// The VO.
        vo: VoId,
        /// Who sent it.
        from: SiteId,
        /// Why.
        why: String,
    },
    /// A site's clock is off by more than the tolerance.
    ClockOff {
        /// The site.
        site: SiteId,
        /// By how much.
        by: Millis,
        /// Whether it is ahead of ours.
        ahead: bool,
    },
    /// Our own clock is ahead of all peers' by more than the tolerance: the site goes by theirs.
    OwnClockAhead {
        /// By how much.
        by: Millis,
    },
    /// A site has signed two batches with one seq; what it said from there on is not counted.
    Forked {
        /// The VO.
        vo: VoId,
        /// The site.
        site: SiteId,
    },
    /// Peers hold more of our own counters than we do: the store was lost or is an old backup.
    Recovered {
        /// The VO.
        vo: VoId,
    },
    /// The site's own feed reports more than the charter declares for it. The excess counts here
    /// and is not published, because nobody would believe it.
    OverCapacity {
        /// The VO.
        vo: VoId,
        /// What was too much.
        why: String,
    },
    /// A row of the store could not be read and was left out.
    BadRow {
        /// Which.
        what: String,
    },
}

impl Notice {
    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Founded { .. } | Self::Adopted { .. } => Severity::Info,
            Self::Policy { .. }
            | Self::Refused { .. }
            | Self::ClockOff { .. }
            | Self::OverCapacity { .. }
            | Self::Recovered { .. } => Severity::Warning,
            Self::OwnClockAhead { .. } | Self::Forked { .. } | Self::BadRow { .. } => {
                Severity::Error
            }
        }
    }

    /// A stable name for logs and alerts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Founded { .. } => "vo-founded",
            Self::Adopted { .. } => "document-adopted",
            Self::Policy { .. } => "policy-warning",
            Self::Refused { .. } => "refused",
            Self::ClockOff { .. } => "clock-off",
            Self::OwnClockAhead { .. } => "own-clock-ahead",
            Self::Forked { .. } => "site-forked",
            Self::Recovered { .. } => "counters-recovered",
            Self::OverCapacity { .. } => "over-capacity",
            Self::BadRow { .. } => "bad-row",
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Founded { vo, name } => write!(f, "takes part in VO {name} ({})", vo.short()),
            Self::Adopted { vo, what } => write!(f, "VO {}: {what} is in force", vo.short()),
            Self::Policy { vo, what } => write!(f, "VO {}: {what}", vo.short()),
            Self::Refused { vo, from, why } => {
                write!(f, "VO {}: refused from {}: {why}", vo.short(), from.short())
            }
            Self::ClockOff { site, by, ahead } => {
                let side = if *ahead { "ahead of" } else { "behind" };
                write!(
                    f,
                    "the clock of site {} is {} s {side} ours",
                    site.short(),
                    by.0 / 1_000
                )
            }
            Self::OwnClockAhead { by } => write!(
                f,
                "this machine's clock is {} s ahead of all peers': the site goes by theirs until it is set right",
                by.0 / 1_000
            ),
            Self::Forked { vo, site } => write!(
                f,
                "VO {}: site {} signed two different batches with one number; nothing from there on is counted",
                vo.short(),
                site.short()
            ),
            Self::Recovered { vo } => write!(
                f,
                "VO {}: peers hold newer counters of this site than its store; it goes on under a new incarnation",
                vo.short()
            ),
            Self::OverCapacity { vo, why } => write!(
                f,
                "VO {}: {why}; the excess is not published: is this site's capacity in the charter right?",
                vo.short()
            ),
            Self::BadRow { what } => {
                write!(f, "a row of the store is damaged and was left out: {what}")
            }
        }
    }
}
