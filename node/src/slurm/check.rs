//! `fairmesh slurm check`: who of the cluster's users and accounts maps where, and who nowhere; and
//! whether the range of site factors keeps apart whom the node keeps apart.
//!
//! The names are slurmdbd's where it runs, and those of the queue elsewhere. Invariant: the answer is
//! the node's own, by the rules that it counts with. Exit 1 if somebody maps nowhere.
//! Deliberately not here: the rules (`[[identity]]`), which this is to help writing.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use anyhow::Context as _;
use fairmesh_client::{Client, LOOKUP_BATCH_MAX, Names, Who};

use super::Place;
use super::cluster::{Cluster, Finished};
use super::plan::scaled;
use super::runner::Runner;
use super::{follow, queue};
use crate::ask::Control;
use crate::control::answer::{Answer, PriorityBody};
use crate::control::clean;
use crate::output::{Align, Exit, OutputArgs, Table};

/// How long the node may take over a batch.
const LOOKUP_MAX: Duration = Duration::from_secs(10);

/// Finished jobs that are read where no database knows the accounts.
const FINISHED_MAX: usize = 100_000;

/// Say which users and accounts map where.
#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    /// Only those who map nowhere
    #[arg(long)]
    nowhere: bool,
    /// The form of the table.
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
///
/// # Errors
/// If Slurm or the node is away.
pub(super) async fn run(
    args: &CheckArgs,
    place: &Place,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let people = tokio::task::block_in_place(|| people(place))?;
    let factors = tokio::task::block_in_place(|| factors(place, &people))?;
    let control = Control::new(place.control.clone());
    let mut table = Table::new(&[
        ("User", Align::Left),
        ("Account", Align::Left),
        ("Counts for", Align::Left),
        ("Entry", Align::Left),
    ]);
    let mut nowhere = 0_usize;
    for ((user, account), factor) in people.iter().zip(&factors) {
        nowhere += usize::from(factor.is_none());
        let shown = |name: &Option<String>| clean(name.as_deref().unwrap_or("-"));
        let (who, what) = (clean(user), shown(account));
        if factor.is_none() {
            table.row([
                who,
                what,
                "nowhere: no identity rule holds".to_owned(),
                String::new(),
            ]);
        } else if !args.nowhere {
            let parameters = [
                ("user", Some(user.as_str())),
                ("account", account.as_deref()),
            ];
            let (answer, _): (Answer<PriorityBody>, _) =
                control.get("/v1/priority", &parameters).await?;
            let (counts, entry) = (clean(&answer.body.account), clean(&answer.body.entry));
            table.row([who, what, counts, entry]);
        }
    }
    table.write(out, &args.output)?;
    eprintln!(
        "{} users and accounts, {nowhere} map nowhere{}",
        people.len(),
        if nowhere > 0 {
            ": add an [[identity]] rule, or leave them to be counted at the root"
        } else {
            ""
        }
    );
    if let Some(words) = merged(&factors, place.settings.range) {
        eprintln!("{words}");
    }
    Ok(if nowhere == 0 {
        Exit::Success
    } else {
        Exit::Failure
    })
}

type Person = (String, Option<String>);

/// Everybody whom the cluster knows.
fn people(place: &Place) -> anyhow::Result<Vec<Person>> {
    let runner = Runner::new(&place.settings);
    let cluster = Cluster::ask(&runner)?;
    let mut people = BTreeSet::new();
    if cluster.has_slurmdbd() {
        let name = cluster.value("ClusterName").unwrap_or_default();
        let of_cluster = format!("cluster={name}");
        let arguments = ["-nP", "show", "assoc", &of_cluster, "format=User,Account"];
        for line in runner.ask("sacctmgr", &arguments)?.lines() {
            match line.split_once('|') {
                Some((user, account)) if !user.is_empty() => {
                    people.insert((user.to_owned(), Some(account.to_owned())));
                }
                _ => {}
            }
        }
    }
    let (jobs, _) = queue::read(&runner, true)?;
    people.extend(jobs.into_iter().map(|job| (job.user, job.account)));
    if let Ok(Finished::File(path)) = cluster.finished(&place.settings) {
        let read = follow::read(
            &path,
            None,
            &fairmesh_records::Options::default(),
            FINISHED_MAX,
        );
        let read = read.with_context(|| format!("cannot read {}", path.display()))?;
        let whose = read.records.into_iter().map(|record| record.origin);
        people.extend(whose.filter_map(|origin| Some((origin.user?, origin.account))));
    }
    Ok(people.into_iter().collect())
}

/// What to say where site factors merge accounts that have different factors.
fn merged(factors: &[Option<u32>], range: u32) -> Option<String> {
    let different: BTreeSet<u32> = factors.iter().copied().flatten().collect();
    let site_factors: BTreeSet<i64> = different.iter().map(|it| scaled(*it, range)).collect();
    let merged = different.len() - site_factors.len();
    (merged > 0).then(|| {
        format!(
            "of {} different factors, site factors from 0 to {range} keep {} apart: accounts that share one \
             start in Slurm's own order; a larger `range` in [slurm] keeps them apart",
            different.len(),
            site_factors.len()
        )
    })
}

/// The factor of each whom the node knows.
fn factors(place: &Place, people: &[Person]) -> anyhow::Result<Vec<Option<u32>>> {
    let mut client = Client::connect(&place.lookup, LOOKUP_MAX)?;
    let mut factors = Vec::new();
    for batch in people.chunks(LOOKUP_BATCH_MAX) {
        let who: Vec<Who<'_>> = batch
            .iter()
            .map(|(user, account)| {
                Who::Names(Names {
                    user: Some(user),
                    account: account.as_deref(),
                    group: None,
                    subject: None,
                })
            })
            .collect();
        let answer = client.lookup(&who)?;
        factors.extend(answer.factors());
    }
    Ok(factors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_merges_accounts_is_said() {
        let third = |part: u32| Some(fairmesh_client::FACTOR_MAX / 3 * part);
        let factors = [third(1), third(2), third(3), third(3), None];
        assert_eq!(merged(&factors, 1_000), None);
        let words = merged(&factors, 1).expect("two are one");
        assert!(words.starts_with("of 3 different factors"), "{words}");
        assert!(words.contains("from 0 to 1 keep 1 apart"), "{words}");
    }
}
