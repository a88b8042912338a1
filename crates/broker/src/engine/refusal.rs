//! Why a site is left out, in words for whoever asked.
//!
//! Invariant: every refusal names the numbers that it was made of.

use std::fmt;

use fairmesh_model::{Millis, Share};

use super::Request;
use crate::view::SiteView;

/// Why a site is left out. State is unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No SLA entry for the VO.
    NoEntry,
    /// The VO has had its share of the epoch.
    Epoch {
        /// EA, in units of 10⁻⁹.
        used: u64,
        /// EP: the share of the entry.
        share: Share,
        /// Whether idle CPUs would have been given to it, had there been enough.
        would_extend: bool,
    },
    /// The VO holds as many CPUs as it may.
    Burst {
        /// BA: CPUs that the entry holds.
        held: u64,
        /// CPUs that jobs of the VO wait for there, where the engine counts them.
        waiting: u64,
        /// J: CPUs that the job asks for.
        asked: u64,
        /// BP: the limit of the entry in CPUs.
        limit: u64,
        /// Whether the last CPU of the limit is out of reach, as the published engine has it.
        strict: bool,
    },
    /// Other VOs hold too much, in the published engine's sum.
    Others {
        /// CPUs held by other VOs.
        held: u64,
        /// J: CPUs that the job asks for.
        asked: u64,
        /// TOTAL: CPUs of the site.
        total: u64,
    },
    /// More CPUs are asked for than the site has.
    TooLarge {
        /// J: CPUs that the job asks for.
        asked: u64,
        /// TOTAL: CPUs of the site.
        total: u64,
    },
    /// No machine class has what one node of the job asks for.
    FitsNowhere,
    /// No machine class meets any of the job's wishes.
    NothingMet,
    /// The files do not fit.
    Disk {
        /// MiB that the job needs.
        needed: u64,
        /// MiB that are left.
        left: u64,
    },
    /// The site has not been heard of for too long.
    Silent {
        /// Age of the newest advert; `None` if there never was one.
        age: Option<Millis>,
    },
}

/// The refusal of a job whose files do not fit.
pub(super) fn of_disk(site: &SiteView, request: &Request<'_>) -> Option<Refusal> {
    let room = site.vos.get(request.vo)?.disk;
    let needed = request.staged_mib.saturating_add(request.job.held.disk_mib);
    let left = room.left_mib()?;
    (!room.has(needed)).then_some(Refusal::Disk { needed, left })
}

impl Refusal {
    /// One word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoEntry => "no-entry",
            Self::Epoch { .. } => "epoch",
            Self::Burst { .. } => "burst",
            Self::Others { .. } => "others",
            Self::TooLarge { .. } => "too-large",
            Self::FitsNowhere => "fits-nowhere",
            Self::NothingMet => "nothing-met",
            Self::Disk { .. } => "disk",
            Self::Silent { .. } => "silent",
        }
    }
}

/// Units of 10⁻⁹ as a percentage, with the decimals that it has.
fn percent(units: u64) -> String {
    let (whole, rest) = (units / 10_000_000, units % 10_000_000);
    let text = format!("{whole}.{rest:07}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEntry => write!(f, "the VO has no SLA there"),
            Self::Epoch {
                used,
                share,
                would_extend,
            } => {
                let used = percent(*used);
                write!(f, "the VO has used {used} % of the epoch, of {share} %")?;
                match would_extend {
                    true => write!(f, ", and no CPUs are idle for it beyond that"),
                    false => Ok(()),
                }
            }
            Self::Burst {
                held,
                waiting,
                asked,
                limit,
                strict,
            } => {
                let than = if *strict { "not below" } else { "above" };
                write!(f, "the VO holds {held} CPUs")?;
                if *waiting > 0 {
                    write!(f, " and waits for {waiting}")?;
                }
                write!(
                    f,
                    ", and {asked} more are {than} its burst limit of {limit}"
                )
            }
            Self::Others { held, asked, total } => write!(
                f,
                "other VOs hold {held} CPUs, and {asked} more are not below all {total}"
            ),
            Self::TooLarge { asked, total } => {
                write!(f, "the job asks for {asked} CPUs, and the site has {total}")
            }
            Self::FitsNowhere => {
                write!(f, "no machine class has what one node of the job asks for")
            }
            Self::NothingMet => write!(f, "no requirement of the job is met there"),
            Self::Disk { needed, left } => {
                write!(
                    f,
                    "the job's files need {needed} MiB, and {left} MiB are left"
                )
            }
            Self::Silent { age: Some(age) } => {
                write!(f, "what is known of the site is {} s old", age.0 / 1_000)
            }
            Self::Silent { age: None } => {
                write!(f, "it is not known how old the view of the site is")
            }
        }
    }
}
