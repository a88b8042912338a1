//! `fairmesh slurm check`: who of the cluster's users and accounts maps where, and who nowhere; and
//! whether the range of site factors keeps apart whom the node keeps apart, with room for importance; and whether jobs are
//! held to the quotas that there are.
//!
//! The names are slurmdbd's where it runs, and those of the queue elsewhere. Invariant: the answer is
//! the node's own, by the rules that it counts with. Exit 1 if somebody maps nowhere, or jobs
//! are to be held to quotas and are not.
//! Deliberately not here: the rules (`[[identity]]`), which this is to help writing.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use fairmesh_client::Scale;
use fairmesh_schedulers::slurm::cluster::Cluster;
use fairmesh_schedulers::sync;

use super::{Place, setup};
use crate::ask::Control;
use crate::control::answer::{Answer, PriorityBody, QuotaBody};
use crate::control::clean;
use crate::output::{Align, Exit, OutputArgs, Table};

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
    config: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let people = place.slurm.people(FINISHED_MAX).await?;
    let asked = people
        .iter()
        .cloned()
        .map(|(user, account)| (user, account, None));
    let asked: Vec<sync::Person> = asked.collect();
    let (factors, step) = sync::factors(&place.sockets.lookup, asked.clone()).await?;
    let factors: Vec<Option<u32>> = asked
        .iter()
        .map(|who| factors.get(who).copied().flatten())
        .collect();
    let control = place.sockets.control();
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
    let scale = &place.table.slurm.common.scale;
    for words in [merged(&factors, scale), cramped(step, scale)] {
        words.iter().for_each(|words| eprintln!("{words}"));
    }
    let (words, is_held) = quotas(place, &control, config).await?;
    words.iter().for_each(|words| eprintln!("{words}"));
    Ok(if nowhere == 0 && is_held {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// What is to be said of quotas, and whether jobs are held to them where they are to be.
async fn quotas(
    place: &Place,
    control: &Control,
    config: &Path,
) -> anyhow::Result<(Vec<String>, bool)> {
    let (answer, _): (Answer<QuotaBody>, _) = control.get("/v1/quota", &[]).await?;
    let accounts = answer.body.accounts.iter().filter(|of| of.mode != "off");
    let cluster = Cluster::ask(&place.slurm.commands).await?;
    let lacks = setup::quota_lacks(place, &cluster, config)?;
    Ok(of_quotas(place.table.slurm.quota, accounts.count(), lacks))
}

fn of_quotas(is_asked: bool, accounts: usize, lacks: Vec<String>) -> (Vec<String>, bool) {
    let with = |words: String| (vec![words], true);
    match (is_asked, accounts, lacks.is_empty()) {
        (false, 0, _) => (Vec::new(), true),
        (false, accounts, _) => with(format!(
            "{accounts} accounts have quotas here (`fairmesh quota show`), and no job of this Slurm is held to them: \
             write quota = true in [slurm], and see `fairmesh slurm setup`"
        )),
        (true, accounts, true) => with(format!(
            "jobs are held to quotas when they are submitted and before they start; {accounts} accounts have one"
        )),
        (true, _, false) => {
            let words = lacks.into_iter().map(|lacks| format!("quotas: {lacks}"));
            (words.collect(), false)
        }
    }
}

/// What to say where site factors merge accounts that have different factors.
fn merged(factors: &[Option<u32>], scale: &Scale) -> Option<String> {
    let different: BTreeSet<u32> = factors.iter().copied().flatten().collect();
    let site_factors: BTreeSet<i64> = different.iter().map(|it| scale.account(*it)).collect();
    let merged = different.len() - site_factors.len();
    (merged > 0).then(|| {
        format!(
            "of {} different factors, site factors from 0 to {} keep {} apart: accounts that share one \
             start in Slurm's own order; a larger `range` in [slurm] keeps them apart",
            different.len(),
            scale.range,
            site_factors.len()
        )
    })
}

/// What to say where importance has less room than it is to have. `step` is how far apart factors are.
fn cramped(step: u32, scale: &Scale) -> Option<String> {
    let (room, wanted) = (scale.room(step), scale.importance);
    (room < i64::from(wanted)).then(|| {
        let most = if room > 0 {
            format!("{room} points of site factor, not {wanted}")
        } else {
            "no room, and nice goes beyond one account's jobs".to_owned()
        };
        format!(
            "between neighbouring accounts lie {} points of site factor: the importance of jobs has {most}; \
             a larger `range` in [slurm] gives it more, `importance = 0` leaves it aside",
            scale.account(step)
        )
    })
}

#[cfg(test)]
mod tests {
    use fairmesh_client::FACTOR_MAX;

    use super::*;

    fn scale(range: u32) -> Scale {
        Scale {
            range,
            importance: 200,
        }
    }

    #[test]
    fn it_is_said_whether_jobs_are_held_to_quotas() {
        let lack = || vec!["there is no PrologSlurmctld; write it".to_owned()];
        for (is_asked, accounts, lacks, words, is_held) in [
            (false, 0, Vec::new(), "", true),
            (false, 2, Vec::new(), "2 accounts have quotas here", true),
            (true, 2, Vec::new(), "jobs are held to quotas when", true),
            (
                true,
                0,
                lack(),
                "quotas: there is no PrologSlurmctld",
                false,
            ),
        ] {
            let (said, held) = of_quotas(is_asked, accounts, lacks);
            assert!(said.concat().starts_with(words), "{said:?}");
            assert_eq!(held, is_held, "{said:?}");
        }
    }

    #[test]
    fn a_range_without_room_for_importance_is_said() {
        let step = FACTOR_MAX / 1_000;
        assert_eq!(cramped(step, &scale(1_000_000)), None);
        let words = cramped(step, &scale(100_000)).expect("99 points");
        assert!(
            words.starts_with("between neighbouring accounts lie 100 points"),
            "{words}"
        );
        assert!(
            words.contains("has 99 points of site factor, not 200;"),
            "{words}"
        );
        let words = cramped(step, &scale(1_000)).expect("none");
        assert!(
            words.contains("lie 1 points") && words.contains("has no room"),
            "{words}"
        );
        let off = Scale {
            importance: 0,
            ..scale(1_000)
        };
        assert_eq!(cramped(step, &off), None);
    }

    #[test]
    fn a_range_that_merges_accounts_is_said() {
        let third = |part: u32| Some(fairmesh_client::FACTOR_MAX / 3 * part);
        let factors = [third(1), third(2), third(3), third(3), None];
        assert_eq!(merged(&factors, &scale(1_000)), None);
        let words = merged(&factors, &scale(1)).expect("two are one");
        assert!(words.starts_with("of 3 different factors"), "{words}");
        assert!(words.contains("from 0 to 1 keep 1 apart"), "{words}");
    }
}
