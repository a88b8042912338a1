//! A job in the queue of a batch system, whichever it is.
//!
//! Invariant: the id is a number that no other job of the queue has. Deliberately not here: reading queues.

use fairmesh_client::Own;
use fairmesh_model::record::fitting;
use fairmesh_model::{JobKey, Millis, Origin, Placement, UsageRecord, WallTime};
use fairmesh_records::{ChargeRule, JobState};

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Accepted, not started.
    #[default]
    Pending,
    /// Running, or stopped with its resources held.
    Running,
    /// On its way out: its last word is not spoken.
    Leaving,
    /// Ended: it is reported no more.
    Ended,
}

/// A job in a batch system's queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    /// The batch system's number.
    pub id: u64,
    /// The words that its commands take for what waits of it: `12`, or `12_[3-9]`.
    pub target: String,
    /// What its records call it, where that is not the number.
    pub label: Option<String>,
    /// What it is doing.
    pub state: State,
    /// The batch system's word for that.
    pub word: Option<JobState>,
    /// Held by its user or an administrator.
    pub held: bool,
    /// CPUs allocated or asked for.
    pub cpus: u32,
    /// GPUs allocated.
    pub gpus: u32,
    /// Memory allocated, MiB.
    pub mem_mib: u64,
    /// When this run of it was submitted, in seconds since 1970: a requeued job has a new one.
    pub submit: u64,
    /// When it started, in seconds since 1970.
    pub start: Option<u64>,
    /// Whether it has been resized since.
    pub is_resized: bool,
    /// When it ended, or may end, in seconds since 1970.
    pub end: Option<u64>,
    /// How long it has run, in seconds, without the time that it was suspended.
    pub used: u64,
    /// How long it may run, in seconds.
    pub limit: Option<u64>,
    /// Nodes allocated; 0 where that is not known.
    pub nodes: u32,
    /// Its partition or queue.
    pub partition: Option<String>,
    /// Its quality of service.
    pub qos: Option<String>,
    /// The first of its nodes.
    pub host: Option<String>,
    /// The account or project; none where none was given.
    pub account: Option<String>,
    /// The user's primary group; `None` if the system does not know it.
    pub group: Option<String>,
    /// The local user name.
    pub user: String,
    /// What it says of its importance.
    pub own: Own,
    /// Its user's words, and ours.
    pub comment: String,
}

impl Job {
    /// What its records call it.
    pub fn record_name(&self) -> String {
        let label = self.label.clone();
        label.unwrap_or_else(|| self.id.to_string())
    }

    /// Whose it is, in names that the node takes.
    pub fn origin(&self) -> Origin {
        let origin = Origin {
            user: Some(self.user.clone()),
            account: self.account.clone(),
            group: self.group.clone(),
            subject: None,
        };
        origin.fitting()
    }

    /// What it has held up to now, as an instalment; none of a job that has not started.
    pub fn instalment(&self, rule: &ChargeRule, cluster: &str) -> Option<UsageRecord> {
        let start = WallTime::from_unix_secs(self.start?);
        Some(UsageRecord {
            key: JobKey {
                cluster: cluster.to_owned(),
                job: self.record_name(),
                instance: self.submit,
            },
            origin: self.origin(),
            start,
            end: start.after(Millis::from_secs(self.used)),
            cores: self.cpus,
            gpus: self.gpus,
            mem_mib: self.mem_mib,
            placement: rule.placed(Placement {
                nodes: self.nodes,
                queue: self.partition.clone().map(fitting),
                qos: self.qos.clone().map(fitting),
                machine: self.host.clone().map(fitting),
                ..Placement::default()
            }),
            running: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_client::protocol::NameBlockBuf;

    use super::*;

    /// One that it did not take made the job free, and one that is too long ended each look-up, of everybody.
    #[test]
    fn whatever_names_a_job_has_the_node_takes_them() {
        for name in ["x\u{200b}", &"é".repeat(300)] {
            let job = Job {
                account: Some(name.to_owned()),
                partition: Some(name.to_owned()),
                qos: Some(name.to_owned()),
                host: Some(name.to_owned()),
                ..crate::ended::tests::in_queue(7)
            };
            let instalment = job.instalment(&ChargeRule::default(), "alpha");
            assert_eq!(instalment.expect("it runs").validate(), Ok(()));
            let person = crate::sync::person(&job);
            let mut block = NameBlockBuf::new();
            assert_eq!(block.push(&crate::sync::who(&person)), Ok(()));
            assert_ne!(person.account.as_deref(), Some(name));
        }
    }
}
