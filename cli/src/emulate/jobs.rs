//! Jobs from a CSV file, and the order in which they would be served.
//!
//! Invariant: the header is `path,job,importance`; jobs come by their entry's priority, and within equal
//! ones by importance, their last digit. An error names the file, the line and what to do.
//! Deliberately not here: age, size and queues, by which a scheduler orders beside it.

use fairmesh_fairshare::{JobPriority, Order, TreeReader};
use fairmesh_model::{AccountPath, Importance};

use super::unknown_path;
use super::usage::{UsageError, read_csv};

/// The columns of the file.
const HEADER: &str = "path,job,importance";

/// Jobs that wait, and where each stood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Jobs {
    file: String,
    jobs: Vec<Job>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Job {
    path: AccountPath,
    name: String,
    importance: Importance,
    line: u64,
}

/// One job, in its place.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct EmulatedJob {
    /// What the file calls it.
    pub job: String,
    /// The entry that the job is charged to.
    pub path: AccountPath,
    /// The importance given in the file, 0 to 200; 100 is usual.
    pub importance: Importance,
    /// The entry's priority, and the importance behind it: `5020083+100`.
    pub priority: String,
    /// 1 is served first; equal ones are exact ties.
    pub rank: u32,
}

impl Jobs {
    /// Reads CSV text. `file_name` is for error messages.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, UsageError> {
        let mut jobs = Vec::new();
        read_csv(text, file_name, HEADER, |line, record| {
            jobs.push(Job {
                path: AccountPath::parse(&record[0]).map_err(|bad| bad.to_string())?,
                name: record[1].to_owned(),
                importance: parse_importance(&record[2])?,
                line,
            });
            Ok(())
        })?;
        Ok(Self {
            file: file_name.to_owned(),
            jobs,
        })
    }

    /// The jobs in the order in which they are served; tied ones as in the file.
    pub(super) fn served(
        &self,
        order: &Order,
        reader: &TreeReader,
    ) -> Result<Vec<EmulatedJob>, UsageError> {
        let mut placed: Vec<(JobPriority, &Job)> = Vec::with_capacity(self.jobs.len());
        for job in &self.jobs {
            let found = reader.resolve(&job.path);
            if reader.entry(&job.path).is_none() {
                return Err(UsageError {
                    file: self.file.clone(),
                    line: job.line,
                    problem: unknown_path(reader, &job.path),
                });
            }
            let priority = order.priority(found.entry);
            placed.push((priority.with_importance(job.importance), job));
        }
        placed.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        let (mut rank, mut above) = (0, None);
        let served = placed.into_iter().map(|(priority, job)| {
            rank += u32::from(above.replace(priority) != Some(priority));
            EmulatedJob {
                job: job.name.clone(),
                path: job.path.clone(),
                importance: job.importance,
                priority: priority.to_string(),
                rank,
            }
        });
        Ok(served.collect())
    }
}

/// An empty one is the usual one.
fn parse_importance(text: &str) -> Result<Importance, String> {
    if text.is_empty() {
        return Ok(Importance::default());
    }
    let number = text.parse::<u8>().ok();
    let importance = number.and_then(|number| Importance::try_from(number).ok());
    importance.ok_or_else(|| {
        format!("`{text}` is no importance: write a whole number from 0 to 200, or nothing for 100")
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Charges, ShareTree, Unknown, emulate};
    use super::*;
    use clap::ValueEnum as _;
    use fairmesh_model::Distance;
    use fairmesh_node::projection::ProjectionName;

    fn emulated(jobs: &str, projection: ProjectionName) -> Result<Vec<EmulatedJob>, UsageError> {
        let tree = "[shares]\n\"/a\" = 50\n\"/b\" = 30\n\"/c\" = 20\n";
        let tree = ShareTree::parse(tree, "t").expect("valid");
        // A thousandth of a per cent apart: as a digit of the published number, importance would turn them.
        let charges = "path,charge\n/a,50000\n/b,30001\n/c,19999\n";
        let charges = Charges::parse(charges, "u").expect("valid");
        let jobs = Jobs::parse(jobs, "j.csv")?;
        let distance = Distance::Absolute;
        let emulated = emulate(
            &tree,
            &charges,
            &jobs,
            distance,
            projection,
            Unknown::Refuse,
        )?;
        Ok(emulated.jobs)
    }

    #[test]
    fn importance_orders_jobs_of_one_entry_under_every_projection() {
        let jobs =
            "path,job,importance\n/b,b1,200\n/a,a1,\n/c,c1,0\n/a,a2,101\n/c,c2,0\n/a,a3,100\n";
        for projection in ProjectionName::value_variants() {
            let served = emulated(jobs, *projection).expect("valid");
            let order: Vec<(&str, u32)> = served.iter().map(|it| (&*it.job, it.rank)).collect();
            let expected = [
                ("c1", 1),
                ("c2", 1),
                ("a2", 2),
                ("a1", 3),
                ("a3", 3),
                ("b1", 4),
            ];
            assert_eq!(order, expected, "{projection:?}");
        }
        let served = emulated(jobs, ProjectionName::Rank).expect("valid");
        assert_eq!(
            (&*served[2].priority, served[2].importance.get()),
            ("2+101", 101)
        );
    }

    #[test]
    fn files_that_make_no_sense_are_refused_with_their_line() {
        for (text, problem) in [
            (
                "path,job\n",
                "j.csv:1: the first line must be the header `path,job,importance`",
            ),
            (
                "path,job,importance\n/a,1,201\n",
                "j.csv:2: `201` is no importance",
            ),
            (
                "path,job,importance\n/a,1,-1\n",
                "j.csv:2: `-1` is no importance",
            ),
            (
                "path,job,importance\n/a,1\n",
                "j.csv:2: 2 fields instead of the 3",
            ),
            (
                "path,job,importance\n/x,1,\n",
                "j.csv:2: `/x` is not in the tree",
            ),
        ] {
            let error = emulated(text, ProjectionName::Rank).expect_err(text);
            assert!(error.to_string().starts_with(problem), "{error}");
        }
    }
}
