//! Records for AUDITOR, one JSON object a line, as its `/record` takes them.
//!
//! Invariant: the characters that AUDITOR forbids in names are written as `%` and two digits, and so is `%`; the key of
//! the job is in `meta`, so that the record reads back with it. Amounts are CPUs, GPUs, MiB of memory, nodes, and
//! milliseconds of CPU time. Deliberately not here: scores, which are the site's benchmarks.
//!
//! Source: `RecordAdd` of AUDITOR, whose names have neither `/()"<>\{}` nor more than 256 characters.

use std::collections::BTreeMap;
use std::fmt::Write;

use fairmesh_model::WallTime;
use serde_json::json;

use super::ogf::iso;
use super::{ApelSite, Gap};
use crate::record::BatchRecord;

/// The key of `meta` under which a record names the key of its job.
pub(crate) const AUDITOR_KEY: &str = "fairmesh_key";

/// The line of one job.
///
/// # Errors
/// [`Gap`] where the job has not ended, or lacks a start, an end or its CPUs.
pub fn auditor_record(record: &BatchRecord, site: &ApelSite) -> Result<String, Gap> {
    let job = || record.key.job.clone();
    if !record.state.has_ended() {
        return Err(Gap::NotEnded(job()));
    }
    let missing = |field| Gap::Missing { job: job(), field };
    let time = |moment: Option<WallTime>, field| {
        let moment = moment.ok_or_else(|| missing(field))?;
        iso(moment).ok_or_else(|| Gap::Time { job: job(), field })
    };
    let cpus = record.cpus.ok_or_else(|| missing("Cores"))?;
    let key = [&record.key.cluster, &record.key.job].map(|name| to_auditor(name));
    let instance = record.key.instance.to_string();
    let id = format!("fairmesh-{}-{}-{instance}", key[0], key[1]);
    let mut meta = BTreeMap::from([
        ("site_id", vec![to_auditor(&site.name)]),
        (AUDITOR_KEY, [&key[..], &[instance]].concat()),
    ]);
    let owner = &record.origin;
    for (name, value) in [
        ("user_id", owner.user.as_ref()),
        ("group_id", owner.group.as_ref()),
        ("account_id", owner.account.as_ref()),
        ("subject", owner.subject.as_ref()),
        ("voms", record.fqans.first()),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            meta.insert(name, vec![to_auditor(value)]);
        }
    }
    let amounts = [
        ("Cores", Some(u64::from(cpus))),
        ("GPUs", record.gpus.map(u64::from)),
        ("Memory", record.memory_mib),
        ("NNodes", record.nodes.map(u64::from)),
        ("TotalCPU", record.cpu_time.map(|time| time.0)),
    ];
    let component = |(name, amount): (&str, Option<u64>)| {
        Some(json!({"name": name, "amount": amount?, "scores": []}))
    };
    let components: Vec<_> = amounts.into_iter().filter_map(component).collect();
    let object = json!({
        "record_id": id,
        "meta": meta,
        "components": components,
        "start_time": time(record.start, "start_time")?,
        "stop_time": time(record.end, "stop_time")?,
    });
    Ok(format!("{object}\n"))
}

fn to_auditor(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if "/()\"<>\\{}%".contains(c) || c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(text, "%{byte:02X}").expect("a string takes all text");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// A name as it was before [`to_auditor`].
pub(crate) fn from_auditor(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.first_chunk::<2>().filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
