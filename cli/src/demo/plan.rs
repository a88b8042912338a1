//! What a demonstration runs: sites, VOs, their promised shares, and the load.
//!
//! Invariant: every account of the load is an entry of the tree of promised shares.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, bail};
use fairmesh_cluster::{AccountKey, Trace, paper};
use fairmesh_model::{AccountPath, Millis, UsageMode, WallTime, Weight};
use flate2::read::MultiGzDecoder;

/// First moment of a load that has no calendar of its own: 1 January 2005, the paper's year.
const PAPER_START: WallTime = WallTime::from_unix_secs(1_104_537_600);

/// A VO of the demonstration.
pub(super) struct PlanVo {
    /// Its name, its alias in the configuration, and its place in every site's tree.
    pub(super) name: String,
    /// What every site owner gives it.
    pub(super) share: Weight,
    /// Its own tree.
    pub(super) entries: BTreeMap<AccountPath, Weight>,
}

/// What a demonstration runs.
pub(super) struct Plan {
    /// Cores of each node.
    pub(super) cores: Vec<u32>,
    pub(super) vos: Vec<PlanVo>,
    pub(super) load: Load,
    pub(super) start: WallTime,
    /// When the last job has ended, if the load says so.
    pub(super) end: Option<WallTime>,
    pub(super) usage_mode: UsageMode,
}

/// What the pretended clusters do.
pub(super) enum Load {
    /// The FSGrid paper's workload, scheduled by priority.
    Paper,
    /// Jobs that a broker places.
    Broker,
    /// A trace; `reschedule` lets the clusters queue its jobs and order them by priority, instead
    /// of running each when the trace says it ran.
    Trace {
        /// The trace.
        trace: Trace,
        /// Whether the clusters decide when jobs run.
        reschedule: bool,
    },
}

impl Plan {
    /// The paper's Figure 4 on its six sites, or on as many as are asked for.
    pub(super) fn paper(sites: usize) -> Self {
        let mut vos: Vec<PlanVo> = Vec::new();
        for entry in &paper::POLICY {
            let account = entry.account();
            if account.path.is_root() {
                let name = paper::VOS[entry.vo].to_owned();
                vos.push(PlanVo {
                    name,
                    share: entry.share().into(),
                    entries: BTreeMap::new(),
                });
            } else {
                vos[entry.vo]
                    .entries
                    .insert(account.path, entry.share().into());
            }
        }
        Self {
            cores: vec![paper::CORES_PER_SITE; sites],
            vos,
            load: Load::Paper,
            start: PAPER_START,
            end: None,
            usage_mode: UsageMode::Predictive,
        }
    }

    /// The paper's policy and sites, under jobs that a broker places.
    pub(super) fn broker(sites: usize) -> Self {
        Self {
            load: Load::Broker,
            usage_mode: UsageMode::Historical,
            ..Self::paper(sites)
        }
    }

    /// With one more project of the first VO, to which no share is promised.
    pub(super) fn with_project(mut self, name: &str) -> anyhow::Result<Self> {
        let path = AccountPath::root().child(name)?;
        self.vos[0].entries.insert(path, Weight::ZERO);
        Ok(self)
    }

    /// A trace, dealt to `sites` nodes.
    pub(super) fn trace(
        file: &Path,
        sites: usize,
        reschedule: bool,
        shares: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let nodes = NonZeroUsize::new(sites).context("a mesh has one site or more")?;
        let trace = Trace::read(open(file)?, nodes).with_context(|| file.display().to_string())?;
        let starts = trace.jobs.iter().map(|job| job.start.min(job.submit));
        let ends = trace.jobs.iter().map(|job| job.end);
        let (Some(start), Some(end)) = (starts.min(), ends.max()) else {
            bail!("{}: there is no job in it that ran", file.display());
        };
        let peak = trace.peak_cores();
        let cores = peak
            .iter()
            .map(|cores| u32::try_from(*cores).unwrap_or(u32::MAX).max(1))
            .collect();
        let mut vos = equal_shares(&trace);
        if let Some(shares) = shares {
            given_shares(&mut vos, shares)?;
        }
        let usage_mode = if reschedule {
            UsageMode::Predictive
        } else {
            UsageMode::Historical
        };
        let end = (!reschedule).then_some(end);
        Ok(Self {
            cores,
            vos,
            load: Load::Trace { trace, reschedule },
            start,
            end,
            usage_mode,
        })
    }

    /// The account with the smallest share, of those that have nobody below.
    pub(super) fn flooder(&self) -> Option<AccountKey> {
        let leaves = self.vos.iter().enumerate().flat_map(|(vo, plan)| {
            let is_leaf = |path: &AccountPath| {
                let mut others = plan.entries.keys();
                !others.any(|other| other != path && other.starts_with(path))
            };
            let leaves = plan.entries.iter().filter(move |(path, _)| is_leaf(path));
            leaves.map(move |(path, share)| (share, vo, path))
        });
        let (_, vo, path) = leaves.min_by_key(|(share, ..)| *share)?;
        let path = path.clone();
        Some(AccountKey { vo, path })
    }

    /// Deals the shares of the first VO's projects anew: each gets what the next one had.
    pub(super) fn turn_shares(&mut self) {
        let entries = &mut self.vos[0].entries;
        let is_project = |path: &&AccountPath| path.depth() == 1;
        let projects: Vec<AccountPath> = entries.keys().filter(is_project).cloned().collect();
        let mut shares: Vec<Weight> = projects.iter().map(|path| entries[path]).collect();
        let by = shares.len().min(1);
        shares.rotate_left(by);
        entries.extend(projects.into_iter().zip(shares));
    }

    /// Records of the log that are no load, by reason.
    pub(super) fn left_out(&self) -> BTreeMap<String, u64> {
        let Load::Trace { trace, .. } = &self.load else {
            return BTreeMap::new();
        };
        let skipped = trace.skipped.iter();
        skipped
            .map(|(why, count)| (why.to_string(), *count))
            .collect()
    }

    /// Wall time that the load takes; `None` if it never ends.
    pub(super) fn length(&self) -> Option<Millis> {
        self.end.map(|end| end.since(self.start))
    }
}

/// Every VO the same share, and every user of a VO the same share of it.
fn equal_shares(trace: &Trace) -> Vec<PlanVo> {
    let mut accounts: Vec<BTreeMap<AccountPath, Weight>> = vec![BTreeMap::new(); trace.vos.len()];
    for job in &trace.jobs {
        accounts[job.vo].insert(job.account.clone(), Weight::whole(1));
    }
    let names = trace.vos.iter().cloned();
    names
        .zip(accounts)
        .map(|(name, entries)| PlanVo {
            name,
            share: Weight::whole(1),
            entries,
        })
        .collect()
}

/// Takes shares from a file of the form that all share trees have.
fn given_shares(vos: &mut [PlanVo], file: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let tree = fairmesh_policy::parse_tree(&text, &file.display().to_string())?;
    for (path, entry) in tree.to_shares()? {
        let vo = path
            .names()
            .next()
            .and_then(|name| vos.iter_mut().find(|vo| vo.name == name));
        let Some(vo) = vo else {
            bail!("{}: `{path}` is no VO of this trace", file.display())
        };
        let mount = AccountPath::root().child(&vo.name)?;
        let below = path
            .relative_to(&mount)
            .expect("it begins with the VO's name");
        match vo.entries.get_mut(&below) {
            _ if below.is_root() => vo.share = entry.share,
            Some(share) => *share = entry.share,
            None => bail!("{}: `{path}` has no job in this trace", file.display()),
        }
    }
    Ok(())
}

fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let reader =
        std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut reader = BufReader::new(reader);
    let is_gzip = reader.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_gzip {
        Box::new(BufReader::new(MultiGzDecoder::new(reader)))
    } else {
        Box::new(reader)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_log_has_that_is_no_load_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("log.swf");
        let job = |number: u32, run: i32| {
            format!("{number} 0 1 {run} 2 -1 -1 2 -1 -1 1 1 1 -1 1 -1 -1 -1\n")
        };
        std::fs::write(&file, job(1, 60) + &job(2, -1)).expect("writes");
        let plan = Plan::trace(&file, 1, false, None).expect("a job ran");
        assert_eq!(
            plan.left_out(),
            BTreeMap::from([("no run time".to_owned(), 1)])
        );
        assert!(Plan::paper(1).left_out().is_empty());
    }
}
