//! Whether a job could start at a site now, would wait there, or is refused: three readings of GRUBER.
//!
//! `published` is the paper's pseudo-code as printed, with its faults. `prose` is what its text says beside
//! it. `sound` is what a broker should do with the same numbers, and the default.
//!
//! Invariant: a site that `sound` calls NOW breaks, by that job and on the true state, no upper limit that
//! binds, jobs of the VO that wait there counted, and takes no CPU that another job waits for or that is kept for
//! a guarantee.
//! Deliberately not here: which of several sites is best (`selector`).
//! Source: GRUBER (Euro-Par 2005), section 3.1.

mod prose;
mod published;
mod refusal;
mod sound;

use std::fmt;
use std::str::FromStr;

use fairmesh_fairshare::Job;
use fairmesh_model::Millis;

pub use refusal::Refusal;

use crate::selector::Selector;
use crate::view::SiteView;

/// The reading of the published algorithm that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// The pseudo-code as printed.
    Published,
    /// The text beside it.
    Prose,
    /// Neither of their faults.
    #[default]
    Sound,
}

/// A job that asks for a place: what is charged, placed and quoted is the same [`Job`].
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    /// The VO of the job's user.
    pub vo: &'a str,
    /// What it would hold; `held.cores` are the CPUs that it asks for.
    pub job: Job<'a>,
    /// Wall-clock time that it asks for, on the reference machine; 0: not known.
    pub wall: Millis,
    /// Input and output that are staged, MiB; scratch is `held.disk_mib`.
    pub staged_mib: u64,
}

impl<'a> Request<'a> {
    /// A job of `vo` that asks for CPUs and nothing else.
    pub fn of_cpus(vo: &'a str, cpus: u64) -> Self {
        let mut request = Self {
            vo,
            ..Self::default()
        };
        request.job.held.cores = cpus;
        request
    }

    /// CPUs asked for (J).
    pub fn cpus(&self) -> u64 {
        self.job.held.cores
    }
}

/// What an engine says of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The job can start there now.
    Now {
        /// Whether the VO has had its share of the epoch, and gets CPUs that nobody else has a use for.
        beyond: bool,
    },
    /// It may be sent, and would wait.
    Wait {
        /// How long, by the site's batch system; `None`: not known.
        estimate: Option<Millis>,
    },
    /// It may not be sent.
    No(Refusal),
}

impl Verdict {
    /// Whether the job can start now.
    pub fn is_now(&self) -> bool {
        matches!(self, Self::Now { .. })
    }

    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Now { .. } => "now",
            Self::Wait { .. } => "wait",
            Self::No(_) => "no",
        }
    }

    /// Seconds that the job would wait, if that is known.
    pub fn wait_s(&self) -> Option<u64> {
        match self {
            Self::Now { .. } => Some(0),
            Self::Wait { estimate } => estimate.map(|wait| wait.0.div_ceil(1_000)),
            Self::No(_) => None,
        }
    }

    /// Why `site` may have the job, or not.
    pub fn reason(&self, site: &SiteView, selector: Selector) -> String {
        let idle = site.idle();
        match self {
            _ if selector == Selector::Naive => "not asked: s-ra takes any site".to_owned(),
            Self::Now { beyond: false } => format!("within its limits; {idle} CPUs are free"),
            Self::Now { beyond: true } => {
                format!(
                    "beyond its share of the epoch; {idle} CPUs are free, and nobody waits for them"
                )
            }
            Self::Wait { .. } => format!(
                "within its limits; {idle} CPUs are free, {} of them waited for",
                site.waiting
            ),
            Self::No(refusal) => refusal.to_string(),
        }
    }
}

/// What `engine` says of `site`. A view older than `silence` is believed by no reading but the published one,
/// which knows no age.
pub fn judge(
    engine: Engine,
    site: &SiteView,
    request: &Request<'_>,
    silence: Option<Millis>,
) -> Verdict {
    let verdict = match engine {
        Engine::Published => published::judge(site, request),
        Engine::Prose => prose::judge(site, request),
        Engine::Sound => sound::judge(site, request, silence),
    };
    match verdict {
        Verdict::No(refusal) => Verdict::No(refusal),
        // Disk candidates and CPU candidates are intersected, in all readings.
        taken => refusal::of_disk(site, request).map_or(taken, Verdict::No),
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "published" => Ok(Self::Published),
            "prose" => Ok(Self::Prose),
            "sound" => Ok(Self::Sound),
            _ => Err(format!("`{name}` is no engine: published, prose or sound")),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Published => "published",
            Self::Prose => "prose",
            Self::Sound => "sound",
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
