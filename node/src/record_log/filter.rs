//! Which records, and what they come to.
//!
//! Invariant: a record is in a period if the job was there at some moment of it, from its start (or
//! submission) to its end; sums count only what lies in the period. Names are compared whole.

use std::collections::HashSet;

use fairmesh_model::{AccountPath, JobKey, WallTime};
use fairmesh_records::{BatchRecord, Dimension, Summary};
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter, types::Value};

use super::{LogError, row, signed};

/// Which records are wanted; what is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// There at or after.
    pub since: Option<WallTime>,
    /// Only jobs that were there before this time; `None` for no limit.
    pub until: Option<WallTime>,
    /// Records of this local user only.
    pub user: Option<String>,
    /// Batch account or project.
    pub account: Option<String>,
    /// Records of this local group only.
    pub group: Option<String>,
    /// Records of this VO only, by its alias here.
    pub vo: Option<String>,
    /// State, by Slurm's long name.
    pub state: Option<String>,
    /// Records of this queue or partition only.
    pub queue: Option<String>,
    /// Records of this cluster only.
    pub cluster: Option<String>,
    /// What the reader may see; `None` for everything.
    pub only: Option<Only>,
    /// Jobs that were taken back: listed as such, and in no sums.
    pub corrected: HashSet<JobKey>,
}

/// What a reader is shown: his own jobs, and those of accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Only {
    /// The reader's local user name: own records are visible.
    pub user: String,
    /// VOs, by alias, and paths in them; what lies below these, too.
    pub accounts: Vec<(Option<String>, AccountPath)>,
}

impl Only {
    /// Its values are handed to `value`, which says where each stands.
    fn condition(&self, value: &mut impl FnMut(Value) -> usize) -> String {
        let user = value(Value::Text(self.user.clone()));
        let mut words = vec![format!("user = ?{user}")];
        for (vo, path) in &self.accounts {
            let below = format!("{}/", path.as_str().trim_end_matches('/'));
            let chars = i64::try_from(below.chars().count()).unwrap_or(i64::MAX);
            let vo = value(vo.clone().map_or(Value::Null, Value::Text));
            let path = value(Value::Text(path.to_string()));
            let chars = value(Value::Integer(chars));
            let below = value(Value::Text(below));
            words.push(format!(
                "(vo IS ?{vo} AND (path = ?{path} OR substr(path, 1, ?{chars}) = ?{below}))"
            ));
        }
        format!("({})", words.join(" OR "))
    }
}

impl Filter {
    fn is_corrected(&self, row: &Row<'_>, columns: [usize; 3]) -> rusqlite::Result<bool> {
        Ok(!self.corrected.is_empty() && self.corrected.contains(&row::key(row, columns)?))
    }

    /// Conditions of which one holds for each record that is wanted, and never two: each has an index. Those of
    /// later moments come first. And their values, the same for all.
    fn conditions(&self) -> (Vec<String>, Vec<Value>) {
        let (mut words, mut values) = (vec!["1".to_owned()], Vec::new());
        let mut value = |value: Value| {
            values.push(value);
            values.len()
        };
        // The end; of a job that has not ended it is not known, so it is still there.
        let ended = self.since.map(|since| {
            let since = value(Value::Integer(signed(since.0)));
            [
                format!("moment >= ?{since}"),
                format!("is_over = 0 AND moment < ?{since}"),
            ]
        });
        if let Some(until) = self.until {
            let until = value(Value::Integer(signed(until.0)));
            words.push(format!("coalesce(started, submitted, moment) < ?{until}"));
        }
        let names = [
            ("user", &self.user),
            ("account", &self.account),
            ("local_group", &self.group),
            ("vo", &self.vo),
            ("state", &self.state),
            ("queue", &self.queue),
            ("cluster", &self.cluster),
        ];
        for (column, name) in names {
            if let Some(name) = name {
                words.push(format!("{column} = ?{}", value(Value::Text(name.clone()))));
            }
        }
        if let Some(only) = &self.only {
            words.push(only.condition(&mut value));
        }
        let words = words.join(" AND ");
        let ended = ended.into_iter().flatten();
        let mut each: Vec<String> = ended.map(|ended| format!("{ended} AND {words}")).collect();
        if each.is_empty() {
            each.push(words);
        }
        (each, values)
    }

    /// A query of `columns` of all records that are wanted and for which `also` holds.
    pub(super) fn query(&self, columns: &str, also: &str) -> (String, Vec<Value>) {
        let (conditions, values) = self.conditions();
        let each = conditions
            .iter()
            .map(|condition| format!("SELECT {columns} FROM records WHERE {condition} AND {also}"));
        (each.collect::<Vec<_>>().join(" UNION ALL "), values)
    }
}

/// Gives `each` the newest `most` of the records, the oldest of them first, until it says no: their JSON, with `vo` and
/// `path` added, an object on one line. Says whether there were more. Blocks on the disk.
///
/// # Errors
/// If the log cannot be read.
pub fn find(
    connection: &Connection,
    filter: &Filter,
    most: u32,
    mut each: impl FnMut(String) -> bool,
) -> Result<bool, LogError> {
    let (newest, values) = filter.query("id, moment", "1");
    let newest = format!("{newest} ORDER BY moment DESC, id DESC");
    let count = format!(
        "SELECT count(*) FROM ({newest} LIMIT {})",
        u64::from(most) + 1
    );
    let found: i64 = connection.query_row(&count, params_from_iter(&values), |row| row.get(0))?;
    let query = format!(
        "SELECT record, vo, path, cluster, job, instance FROM records \
         WHERE id IN (SELECT id FROM ({newest} LIMIT {most})) ORDER BY moment, id"
    );
    let mut statement = connection.prepare(&query)?;
    let mut rows = statement.query(params_from_iter(&values))?;
    while let Some(found) = rows.next()? {
        let text = |column: usize| -> rusqlite::Result<Option<&str>> {
            Ok(found.get_ref(column)?.as_str_or_null()?)
        };
        let is_taken_back = filter.is_corrected(found, [3, 4, 5])?;
        let account = (text(1)?, text(2)?);
        if !each(row::with_account(
            text(0)?.unwrap_or("{}"),
            account,
            is_taken_back,
        )) {
            break;
        }
    }
    Ok(found > i64::from(most))
}

/// The sums of the records. Blocks on the disk.
///
/// # Errors
/// If the log cannot be read.
pub fn summarise(
    connection: &Connection,
    filter: &Filter,
    by: &[Dimension],
) -> Result<Summary, LogError> {
    let since = filter.since.unwrap_or(WallTime(0));
    let until = filter.until.unwrap_or(WallTime(u64::MAX));
    let mut summary = Summary::by(by).within(since, until);
    let columns = format!("{}, job, instance", row::JOB_COLUMNS);
    let (query, values) = filter.query(&columns, "is_over = 1");
    let mut statement = connection.prepare(&query)?;
    let mut rows = statement.query(params_from_iter(&values))?;
    while let Some(found) = rows.next()? {
        if filter.is_corrected(found, [5, 15, 16])? {
            continue;
        }
        row::with_job(found, |job| {
            summary.add(job);
        })?;
    }
    Ok(summary)
}

/// The last word on a job by its id; by its cluster and run as well, where they are given. The inner error
/// says in words why there is not one. Blocks on the disk.
///
/// # Errors
/// If the log cannot be read.
pub fn find_job(
    connection: &Connection,
    (cluster, job, instance): (Option<&str>, &str, Option<u64>),
) -> Result<Result<BatchRecord, String>, LogError> {
    let wanted = "FROM records WHERE job = ?1 AND (?2 IS NULL OR cluster = ?2) \
                  AND (?3 IS NULL OR instance = ?3)";
    let values = params![job, cluster, instance.map(u64::cast_signed)];
    let count = format!("SELECT count(*) {wanted}");
    let found: i64 = connection.query_row(&count, values, |row| row.get(0))?;
    if found > 1 {
        return Ok(Err(format!(
            "{found} jobs `{job}` are in the record log: say of which cluster, and which instance"
        )));
    }
    let query = format!("SELECT record {wanted}");
    let text: Option<String> = connection
        .query_row(&query, values, |row| row.get(0))
        .optional()?;
    let record = text.as_deref().and_then(row::record);
    Ok(record.ok_or_else(|| {
        format!("job `{job}` is not in the record log: hand in its record as it was reported")
    }))
}
