//! BLAH's identity logs: whose Grid job became which job of the batch system.
//!
//! Invariant: a record of the batch system gets a Grid identity only by its own local job id, and
//! only where its times allow: ids are used again. At most [`IDENTITIES_MAX`] are kept.
//!
//! Deliberately not here: what a batch system counts. The log has no usage, only names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use fairmesh_model::{Millis, WallTime};

use crate::error::{Reason, RecordError};
use crate::lines::{Line, Lines};
use crate::record::BatchRecord;
use crate::zone::Zone;

/// Most identities kept for joining: a busy site's month. The oldest go first.
pub const IDENTITIES_MAX: usize = 4_000_000;

/// How long before its line was written a job may have been submitted to the batch system.
pub const VALID_BEFORE: Millis = Millis::from_secs(86_400);

/// How long after it a job may still start or end.
pub const VALID_AFTER: Millis = Millis::from_secs(28 * 86_400);

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridIdentity {
    /// When the job was handed to the batch system. BLAH writes UTC.
    pub time: WallTime,
    /// Subject of the certificate, as the batch system logged it.
    pub subject: String,
    /// VOMS FQANs, the first being the primary one.
    pub fqans: Vec<String>,
    /// The compute element and its queue.
    pub compute_element: Option<String>,
    /// The job's id in the Grid.
    pub grid_job: Option<String>,
    /// The job's id in the batch system.
    pub local_job: String,
    /// Numeric id of the local user.
    pub local_user: Option<String>,
}

impl GridIdentity {
    /// Reads a line: `"timestamp=2012-05-20 23:59:47" "userDN=/O=…" "lrmsID=12.host" …`.
    pub fn parse(line: &str) -> Result<Self, Reason> {
        let shape = || Reason::Shape("not a line of `\"name=value\"`".to_owned());
        let line = line.trim();
        let inner = line
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .ok_or_else(shape)?;
        let mut single: BTreeMap<&str, &str> = BTreeMap::new();
        let mut fqans = Vec::new();
        for item in inner.split("\" \"") {
            let (name, value) = item.split_once('=').ok_or_else(shape)?;
            if value.contains('"') {
                return Err(shape());
            }
            if name == "userFQAN" {
                fqans.push(fqan(value)?);
            } else {
                single.insert(name, value);
            }
        }
        let get = |name: &str| single.get(name).copied().filter(|value| !value.is_empty());
        let must = |name: &str| get(name).ok_or_else(|| Reason::missing(name));
        let text = must("timestamp")?;
        let time = Zone::utc().parse_as("%Y-%m-%d %H:%M:%S", text);
        Ok(Self {
            time: time.ok_or_else(|| Reason::field("timestamp", text, "yyyy-mm-dd hh:mm:ss"))?,
            subject: must("userDN")?.to_owned(),
            fqans,
            compute_element: get("ceID").map(str::to_owned),
            grid_job: get("jobID").map(str::to_owned),
            local_job: must("lrmsID")?.to_owned(),
            local_user: get("localUser").map(str::to_owned),
        })
    }

    /// The virtual organisation, its group and the role of the primary FQAN:
    /// `/atlas/ca/Role=pilot/Capability=NULL` is `atlas`, `/atlas/ca`, `Role=pilot`.
    pub fn vo(&self) -> Option<(&str, &str, Option<&str>)> {
        vo_of(self.fqans.first()?)
    }

    /// From when to when a local job of this id is this one.
    pub fn valid(&self) -> (WallTime, WallTime) {
        (self.time.before(VALID_BEFORE), self.time.after(VALID_AFTER))
    }
}

/// Virtual organisation, group and role of an FQAN.
pub(crate) fn vo_of(fqan: &str) -> Option<(&str, &str, Option<&str>)> {
    let group = fqan.find("/Role=").map_or(fqan, |at| &fqan[..at]);
    let group = group.find("/Capability=").map_or(group, |at| &group[..at]);
    let vo = group.strip_prefix('/')?.split('/').next()?;
    let role = fqan.split('/').find(|part| part.starts_with("Role="));
    Some((vo, group, role))
}

fn fqan(text: &str) -> Result<String, Reason> {
    let is_good = text.starts_with('/') && !text.contains('&');
    if is_good {
        Ok(text.to_owned())
    } else {
        Err(Reason::field("userFQAN", text, "/vo/group/Role=…"))
    }
}

/// Identities by local job, to be joined to the records of the batch system.
#[derive(Debug, Default)]
pub struct GridIdentities {
    by_job: BTreeMap<(String, WallTime), GridIdentity>,
    by_age: BTreeSet<(WallTime, String)>,
}

impl GridIdentities {
    /// Adds an identity. Above [`IDENTITIES_MAX`] the oldest one goes.
    pub fn insert(&mut self, identity: GridIdentity) {
        let (job, time) = (identity.local_job.clone(), identity.time);
        self.by_age.insert((time, job.clone()));
        self.by_job.insert((job, time), identity);
        if self.by_job.len() > IDENTITIES_MAX
            && let Some((time, job)) = self.by_age.pop_first()
        {
            self.by_job.remove(&(job, time));
        }
    }

    /// Reads a log to its end and keeps what it says; gives the lines that it could not read.
    pub fn read(&mut self, input: impl BufRead) -> Vec<RecordError> {
        let mut lines = Lines::new(input, 0, 0, false);
        let mut errors = Vec::new();
        loop {
            let reason = match lines.read() {
                Ok(Line::End) => return errors,
                Ok(Line::TooLong) => Reason::TooLong,
                Ok(Line::Whole) if lines.text().trim_ascii().is_empty() => continue,
                Ok(Line::Whole) => {
                    match GridIdentity::parse(&String::from_utf8_lossy(lines.text())) {
                        Ok(identity) => {
                            self.insert(identity);
                            continue;
                        }
                        Err(reason) => reason,
                    }
                }
                Err(error) => {
                    let (line, reason) = (lines.number, error.into());
                    errors.push(RecordError { line, reason });
                    return errors;
                }
            };
            errors.push(RecordError {
                line: lines.number,
                reason,
            });
        }
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.by_job.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    /// Gives a record its Grid identity: of those of its local id, the latest that was written when
    /// the job was there. Says whether there was one.
    pub fn join(&self, record: &mut BatchRecord) -> bool {
        let Some(moment) = record.submit.or(record.start) else {
            return false;
        };
        let job = &record.key.job;
        let all = self
            .by_job
            .range((job.clone(), WallTime(0))..=(job.clone(), WallTime(u64::MAX)));
        let fits = |identity: &&GridIdentity| {
            let (from, until) = identity.valid();
            from <= moment && moment <= until
        };
        let found = all.map(|(_, identity)| identity).rfind(fits);
        let Some(identity) = found else {
            return false;
        };
        record.origin.subject = Some(identity.subject.clone());
        record.fqans = identity.fqans.clone();
        record.grid_job = identity.grid_job.clone();
        true
    }
}
