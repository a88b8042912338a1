//! Records on their way to the node, some thousand at once.
//!
//! Invariant: what the node refuses is refused at the place where it was read. A batch that was not
//! acknowledged may be sent again: nothing counts twice.

use std::collections::BTreeSet;
use std::path::Path;

use fairmesh_api::client::{AskError, Control};
use fairmesh_api::{AccountingBody, Answer, RejectsBody};
use fairmesh_model::clean;
use fairmesh_node::driver::wall_now;
use fairmesh_records::{ChargeRule, Format, Job, Skip};
use fairmesh_schedulers::feed::BATCH_RECORDS;

use super::super::no_member;
use super::dry_run::{DryRun, Sifted};
use super::item::{Batch, Entry};
use super::read_options::ReadOptions;
use super::rejects::Rejects;
use super::tally::Tally;
use super::waiting::Waiting;

/// Where usage records go; all others go with all that is known of a job.
const RECORDS: &str = "/v1/records";

/// Path to which rejects are reported.
const REJECTS: &str = "/v1/rejects";

/// To whom, and whether in earnest.
pub(super) struct Way {
    /// Nobody: a dry run where no node answers.
    pub(super) control: Option<Control>,
    pub(super) dry_run: Option<DryRun>,
    /// Whether records that the node refuses for now are sent again later.
    pub(super) follows: bool,
    /// Whose price list a dry run goes by, if not the node's own.
    pub(super) at_site: Option<String>,
}

/// Where records come from, and where the refused ones go.
pub(super) struct Origin<'a> {
    pub(super) file: &'a str,
    rejects: &'a mut Rejects,
    /// What to read their texts with.
    section: &'a str,
}

impl<'a> Origin<'a> {
    pub(super) fn new(file: &'a str, rejects: &'a mut Rejects, section: &'a str) -> Self {
        Self {
            file,
            rejects,
            section,
        }
    }

    /// Keeps what the node refused: as it was read, or as it was sent.
    fn keep(&mut self, line: u64, why: &str, entry: &Entry) -> anyhow::Result<()> {
        let (place, why) = (format!("{}:{line}", self.file), clean(why));
        if !entry.text.is_empty() {
            self.rejects.keep(self.section, &place, &why, &entry.text);
            return Ok(());
        }
        let text = match &entry.usage {
            Some(usage) => serde_json::to_vec(usage)?,
            None => serde_json::to_vec(&entry.record)?,
        };
        let section = ReadOptions::of_format(Format::Json.name()).to_line();
        self.rejects.keep(&section, &place, &why, &text);
        Ok(())
    }
}

/// The node refuses records that it may accept later: it has no charter yet, or its clock is wrong.
#[derive(Debug, thiserror::Error)]
#[error("the node refuses records for now: {0}")]
pub(super) struct RefusedForNow(String);

impl Way {
    /// Sends a batch, or says what it would do.
    ///
    /// # Errors
    /// If the node cannot be asked. Nothing of the batch is in the tally then.
    pub(super) async fn send(
        &mut self,
        batch: Batch,
        from: &mut Origin<'_>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        if let Some(dry_run) = &mut self.dry_run {
            let sifted = dry_run.sift(batch, from.file);
            tally.report.known += sifted.known;
            return self.try_out(&sifted, from, tally).await;
        }
        let items = batch.iter().map(|(line, entry)| (*line, &**entry));
        let (plain, full): (Vec<_>, Vec<_>) = items.partition(|(_, entry)| entry.usage.is_some());
        self.post(RECORDS, &[], &plain, from, tally).await?;
        self.post("/v1/accounting", &[], &full, from, tally).await?;
        Ok(())
    }

    /// Tells the node how many rejects wait, where that has changed.
    pub(super) async fn tell_of(&self, rejects: &mut Rejects) {
        if let Some(path) = rejects.path.as_deref().or(rejects.removed.as_deref()) {
            self.tell_of_file(path, &mut rejects.waiting).await;
        }
    }

    /// Tells the node how many records wait in a file, where that has changed.
    pub(super) async fn tell_of_file(&self, path: &Path, waiting: &mut Waiting) {
        let control = self.control.as_ref().filter(|_| self.dry_run.is_none());
        let Some((control, news)) = control.zip(waiting.news(path)) else {
            return;
        };
        let told = async {
            let body = serde_json::to_vec(&news)?;
            let answer: Answer<RejectsBody> = control.post_with(REJECTS, &[], body).await?;
            Ok::<_, anyhow::Error>(answer.body)
        };
        match told.await {
            Ok(_) => waiting.is_told(),
            Err(error) => {
                note!("fairmesh: the rejects could not be reported to the node: {error:#}")
            }
        }
    }

    /// There is nothing more to send: says what a dry run has kept back.
    ///
    /// # Errors
    /// If the node cannot be asked.
    pub(super) async fn finish(
        &mut self,
        rejects: Option<&mut Rejects>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let Some(dry_run) = &mut self.dry_run else {
            return Ok(());
        };
        let mut nowhere = Rejects::of(Path::new("-"), None, false, false);
        let rejects = rejects.unwrap_or(&mut nowhere);
        for (file, batch) in dry_run.instalments() {
            let mut from = Origin::new(&file, rejects, "");
            for batch in batch.chunks(BATCH_RECORDS) {
                let sifted = Sifted {
                    fresh: batch.to_vec(),
                    ..Sifted::default()
                };
                self.try_out(&sifted, &mut from, tally).await?;
            }
        }
        Ok(())
    }

    /// Says what would become of a batch, and adds up its jobs.
    async fn try_out(
        &mut self,
        Sifted { fresh, rests, .. }: &Sifted,
        from: &mut Origin<'_>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let charged = fresh.iter().enumerate();
        let charged = charged.map(|(at, (line, entry))| (*line, rests.get(&at).unwrap_or(entry)));
        let charged: Vec<(u64, &Entry)> = charged.map(|(line, entry)| (line, &**entry)).collect();
        let refused = self.estimate(&charged, from, tally).await?;
        for (index, item) in fresh.iter().enumerate() {
            if refused.contains(&index) {
                if let Some(dry_run) = &mut self.dry_run {
                    dry_run.forget(std::iter::once(item));
                }
            } else if let Some(summary) = &mut tally.summary {
                summary.add(&Job::of(&item.1.record, None));
            }
        }
        Ok(())
    }

    /// Gives the positions of those that were refused, as far as the node lists them.
    async fn post(
        &self,
        path: &str,
        parameters: &[(&str, Option<&str>)],
        items: &[(u64, &Entry)],
        from: &mut Origin<'_>,
        tally: &mut Tally,
    ) -> anyhow::Result<BTreeSet<usize>> {
        let mut refused = BTreeSet::new();
        let Some(control) = self.control.as_ref().filter(|_| !items.is_empty()) else {
            return Ok(refused);
        };
        let mut body = Vec::new();
        for (_, entry) in items {
            match entry.usage.as_ref().filter(|_| path == RECORDS) {
                Some(usage) => serde_json::to_writer(&mut body, usage)?,
                None => serde_json::to_writer(&mut body, &entry.record)?,
            }
            body.push(b'\n');
        }
        let answer: Answer<AccountingBody> = control.post_with(path, parameters, body).await?;
        let report = &answer.body.report;
        if self.follows && report.for_now > 0 {
            let reason = report
                .refusals
                .first()
                .map(|refusal| clean(&refusal.reason));
            return Err(RefusedForNow(reason.unwrap_or_default()).into());
        }
        let foreign = answer.rests_on.views.iter().filter(|view| !view.is_member);
        tally.foreign.extend(foreign.map(no_member));
        tally.add(&answer.body);
        for refusal in &answer.body.report.refusals {
            let index = usize::try_from(refusal.line).unwrap_or(0).saturating_sub(1);
            let Some((line, entry)) = items.get(index) else {
                tally.refuse(&refusal.reason, from.file, refusal.line);
                continue;
            };
            refused.insert(index);
            tally.refuse(&refusal.reason, from.file, *line);
            from.keep(*line, &refusal.reason, entry)?;
        }
        let report = &answer.body.report;
        tally.report.refused += report.refused.saturating_sub(report.refusals.len() as u64);
        Ok(refused)
    }

    /// What would become of a batch; gives the positions of those that are refused.
    async fn estimate(
        &mut self,
        items: &[(u64, &Entry)],
        from: &mut Origin<'_>,
        tally: &mut Tally,
    ) -> anyhow::Result<BTreeSet<usize>> {
        if self.control.is_some() {
            let at_site = self.at_site.as_deref();
            let parameters = [("dry_run", Some("true")), ("at_site", at_site)];
            let sent = self.post("/v1/accounting", &parameters, items, from, tally);
            let error = match sent.await {
                Ok(refused) => return Ok(refused),
                Err(error) => error,
            };
            let away = matches!(error.downcast_ref(), Some(AskError::Unreachable { .. }));
            if !away || at_site.is_some() {
                return Err(error);
            }
            note!("no node answers, so no identity rules are tried and nothing is priced");
            self.control = None;
        }
        let mut refused = BTreeSet::new();
        let (rule, now) = (ChargeRule::default(), wall_now());
        for (index, (line, entry)) in items.iter().enumerate() {
            match rule.usage(&entry.record, now) {
                Ok(_) => tally.report.counted += 1,
                Err(Skip::Invalid(why)) => {
                    let why = why.to_string();
                    refused.insert(index);
                    tally.refuse(&why, from.file, *line);
                    from.keep(*line, &why, entry)?;
                }
                Err(skip) => tally.skip(skip.name(), 1),
            }
        }
        Ok(refused)
    }
}
