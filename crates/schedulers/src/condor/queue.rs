//! What `condor_q -json` says of jobs: of those of one schedd, and of who submits in a pool.
//!
//! Invariant: an attribute is read from its place in the document, so nothing that users write is taken for one; a
//! submitter has one row, and it is that of its own user where he has jobs. Deliberately not here: universes whose jobs
//! no negotiator matches.

use std::collections::BTreeMap;

use fairmesh_model::clean;
use fairmesh_model::record::fitting;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::command::{CommandError, Commands};
use crate::job::{Job, State};

const ATTRIBUTES: &str = "ClusterId,ProcId,JobStatus,Owner,User,AccountingGroup,AcctGroup,QDate,JobStartDate,ShadowBday,\
                          RemoteWallClockTime,ServerTime,RequestCpus,MachineAttrCpus0,MachineAttrGPUs0,MachineAttrMemory0,\
                          RemoteHost";

/// Grid (9), scheduler (7) and local (12) jobs take no slot of a pool.
const MATCHED: &str = "JobUniverse =!= 7 && JobUniverse =!= 9 && JobUniverse =!= 12";

/// A job as HTCondor describes it. What users may write, in whatever kind, neither hides it nor any other.
#[derive(Debug, Clone)]
struct Ad {
    cluster_id: u32,
    proc_id: u32,
    job_status: u64,
    owner: String,
    user: String,
    /// What the negotiator knows its submitter by, if not by its owner.
    accounting_group: Option<String>,
    account: Option<String>,
    q_date: Option<u64>,
    job_start_date: Option<u64>,
    shadow_bday: Option<u64>,
    server_time: Option<u64>,
    remote_wall_clock_time: Option<u64>,
    request_cpus: Option<u64>,
    /// What the schedd has noted of the slot.
    machine_attr_cpus0: Option<u64>,
    machine_attr_gpus0: Option<u64>,
    machine_attr_memory0: Option<u64>,
    remote_host: Option<String>,
}

impl Ad {
    /// Reads one, or says what it lacks. Names of attributes are in the case that whoever wrote them chose.
    fn read(json: &str) -> Result<Self, String> {
        let pairs: BTreeMap<String, &RawValue> =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        let pairs: BTreeMap<String, &str> = pairs
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.get()))
            .collect();
        let get = |name: &str| pairs.get(&name.to_ascii_lowercase()).copied();
        let number = |name: &str| whole(get(name)?);
        let text = |name: &str| serde_json::from_str::<String>(get(name)?).ok();
        let group = |name: &str| account(get(name)?);
        let lacks = |name: &str| format!("a job without a {name}");
        let id = |name: &str| {
            let id = number(name).and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| lacks(name))
        };
        let whose = |name: &str| text(name).ok_or_else(|| lacks(name));
        Ok(Self {
            cluster_id: id("ClusterId")?,
            proc_id: id("ProcId")?,
            job_status: number("JobStatus").ok_or_else(|| lacks("JobStatus"))?,
            owner: whose("Owner")?,
            user: whose("User")?,
            accounting_group: text("AccountingGroup")
                .filter(|group| !group.is_empty() && expression(group).is_none()),
            account: group("AcctGroup").or_else(|| group("AccountingGroup")),
            q_date: number("QDate"),
            job_start_date: number("JobStartDate"),
            shadow_bday: number("ShadowBday"),
            server_time: number("ServerTime"),
            remote_wall_clock_time: number("RemoteWallClockTime"),
            request_cpus: number("RequestCpus"),
            machine_attr_cpus0: number("MachineAttrCpus0"),
            machine_attr_gpus0: number("MachineAttrGPUs0"),
            machine_attr_memory0: number("MachineAttrMemory0"),
            remote_host: text("RemoteHost"),
        })
    }
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
    // Raw values have no depth and no range: what no number can be, or is nested too deep, is one attribute's matter.
    for list in serde_json::Deserializer::from_str(text).into_iter::<Vec<&RawValue>>() {
        let list = list.unwrap_or_else(|error| {
            bad.push(clean(&error.to_string()));
            Vec::new()
        });
        for json in list {
            match Ad::read(json.get()) {
                Ok(ad) => ads.push(ad),
                Err(why) => bad.push(clean(&why)),
            }
        }
    }
    (ads, bad)
}

fn job(ad: &Ad) -> Job {
    let count = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
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
        cpus: count(ad.machine_attr_cpus0)
            .or(count(ad.request_cpus))
            .unwrap_or(1),
        gpus: count(ad.machine_attr_gpus0).unwrap_or(0),
        mem_mib: ad.machine_attr_memory0.unwrap_or(0),
        submit: ad.q_date.unwrap_or(0),
        start: ad.job_start_date,
        used: ad.remote_wall_clock_time.unwrap_or(0).saturating_add(run),
        host: ad.remote_host.as_deref().map(fitting),
        account: ad.account.clone(),
        user: fitting(&*ad.owner),
        ..Job::default()
    }
}

/// A group as the records have it (`fairmesh-records`), which takes what is no string as it stands.
fn account(json: &str) -> Option<String> {
    let text = serde_json::from_str(json).unwrap_or_else(|_| json.to_owned());
    let group = expression(&text).unwrap_or(&text);
    let is_none = group.is_empty() || group.eq_ignore_ascii_case("undefined") || group == "null";
    (!is_none).then(|| fitting(group))
}

/// An expression, which HTCondor prints as a string of its own kind.
fn expression(text: &str) -> Option<&str> {
    text.strip_prefix("/Expr(")?.strip_suffix(")/")
}

/// One row for each submitter, which waits if one of its jobs does. Also complains of jobs of one user under the name
/// of another.
fn by_submitter(ads: &[Ad], mut bad: Vec<String>) -> (Vec<Job>, Vec<String>) {
    let mut rows: BTreeMap<String, (bool, Job)> = BTreeMap::new();
    for ad in ads {
        let name = ad.accounting_group.as_deref().unwrap_or(&ad.owner);
        // The negotiator serves no such submitter, and writes down what it is told of one by words and lines.
        if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            bad.push(format!("{} is no name of a submitter", clean(name)));
            continue;
        }
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
fn whole(json: &str) -> Option<u64> {
    let text = serde_json::from_str::<serde_json::Number>(json)
        .ok()?
        .to_string();
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
    fn no_value_that_a_user_writes_hides_his_job_or_anothers() {
        let [usual, runs] = ["\"slot1@pool\"", "\"Owner\": \"games\""];
        let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
        for value in [
            "5",
            "[]",
            "{}",
            "null",
            "true",
            "1.797693134862316E+308",
            "-1e9999",
            &*deep,
        ] {
            let text = CONDOR_Q.replacen(usual, value, 1);
            let (ads, bad) = ads(&text);
            assert_eq!((ads.len(), bad.len()), (3, 1), "{value}: {bad:?}");
        }
        let names = [
            "AccountingGroup",
            "AcctGroup",
            "JobStartDate",
            "MachineAttrCpus0",
            "QDate",
        ];
        for name in [
            &names[..],
            &["RemoteWallClockTime", "ServerTime", "ShadowBday"],
        ]
        .concat()
        {
            for value in ["5", "[]", "\"x\"", "-1", "1e400", &*deep] {
                // The last of two is the one that counts.
                let own = format!("{runs}, \"{name}\": {value}");
                let (ads, bad) = ads(&CONDOR_Q.replacen(runs, &own, 1));
                assert_eq!((ads.len(), bad.len()), (3, 1), "{name} {value}: {bad:?}");
                let (rows, _) = by_submitter(&ads, Vec::new());
                let expected = if name == "AccountingGroup" { 3 } else { 2 };
                assert_eq!(rows.len(), expected, "{name} {value}: {rows:?}");
            }
        }
    }

    #[test]
    fn a_name_that_no_submitter_can_have_is_not_handed_to_the_negotiator() {
        for name in ["a\\nb.eve", "a b.eve", "a\\u0001.eve", "a\u{a0}b.eve"] {
            let text = format!(
                r#"[{{"ClusterId":1,"ProcId":0,"JobStatus":1,"Owner":"eve","User":"eve@pool","AccountingGroup":"{name}"}}]"#
            );
            let (rows, bad) = by_submitter(&ads(&text).0, Vec::new());
            assert_eq!((rows.len(), bad.len()), (0, 1), "{name}");
        }
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
