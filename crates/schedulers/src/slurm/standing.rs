//! Where one job stands in Slurm's queue, and who is next before it: `fairmesh explain --job`.
//!
//! Invariant: the order is Slurm's own, by what it holds now, and what another program prints in the place of a value
//! is never taken for one. Deliberately not here: why its account stands there, which only the node knows.

mod place;
mod rows;

use std::io::{self, Write};

use fairmesh_model::clean;

use super::{Slurm, frame};
use crate::now_ms;
use place::{Place, Queue};
use rows::Factors;
pub use rows::Standing;

/// A job, and the queue before it.
#[derive(Debug)]
pub struct InQueue {
    /// The job as the queue lists it.
    pub job: Standing,
    place: Place,
    factors: Option<Factors>,
    /// What `sprio` says of the job before it.
    factors_before: Option<Factors>,
    /// Why `sprio` gave no rows.
    sprio_failed: Option<String>,
}

/// Finds a job; none if there is no such job.
///
/// # Errors
/// If Slurm is away.
pub async fn find(slurm: &Slurm, wanted: &str) -> anyhow::Result<Option<InQueue>> {
    let mut jobs: Vec<Standing> = Vec::new();
    let asked = frame::squeue(&slurm.commands, &["-t", "all"], &rows::COLUMNS, |columns| {
        jobs.extend(Standing::from_row(columns))
    });
    asked.await?;
    let nodes = slurm.commands.ask("sinfo", &rows::SINFO).await?;
    // A cluster without `priority/multifactor` has an order all the same.
    let (factors, sprio_failed) = match slurm.commands.ask("sprio", &rows::SPRIO).await {
        Ok(text) => (rows::factors(&text), None),
        Err(error) => (rows::factors(""), Some(error.to_string())),
    };
    let queue = Queue {
        jobs,
        nodes: rows::partitions(&nodes),
        factors,
        now_s: now_ms() / 1_000,
    };
    let found = InQueue::new(&queue, wanted);
    Ok(found.map(|found| InQueue {
        sprio_failed,
        ..found
    }))
}

impl InQueue {
    fn new(queue: &Queue, wanted: &str) -> Option<Self> {
        let job = queue.job(wanted)?;
        let place = queue.place(job);
        let before = place.last.as_ref();
        Some(Self {
            factors: queue.factors_of(job).cloned(),
            factors_before: before.and_then(|(before, _)| queue.factors_of(before).cloned()),
            job: job.clone(),
            place,
            sprio_failed: None,
        })
    }

    /// The last of those before it that is of another user or account.
    pub fn before(&self) -> Option<&Standing> {
        Some(&self.place.last.as_ref()?.0)
    }

    /// Why Slurm serves the job before it first although the node would serve this one first.
    pub fn why_against_the_node(&self) -> String {
        let by_hand = |of: &Standing| {
            let job = clean(&of.job);
            format!(
                "An administrator has set the priority of job {job} by hand, which decides in Slurm."
            )
        };
        let is_fixed = |row: &Option<Factors>| row.as_ref().is_some_and(|row| row.is_fixed);
        match &self.place.last {
            Some((_, true)) => "Slurm serves the partition of a higher PriorityTier first, whatever the priorities."
                .to_owned(),
            _ if is_fixed(&self.factors) => by_hand(&self.job),
            Some((before, _)) if is_fixed(&self.factors_before) => by_hand(before),
            _ => "Slurm holds another order: its site factors are of an earlier round, or its own weights (age, \
                  size, QOS and the like) decide."
                .to_owned(),
        }
    }

    /// Says it in words.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn words(&self, out: &mut dyn Write) -> io::Result<()> {
        let job = &self.job;
        let (name, reason) = (job.named(), clean(&job.reason));
        if !job.is_pending() {
            let state = clean(&job.state);
            return writeln!(
                out,
                "In Slurm, {name} is {state}: no priority matters to it now."
            );
        }
        if job.is_held() {
            return writeln!(
                out,
                "In Slurm, {name} is held ({reason}), whatever its account used."
            );
        }
        let partition = clean(&job.partitions.join(","));
        writeln!(
            out,
            "In Slurm, {name} waits in {partition}; the reason given is {reason}."
        )?;
        if job.is_untried() {
            let untried = "Slurm has not tried it yet: ask again in a few seconds for its place among the others.";
            writeln!(out, "{untried}")?;
        } else if !self.place.in_turn {
            writeln!(
                out,
                "It cannot start now, whatever its priority: it takes its place among the others when that reason ends."
            )?;
        }
        writeln!(out, "{}", self.priority_words())?;
        if self.place.in_turn {
            self.place_words(out)?;
        }
        self.kept_words(out)
    }

    fn priority_words(&self) -> String {
        let (job, priority) = (clean(&self.job.job), self.job.priority);
        match (&self.factors, &self.sprio_failed) {
            (Some(row), _) if row.is_fixed => format!(
                "Its priority is {priority}: an administrator has set this priority by hand, so fairshare does not \
                 move it."
            ),
            (Some(row), _) => format!(
                "Its priority is {priority}; its site factor is {}.",
                row.site
            ),
            (None, Some(why)) => {
                let why = clean(why);
                format!("Its priority is {priority}; its site factor is not known: {why}.")
            }
            (None, None) if !self.place.in_turn => format!(
                "Slurm has no priority row for job {job}: it computes one when the job can start."
            ),
            (None, None) => format!(
                "Its priority is {priority}. Slurm has no priority row for job {job}: it runs or is held by now."
            ),
        }
    }

    fn place_words(&self, out: &mut dyn Write) -> io::Result<()> {
        let place = &self.place;
        let ahead = place.by_tier.saturating_add(place.by_priority);
        let waiting = place.waiting;
        writeln!(
            out,
            "{ahead} of {waiting} other jobs that can start now on its nodes stand before it; each task of an array \
             is a job."
        )?;
        if place.by_tier > 0 {
            writeln!(
                out,
                "{} of them are in a partition of a higher PriorityTier, which goes first whatever the priority.",
                place.by_tier
            )?;
        }
        for array in &place.limited {
            let most = array.tasks_at_once().unwrap_or_default();
            let (tasks, name) = (array.tasks(), clean(&array.job));
            writeln!(
                out,
                "{tasks} of them are tasks of {name}, which runs at most {most} at once."
            )?;
        }
        match &place.last {
            Some((before, _)) => {
                writeln!(out, "Of those of others, {} is the last.", before.named())
            }
            None if ahead > 0 => writeln!(out, "All of them are of the same account."),
            None => Ok(()),
        }
    }

    fn kept_words(&self, out: &mut dyn Write) -> io::Result<()> {
        let kept = &self.place.kept;
        if kept.is_empty() {
            return Ok(());
        }
        let all = kept
            .values()
            .fold(0, |sum: u64, more| sum.saturating_add(*more));
        let reasons = kept.iter();
        let reasons: Vec<String> = reasons
            .map(|(reason, count)| format!("{count} {}", clean(reason)))
            .collect();
        let reasons = reasons.join(", ");
        writeln!(
            out,
            "{all} more wait for the same nodes and cannot start now ({reasons}): they are not counted."
        )
    }
}

#[cfg(test)]
mod tests;
