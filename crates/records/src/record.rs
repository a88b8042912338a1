//! One job, as its batch system or Grid recorded it.
//!
//! Invariant: what the source does not say is `None` or empty; times are UTC, lengths milliseconds,
//! and sizes bytes or MiB whatever the source counts in. A job's key is the same from every source
//! of one batch system, so that a job reported by two of them is one job.
//!
//! Deliberately not here: whether it is charged ([`crate::ChargeRule`]).

use fairmesh_model::record::{cut, numbered};
use fairmesh_model::{Chunk, Importance, JobKey, Millis, Origin, Terms, UsageRecord, WallTime};
use serde::{Deserialize, Serialize};

use crate::error::Reason;
use crate::format::Format;
use crate::state::JobState;

/// Longest name of a record, in bytes: a job's of Slurm has a thousand, subjects of certificates have hundreds. What is
/// longer is cut off, or a record that is kept might have as many as a line.
const NAME_BYTES_MAX: usize = 2_048;

/// How the job's script or its batch system left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; some systems have codes of their own below zero and above 255.
    pub code: i64,
    /// The signal that ended it, 0 for none.
    #[serde(default)]
    pub signal: u32,
}

/// A record of accounting, or a line of a list of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// What it was read from.
    pub format: Format,
    /// Which job, and which run of it. Slurm gives a requeued run a new submit time, which is the
    /// instance; elsewhere it is the start of the run, or the submit time where it never started.
    #[serde(flatten)]
    pub key: JobKey,
    /// The job id as users see it, where it is not the key's: `4103947_7`, `12+1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The job's name, chosen by its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whose: local user, account or project, local group, Grid identity.
    #[serde(flatten)]
    pub origin: Origin,
    /// Numeric user id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u64>,
    /// Numeric group id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u64>,
    /// Groups and roles within virtual organisations (VOMS FQANs), the first being the primary one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fqans: Vec<String>,
    /// The job's id in the Grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid_job: Option<String>,
    /// Queue or partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Quality of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// When it was submitted (this run of it, in Slurm).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit: Option<WallTime>,
    /// From when on it could have started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<WallTime>,
    /// When it started; `None` if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<WallTime>,
    /// When it ended; for a running job, when it is expected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<WallTime>,
    /// Wall-clock time as the source states it, which need not be `end - start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<Millis>,
    /// Wall-clock time asked for. `None` for no limit, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_wall: Option<Millis>,
    /// CPU time used, user and system, over all CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Millis>,
    /// CPUs held; for a job that waits, asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Nodes held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// GPUs held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Memory held by the whole job, MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Memory asked for by the whole job, MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_memory_mib: Option<u64>,
    /// Scratch disk held, MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mib: Option<u64>,
    /// Energy used, joules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<u64>,
    /// Most real memory used, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Most virtual memory used, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_peak_bytes: Option<u64>,
    /// Memory used, summed over CPU time, KiB-seconds (Grid Engine).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_kib_s: Option<u64>,
    /// In which state the record left it.
    pub state: JobState,
    /// Exit code and signal, if the batch system reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The hosts it ran on, as the source lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// Kind of machine or node, where the source names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// What it asked of machines by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
    /// What groups of its nodes held, where the source says so of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<Chunk>,
    /// On which terms it ran, where the report says so itself; else its queue and quality of service decide.
    #[serde(default, skip_serializing_if = "Terms::is_regular")]
    pub terms: Terms,
    /// Priority in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    /// How important it was to its user, 0 to 200, where he said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<Importance>,
    /// Fields that could not be read and were left out, as they decide nothing; by their names in the source.
    #[serde(skip)]
    pub unread: Vec<String>,
}

/// Nodes that no job has.
const NODES_MAX: u32 = u32::MAX - 16;

/// Power that no node draws: the largest have 15 kW.
const NODE_WATTS_MAX: u64 = 20_000;

impl BatchRecord {
    /// A record that says nothing yet but which job it is about.
    pub fn new(format: Format, key: JobKey, state: JobState) -> Self {
        Self {
            format,
            key,
            label: None,
            name: None,
            origin: Origin::default(),
            uid: None,
            gid: None,
            fqans: Vec::new(),
            grid_job: None,
            queue: None,
            qos: None,
            submit: None,
            eligible: None,
            start: None,
            end: None,
            wall: None,
            requested_wall: None,
            cpu_time: None,
            cpus: None,
            nodes: None,
            gpus: None,
            memory_mib: None,
            requested_memory_mib: None,
            disk_mib: None,
            energy_j: None,
            memory_peak_bytes: None,
            virtual_peak_bytes: None,
            memory_kib_s: None,
            state,
            exit: None,
            hosts: None,
            machine: None,
            properties: Vec::new(),
            chunks: Vec::new(),
            terms: Terms::Regular,
            priority: None,
            importance: None,
            unread: Vec::new(),
        }
    }

    /// A field that decides nothing (neither what the job held nor for how long, nor whose it was): one that cannot be
    /// read costs no record, and is left out and counted by its name.
    pub(crate) fn if_read<T>(&mut self, field: Result<Option<T>, Reason>) -> Option<T> {
        field.unwrap_or_else(|reason| {
            let name = match reason {
                Reason::Field { field, .. } | Reason::Missing(field) => field,
                other => other.to_string(),
            };
            if !self.unread.contains(&name) {
                self.unread.push(name);
            }
            None
        })
    }

    /// What a usage record says, which is less: no submission, and of its end only whether it came. Its key is taken
    /// as it is.
    pub fn of_usage(usage: &UsageRecord) -> Self {
        let state = if usage.running {
            JobState::Running
        } else {
            JobState::Completed
        };
        let mut record = Self::new(Format::Json, usage.key.clone(), state);
        record.origin = usage.origin.clone();
        record.start = Some(usage.start);
        record.end = Some(usage.end).filter(|_| !usage.running);
        // An instalment says until when it goes by its length: its end is not known.
        let so_far = usage.end.since(usage.start);
        record.wall = Some(so_far).filter(|_| usage.running);
        record.cpus = Some(usage.cores);
        record.gpus = Some(usage.gpus).filter(|gpus| *gpus > 0);
        record.memory_mib = Some(usage.mem_mib).filter(|memory| *memory > 0);
        let placement = &usage.placement;
        record.nodes = Some(placement.nodes).filter(|nodes| *nodes > 0);
        record.disk_mib = Some(placement.disk_mib).filter(|disk| *disk > 0);
        record.energy_j = Some(placement.energy_j).filter(|energy| *energy > 0);
        record.queue.clone_from(&placement.queue);
        record.qos.clone_from(&placement.qos);
        record.terms = placement.terms;
        record.machine.clone_from(&placement.machine);
        record.properties.clone_from(&placement.properties);
        record.chunks.clone_from(&placement.chunks);
        record
    }

    /// From its start to its end.
    pub fn span(&self) -> Option<Millis> {
        Some(self.end?.since(self.start?))
    }

    /// How long it held its resources: what the source states where that leaves out the time in
    /// which a job was suspended or waited for its next run, else from start to end.
    pub fn held(&self) -> Option<Millis> {
        let stated = self.wall.filter(|_| self.format.states_held_time());
        stated.or_else(|| self.span())
    }

    /// Refuses an end before the start, and keeps [`NAME_BYTES_MAX`] bytes of each name; the key's instance follows
    /// from the times, unless the source has a better one.
    pub(crate) fn checked(mut self) -> Result<Self, Reason> {
        if let (Some(start), Some(end)) = (self.start, self.end)
            && end < start
        {
            return Err(Reason::Backwards);
        }
        self.cut_names();
        // Slurm writes one of its largest numbers for nodes that it does not know.
        if self.nodes.take_if(|nodes| *nodes > NODES_MAX).is_some() {
            self.unread.push("nodes".to_owned());
        }
        self.check_energy();
        if self.key.instance == 0 {
            let run = self.start.or(self.submit);
            self.key.instance = run.map_or(0, |moment| moment.0 / 1_000);
        }
        Ok(self)
    }

    /// Counters of energy fail, and a job that seems to have burnt a power plant would pay for it: what no machine
    /// draws is left out.
    fn check_energy(&mut self) {
        let seconds = self
            .held()
            .or(self.wall)
            .map_or(0, |held| held.0 / 1_000 + 1);
        let most = seconds.saturating_mul(u64::from(self.nodes.unwrap_or(1).max(1)));
        if self
            .energy_j
            .is_some_and(|energy| energy / NODE_WATTS_MAX > most)
        {
            self.energy_j = None;
            self.unread.push("energy".to_owned());
        }
    }

    /// Users write most of these, without end where the batch system lets them.
    fn cut_names(&mut self) {
        let origin = &mut self.origin;
        let names = [
            &mut self.label,
            &mut self.name,
            &mut origin.user,
            &mut origin.account,
            &mut origin.group,
            &mut origin.subject,
            &mut self.grid_job,
            &mut self.queue,
            &mut self.qos,
            &mut self.machine,
        ];
        for name in names.into_iter().flatten().chain(&mut self.fqans) {
            *name = cut(numbered(std::mem::take(name)), NAME_BYTES_MAX);
        }
    }
}
