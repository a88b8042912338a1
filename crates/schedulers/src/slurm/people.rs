//! Users and accounts that a Slurm knows, as its jobs bear them.
//!
//! sacctmgr lower-cases user names unless slurmdbd has PreserveCaseUser; jobs carry the name as the system spells it.
//!
//! Invariant: a user whose spelling is known has it in the result, because identity rules match the name of the job.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use fairmesh_records::{Format, Options};

use super::cluster::{Cluster, Finished};
use super::{Slurm, of_slurmdbd, queue};
use crate::command::Commands;
use crate::follow::Reader;

/// A user, and an account.
type Person = (String, Option<String>);

impl Slurm {
    /// Users and accounts: all that slurmdbd knows, if it runs, those of the queue, and of what the file of finished
    /// jobs holds up to `most` records.
    ///
    /// # Errors
    /// If Slurm is away.
    pub async fn people(&self, most: usize) -> anyhow::Result<Vec<Person>> {
        let cluster = Cluster::ask(&self.commands).await?;
        let (jobs, _) = queue::read(&self.commands, true).await?;
        let jobs = jobs.into_iter().map(|job| (job.user, job.account));
        let mut people: Vec<Person> = jobs.collect();
        if let Ok(Finished::File(path)) = cluster.finished(&self.settings) {
            let options = Options::default();
            let reader = Reader::new(Format::SlurmJobcomp, &options);
            let read = Reader { most, ..reader }.read(&path, None);
            let read = read.with_context(|| format!("cannot read {}", path.display()))?;
            let whose = read.records.into_iter().map(|record| record.origin);
            people.extend(whose.filter_map(|origin| Some((origin.user?, origin.account))));
        }
        if cluster.has_slurmdbd() {
            let name = cluster.value("ClusterName").unwrap_or_default();
            let of_cluster = format!("cluster={name}");
            let arguments = ["-nP", "show", "assoc", &of_cluster, "format=User,Account"];
            let associations = self.commands.ask("sacctmgr", &arguments).await;
            let associations = pairs(&associations.map_err(of_slurmdbd)?);
            let lately = ["-anXP", "-S", "now-1days", "-o", "User,Account"];
            let lately = self.commands.ask("sacct", &lately).await;
            people.extend(pairs(&lately.map_err(of_slurmdbd)?));
            let names = people.iter().map(|(user, _)| user.clone());
            let names = names.chain(users_of_system().await);
            people.extend(respelled(associations, names.collect()));
        }
        people.sort_unstable();
        people.dedup();
        Ok(people)
    }
}

fn pairs(text: &str) -> Vec<Person> {
    let pairs = text.lines().filter_map(|line| line.split_once('|'));
    let pairs = pairs.filter(|(user, _)| !user.is_empty());
    let person = |(user, account): (&str, &str)| {
        let account = Some(account).filter(|account| !account.is_empty());
        (user.to_owned(), account.map(str::to_owned))
    };
    pairs.map(person).collect()
}

/// The users that the system lists; a directory need not list its own.
async fn users_of_system() -> Vec<String> {
    let commands = Commands {
        system: "slurm",
        bin_dir: None,
        environment: Vec::new(),
    };
    let text = commands.ask("getent", &["passwd"]).await;
    let text = text.unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split(':').next());
    names.map(str::to_owned).collect()
}

/// Associations with the names of their users as `names` spell them.
fn respelled(associations: Vec<Person>, names: BTreeSet<String>) -> Vec<Person> {
    let mut spellings: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for name in &names {
        spellings.entry(name.to_lowercase()).or_default().push(name);
    }
    let respell = |(user, account): Person| {
        let spelled = spellings.get(&user).filter(|_| !names.contains(&user));
        let users =
            spelled.map_or_else(|| vec![user], |all| all.iter().copied().cloned().collect());
        users.into_iter().map(move |user| (user, account.clone()))
    };
    associations.into_iter().flat_map(respell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_of_an_association_is_spelled_as_the_jobs_have_it() {
        let names = ["Erin.Smith", "Bob", "bob", "root"].map(str::to_owned);
        let people = respelled(
            pairs("erin.smith|atlas\nerin.smith|cms\nbob|atlas\nnew|cms\n|cms\nzed|\n"),
            names.into(),
        );
        let shown: Vec<String> = people
            .iter()
            .map(|(user, account)| format!("{user}|{}", account.as_deref().unwrap_or("-")))
            .collect();
        let expected = [
            "Erin.Smith|atlas",
            "Erin.Smith|cms",
            "bob|atlas",
            "new|cms",
            "zed|-",
        ];
        assert_eq!(shown, expected);
    }
}
