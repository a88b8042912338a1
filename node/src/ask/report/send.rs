//! Records on their way to the node, some thousand at once.
//!
//! Invariant: what the node refuses is refused at the place where it was read. A batch that was not
//! acknowledged may be sent again: nothing counts twice.

use std::collections::BTreeSet;

use fairmesh_model::WallTime;
use fairmesh_records::{BatchRecord, ChargeRule, Job, Skip};
use serde::Serialize;

use super::super::{AskError, Control};
use super::rejects::Rejects;
use super::source::Entry;
use super::tally::Tally;
use crate::control::answer::{AccountingBody, Answer};
use crate::control::clean;

/// To whom, and whether in earnest.
pub(super) struct Way {
    /// Nobody: a dry run where no node answers.
    pub(super) control: Option<Control>,
    pub(super) dry_run: bool,
    /// Whether records that the node refuses for now are sent again later.
    pub(super) follows: bool,
    /// Whose price list a dry run goes by, if not the node's own.
    pub(super) at_site: Option<String>,
}

/// Where records come from, and where the refused ones go.
pub(super) struct Origin<'a> {
    pub(super) file: &'a str,
    pub(super) rejects: &'a mut Rejects,
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
        batch: &[(u64, Box<Entry>)],
        from: &mut Origin<'_>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        if self.dry_run {
            let refused = self.estimate(batch, from, tally).await?;
            if let Some(summary) = &mut tally.summary {
                let kept = batch.iter().filter(|(line, _)| !refused.contains(line));
                for (_, entry) in kept {
                    summary.add(&Job::of(&entry.record, None));
                }
            }
            return Ok(());
        }
        let (mut plain, mut full) = (Vec::new(), Vec::new());
        for (line, entry) in batch {
            match &entry.usage {
                Some(usage) => plain.push((*line, usage)),
                None => full.push((*line, &entry.record)),
            }
        }
        self.post("/v1/records", &[], &plain, from, tally).await?;
        self.post("/v1/accounting", &[], &full, from, tally).await?;
        Ok(())
    }

    /// Gives the lines that were refused, as far as the node lists them.
    async fn post(
        &self,
        path: &str,
        parameters: &[(&str, Option<&str>)],
        items: &[(u64, impl Serialize)],
        from: &mut Origin<'_>,
        tally: &mut Tally,
    ) -> anyhow::Result<BTreeSet<u64>> {
        let mut refused = BTreeSet::new();
        let Some(control) = self.control.as_ref().filter(|_| !items.is_empty()) else {
            return Ok(refused);
        };
        let mut body = Vec::new();
        for (_, item) in items {
            serde_json::to_writer(&mut body, item)?;
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
        tally.add(&answer.body);
        for refusal in &answer.body.report.refusals {
            let index = usize::try_from(refusal.line).unwrap_or(0).saturating_sub(1);
            let Some((line, item)) = items.get(index) else {
                tally.refuse(&refusal.reason, from.file, refusal.line);
                continue;
            };
            refused.insert(*line);
            tally.refuse(&refusal.reason, from.file, *line);
            let place = format!("{}:{line}", from.file);
            let text = serde_json::to_vec(item)?;
            from.rejects.keep(&place, &clean(&refusal.reason), &text);
        }
        let report = &answer.body.report;
        tally.report.refused += report.refused.saturating_sub(report.refusals.len() as u64);
        Ok(refused)
    }

    /// What would become of a batch; gives the lines that are refused.
    async fn estimate(
        &mut self,
        batch: &[(u64, Box<Entry>)],
        from: &mut Origin<'_>,
        tally: &mut Tally,
    ) -> anyhow::Result<BTreeSet<u64>> {
        if self.control.is_some() {
            let items = batch.iter().map(|(line, entry)| (*line, &entry.record));
            let items: Vec<(u64, &BatchRecord)> = items.collect();
            let at_site = self.at_site.as_deref();
            let parameters = [("dry_run", Some("true")), ("at_site", at_site)];
            let sent = self.post("/v1/accounting", &parameters, &items, from, tally);
            let error = match sent.await {
                Ok(refused) => return Ok(refused),
                Err(error) => error,
            };
            let away = matches!(error.downcast_ref(), Some(AskError::Unreachable { .. }));
            if !away || at_site.is_some() {
                return Err(error);
            }
            eprintln!("no node answers, so no identity rules are tried and nothing is priced");
            self.control = None;
        }
        let mut refused = BTreeSet::new();
        let rule = ChargeRule::default();
        for (line, entry) in batch {
            match rule.usage(&entry.record, WallTime(u64::MAX)) {
                Ok(_) => tally.report.counted += 1,
                Err(Skip::Invalid(why)) => {
                    let why = why.to_string();
                    refused.insert(*line);
                    tally.refuse(&why, from.file, *line);
                }
                Err(skip) => tally.skip(skip.name(), 1),
            }
        }
        Ok(refused)
    }
}
