//! One job ad as a record.
//!
//! Invariant: what was provisioned goes before what was requested. Memory is in MiB, disk and
//! measured sizes in KiB, times in seconds since the epoch.
//!
//! Source: HTCondor's manual, "Job ClassAd Attributes".

use std::collections::BTreeMap;

use fairmesh_model::{JobKey, Millis, WallTime};

use crate::error::Reason;
use crate::fields;
use crate::format::Format;
use crate::parser::Options;
use crate::record::{BatchRecord, Exit};
use crate::state::JobState;
use crate::value;
use crate::zone::Zone;

/// An ad: values without quotation marks, by lower-case name.
pub(crate) type Ad = BTreeMap<String, String>;

/// The attributes that are read, in order.
const READ: [&str; 49] = [
    "accountinggroup",
    "acctgroup",
    "allremotehosts",
    "clusterid",
    "completiondate",
    "cpusprovisioned",
    "currenthosts",
    "diskprovisioned",
    "enteredcurrentstatus",
    "epochwritedate",
    "exitcode",
    "exitsignal",
    "globaljobid",
    "gpusprovisioned",
    "imagesize",
    "jobbatchname",
    "jobcurrentstartdate",
    "jobstartdate",
    "jobstatus",
    "jobuniverse",
    "lastremotehost",
    "lastremotehosts",
    "machineattrcpus0",
    "machineattrdisk0",
    "machineattrgpus0",
    "machineattrmachinetype0",
    "machineattrmemory0",
    "maxhosts",
    "maxwalltimemins",
    "memoryprovisioned",
    "minhosts",
    "owner",
    "procid",
    "qdate",
    "queuename",
    "remotesyscpu",
    "remoteusercpu",
    "remotewallclocktime",
    "requestcpus",
    "requestdisk",
    "requestgpus",
    "requestmemory",
    "residentsetsize",
    "runinstanceid",
    "scheddname",
    "shadowbday",
    "user",
    "x509userproxyfirstfqan",
    "x509userproxysubject",
];

/// Whether an attribute of this name, in lower case, is read.
pub(crate) fn is_read(name: &str) -> bool {
    READ.binary_search(&name).is_ok()
}

pub(crate) fn record(ad: &Ad, format: Format, options: &Options) -> Result<BatchRecord, Reason> {
    let whole = |name: &str| number(ad, name, 0);
    let must = |name: &str| whole(name).ok_or_else(|| Reason::missing(name));
    let (cluster, process) = (must("ClusterId")?, must("ProcId")?);
    let key = JobKey {
        cluster: text(ad, "ScheddName").unwrap_or_else(|| options.cluster.clone()),
        job: format!("{cluster}.{process}"),
        instance: whole("QDate").unwrap_or(0),
    };
    let mut record = BatchRecord::new(format, key, state(must("JobStatus")?, ad)?);
    let utc = Zone::utc();
    let moment = |name: &str| {
        let seconds = whole(name).unwrap_or(0).to_string();
        fields::time(&utc, name, &seconds, None)
    };
    // What is not asked for may be anything that a user has written.
    let either = |first: &str, second: &str| match moment(first)? {
        None => moment(second),
        found => Ok(found),
    };
    record.submit = moment("QDate")?;
    record.start = either("JobStartDate", "JobCurrentStartDate")?;
    if record.state.has_ended() {
        let [completed, left] = ["CompletionDate", "EnteredCurrentStatus"];
        // A job that was removed has not been completed, whatever its user has written there.
        let [first, second] = match record.state {
            JobState::Cancelled => [left, completed],
            _ => [completed, left],
        };
        record.end = either(first, second)?;
        record.wall = number(ad, "RemoteWallClockTime", 3).map(Millis);
    }
    if let Some(held) = held_in_epochs(ad, moment("EpochWriteDate")?, record.start) {
        record.wall = Some(held);
    }
    let cpu = [
        number(ad, "RemoteUserCpu", 3),
        number(ad, "RemoteSysCpu", 3),
    ];
    if let [Some(user), Some(system)] = cpu {
        record.cpu_time = Some(Millis(user.saturating_add(system)));
    }
    whose(ad, &mut record);
    resources(ad, options.noted_slots, &mut record)?;
    if options.noted_slots {
        // Whoever submits may write these, and they choose a price, or a refusal; the host is the schedd's word.
        (record.queue, record.machine, record.nodes) = (None, None, None);
        record.disk_mib = whole("MachineAttrDisk0").map(|kib| kib >> 10);
    }
    let signal = whole("ExitSignal").and_then(|signal| u32::try_from(signal).ok());
    let code = text(ad, "ExitCode").and_then(|code| code.parse().ok());
    if code.is_some() || signal.is_some() {
        record.exit = Some(Exit {
            code: code.unwrap_or(0),
            signal: signal.unwrap_or(0),
        });
    }
    record.checked()
}

/// What the ad of an epoch has held: it is written at the end of a run, whose time the schedd has not yet added to that of
/// earlier ones.
fn held_in_epochs(ad: &Ad, written: Option<WallTime>, start: Option<WallTime>) -> Option<Millis> {
    let earlier = number(ad, "RemoteWallClockTime", 3);
    let Some(written) = written else {
        // Before HTCondor wrote that date.
        return earlier
            .filter(|_| text(ad, "RunInstanceId").is_some())
            .map(Millis);
    };
    let began = number(ad, "ShadowBday", 0).or(number(ad, "JobCurrentStartDate", 0));
    let began = began.map(WallTime::from_unix_secs).or(start);
    let run = began.map_or(0, |began| written.since(began).0);
    Some(Millis(earlier.unwrap_or(0).saturating_add(run)))
}

fn state(status: u64, ad: &Ad) -> Result<JobState, Reason> {
    Ok(match status {
        1 | 5 => JobState::Pending,
        2 | 6 => JobState::Running,
        3 => JobState::Cancelled,
        4 => {
            let failed = number(ad, "ExitCode", 0).is_none_or(|code| code != 0);
            match text(ad, "ExitCode") {
                Some(_) if failed => JobState::Failed,
                None if text(ad, "ExitSignal").is_some() => JobState::Failed,
                _ => JobState::Completed,
            }
        }
        7 => JobState::Suspended,
        other => return Err(Reason::UnknownState(format!("JobStatus {other}"))),
    })
}

fn whose(ad: &Ad, record: &mut BatchRecord) {
    record.origin.user = text(ad, "Owner").or_else(|| {
        let user = text(ad, "User")?;
        Some(user.split('@').next().unwrap_or_default().to_owned())
    });
    record.origin.account = text(ad, "AcctGroup").or_else(|| text(ad, "AccountingGroup"));
    record.origin.subject = text(ad, "x509UserProxySubject");
    record.fqans = text(ad, "x509UserProxyFirstFQAN").into_iter().collect();
    record.grid_job = text(ad, "GlobalJobId");
    record.name = text(ad, "JobBatchName");
    record.queue = text(ad, "QueueName");
    record.hosts = text(ad, "LastRemoteHost");
    record.machine = text(ad, "MachineAttrMachineType0");
    record.requested_wall = number(ad, "MaxWallTimeMins", 0)
        .map(|minutes| Millis::from_secs(minutes.saturating_mul(60)));
}

/// Universes whose jobs hold no slot of the pool: they run on the access point (scheduler, which is DAGMan's, and local), or
/// on another Grid's machines, which are counted there.
const WITHOUT_SLOT: [u64; 3] = [7, 9, 12];

/// The universe of jobs that hold a slot on each of several hosts at once.
const PARALLEL: u64 = 11;

/// How many hosts a job of the parallel universe held: as the schedd lists or counts them, else as it was asked for.
fn hosts(ad: &Ad) -> u64 {
    let listed = text(ad, "AllRemoteHosts").or_else(|| text(ad, "LastRemoteHosts"));
    let listed = listed.map(|list| list.split(',').count() as u64);
    let counted = number(ad, "CurrentHosts", 0).filter(|hosts| *hosts > 0);
    let asked = || number(ad, "MinHosts", 0).or_else(|| number(ad, "MaxHosts", 0));
    listed.or(counted).or_else(asked).unwrap_or(1).max(1)
}

/// A count of nodes or GPUs that is none does not take the rest of the record with it: a user may have written it.
fn resources(ad: &Ad, noted_slots: bool, record: &mut BatchRecord) -> Result<(), Reason> {
    let noted = |what: &str| number(ad, &format!("MachineAttr{what}0"), 0).filter(|_| noted_slots);
    let held = |what: &str| {
        noted(what)
            .or_else(|| number(ad, &format!("{what}Provisioned"), 0))
            .or_else(|| number(ad, &format!("Request{what}"), 0))
    };
    // A user may edit the universe, and not what the schedd has noted of the slot.
    let universe = number(ad, "JobUniverse", 0).filter(|_| noted("Cpus").is_none());
    if universe.is_some_and(|universe| WITHOUT_SLOT.contains(&universe)) {
        record.cpus = Some(0);
        return Ok(());
    }
    let times = match universe {
        Some(PARALLEL) => hosts(ad),
        _ => 1,
    };
    let held = |what: &str| held(what).map(|amount| amount.saturating_mul(times));
    let cpus = held("Cpus").map(|cpus| fields::narrow("RequestCpus", cpus));
    record.cpus = cpus.transpose()?;
    if let (None, Some(requested)) = (record.cpus, text(ad, "RequestCpus")) {
        return Err(Reason::field("RequestCpus", &requested, "a number"));
    }
    // Where the schedd notes slots as `fairmesh condor setup` wants it, one without a word of GPUs has none.
    let gpus = match noted("Memory") {
        Some(_) => noted("GPUs"),
        None => held("GPUs"),
    };
    record.gpus = gpus.and_then(|gpus| u32::try_from(gpus).ok());
    record.memory_mib = held("Memory");
    record.requested_memory_mib = number(ad, "RequestMemory", 0);
    let kib = |name: &str| number(ad, name, 0).map(|kib| kib.saturating_mul(1 << 10));
    record.disk_mib = held("Disk").map(|kib| kib >> 10);
    record.memory_peak_bytes = kib("ResidentSetSize");
    record.virtual_peak_bytes = kib("ImageSize");
    // A job of the parallel universe counts its hosts, any other has one.
    let nodes = number(ad, "MaxHosts", 0);
    record.nodes = nodes.and_then(|nodes| u32::try_from(nodes).ok());
    Ok(())
}

fn text(ad: &Ad, name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    debug_assert!(is_read(&name), "{name}");
    let value = ad.get(&name)?;
    let is_none = value.is_empty() || value.eq_ignore_ascii_case("undefined") || value == "null";
    (!is_none).then(|| value.clone())
}

fn number(ad: &Ad, name: &str, scale: i32) -> Option<u64> {
    value::decimal(&text(ad, name)?, scale)
}
