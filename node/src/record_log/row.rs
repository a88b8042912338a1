//! A record as a row, and back.
//!
//! Invariant: the columns only repeat what the JSON of the record says, for filters and sums; the
//! JSON is what is given out. Deliberately not here: which rows.

use fairmesh_model::{JobKey, Millis, WallTime};
use fairmesh_records::{BatchRecord, Job, JobState};
use rusqlite::{Row, Statement, Transaction, params};
use serde_json::{Map, Value};

use super::{Entry, moment, signed};

const INSERT: &str = "
    INSERT INTO records (cluster, job, instance, moment, submitted, started, ended, held, user,
        account, local_group, subject, vo, path, queue, state, is_over, is_full, cpus, nodes, gpus,
        energy, record)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
        ?20, ?21, ?22, ?23)";

const UPDATE: &str = "
    ON CONFLICT (cluster, job, instance) DO UPDATE SET
        moment = excluded.moment, submitted = excluded.submitted, started = excluded.started,
        ended = excluded.ended, held = excluded.held, user = excluded.user,
        account = excluded.account, local_group = excluded.local_group,
        subject = excluded.subject, vo = excluded.vo, path = excluded.path,
        queue = excluded.queue, state = excluded.state, is_over = excluded.is_over,
        is_full = excluded.is_full, cpus = excluded.cpus, nodes = excluded.nodes,
        gpus = excluded.gpus, energy = excluded.energy, record = excluded.record";

const KNOWN: &str = "
    SELECT is_over, is_full, record, vo, path FROM records
    WHERE cluster = ?1 AND job = ?2 AND instance = ?3";

/// Writes entries; `now` dates what has no time of its own. Says how many rows are new.
pub(super) fn write(
    transaction: &Transaction<'_>,
    entries: &[Entry],
    now: WallTime,
) -> rusqlite::Result<u64> {
    let mut insert = transaction.prepare_cached(&format!("{INSERT} ON CONFLICT DO NOTHING"))?;
    let mut known = transaction.prepare_cached(KNOWN)?;
    let mut update = transaction.prepare_cached(&format!("{INSERT} {UPDATE}"))?;
    let mut inserted = 0;
    for entry in entries {
        let json = serde_json::to_string(&entry.record)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        if write_one(&mut insert, entry, &json, now)? {
            inserted += 1;
            continue;
        }
        let key = &entry.record.key;
        let row = known.query_row(
            params![key.cluster, key.job, key.instance.cast_signed()],
            |row| {
                let place = (row.get(3)?, row.get(4)?);
                Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, place))
            },
        )?;
        if let Some((entry, json)) = fuller(row, entry, json) {
            write_one(&mut update, &entry, &json, now)?;
        }
    }
    Ok(inserted)
}

/// What a job is charged for, and what says how long it held that.
const CHARGED: [&str; 11] = [
    "format",
    "start",
    "end",
    "wall",
    "cpus",
    "nodes",
    "gpus",
    "memory_mib",
    "requested_memory_mib",
    "chunks",
    "energy_j",
];

/// What says whom a job is charged to.
const WHOSE: [&str; 6] = ["user", "account", "group", "subject", "queue", "qos"];

/// A row as it stands: whether the job is over, whether the record is the batch system's own, the
/// record, and whom it is charged to.
type Known = (bool, bool, String, (Option<String>, Option<String>));

/// What is to stand in its place, if anything: an end outweighs an instalment, and the batch system's
/// own record what was only charged. Of two such records the later one counts, with what only the
/// earlier one says: `sacct` knows of a QOS, a job completion file does not. But what the first one was charged for
/// stays, for a job that has ended is charged once: a slurmctld that lost its state says of a job that ended long ago
/// that it ended now. A job that was taken back, and is reported as something else, has that record alone.
fn fuller(known: Known, entry: &Entry, json: String) -> Option<(Entry, String)> {
    let (was_over, was_full, old, place) = known;
    let is_moved = place != (entry.vo.clone(), entry.path.clone());
    if old == json && !is_moved {
        return None;
    }
    if entry.replaces {
        return Some((entry.clone(), json));
    }
    let weight = (entry.record.state.has_ended(), entry.full);
    if weight != (was_over, was_full) {
        return (weight > (was_over, was_full)).then(|| (entry.clone(), json));
    }
    let members = |json: &str| serde_json::from_str::<Map<String, Value>>(json).ok();
    let (mut merged, old_members) = (members(&json)?, members(&old)?);
    let is_same = |name: &&str| merged.get(*name) == old_members.get(*name);
    let is_theirs = WHOSE.iter().all(is_same);
    let stays = |name: &&str| CHARGED.contains(name) || WHOSE.contains(name);
    for (name, value) in old_members {
        match was_over && stays(&&*name) {
            true => drop(merged.insert(name, value)),
            false => drop(merged.entry(name).or_insert(value)),
        }
    }
    let record: BatchRecord = serde_json::from_value(merged.into()).ok()?;
    let json = serde_json::to_string(&record).ok()?;
    let (vo, path) = match was_over && !is_theirs {
        true => place,
        false => (entry.vo.clone(), entry.path.clone()),
    };
    let entry = Entry {
        record,
        vo,
        path,
        ..entry.clone()
    };
    (json != old || is_moved && is_theirs).then_some((entry, json))
}

/// Says whether anything was written.
fn write_one(
    statement: &mut Statement<'_>,
    entry: &Entry,
    json: &str,
    now: WallTime,
) -> rusqlite::Result<bool> {
    let record = &entry.record;
    let is_over = record.state.has_ended();
    let at = record
        .end
        .filter(|_| is_over)
        .or(record.start)
        .or(record.submit);
    let held = record.held().or(record.wall).filter(|_| is_over);
    let rows = statement.execute(params![
        record.key.cluster,
        record.key.job,
        record.key.instance.cast_signed(),
        signed(at.unwrap_or(now).0),
        record.submit.map(|time| signed(time.0)),
        record.start.map(|time| signed(time.0)),
        record.end.map(|time| signed(time.0)),
        held.map(|held| signed(held.0)),
        record.origin.user,
        record.origin.account,
        record.origin.group,
        record.origin.subject,
        entry.vo,
        entry.path,
        record.queue,
        record.state.name(),
        is_over,
        entry.full,
        record.cpus.unwrap_or(0),
        record.nodes.unwrap_or(0),
        record.gpus.unwrap_or(0),
        record.energy_j.map(signed),
        json,
    ])?;
    Ok(rows > 0)
}

/// Columns that [`with_job`] reads, in its order.
pub(super) const JOB_COLUMNS: &str = "user, account, local_group, vo, queue, cluster, state, \
    submitted, started, ended, held, cpus, nodes, gpus, energy";

/// Hands a row of [`JOB_COLUMNS`] on, without a copy of its names.
pub(super) fn with_job(row: &Row<'_>, take: impl FnOnce(&Job<'_>)) -> rusqlite::Result<()> {
    let text = |column: usize| -> rusqlite::Result<Option<&str>> {
        Ok(row.get_ref(column)?.as_str_or_null()?)
    };
    let time = |column: usize| -> rusqlite::Result<Option<i64>> { row.get(column) };
    let state = text(6)?.and_then(JobState::parse);
    take(&Job {
        user: text(0)?,
        account: text(1)?,
        group: text(2)?,
        vo: text(3)?,
        queue: text(4)?,
        cluster: text(5)?.unwrap_or_default(),
        state: state.unwrap_or(JobState::Failed),
        submit: time(7)?.map(moment),
        start: time(8)?.map(moment),
        end: time(9)?.map(moment),
        held: time(10)?.map(|held| Millis(moment(held).0)),
        cpus: row.get(11)?,
        nodes: row.get(12)?,
        gpus: row.get(13)?,
        energy_j: row.get::<_, Option<i64>>(14)?.map_or(0, i64::cast_unsigned),
    });
    Ok(())
}

/// The job of a row that has its cluster, id and run in these columns.
pub(super) fn key(row: &Row<'_>, [cluster, job, instance]: [usize; 3]) -> rusqlite::Result<JobKey> {
    Ok(JobKey {
        cluster: row.get(cluster)?,
        job: row.get(job)?,
        instance: row.get::<_, i64>(instance)?.cast_unsigned(),
    })
}

/// The record's JSON with whom it was charged to, and whether it was taken back: an object again.
pub(super) fn with_account(
    record: &str,
    (vo, path): (Option<&str>, Option<&str>),
    is_taken_back: bool,
) -> String {
    let mut json = record.strip_suffix('}').unwrap_or(record).to_owned();
    if is_taken_back {
        json.push_str(",\"taken_back\":true");
    }
    for (name, value) in [("vo", vo), ("path", path)] {
        if let Some(value) = value {
            let value = serde_json::Value::from(value);
            json.push_str(&format!(",\"{name}\":{value}"));
        }
    }
    json.push('}');
    json
}

/// Reads a record back; `None` if a later release wrote it in another way.
pub(super) fn record(json: &str) -> Option<BatchRecord> {
    serde_json::from_str(json).ok()
}
