//! `sacct -P`, with whatever fields it was asked for.
//!
//! Invariant: fields are known by the name in the header line (or in the `--format` that the caller
//! repeats), never by their place. A separator within the one field of free text is undone; where
//! two fields could hold it, the line is refused.

use std::borrow::Cow;

use fairmesh_model::{JobKey, Millis};

use super::job_id::{self, Part};
use super::list::{Column, Layout};
use super::tres::{self, Tres};
use crate::blocks::Gathered;
use crate::error::Reason;
use crate::fields::{self, given};
use crate::format::Format;
use crate::parser::{Found, Ignored, Options, Parser};
use crate::record::BatchRecord;
use crate::state::JobState;
use crate::value;

/// What to ask `sacct -a -X -P -D -o` for. `-D` shows the earlier runs of requeued jobs, too; the
/// job's name stands last, so that a `|` in it does no harm. A line end does, which Slurm prints as it
/// is: whoever pays by such a list leaves the name out, or draws a `--delimiter` that no user can know.
pub const SACCT_FORMAT: &str = "jobidraw,jobid,cluster,account,user,uid,group,gid,partition,qos,\
    state,exitcode,submit,eligible,start,end,elapsedraw,timelimitraw,nnodes,ncpus,reqcpus,reqmem,\
    alloctres,reqtres,nodelist,priority,jobname";

/// Above this, Slurm's old "memory per node" is a memory per CPU with its flag misread.
const PER_CPU_FLAG_MIB: u64 = 0x8000_0000;

pub(crate) struct SacctLines {
    options: Options,
    layout: Option<Layout>,
    /// The header line that named the columns, as it was read.
    header: Option<String>,
    /// Columns of the jobs' key that the list lacks.
    lacks: Option<&'static str>,
    /// Whether the list was refused for that.
    is_refused: bool,
    /// Lines of a record whose quotation mark is open.
    gathered: Gathered,
    /// Quotation marks in them.
    is_open: bool,
}

impl SacctLines {
    pub(crate) fn new(options: Options) -> Self {
        let columns = options.columns.as_deref();
        let layout =
            columns.map(|columns| Layout::of_columns(columns, options.delimiter.as_deref()));
        Self {
            options,
            lacks: layout.as_ref().and_then(lacking),
            layout,
            header: None,
            is_refused: false,
            gathered: Gathered::default(),
            is_open: false,
        }
    }

    fn record(&self, line: &str) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let layout = self.layout.as_ref().ok_or(Reason::NoColumns)?;
        let row = Row::new(layout, line)?;
        let raw = row
            .given(Column::JobIdRaw)
            .or_else(|| row.given(Column::JobId));
        let raw = raw.ok_or_else(|| Reason::missing("JobID"))?;
        let label = row.given(Column::JobId).unwrap_or(raw);
        for id in [raw, label] {
            let parsed = job_id::parse(id);
            let (_, part) = parsed.ok_or_else(|| Reason::field("JobID", id, "a job id"))?;
            if part == Part::Step {
                return Ok(Err(Ignored::Step));
            }
            // Jobs of an array that are pending have one id together, and no charge.
            let is_own = match part {
                Part::Tasks(tasks) => !tasks.starts_with('['),
                other => other == Part::Component,
            };
            if is_own && row.get(Column::JobIdRaw).is_empty() {
                return Err(Reason::Shape(format!(
                    "the list lacks JobIDRaw, which identifies `{id}` in other reports: add it to `sacct --format`"
                )));
            }
        }
        let state = row
            .given(Column::State)
            .ok_or_else(|| Reason::missing("State"))?;
        let key = JobKey {
            cluster: row
                .given(Column::Cluster)
                .unwrap_or(&self.options.cluster)
                .to_owned(),
            job: raw.to_owned(),
            instance: 0,
        };
        let mut record = BatchRecord::new(Format::SlurmSacct, key, fields::state(state)?);
        self.times(&row, &mut record)?;
        fields::set_instance(&mut record, "Submit")?;
        fields::set_label(&mut record, label.to_owned());
        whose(&row, &mut record);
        resources(&row, &mut record)?;
        record.checked().map(Ok)
    }

    fn times(&self, row: &Row<'_>, record: &mut BatchRecord) -> Result<(), Reason> {
        let zone = &self.options.zone;
        let time = |column: Column, not_before| {
            fields::time(zone, column.into(), row.get(column), not_before)
        };
        record.wall = match row.given(Column::ElapsedRaw) {
            Some(seconds) => fields::length("ElapsedRaw", seconds)?,
            None => fields::length("Elapsed", row.get(Column::Elapsed))?,
        };
        record.submit = time(Column::Submit, None)?;
        record.eligible = record.if_read(time(Column::Eligible, record.submit));
        record.start = time(Column::Start, record.submit)?;
        let elapsed = record.wall.unwrap_or(Millis(0));
        record.end = time(Column::End, record.start.map(|start| start.after(elapsed)))?;
        after_resize(record);
        let limit = match row.given(Column::TimelimitRaw) {
            Some(limit) => fields::minutes("TimelimitRaw", limit),
            None => fields::length("Timelimit", row.get(Column::Timelimit)),
        };
        record.requested_wall = record.if_read(limit);
        record.cpu_time = record.if_read(fields::length("TotalCPU", row.get(Column::TotalCpu)));
        Ok(())
    }
}

/// After a job was resized it has a new row: with the start of the whole run, an elapsed time since then, and a submit
/// time that is the moment of the change.
pub(super) fn after_resize(record: &mut BatchRecord) {
    if record.state == JobState::Resizing && record.end.is_some() {
        record.state = JobState::Resized;
    }
    if let (Some(start), Some(submit)) = (record.start, record.submit)
        && submit > start
    {
        let before = submit.since(start);
        let rest = |wall: Millis| Millis(wall.0.saturating_sub(before.0));
        record.wall = record.wall.map(rest);
        record.start = Some(submit);
    }
}

impl SacctLines {
    /// Takes a line that is whole.
    fn take(&mut self, line: &str, number: u64, found: &mut Found) {
        if self.is_refused {
            return found.ignore(Ignored::OfRefusedList);
        }
        if let Some(missing) = self.lacks {
            self.is_refused = true;
            let reason = format!(
                "the list lacks {missing}, without which its jobs cannot be distinguished from those of other reports: \
                 add to `sacct --format` what is missing; nothing of this list is counted"
            );
            return found.record(number, Err(Reason::Shape(reason)));
        }
        match self.record(line) {
            Ok(Ok(record)) => found.record(number, Ok(record)),
            Ok(Err(why)) => found.ignore(why),
            Err(reason) => found.record(number, Err(reason)),
        }
    }

    /// Whether a quotation mark is open behind this line. Where only some fields are quoted, that is an error of the
    /// line: one user's mark must not take in the lines of others.
    fn is_open_behind(&self, line: &str) -> bool {
        let layout = self.layout.as_ref().filter(|layout| layout.is_quoted);
        layout.is_some_and(|layout| layout.is_open_behind(line, self.is_open))
    }

    fn finish(&mut self, found: &mut Found) {
        let (first, text) = self.gathered.take();
        self.is_open = false;
        match text {
            Ok(text) => self.take(text.trim_end_matches('\n'), first, found),
            Err(reason) => found.record(first, Err(reason)),
        }
    }
}

impl Parser for SacctLines {
    fn line(&mut self, line: &str, number: u64, found: &mut Found) {
        let is_open = self.is_open_behind(line);
        if is_open || !self.gathered.is_empty() {
            self.gathered.push(line, number);
            self.is_open = is_open;
            if !is_open {
                self.finish(found);
            }
            return;
        }
        if line.trim().is_empty() {
            return found.ignore(Ignored::Decoration);
        }
        if let Some(layout) = Layout::of_header(line, self.options.delimiter.as_deref()) {
            (self.lacks, self.is_refused) = (lacking(&layout), false);
            (self.layout, self.header) = (Some(layout), Some(line.to_owned()));
            return found.ignore(Ignored::Decoration);
        }
        self.take(line, number, found);
    }

    fn end(&mut self, _number: u64, found: &mut Found) {
        if !self.gathered.is_empty() && !self.options.growing {
            self.finish(found);
        }
    }

    fn lost(&mut self) {
        self.gathered = Gathered::default();
        self.is_open = false;
    }

    fn is_at_rest(&self) -> bool {
        self.gathered.is_empty()
    }

    fn columns(&self) -> Option<&str> {
        self.layout.as_ref().map(|layout| layout.header.as_str())
    }

    fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }
}

/// The columns that the keys of a list's jobs need and that it lacks. The submit time distinguishes the runs of a job:
/// with another instance, a job that a second source reports would be charged twice.
fn lacking(layout: &Layout) -> Option<&'static str> {
    let has = |column: Column| layout.place(column).is_some();
    match (has(Column::JobIdRaw), has(Column::Submit)) {
        (_, true) => None,
        (true, false) => Some("Submit"),
        (false, false) => Some("JobIDRaw and Submit"),
    }
}

/// A line's fields by name.
struct Row<'a> {
    layout: &'a Layout,
    values: Vec<Cow<'a, str>>,
    /// Fields that a column of free text took, because it held separators.
    extra: usize,
    free: usize,
}

impl<'a> Row<'a> {
    fn new(layout: &'a Layout, line: &'a str) -> Result<Self, Reason> {
        let columns = &layout.columns;
        let mut values = layout.split(line)?;
        // `sacct -p` ends each line with a separator.
        if values.len() == columns.len() + 1 && values.last().is_some_and(|last| last.is_empty()) {
            values.pop();
        }
        let shape = |found: usize| {
            let columns = columns.len();
            Reason::Shape(format!("{found} fields, where {columns} are expected"))
        };
        let extra = values
            .len()
            .checked_sub(columns.len())
            .ok_or_else(|| shape(values.len()))?;
        let free = layout.free.first().copied().unwrap_or(columns.len());
        if extra > 0 && layout.free.len() != 1 {
            return Err(shape(values.len()));
        }
        Ok(Self {
            layout,
            values,
            extra,
            free,
        })
    }

    fn get(&self, column: Column) -> &str {
        let Some(at) = self.layout.place(column) else {
            return "";
        };
        let at = if at > self.free { at + self.extra } else { at };
        self.values.get(at).map_or("", |value| value)
    }

    fn given(&self, column: Column) -> Option<&str> {
        given(self.get(column))
    }

    /// Free text, with the separators that were in it.
    fn text(&self, column: Column) -> Option<String> {
        let at = self.layout.place(column)?;
        let text = match at.cmp(&self.free) {
            std::cmp::Ordering::Equal => self
                .values
                .get(at..=at + self.extra)?
                .join(&self.layout.delimiter),
            _ => self.get(column).to_owned(),
        };
        fields::name(&text)
    }
}

fn whose(row: &Row<'_>, record: &mut BatchRecord) {
    record.origin.user = fields::name(row.get(Column::User));
    record.origin.account = fields::name(row.get(Column::Account));
    record.origin.group = fields::name(row.get(Column::Group));
    record.uid = record.if_read(fields::number("UID", row.get(Column::Uid)));
    record.gid = record.if_read(fields::number("GID", row.get(Column::Gid)));
    record.name = row.text(Column::JobName);
    record.queue = fields::name(row.get(Column::Partition));
    record.qos = fields::name(row.get(Column::Qos));
    record.exit = record.if_read(fields::exit("ExitCode", row.get(Column::ExitCode)));
    record.priority = record.if_read(fields::number("Priority", row.get(Column::Priority)));
    let assigned = |hosts: &&str| *hosts != "None assigned";
    record.hosts = row
        .given(Column::NodeList)
        .filter(assigned)
        .map(str::to_owned);
}

fn resources(row: &Row<'_>, record: &mut BatchRecord) -> Result<(), Reason> {
    let held = Tres::parse(
        "AllocTRES",
        row.given(Column::AllocTres).unwrap_or_default(),
        record,
    )?;
    let (reqtres, is_untold) = (
        row.given(Column::ReqTres),
        row.given(Column::AllocTres).is_none(),
    );
    let asked = Tres::asked("ReqTRES", reqtres.unwrap_or_default(), record, is_untold)?;
    let started = record.start.is_some();
    let number = |column: Column| fields::number(column.into(), row.get(column));
    let narrow =
        |field, count: Option<u64>| count.map(|count| fields::narrow(field, count)).transpose();
    let allocated = number(Column::Ncpus)?
        .or(number(Column::AllocCpus)?)
        .or(held.cpus);
    let allocated = match allocated {
        None => of_cpu_time(row, record)?,
        some => some,
    };
    let requested = match (allocated, number(Column::ReqCpus)) {
        (Some(_), requested) if started => record.if_read(requested),
        (_, requested) => requested?.or(asked.cpus),
    };
    let cpus = match started {
        // A list without what was allocated has what was asked for.
        true => allocated.or(requested),
        false => allocated.filter(|cpus| *cpus > 0).or(requested),
    };
    record.cpus = narrow("NCPUS", cpus)?;
    let nodes = number(Column::Nnodes).and_then(|nodes| Ok(nodes.or(number(Column::AllocNodes)?)));
    let nodes = nodes.and_then(|nodes| narrow("NNodes", nodes.or(held.nodes)));
    record.nodes = record.if_read(nodes);
    // Older Slurms do not track GPUs, and name them in what was asked for only.
    let gres = [Column::AllocGres, Column::ReqGres]
        .map(|field| row.given(field).and_then(tres::gres_gpus));
    let gpus = held.gpus.or(gres[0]).or(gres[1]).or(asked.gpus);
    record.gpus = narrow("gres/gpu", gpus)?;
    let requested = requested_memory_mib(row, record);
    record.requested_memory_mib = record.if_read(requested).or(asked.memory_mib);
    // Where allocations are tracked, a job without memory in its own holds none; where they are
    // not, it holds what it asked for.
    record.memory_mib = if row.given(Column::AllocTres).is_some() {
        held.memory_mib
    } else {
        record.requested_memory_mib
    };
    let energy = row
        .given(Column::ConsumedEnergyRaw)
        .or(row.given(Column::ConsumedEnergy));
    record.energy_j = record
        .if_read(energy.map(joules).transpose())
        .or(held.energy_j);
    let peak = row
        .given(Column::MaxRss)
        .and_then(|text| value::bytes(text, 1));
    record.memory_peak_bytes = peak;
    Ok(())
}

/// `ConsumedEnergy`: joules, also as `12.34K`.
fn joules(text: &str) -> Result<u64, Reason> {
    let unit = text.chars().last().and_then(|letter| "KMGTP".find(letter));
    let (number, times) = match unit {
        None => (text, 1),
        Some(place) => (
            &text[..text.len() - 1],
            (0..=place).fold(1, |times, _| times * 1_000),
        ),
    };
    let thousandths = value::decimal(number, 3);
    let joules = thousandths.and_then(|number| Some(number.checked_mul(times)? / 1_000));
    joules.ok_or_else(|| Reason::field("ConsumedEnergy", text, "an amount of energy"))
}

/// The CPUs that a job held where the list has them times the seconds for which it did.
fn of_cpu_time(row: &Row<'_>, record: &BatchRecord) -> Result<Option<u64>, Reason> {
    let total = match row.given(Column::CpuTimeRaw) {
        Some(seconds) => fields::number("CPUTimeRAW", seconds)?.map(Millis::from_secs),
        None => fields::length("CPUTime", row.get(Column::CpuTime))?,
    };
    let held = record
        .wall
        .or_else(|| record.span())
        .filter(|held| held.0 > 0);
    let pair = total.zip(held);
    Ok(pair.map(|(total, held)| total.0.div_ceil(held.0)))
}

/// `ReqMem`: of the job (`4G`), of a node (`4Gn`) or of a CPU (`4Gc`, before Slurm 21.08).
fn requested_memory_mib(row: &Row<'_>, record: &BatchRecord) -> Result<Option<u64>, Reason> {
    let Some(text) = row.given(Column::ReqMem) else {
        return Ok(None);
    };
    let cpus = u64::from(record.cpus.unwrap_or(1));
    let nodes = u64::from(record.nodes.unwrap_or(1));
    let (amount, times) = match text.as_bytes().last() {
        Some(b'c') => (&text[..text.len() - 1], cpus),
        Some(b'n') => (&text[..text.len() - 1], nodes),
        _ => (text, 1),
    };
    let bytes = value::bytes(amount, 1 << 20);
    let mib = bytes.ok_or_else(|| Reason::field("ReqMem", text, "an amount of memory"))? >> 20;
    let total = match mib.checked_sub(PER_CPU_FLAG_MIB) {
        Some(per_cpu) if text.ends_with('n') => per_cpu.saturating_mul(cpus),
        _ => mib.saturating_mul(times),
    };
    Ok(Some(total))
}
