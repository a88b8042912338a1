//! Collects records and deals their partitions over nodes.
//!
//! Invariant: numbers of groups and partitions become indexes in ascending order, unknown first, so
//! that a trace does not depend on which of them a log happens to mention first.
//!
//! Sites go to nodes in turn, heaviest first (ties: lower number): node 0 has the heaviest. Nodes
//! beyond the number of sites stay empty.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use fairmesh_model::{AccountPath, CoreMillis, Millis, WallTime};

use super::{SkipReason, Trace, TraceError, TraceJob, TraceSite};
use crate::swf::{SwfHeader, SwfRecord};

/// Most jobs of one trace: bounds memory to about 2 GB. The archive's largest log has 5.7 million.
pub const TRACE_JOBS_MAX: usize = 10_000_000;

/// A trace in the making. The log's header is needed last, because it is complete only once the
/// first record was read.
#[derive(Debug, Clone, Default)]
pub struct TraceBuilder {
    drafts: Vec<Draft>,
    skipped: BTreeMap<SkipReason, u64>,
}

/// What matters of a record; times in seconds since the log's start.
#[derive(Debug, Clone)]
struct Draft {
    job: u64,
    user: Option<u64>,
    group: Option<u64>,
    partition: Option<u64>,
    submit_s: u64,
    start_s: u64,
    end_s: u64,
    requested_s: Option<u64>,
    cores: u32,
}

impl TraceBuilder {
    /// Takes one record, or counts why it is no load.
    pub fn add(&mut self, record: &SwfRecord) -> Result<(), TraceError> {
        match Draft::new(record) {
            Ok(_) if self.drafts.len() >= TRACE_JOBS_MAX => return Err(TraceError::TooManyJobs),
            Ok(draft) => self.drafts.push(draft),
            Err(reason) => *self.skipped.entry(reason).or_default() += 1,
        }
        Ok(())
    }

    /// The trace of all records so far, its sites dealt over `nodes`.
    pub fn finish(self, header: &SwfHeader, nodes: NonZeroUsize) -> Trace {
        let origin = WallTime::from_unix_secs(header.unix_start_s.unwrap_or(0));
        let at = |seconds| origin.after(Millis::from_secs(seconds));
        let (vo_of, vos) = name_vos(&self.drafts);
        let accounts = name_accounts(&self.drafts);
        let sites = deal_sites(&self.drafts, header, nodes);
        let site_of: BTreeMap<_, _> = sites.iter().map(|site| site.partition).zip(0..).collect();
        let to_job = |draft: &Draft| {
            let site: usize = site_of[&draft.partition];
            TraceJob {
                job: draft.job,
                vo: vo_of[&draft.group],
                account: accounts[&draft.user].clone(),
                site,
                node: sites[site].node,
                submit: at(draft.submit_s),
                start: at(draft.start_s),
                end: at(draft.end_s),
                requested: draft.requested_s.map(Millis::from_secs),
                cores: draft.cores,
            }
        };
        let mut jobs: Vec<_> = self.drafts.iter().map(to_job).collect();
        jobs.sort_by_key(|job| job.submit);
        Trace {
            jobs,
            sites,
            vos,
            nodes,
            skipped: self.skipped,
        }
    }
}

impl Draft {
    fn new(record: &SwfRecord) -> Result<Self, SkipReason> {
        let end_s = record.end_s().ok_or(SkipReason::NoRunTime)?;
        let cores = record.cores().ok_or(SkipReason::NoProcessors)?;
        Ok(Self {
            job: record.job,
            user: record.user,
            group: record.group,
            partition: record.partition,
            submit_s: record.submit_s,
            start_s: record.start_s(),
            end_s,
            requested_s: record.requested_s,
            cores: u32::try_from(cores).map_err(|_| SkipReason::TooManyProcessors)?,
        })
    }

    fn core_ms(&self) -> CoreMillis {
        crate::job::core_ms(self.cores, Millis::from_secs(self.end_s - self.start_s))
    }
}

fn name_vos(drafts: &[Draft]) -> (BTreeMap<Option<u64>, usize>, Vec<String>) {
    let mut vo_of: BTreeMap<_, _> = drafts.iter().map(|draft| (draft.group, 0)).collect();
    let alone = vo_of.len() == 1;
    let mut names = Vec::new();
    for (group, index) in &mut vo_of {
        *index = names.len();
        names.push(match group {
            Some(group) => format!("VO-{group}"),
            None if alone => "all".to_owned(),
            None => "VO-unknown".to_owned(),
        });
    }
    (vo_of, names)
}

fn name_accounts(drafts: &[Draft]) -> BTreeMap<Option<u64>, AccountPath> {
    let mut accounts = BTreeMap::new();
    for draft in drafts {
        accounts.entry(draft.user).or_insert_with(|| {
            let name = draft
                .user
                .map_or_else(|| "unknown".to_owned(), |user| user.to_string());
            AccountPath::parse(&format!("/U-{name}")).expect("digits and letters are a valid name")
        });
    }
    accounts
}

fn deal_sites(drafts: &[Draft], header: &SwfHeader, nodes: NonZeroUsize) -> Vec<TraceSite> {
    let mut loads = BTreeMap::<Option<u64>, CoreMillis>::new();
    for draft in drafts {
        let load = loads.entry(draft.partition).or_default();
        *load = load.plus(draft.core_ms());
    }
    let alone = loads.len() == 1;
    let name = |partition: Option<u64>| match partition {
        Some(number) => header
            .partitions
            .get(&number)
            .cloned()
            .unwrap_or_else(|| format!("partition-{number}")),
        None if alone => "all".to_owned(),
        None => "partition-unknown".to_owned(),
    };
    let mut sites: Vec<_> = loads
        .into_iter()
        .map(|(partition, load)| TraceSite {
            name: name(partition),
            partition,
            node: 0,
            load,
        })
        .collect();
    sites.sort_by_key(|site| (std::cmp::Reverse(site.load), site.partition));
    for (site, node) in sites.iter_mut().zip((0..nodes.get()).cycle()) {
        site.node = node;
    }
    sites.sort_by_key(|site| site.partition);
    sites
}
