//! What became of a report, and how it is told.
//!
//! Invariant: every record that was read is in exactly one of counted, known, skipped and refused;
//! with a dry run, in what it would have been. Reasons are counted, and the first place of each kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use fairmesh_api::words::count;
use fairmesh_api::{AccountCharge, AccountingBody, Refusal, ReportBody, SummaryBody};
use fairmesh_model::clean;
use fairmesh_node::words::number::core_hours;
use fairmesh_records::Summary;
use serde::Serialize;

use super::super::totals;
use crate::output::{OutputArgs, Table, write_json};

/// Refused lines that `--json` lists.
const REFUSALS_MAX: usize = 100;

/// Reasons that are listed one by one.
const REASONS_MAX: usize = 20;

/// The sums of a report.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) report: ReportBody,
    pub(super) charge: u128,
    pub(super) credited: u128,
    pub(super) skipped: BTreeMap<String, u64>,
    pub(super) logged: u64,
    pub(super) ignored: u64,
    /// Records of which a field that decides nothing could not be read, by the field's name.
    pub(super) unread: BTreeMap<String, u64>,
    /// Whether a node said what it charges.
    pub(super) priced: bool,
    /// Records that got a Grid identity.
    pub(super) identified: u64,
    pub(super) accounts: BTreeMap<(Option<String>, String, bool), (u64, u128)>,
    /// With a dry run: what the jobs come to.
    pub(super) summary: Option<Summary>,
    pub(super) files: Vec<FileBody>,
    /// That charters do not list the site, in words.
    pub(super) foreign: BTreeSet<String>,
    /// By reason: how many, and the first place.
    pub(super) reasons: BTreeMap<String, (u64, String)>,
}

/// A file that was read.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FileBody {
    pub(super) file: String,
    /// None where it could not be recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packed: Option<&'static str>,
    pub(super) read: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejects: Option<String>,
    /// Why it was not read, or not to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl FileBody {
    /// Of a file of which nothing was read.
    pub(super) fn failed(file: String, error: &anyhow::Error) -> Self {
        Self {
            file,
            format: None,
            packed: None,
            read: 0,
            rejects: None,
            error: Some(format!("{error:#}")),
        }
    }
}

/// `fairmesh.report/1` as the command gives it: the node's words on all requests, and its own.
#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    accounting: AccountingBody,
    dry_run: bool,
    /// Whether a node said what it charges; a dry run can do without one.
    priced: bool,
    ignored: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unread: BTreeMap<String, u64>,
    identified: u64,
    files: Vec<FileBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<SummaryBody>,
}

impl Tally {
    /// Adds what the node said, but for its refusals, which have places of their own.
    pub(super) fn add(&mut self, told: &AccountingBody) {
        self.priced = true;
        self.report.counted += told.report.counted;
        self.report.known += told.report.known;
        self.report.left_out += told.report.left_out;
        for (day, jobs) in &told.report.taken_back_on {
            *self.report.taken_back_on.entry(day.clone()).or_default() += jobs;
        }
        self.report.unmapped += told.report.unmapped;
        self.report.late += told.report.late;
        self.charge += told.report.charge_core_ms.parse::<u128>().unwrap_or(0);
        self.credited += told.report.credited_core_ms.parse::<u128>().unwrap_or(0);
        self.logged += told.logged;
        for (why, count) in &told.skipped {
            self.skip(why, *count);
        }
        for account in &told.accounts {
            let key = (account.vo.clone(), account.path.clone(), account.mapped);
            let (records, charge) = self.accounts.entry(key).or_default();
            *records += account.records;
            *charge += account.charge_core_ms.parse::<u128>().unwrap_or(0);
        }
    }

    pub(super) fn skip(&mut self, why: &str, count: u64) {
        *self.skipped.entry(why.to_owned()).or_default() += count;
    }

    pub(super) fn refuse(&mut self, why: &str, file: &str, line: u64) {
        self.report.refused += 1;
        let why = clean(why);
        let place = format!("{file}:{line}");
        if self.report.refusals.len() < REFUSALS_MAX {
            let reason = format!("{place}: {why}");
            self.report.refusals.push(Refusal { line, reason });
        }
        let known = self.reasons.len() < REASONS_MAX || self.reasons.contains_key(&why);
        let why = if known {
            why
        } else {
            "other reasons".to_owned()
        };
        self.reasons.entry(why).or_insert((0, place)).0 += 1;
    }

    /// Tells it all. With `-P` only tables go to `out`, and the words to standard error.
    pub(super) fn write(
        mut self,
        out: &mut dyn Write,
        format: &OutputArgs,
        dry_run: bool,
    ) -> anyhow::Result<()> {
        self.report.charge_core_ms = self.charge.to_string();
        self.report.credited_core_ms = self.credited.to_string();
        if format.json {
            return self.write_json(out, dry_run);
        }
        if format.parsable {
            self.write_words(&mut std::io::stderr(), dry_run)?;
        } else {
            self.write_words(out, dry_run)?;
        }
        if let Some(summary) = self.summary.as_ref().map(SummaryBody::from) {
            if !format.parsable {
                writeln!(out)?;
            }
            totals::table(&summary).write(out, format)?;
        }
        // A second table would only confuse a script: `--json` has both.
        if !self.accounts.is_empty() && !format.parsable {
            writeln!(out)?;
            self.write_accounts(out, format)?;
        }
        for (why, (count, first)) in &self.reasons {
            note!("refused {count}: {why} (first at {first})");
        }
        for file in &self.files {
            if let Some(rejects) = &file.rejects {
                note!(
                    "the refused lines of {} are in {rejects}: correct them there, then run `fairmesh report --rejects \
                     {rejects}`",
                    file.file
                );
            }
        }
        for foreign in &self.foreign {
            note!("{foreign}");
        }
        if self.report.late > 0 {
            note!("late: older than any history, so they charge nothing");
        }
        if self.report.unmapped > 0 && !dry_run {
            note!("`fairmesh usage --unmapped` lists whom no identity rule maps");
        }
        Ok(())
    }

    fn write_words(&self, out: &mut dyn Write, dry_run: bool) -> std::io::Result<()> {
        for file in &self.files {
            let packed = file
                .packed
                .map_or_else(String::new, |packed| format!(" in {packed}"));
            let (name, format) = (&file.file, file.format.unwrap_or("not read"));
            writeln!(
                out,
                "{name}: {format}{packed}, {}",
                count(file.read, "record")
            )?;
        }
        let (report, skipped) = (&self.report, self.skipped.values().sum::<u64>());
        writeln!(
            out,
            "read {}, {} {}, known {}, not charged {skipped}, unmapped {}, late {}, refused {}; {}",
            report.read,
            if dry_run { "to be counted" } else { "counted" },
            report.counted,
            report.known,
            report.unmapped,
            report.late,
            report.refused,
            self.charged(dry_run),
        )?;
        for (why, count) in &self.skipped {
            writeln!(out, "not charged {count}: {why}")?;
        }
        self.write_remarks(out)?;
        let whole = self.summary.as_ref().map(SummaryBody::from);
        if let Some(whole) = whole.map(|summary| summary.totals) {
            writeln!(
                out,
                "{}: {} CPU-hours, {} wall-hours, {} node-hours, {} GPU-hours, {} wait-hours",
                count(whole.jobs, "job"),
                whole.cpu_hours,
                whole.wall_hours,
                whole.node_hours,
                whole.gpu_hours,
                whole.wait_hours
            )?;
        }
        Ok(())
    }

    /// What of the records was left out, taken back, passed over or added.
    fn write_remarks(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let report = &self.report;
        if report.left_out > 0 {
            writeln!(
                out,
                "of those known, left out {}: ended before the loss, and usage of that time came back from other sites",
                report.left_out
            )?;
        }
        if self.credited > 0 {
            writeln!(
                out,
                "credited {} core-hours: final records came to less than the instalments of their jobs",
                core_hours(&report.credited_core_ms)
            )?;
        }
        for (day, jobs) in &report.taken_back_on {
            let (day, jobs) = (clean(day), count(*jobs, "job"));
            writeln!(
                out,
                "taken back on {day}: {jobs}, which count again only if they are reported as something else"
            )?;
        }
        if self.ignored > 0 {
            writeln!(
                out,
                "passed over {}: no records",
                count(self.ignored, "line")
            )?;
        }
        for (field, records) in &self.unread {
            let read = count(report.read, "record");
            writeln!(
                out,
                "{} not readable in {records} of {read}: left out",
                clean(field)
            )?;
        }
        if self.identified > 0 {
            writeln!(out, "given a Grid identity: {}", self.identified)?;
        }
        Ok(())
    }

    fn charged(&self, dry_run: bool) -> String {
        let charge = core_hours(&self.report.charge_core_ms);
        match (dry_run, self.priced) {
            (false, _) => format!("{charge} core-hours charged"),
            (true, true) => {
                format!("{charge} core-hours would be charged; nothing was recorded")
            }
            (true, false) => "not priced, as no node answers; nothing was recorded".to_owned(),
        }
    }

    fn write_accounts(&self, out: &mut dyn Write, format: &OutputArgs) -> std::io::Result<()> {
        let mut table = Table::new("VO|Account|Records|CoreHours|ByRule").cut();
        for ((vo, path, mapped), (records, charge)) in &self.accounts {
            table.row([
                vo.as_deref().map_or_else(|| "local".to_owned(), clean),
                clean(path),
                records.to_string(),
                core_hours(&charge.to_string()),
                if *mapped { "yes" } else { "no" }.to_owned(),
            ]);
        }
        table.write(out, format)
    }

    fn write_json(self, out: &mut dyn Write, dry_run: bool) -> anyhow::Result<()> {
        let accounts = self.accounts.into_iter();
        let accounts = accounts.map(|((vo, path, mapped), (records, charge))| AccountCharge {
            vo,
            path,
            mapped,
            records,
            charge_core_ms: charge.to_string(),
        });
        let told = Told {
            accounting: AccountingBody {
                report: self.report,
                skipped: self.skipped,
                logged: self.logged,
                accounts: accounts.collect(),
            },
            dry_run,
            priced: self.priced,
            ignored: self.ignored,
            unread: self.unread,
            identified: self.identified,
            files: self.files,
            summary: self.summary.as_ref().map(SummaryBody::from),
        };
        write_json(out, "fairmesh.report/1", &told)
    }
}
