//! `fairmesh quota show`: what is left of accounts' credit.

use std::io::Write;

use fairmesh_api::words::{name_or_id, timestamp};
use fairmesh_api::{QuotaAccountBody, QuotaBody, QuotaTotalsBody};
use fairmesh_model::{WallTime, clean};
use fairmesh_node::words::number::core_hours;

use crate::ask::{AskArgs, heading, unless_refused};
use crate::output::{Exit, Table, or_dash};

/// Options of `show`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ShowArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Only accounts at, above or below this one
    pub path: Option<String>,
    /// Only of this VO: its name or id
    #[arg(long)]
    pub vo: Option<String>,
    /// Each slice by itself
    #[arg(long)]
    pub slices: bool,
}

pub(super) async fn run(args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let parameters = [("vo", args.vo.as_deref()), ("path", args.path.as_deref())];
    let asked = args.ask.get::<QuotaBody>("/v1/quota", &parameters, out);
    let Some((answer, done)) = unless_refused(asked.await)? else {
        return Ok(Exit::Failure);
    };
    let found = Exit::of(!answer.body.accounts.is_empty());
    if done {
        return Ok(found);
    }
    if answer.body.accounts.is_empty() {
        match &args.path {
            Some(path) => note!(
                "no allocation for {}: where its VO grants credit, its jobs have none",
                clean(path)
            ),
            None => note!("no allocation: nobody's use is bounded"),
        }
        return Ok(found);
    }
    let of_parts = of_parts(&answer.body.accounts);
    let mut table =
        Table::new(&columns(args.slices, of_parts)).with_heading(heading(&answer.rests_on));
    for account in &answer.body.accounts {
        rows(account, args.slices, of_parts)
            .into_iter()
            .for_each(|row| table.row(row));
    }
    table.write(out, &args.ask.output)?;
    for account in answer
        .body
        .accounts
        .iter()
        .filter(|of| !of.unheard.is_empty())
    {
        let unheard: Vec<String> = account.unheard.iter().map(|name| clean(name)).collect();
        note!(
            "{}: this site has just started, and spends nothing until something of these has been received: {}",
            clean(&account.path),
            unheard.join(", ")
        );
    }
    Ok(found)
}

/// Whether anything was passed on to parts, and whether a part lacks some of what it was to have.
fn of_parts(accounts: &[QuotaAccountBody]) -> (bool, bool) {
    let any = |of: fn(&QuotaTotalsBody) -> &String| {
        let amounts = accounts.iter().map(|account| of(&account.totals).as_str());
        amounts
            .into_iter()
            .any(|amount| !matches!(amount, "" | "0"))
    };
    (
        any(|of| &of.passed_on_core_ms),
        any(|of| &of.lacking_core_ms),
    )
}

fn columns(by_slice: bool, (passed, lacking): (bool, bool)) -> String {
    let (times, pace) = match by_slice {
        true => ("|From|Until", ""),
        false => ("", "|>PerDay|RunsOut"),
    };
    let passed = if passed { "|>PassedOn" } else { "" };
    let lacking = if lacking { "|>Lacking" } else { "" };
    let amounts = ">Granted|>Used|>Held|>Left|>Here|>OnTheWay|>ToCome|>Perished|>Overdraft";
    format!("VO|Account|Mode|>Price{times}|{amounts}{passed}{lacking}{pace}")
}

fn rows(account: &QuotaAccountBody, by_slice: bool, of_parts: (bool, bool)) -> Vec<Vec<String>> {
    let amounts = |totals: &QuotaTotalsBody| {
        let mut amounts = amounts(totals);
        amounts.extend(of_parts.0.then(|| core_hours(&totals.passed_on_core_ms)));
        amounts.extend(of_parts.1.then(|| core_hours(&totals.lacking_core_ms)));
        amounts
    };
    let named = || {
        vec![
            name_or_id(account.vo_name.as_deref(), &account.vo),
            clean(&account.path),
            match account.mode_by_owner {
                true => format!("{} (owner)", clean(&account.mode)),
                false => clean(&account.mode),
            },
            clean(&account.price),
        ]
    };
    if !by_slice {
        return vec![[named(), amounts(&account.totals), pace(account)].concat()];
    }
    let slices = account.slices.iter().map(|slice| {
        let times = [slice.start_ms, slice.end_ms].map(|at| timestamp(WallTime(at)));
        [named(), times.into(), amounts(&slice.totals)].concat()
    });
    slices.collect()
}

/// What is spent a day, and when nothing is left at that pace.
fn pace(account: &QuotaAccountBody) -> Vec<String> {
    let burn = account.burn_core_ms_per_day.as_deref().map(core_hours);
    let runs_out = account.runs_out_ms.map(|at| timestamp(WallTime(at)));
    vec![or_dash(burn), or_dash(runs_out)]
}

fn amounts(totals: &QuotaTotalsBody) -> Vec<String> {
    let amounts = [
        &totals.granted_core_ms,
        &totals.used_core_ms,
        &totals.held_core_ms,
        &totals.spendable_core_ms,
        &totals.here_core_ms,
        &totals.on_the_way_core_ms,
        &totals.to_come_core_ms,
        &totals.perished_core_ms,
        &totals.overdraft_core_ms,
    ];
    amounts.map(|amount| core_hours(amount)).to_vec()
}
