//! What `condor_q -json` says of jobs: of those of one schedd, and of who submits in a pool.
//!
//! Invariant: an attribute is read from its place in the document, so nothing that users write is taken for one; a
//! submitter has one row, and it is that of its own user where he has jobs. Deliberately not here: universes whose jobs
//! no negotiator matches.

use std::collections::BTreeMap;

use fairmesh_model::clean;
use fairmesh_model::record::fitting;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::command::{CommandError, Commands};
use crate::job::{Job, State};

const ATTRIBUTES: &str = "ClusterId,ProcId,JobStatus,Owner,User,AccountingGroup,AcctGroup,QDate,JobStartDate,ShadowBday,\
                          RemoteWallClockTime,ServerTime,RequestCpus,MachineAttrCpus0,MachineAttrGPUs0,MachineAttrMemory0,\
                          RemoteHost";

/// Grid (9), scheduler (7) and local (12) jobs take no slot of a pool.
const MATCHED: &str = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12";

/// A job as HTCondor describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Ad {
    cluster_id: u32,
    proc_id: u32,
    job_status: u8,
    owner: String,
    user: String,
    accounting_group: Option<String>,
    acct_group: Option<String>,
    #[serde(default)]
    q_date: u64,
    job_start_date: Option<u64>,
    shadow_bday: Option<u64>,
    server_time: Option<u64>,
    /// Expressions where a user wrote one.
    #[serde(default)]
    remote_wall_clock_time: Value,
    #[serde(default)]
    request_cpus: Value,
    /// What the schedd has noted of the slot.
    #[serde(default)]
    machine_attr_cpus0: Value,
    #[serde(default, rename = "MachineAttrGPUs0")]
    machine_attr_gpus0: Value,
    #[serde(default)]
    machine_attr_memory0: Value,
    remote_host: Option<String>,
}

/// The jobs of the schedd here.
pub(super) async fn jobs(commands: &Commands) -> Result<(Vec<Job>, Vec<String>), CommandError> {
    let arguments = [
        "-allusers",
        "-json",
        "-attributes",
        ATTRIBUTES,
        "-constraint",
        MATCHED,
    ];
    let (ads, bad) = ads(&commands.ask("condor_q", &arguments).await?);
    Ok((ads.iter().map(job).collect(), bad))
}

/// Who submits, to all schedds of the pool, and has something that waits or runs.
pub(super) async fn submitters(
    commands: &Commands,
) -> Result<(Vec<Job>, Vec<String>), CommandError> {
    let alive = format!("{MATCHED} && JobStatus =!= 5");
    let arguments = ["-global", "-allusers", "-json", "-attributes", ATTRIBUTES];
    let arguments = [&arguments[..], &["-constraint", &alive]].concat();
    let (ads, bad) = ads(&commands.ask("condor_q", &arguments).await?);
    Ok(by_submitter(&ads, bad))
}

/// A number for a submitter: what a loop knows of him it knows by that.
pub(super) fn id_of(submitter: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(submitter).into();
    let first = hash.first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}

/// A list for each schedd; a sentence instead where all queues are empty.
fn ads(text: &str) -> (Vec<Ad>, Vec<String>) {
    let (mut ads, mut bad) = (Vec::new(), Vec::new());
    let text = text.trim_start();
    if !text.starts_with('[') {
        if !text.is_empty() && !text.starts_with("All queues are empty") {
            bad.push(clean(text.lines().next().unwrap_or_default()));
        }
        return (ads, bad);
    }
    for list in serde_json::Deserializer::from_str(text).into_iter::<Vec<Value>>() {
        match list {
            Ok(list) => {
                for value in list {
                    match serde_json::from_value(value) {
                        Ok(ad) => ads.push(ad),
                        Err(error) => bad.push(clean(&error.to_string())),
                    }
                }
            }
            Err(error) => bad.push(clean(&error.to_string())),
        }
    }
    (ads, bad)
}

fn job(ad: &Ad) -> Job {
    let number = |value: &Value| whole(value).and_then(|number| u32::try_from(number).ok());
    let state = match ad.job_status {
        1 | 5 => State::Pending,
        2 | 6 | 7 => State::Running,
        _ => State::Leaving,
    };
    let label = format!("{}.{}", ad.cluster_id, ad.proc_id);
    // What it held in earlier runs, and since this one began.
    let since = ad.shadow_bday.filter(|_| state == State::Running);
    let run = since.map_or(0, |since| {
        ad.server_time.unwrap_or(since).saturating_sub(since)
    });
    Job {
        id: u64::from(ad.cluster_id) << 32 | u64::from(ad.proc_id),
        target: label.clone(),
        label: Some(label),
        state,
        held: ad.job_status == 5,
        cpus: number(&ad.machine_attr_cpus0)
            .or_else(|| number(&ad.request_cpus))
            .unwrap_or(1),
        gpus: number(&ad.machine_attr_gpus0).unwrap_or(0),
        mem_mib: whole(&ad.machine_attr_memory0).unwrap_or(0),
        submit: ad.q_date,
        start: ad.job_start_date,
        used: whole(&ad.remote_wall_clock_time)
            .unwrap_or(0)
            .saturating_add(run),
        host: ad.remote_host.as_deref().map(fitting),
        account: account(ad),
        user: fitting(&*ad.owner),
        ..Job::default()
    }
}

/// As the records have it (`fairmesh-records`).
fn account(ad: &Ad) -> Option<String> {
    let group = ad.acct_group.as_deref().or(ad.accounting_group.as_deref());
    group.map(fitting).filter(|group| !group.is_empty())
}

/// One row for each submitter, which waits if one of its jobs does. Also complains of jobs of one user under the name
/// of another.
fn by_submitter(ads: &[Ad], mut bad: Vec<String>) -> (Vec<Job>, Vec<String>) {
    let mut rows: BTreeMap<String, (bool, Job)> = BTreeMap::new();
    for ad in ads {
        let name = ad
            .accounting_group
            .as_deref()
            .filter(|group| !group.is_empty());
        let name = name.unwrap_or(&ad.owner);
        let group = name.strip_suffix(&ad.owner);
        let is_own = group.is_some_and(|group| group.is_empty() || group.ends_with('.'));
        let domain = ad.user.rsplit_once('@').map_or("", |(_, domain)| domain);
        let submitter = format!("{name}@{domain}");
        let mut job = job(ad);
        let (whole_id, waits) = (id_of(&submitter), job.state == State::Pending);
        (job.id, job.target) = (whole_id, submitter.clone());
        match rows.get_mut(&submitter) {
            Some((known_own, known)) => {
                let waits = waits || known.state == State::Pending;
                if job.origin() != known.origin() {
                    let (one, other) = (&known.user, &job.user);
                    bad.push(format!(
                        "{} is used by {one} and {other}",
                        clean(&submitter)
                    ));
                }
                if is_own && !*known_own {
                    (*known_own, *known) = (true, job);
                }
                if waits {
                    known.state = State::Pending;
                }
            }
            None => {
                rows.insert(submitter, (is_own, job));
            }
        }
    }
    bad.dedup();
    (rows.into_values().map(|(_, job)| job).collect(), bad)
}

/// The digits before the point of a number that is not below zero.
fn whole(value: &Value) -> Option<u64> {
    let text = value.as_number()?.to_string();
    text.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What HTCondor 23.9.6 printed, of several calls, without attributes that nobody asks for.
    const CONDOR_Q: &str = r#"[
{
  "AccountingGroup": "xavier.games",
  "AcctGroup": "xavier",
  "ClusterId": 7,
  "MachineAttrCpus0": 2,
  "JobStartDate": 1795574611,
  "JobStatus": 2,
  "Owner": "games",
  "ProcId": 0,
  "QDate": 1795574603,
  "RemoteHost": "slot1@pool",
  "RemoteWallClockTime": 4.0,
  "RequestCpus": 2,
  "ServerTime": 1795574620,
  "ShadowBday": 1795574611,
  "User": "games@pool"
}
,
{
  "AccountingGroup": "xavier.games",
  "AcctGroup": "xavier",
  "ClusterId": 8,
  "JobStatus": 1,
  "Owner": "games",
  "ProcId": 3,
  "QDate": 1795574603,
  "RemoteWallClockTime": 0.0,
  "RequestCpus": "\/Expr(1 + 1)\/",
  "User": "games@pool"
}
]
[
{
  "ClusterId": 7,
  "JobStatus": 5,
  "Owner": "news",
  "ProcId": 0,
  "QDate": 1795574603,
  "User": "news@pool"
}
,
{ "ClusterId": 9 }
]
"#;

    #[test]
    fn jobs_and_their_time_of_all_runs() {
        let (ads, bad) = ads(CONDOR_Q);
        assert_eq!(bad.len(), 1, "{bad:?}");
        let jobs: Vec<Job> = ads.iter().map(job).collect();
        let [runs, waits, held] = &jobs[..] else {
            panic!("{jobs:?}")
        };
        assert_eq!((runs.state, runs.cpus, runs.used), (State::Running, 2, 13));
        assert_eq!(runs.record_name(), "7.0");
        assert_eq!(
            (&*runs.user, runs.account.as_deref()),
            ("games", Some("xavier"))
        );
        assert_eq!(
            (waits.state, waits.cpus, waits.held),
            (State::Pending, 1, false)
        );
        assert_eq!((held.held, held.account.as_deref()), (true, None));
    }

    #[test]
    fn a_submitter_has_one_row_which_waits_if_one_of_its_jobs_does() {
        let (rows, bad) = by_submitter(&ads(CONDOR_Q).0, Vec::new());
        assert!(bad.is_empty(), "{bad:?}");
        let told: Vec<_> = rows.iter().map(|row| (&*row.target, row.state)).collect();
        let (games, news) = ("xavier.games@pool", "news@pool");
        assert_eq!(told, [(news, State::Pending), (games, State::Pending)]);
        assert_eq!(rows[1].id, id_of(games));
    }

    #[test]
    fn whoever_submits_under_anothers_name_does_not_decide_where_that_stands() {
        let ad = |owner: &str| {
            format!(
                r#"{{"ClusterId":1,"ProcId":0,"JobStatus":1,"Owner":"{owner}","User":"{owner}@pool",
                 "AccountingGroup":"bio.ann","AcctGroup":"bio"}}"#
            )
        };
        for order in [["eve", "ann"], ["ann", "eve"]] {
            let text = format!("[{},{}]", ad(order[0]), ad(order[1]));
            let (rows, bad) = by_submitter(&ads(&text).0, Vec::new());
            assert_eq!(rows.len(), 1);
            assert_eq!(rows[0].user, "ann");
            assert_eq!(bad.len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_list_is_no_empty_queue() {
        assert_eq!(ads("All queues are empty\n").1.len(), 0);
        assert_eq!(ads("").1.len(), 0);
        assert_eq!(ads("Error: cannot").1.len(), 1);
        assert_eq!(ads("[{").1.len(), 1);
    }
}
