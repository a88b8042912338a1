//! `fairmesh slurm check` and its like: who of the cluster's users and accounts maps where, and who nowhere;
//! whether the range of its numbers keeps apart whom the node keeps apart, with room for importance; and whether each
//! charter gives the site the CPUs that the batch system counts.
//!
//! Invariant: the answer is the node's own, by the rules that it counts with.
//! Deliberately not here: the rules (`[[identity]]`), which this is to help writing.

use std::collections::BTreeSet;
use std::io::Write;

use fairmesh_api::{Answer, PriorityBody, StatusBody, VoBody};
use fairmesh_client::Scale;
use fairmesh_model::clean;
use fairmesh_schedulers::{Scheduler, sync};

use super::Pair;
use crate::output::{OutputArgs, Table};

/// Say which users and accounts map where.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Only those who map nowhere
    #[arg(long)]
    nowhere: bool,
    /// The form of the table.
    #[command(flatten)]
    output: OutputArgs,
}

/// Lists who maps where; gives whether everybody maps somewhere and no charter has too few CPUs.
///
/// # Errors
/// If the node is away.
pub(crate) async fn run<S: Scheduler>(
    args: &CheckArgs,
    people: &[(String, Option<String>)],
    pair: &Pair<S>,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let (factors, step) = factors(people, pair).await?;
    let control = pair.sockets.control();
    let mut table = Table::new("User|Account|Counts for|Entry");
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
    note!(
        "{} users and accounts, {nowhere} map nowhere{}",
        people.len(),
        if nowhere > 0 {
            ": add an [[identity]] rule, or leave them: their usage counts at the root, and their jobs get \
             the middle of the range, neither before nor after all others, from the first round on"
        } else {
            ""
        }
    );
    let lacks = of_range(pair, &factors, step);
    lacks.iter().for_each(|lacks| note!("{lacks}"));
    let capacity = capacity(pair).await;
    let lines = capacity
        .iter()
        .map(|(problem, fix)| format!("{problem}; {fix}"));
    lines.for_each(|line| note!("{line}"));
    Ok(nowhere == 0 && capacity.is_empty())
}

/// Something that the batch system beside a node lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lack {
    /// Its configuration, or this machine: what `setup` says, and what to do about it.
    Setup { problem: String, mend: String },
    /// How many users and accounts map nowhere, of how many.
    Nowhere { who: usize, of: usize },
    /// Room between its numbers.
    Range(String),
    /// CPUs that a charter does not give the site: the problem, and its fix.
    Capacity { problem: String, fix: String },
}

/// What `setup` says is missing, and what `check` would say of these people.
pub(crate) async fn lacks<S: Scheduler>(
    missing: Vec<(String, String)>,
    people: &[(String, Option<String>)],
    pair: &Pair<S>,
) -> Vec<Lack> {
    let missing = missing.into_iter();
    let mut lacks: Vec<Lack> = missing
        .map(|(problem, mend)| Lack::Setup { problem, mend })
        .collect();
    // Where the node is away that is said already.
    if let Ok((factors, step)) = factors(people, pair).await {
        let who = factors.iter().filter(|factor| factor.is_none()).count();
        let of = people.len();
        lacks.extend((who > 0).then_some(Lack::Nowhere { who, of }));
        lacks.extend(of_range(pair, &factors, step).into_iter().map(Lack::Range));
        let capacity = capacity(pair).await.into_iter();
        lacks.extend(capacity.map(|(problem, fix)| Lack::Capacity { problem, fix }));
    }
    lacks
}

/// The factor of each whom the node knows, and how far apart different ones are at the least.
async fn factors<S>(
    people: &[(String, Option<String>)],
    pair: &Pair<S>,
) -> anyhow::Result<(Vec<Option<u32>>, u32)> {
    let asked = people.iter().cloned();
    let asked = asked.map(|(user, account)| sync::Person {
        user,
        account,
        ..sync::Person::default()
    });
    let asked: Vec<sync::Person> = asked.collect();
    let (factors, step) = sync::factors(&pair.sockets.lookup, asked.clone()).await?;
    let factor = |who| factors.get(who).copied().flatten();
    Ok((asked.iter().map(factor).collect(), step))
}

fn of_range<S: Scheduler>(pair: &Pair<S>, factors: &[Option<u32>], step: u32) -> Vec<String> {
    let words = Words {
        table: S::NAME,
        number: S::NUMBER,
        scale: pair.settings.scale,
    };
    let lacks = [words.merged(factors), words.cramped(step)];
    lacks.into_iter().flatten().collect()
}

/// The charters that give this site fewer CPUs than the batch system counts, each as a problem and its fix. A
/// charter may give more: a cluster grows, and machines are away. Nothing if the node is away.
pub(crate) async fn capacity<S: Scheduler>(pair: &Pair<S>) -> Vec<(String, String)> {
    let control = pair.sockets.control();
    let Ok((status, _)) = control.get::<Answer<StatusBody>>("/v1/status", &[]).await else {
        return Vec::new();
    };
    let short = |counted| {
        let vos = status.body.vos.iter();
        vos.filter_map(move |vo| too_few::<S>(vo, counted))
            .collect()
    };
    match pair.scheduler.cpus().await {
        Ok(counted) => counted.map(short).unwrap_or_default(),
        Err(error) => {
            // Some installations leave out the command, and all else is well without it.
            note!(
                "fairmesh: the charters' CPUs are not compared with those of the cluster: {error:#}"
            );
            Vec::new()
        }
    }
}

fn too_few<S: Scheduler>(vo: &VoBody, counted: u64) -> Option<(String, String)> {
    let name = vo.name.as_deref().unwrap_or(&vo.vo);
    lacking_cpus((S::NAME, S::SHOWS_CPUS), (name, vo.cpus?), counted)
}

fn lacking_cpus(
    (system, command): (&str, &str),
    (vo, given): (&str, u32),
    counted: u64,
) -> Option<(String, String)> {
    if u64::from(given) >= counted {
        return None;
    }
    let name = clean(vo);
    let problem = format!(
        "{system} counts {counted} CPUs (`{command}`), the charter of VO {name} gives this site {given}: a job of \
         more is refused, and all jobs together count up to {given}"
    );
    let fix = format!("ask who signs the charter to write cpus = {counted} for this site");
    Some((problem, fix))
}

/// What is said of the range of a batch system's numbers.
struct Words {
    table: &'static str,
    number: &'static str,
    scale: Scale,
}

impl Words {
    /// What to say where numbers merge accounts that have different factors.
    fn merged(&self, factors: &[Option<u32>]) -> Option<String> {
        let (scale, number, table) = (&self.scale, self.number, self.table);
        let different: BTreeSet<u32> = factors.iter().copied().flatten().collect();
        let site_factors: BTreeSet<i64> = different.iter().map(|it| scale.account(*it)).collect();
        let merged = different.len() - site_factors.len();
        (merged > 0).then(|| {
        format!(
            "of {} different factors, {number}s from 0 to {} keep {} apart: accounts that share one \
             start in the batch system's own order; a larger `range` in [{table}] keeps them apart",
            different.len(),
            scale.range,
            site_factors.len()
        )
    })
    }

    /// What to say where importance has less room than it is to have. `step` is how far apart factors are.
    fn cramped(&self, step: u32) -> Option<String> {
        let (scale, number, table) = (&self.scale, self.number, self.table);
        let (room, wanted) = (scale.room(step), scale.importance);
        (room < i64::from(wanted)).then(|| {
        let most = if room > 0 {
            format!("{room} points of {number}, not {wanted}")
        } else {
            "no room, and nice goes beyond one account's jobs".to_owned()
        };
        format!(
            "between neighbouring accounts lie {} points of {number}: the importance of jobs has {most}; \
             a larger `range` in [{table}] gives it more, `importance = 0` leaves it aside",
            scale.account(step)
        )
    })
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_client::FACTOR_MAX;

    use super::*;

    fn words(range: u32) -> Words {
        Words {
            table: "slurm",
            number: "site factor",
            scale: Scale {
                range,
                importance: 200,
            },
        }
    }

    #[test]
    fn a_range_without_room_for_importance_is_said() {
        let step = FACTOR_MAX / 1_000;
        assert_eq!(words(1_000_000).cramped(step), None);
        let said = words(100_000).cramped(step).expect("99 points");
        assert!(
            said.starts_with("between neighbouring accounts lie 100 points"),
            "{said}"
        );
        assert!(
            said.contains("has 99 points of site factor, not 200;"),
            "{said}"
        );
        let said = words(1_000).cramped(step).expect("none");
        assert!(
            said.contains("lie 1 points") && said.contains("has no room"),
            "{said}"
        );
        let mut off = words(1_000);
        off.scale.importance = 0;
        assert_eq!(off.cramped(step), None);
    }

    #[test]
    fn a_charter_with_fewer_cpus_than_the_batch_system_counts_is_named() {
        let said = |given, counted| lacking_cpus(("slurm", "sinfo"), ("physics", given), counted);
        assert_eq!(said(48, 48), None);
        // A cluster that grows, or machines that are away.
        assert_eq!(said(480, 48), None);
        let (problem, fix) = said(32, 48).expect("16 are missing");
        assert!(
            problem.starts_with(
                "slurm counts 48 CPUs (`sinfo`), the charter of VO physics gives this site 32:"
            ),
            "{problem}"
        );
        assert!(fix.ends_with("cpus = 48 for this site"), "{fix}");
    }

    #[test]
    fn a_range_that_merges_accounts_is_said() {
        let third = |part: u32| Some(fairmesh_client::FACTOR_MAX / 3 * part);
        let factors = [third(1), third(2), third(3), third(3), None];
        assert_eq!(words(1_000).merged(&factors), None);
        let said = words(1).merged(&factors).expect("two are one");
        assert!(said.starts_with("of 3 different factors"), "{said}");
        assert!(said.contains("from 0 to 1 keep 1 apart"), "{said}");
    }
}
