//! A job that one site offers to others: what it asks for, what it wishes, and who answers for it.
//!
//! The origin signs it, so nobody on the way changes it or makes one up in another's name; its hash is the job's
//! name everywhere, so a key that two users chose is two jobs.
//!
//! Invariant: an offer that is valid is bounded, its key is safe in names of files and jobs, and it is taken by
//! nobody for longer than [`OFFER_MAX`].
//! Deliberately not here: hops and what was tried, which change on the way.

use fairmesh_broker::Request;
use fairmesh_broker::utility::{Requirement, Wishes};
use fairmesh_fairshare::Job;
use fairmesh_fairshare::charging::Resources;
use fairmesh_model::record::{PROPERTIES_MAX, RUN_MAX};
use fairmesh_model::{AccountPath, Document, Millis, SiteId, VoId, WallTime, is_visible};
use serde::{Deserialize, Serialize};

use crate::kinds::AHEAD_MAX;

/// How long a site may take to find a place for a job: what is remembered of it to know repeats is forgotten some
/// time later.
pub(super) const OFFER_MAX: Millis = Millis::from_secs(86_400);

/// Longest text for the submit command: a script. What is larger is staged, and named here.
pub const RUN_BYTES_MAX: usize = 32 << 10;

/// Longest key: it is a part of files' names, and batch systems cut the names of jobs.
pub const KEY_BYTES_MAX: usize = 100;

/// Longest word: a user's name, a queue, a property.
const WORD_BYTES_MAX: usize = 256;

/// What a job asks for, as its user hands it in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// The VO that the job runs in.
    pub vo: VoId,
    /// Its user's name for it, which never means another job of his.
    pub key: String,
    /// Whose it is, by the origin's word.
    pub user: String,
    /// Who pays, in the VO.
    pub path: AccountPath,
    /// CPUs that it asks for.
    pub cpus: u32,
    /// Nodes that these are spread over; 0 for any.
    pub nodes: u32,
    /// Number of GPUs that it asks for.
    pub gpus: u32,
    /// Memory in MiB that it asks for.
    pub mem_mib: u64,
    /// MiB of scratch disk.
    pub disk_mib: u64,
    /// Seconds that it may run, on the reference machine; 0: not known.
    pub wall_s: u64,
    /// The queue that it must run in; `None` for any.
    pub queue: Option<String>,
    /// What machines must have.
    pub properties: Vec<String>,
    /// What it wishes of machines.
    pub requirements: Vec<Requirement>,
    /// Whether weights do not shrink what a class is worth.
    pub normalised: bool,
    /// Anything, for the submit command of the site that it goes to.
    pub run: String,
}

/// A job, and the site that answers for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Where it was handed in.
    pub origin: SiteId,
    /// When, by that site's clock.
    pub issued: WallTime,
    /// Nobody takes it after this.
    pub until: WallTime,
    /// What it asks for.
    pub job: JobRequest,
}

impl Document for Offer {
    const TYPE: &'static str = "job offer";
    const BYTES_MAX: usize = 64 << 10;

    fn vo(&self) -> Option<VoId> {
        Some(self.job.vo)
    }

    fn validate(&self) -> Result<(), String> {
        if self.until <= self.issued || self.until > self.issued.after(OFFER_MAX) {
            return Err("it is not offered for a day at most".to_owned());
        }
        self.job.validate()
    }
}

/// What is said of a job that [`JobRequest::is_misleading`].
pub(super) const MISLEADING: &str = "no user or queue begins with `-` or `.`, or has a `/`: commands take that for an option or a path";

impl Offer {
    /// Why nobody should take it now, and nothing is remembered of it.
    pub(super) fn unfit(&self, now: WallTime) -> Option<&'static str> {
        if self.until <= now {
            return Some("its offer has ended");
        }
        if self.job.is_misleading() {
            return Some(MISLEADING);
        }
        // What is remembered goes when it has ended.
        (self.issued > now.after(AHEAD_MAX))
            .then_some("its offer is dated ahead: is a clock wrong?")
    }
}

impl JobRequest {
    /// Whether its user or queue could be taken for an option or a path by commands of sites that it goes to.
    pub(super) fn is_misleading(&self) -> bool {
        let mut words = [&self.user].into_iter().chain(&self.queue);
        words.any(|word| word.starts_with(['-', '.']) || word.contains('/'))
    }

    /// What is wrong with it, if anything.
    ///
    /// # Errors
    /// The first thing.
    pub fn validate(&self) -> Result<(), String> {
        if !is_key(&self.key) {
            return Err(format!(
                "`{}` is no key: up to {KEY_BYTES_MAX} letters, digits, `_`, `-` and `.`, the first a letter, a digit or `_`",
                self.key.escape_debug()
            ));
        }
        if self.properties.len() > PROPERTIES_MAX {
            return Err(format!("more than {PROPERTIES_MAX} properties"));
        }
        let words = [&self.user]
            .into_iter()
            .chain(&self.queue)
            .chain(&self.properties);
        let is_bad = |word: &&String| {
            word.is_empty() || word.len() > WORD_BYTES_MAX || !word.chars().all(is_visible)
        };
        if let Some(bad) = { words }.find(is_bad) {
            return Err(format!("`{}` is no name", bad.escape_debug()));
        }
        if self.cpus == 0 || Millis::from_secs(self.wall_s) > RUN_MAX {
            return Err("a job asks for one CPU or more, and for ten years at most".to_owned());
        }
        if self.run.len() > RUN_BYTES_MAX {
            return Err(format!("`run` has more than {RUN_BYTES_MAX} bytes"));
        }
        self.wishes().map(drop)
    }

    /// What it wishes; `None` where it wishes nothing.
    ///
    /// # Errors
    /// The limit that its wishes pass.
    pub fn wishes(&self) -> Result<Option<Wishes>, String> {
        if self.requirements.is_empty() {
            return Ok(None);
        }
        let work = Millis::from_secs(self.wall_s);
        let wishes = Wishes::new(self.requirements.clone(), work);
        wishes.map(Some).map_err(|error| error.to_string())
    }

    /// As a broker is asked, by the VO's name in views.
    pub(crate) fn request<'a>(&'a self, vo: &'a str) -> Request<'a> {
        Request {
            vo,
            job: Job {
                held: Resources {
                    cores: self.cpus.into(),
                    gpus: self.gpus.into(),
                    mem_mib: self.mem_mib,
                    disk_mib: self.disk_mib,
                    nodes: self.nodes,
                },
                queue: self.queue.as_deref(),
                properties: &self.properties,
                ..Job::default()
            },
            wall: Millis::from_secs(self.wall_s),
            staged_mib: 0,
        }
    }
}

/// Whether a user may call a job this: up to [`KEY_BYTES_MAX`] letters, digits, `_`, `-` and `.`, the first a letter,
/// a digit or `_`.
pub fn is_key(key: &str) -> bool {
    let clean = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !key.is_empty()
        && key.len() <= KEY_BYTES_MAX
        && key.bytes().all(clean)
        && !key.starts_with(['.', '-'])
}
