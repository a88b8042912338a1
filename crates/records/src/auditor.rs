//! Records of AUDITOR, as its interface gives and takes them: one JSON object a job, alone or in an array.
//!
//! Invariant: the key follows from `record_id`, which its collectors make of a prefix and the batch system's id. That of
//! HTCondor's names cluster, process and submit time, and so gives the key that the job's ad has. Slurm's has the job id
//! alone: its key has the start. A record that Fairmesh exported names its key.
//!
//! Which unit an amount has is each site's own choice, so of the components CPUs and GPUs are read, which have none.
//! Source: `RecordAdd` and `Record` of AUDITOR, and its collectors of Slurm and HTCondor.

use fairmesh_model::JobKey;

use crate::error::Reason;
use crate::export::{AUDITOR_KEY, from_auditor};
use crate::fields::{self, given};
use crate::format::Format;
use crate::objects::{Object, ObjectFormat};
use crate::parser::{Ignored, Options};
use crate::record::BatchRecord;
use crate::slurm;
use crate::state::JobState;
use crate::zone::Zone;

/// What sites call them, in lower case.
const CPUS: [&str; 5] = ["cores", "cpus", "ncpus", "cpu", "numcpus"];
const GPUS: [&str; 3] = ["gpus", "gpu", "ngpus"];

pub(crate) struct AuditorRecord(pub(crate) Options);

impl ObjectFormat for AuditorRecord {
    const AROUND: &'static [&'static str] = &[];

    fn is_read(&self, key: &str) -> bool {
        let read = ["record_id", "meta", "components", "start_time", "stop_time"];
        read.contains(&key)
    }

    fn record(&self, object: &Object<'_>) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let id = object.text("record_id").unwrap_or_default();
        let id = given(&id).ok_or_else(|| Reason::missing("record_id"))?;
        let meta = object.object("meta");
        let values = |name: &str| strings(&meta, name);
        let utc = Zone::utc();
        let time =
            |name: &str| fields::time(&utc, name, &object.text(name).unwrap_or_default(), None);
        let (start, end) = (time("start_time")?, time("stop_time")?);
        let state = match end {
            Some(_) => JobState::Completed,
            None => JobState::Running,
        };
        let own = own_key(&values(AUDITOR_KEY));
        let key = own.clone().unwrap_or_else(|| self.key(id));
        let mut record = BatchRecord::new(Format::Auditor, key, state);
        (record.start, record.end) = (start, end);
        let first = |names: [&str; 2]| {
            let value = names
                .iter()
                .find_map(|name| values(name).into_iter().next())?;
            let value = if own.is_some() {
                from_auditor(&value)
            } else {
                value
            };
            fields::name(&value)
        };
        record.origin.user = first(["user_id", "user"]);
        record.origin.group = first(["group_id", "group"]);
        record.origin.account = first(["account_id", "account"]);
        record.origin.subject = first(["subject", "user_dn"]);
        record.fqans = first(["voms", "fqan"]).into_iter().collect();
        let parts = components(object);
        record.cpus = amount(&parts, &CPUS)?;
        if record.cpus.is_none() {
            return Err(Reason::missing("the component Cores"));
        }
        record.gpus = amount(&parts, &GPUS)?;
        record.checked().map(Ok)
    }
}

impl AuditorRecord {
    fn key(&self, id: &str) -> JobKey {
        let of_condor = || {
            let (job, submit) = fields::condor_job(id);
            Some((job.to_owned(), submit?.0 / 1_000))
        };
        let of_slurm = || {
            let (_, job) = id.rsplit_once('-')?;
            slurm::array_tasks(job).map(|_| (job.to_owned(), 0))
        };
        let found = of_condor().or_else(of_slurm);
        let (job, instance) = found.unwrap_or_else(|| (id.to_owned(), 0));
        JobKey {
            cluster: self.0.cluster.clone(),
            job,
            instance,
        }
    }
}

/// The key that Fairmesh has written.
fn own_key(values: &[String]) -> Option<JobKey> {
    let [cluster, job, instance] = values else {
        return None;
    };
    Some(JobKey {
        cluster: from_auditor(cluster),
        job: from_auditor(job),
        instance: instance.parse().ok()?,
    })
}

fn strings(object: &Object<'_>, name: &str) -> Vec<String> {
    let items = object.list(name).into_iter();
    let text = |raw: &serde_json::value::RawValue| serde_json::from_str(raw.get()).ok();
    items.filter_map(text).collect()
}

/// Each component's name, in lower case, and its amount.
fn components(object: &Object<'_>) -> Vec<(String, String)> {
    let items = object.list("components").into_iter();
    let part = |raw: &serde_json::value::RawValue| {
        let part = Object::parse(raw.get()).ok()?;
        Some((
            part.text("name")?.to_ascii_lowercase(),
            part.text("amount")?,
        ))
    };
    items.filter_map(part).collect()
}

fn amount(parts: &[(String, String)], names: &[&str]) -> Result<Option<u32>, Reason> {
    let part = names
        .iter()
        .find_map(|wanted| parts.iter().find(|(name, _)| name == wanted));
    part.map_or(Ok(None), |(name, amount)| fields::count(name, amount))
}
