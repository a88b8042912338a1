//! ClusterCockpit's job archive: the `meta.json` of a job.
//!
//! Invariant: a job has its start in its key, as the archive has no time of its submission. It holds hardware threads,
//! which are the CPUs of its batch system where that counts threads. Source: `job-meta.schema.json` of ClusterCockpit.

use fairmesh_model::{JobKey, Millis};

use crate::error::Reason;
use crate::fields::{self, given};
use crate::format::Format;
use crate::objects::{Object, ObjectFormat};
use crate::parser::{Ignored, Options};
use crate::record::BatchRecord;
use crate::state::JobState;
use crate::zone::Zone;

const READ: [&str; 14] = [
    "cluster",
    "duration",
    "energy",
    "jobId",
    "jobState",
    "numAcc",
    "numHwthreads",
    "numNodes",
    "partition",
    "project",
    "startTime",
    "subCluster",
    "user",
    "walltime",
];

pub(crate) struct CockpitJob(pub(crate) Options);

impl ObjectFormat for CockpitJob {
    const AROUND: &'static [&'static str] = &[];

    fn is_read(&self, key: &str) -> bool {
        READ.contains(&key)
    }

    fn record(&self, job: &Object<'_>) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let get = |name: &str| job.text(name).unwrap_or_default();
        let id = get("jobId");
        let id = given(&id).ok_or_else(|| Reason::missing("jobId"))?;
        let key = JobKey {
            cluster: given(&get("cluster")).unwrap_or(&self.0.cluster).to_owned(),
            job: id.to_owned(),
            instance: 0,
        };
        // `stopped` is a cancelled job here. In Slurm, STOPPED is a job that still holds its cores.
        let state = match get("jobState").as_str() {
            "stopped" => JobState::Cancelled,
            state => fields::state(state)?,
        };
        let mut record = BatchRecord::new(Format::ClusterCockpit, key, state);
        record.start = fields::time(&Zone::utc(), "startTime", &get("startTime"), None)?;
        let ran = fields::number("duration", &get("duration"))?.map(Millis::from_secs);
        match state.has_ended() {
            true => record.end = record.start.zip(ran).map(|(start, ran)| start.after(ran)),
            false => record.wall = ran,
        }
        record.origin.user = fields::name(&get("user"));
        record.origin.account = fields::name(&get("project"));
        record.queue = fields::name(&get("partition"));
        record.machine = fields::name(&get("subCluster"));
        let limit = fields::number("walltime", &get("walltime"));
        record.requested_wall = record.if_read(limit).map(Millis::from_secs);
        record.nodes = record.if_read(fields::count("numNodes", &get("numNodes")));
        record.cpus = fields::count("numHwthreads", &get("numHwthreads"))?;
        record.gpus = fields::count("numAcc", &get("numAcc"))?;
        record.energy_j = record.if_read(fields::kwh("energy", &get("energy")));
        record.checked().map(Ok)
    }
}
