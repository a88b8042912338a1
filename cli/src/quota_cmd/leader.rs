//! `fairmesh quota pass`: a leader passes a part of an allocation on to an account below its path.
//!
//! Invariant: the part is split among sites as the whole is, and its slices last as long; nothing of a slice that has
//! ended is passed on. Deliberately not here: whether sites have as much left (their nodes; `quota show` says).

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use fairmesh_model::{
    AccountPath, Allocation, AllocationSlice, CoreMillis, PartOf, QuotaMode, Share, Verified,
    WallTime,
};

use super::authority::{find, sign};
use crate::ask::NodeArgs;
use crate::init::write_new;
use crate::output::Exit;
use crate::policy_cmd::{allocation_toml, now, parse_core_hours};

/// Options of `pass`.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("how_much").required(true))]
pub struct PassArgs {
    /// Of which allocation: its id or 8 digits of it or more, or its account where that has one allocation
    #[arg(value_name = "ALLOCATION|PATH")]
    pub which: String,
    /// To whom: an account below the allocation's
    #[arg(long, value_name = "PATH")]
    pub to: AccountPath,
    /// How much of all slices that have not ended, core-hours
    #[arg(long, value_name = "CORE-HOURS", group = "how_much")]
    pub amount: Option<String>,
    /// How much of each slice that has not ended, percent
    #[arg(long, value_name = "PERCENT", group = "how_much", value_parser = percent)]
    pub percent: Option<Share>,
    /// Who may spend it, if not everybody at that account and below; repeat it for each
    #[arg(long = "member", value_name = "PATH")]
    pub members: Vec<AccountPath>,
    /// A file with the secret key of a leader; repeat it for several
    #[arg(long = "key", value_name = "FILE", required_unless_present = "out")]
    pub keys: Vec<PathBuf>,
    /// Write a draft instead, to edit it and for `fairmesh quota grant`
    #[arg(short, long, value_name = "FILE", conflicts_with = "keys")]
    pub out: Option<PathBuf>,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
}

pub(super) async fn pass(args: &PassArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let control = args.node.control();
    let Some(whole) = find(&control, &args.which).await? else {
        return Ok(Exit::Failure);
    };
    let part = part_of(&whole, args, now())?;
    if let Some(file) = &args.out {
        write_new(file, allocation_toml(&part).as_bytes(), 0o644)?;
        return Ok(Exit::Success);
    }
    sign(part, &args.keys, &control, out).await
}

/// The part that is meant, of the newest version of the whole.
fn part_of(
    whole: &Verified<Allocation>,
    args: &PassArgs,
    now: WallTime,
) -> anyhow::Result<Allocation> {
    let body = whole.body();
    if body.leaders.is_none() {
        bail!(
            "the allocation of {} names no leaders: its authority can",
            body.path
        );
    }
    let places = (0..).zip(&body.slices);
    let open: Vec<(u32, AllocationSlice)> = places
        .filter(|(_, slice)| now < slice.end)
        .map(|(place, slice)| (place, *slice))
        .collect();
    let mut slices = Vec::new();
    let mut of = Vec::new();
    for ((place, slice), amount) in open.iter().zip(amounts(&open, args)?) {
        if amount.0 > 0 {
            of.push(*place);
            slices.push(AllocationSlice { amount, ..*slice });
        }
    }
    let part = Allocation {
        path: args.to.clone(),
        version: 1,
        id: None,
        issued: now,
        expires: body.expires.max(now.after(fairmesh_model::Millis(1))),
        slices,
        members: args.members.iter().cloned().collect(),
        mode: Some(QuotaMode::Strict),
        overdraft_max: CoreMillis(0),
        part_of: Some(PartOf {
            allocation: body.id.unwrap_or_else(|| whole.hash().into()),
            slices: of,
        }),
        leaders: None,
        ..body.clone()
    };
    match part.misfit(body) {
        Some(what) => bail!("{} of {}: {what}", args.to, body.path),
        None => Ok(part),
    }
}

/// How much of each slice.
fn amounts(open: &[(u32, AllocationSlice)], args: &PassArgs) -> anyhow::Result<Vec<CoreMillis>> {
    let of = |slice: &AllocationSlice, part: u128, whole: u128| {
        let amount = u128::from(slice.amount.0) * part / whole;
        CoreMillis(u64::try_from(amount).unwrap_or(u64::MAX))
    };
    if let Some(percent) = args.percent {
        let (part, whole) = (percent.units().into(), Share::ONE.into());
        let amounts = open.iter().map(|(_, slice)| of(slice, part, whole));
        return Ok(amounts.collect());
    }
    let text = args.amount.as_deref().unwrap_or_default();
    let amount = parse_core_hours(text).filter(|amount| amount.0 > 0);
    let amount = amount
        .with_context(|| format!("--amount {text}: write core-hours, such as 1200 or 0.5"))?;
    let all: u128 = open
        .iter()
        .map(|(_, slice)| u128::from(slice.amount.0))
        .sum();
    if u128::from(amount.0) > all {
        bail!("--amount {text}: more than what is granted in slices that have not ended");
    }
    // Sums up: each is what has to be there up to its slice, less what is there already.
    let (mut before, mut given) = (0_u128, 0);
    let amounts = open.iter().map(|(_, slice)| {
        before += u128::from(slice.amount.0);
        let until = u128::from(amount.0) * before / all.max(1);
        let next = u64::try_from(until).unwrap_or(u64::MAX);
        CoreMillis(next - std::mem::replace(&mut given, next))
    });
    Ok(amounts.collect())
}

fn percent(text: &str) -> Result<Share, String> {
    let share = Share::parse_percent(text).map_err(|error| error.to_string())?;
    match share == Share::ZERO {
        true => Err("nothing would be passed on".to_owned()),
        false => Ok(share),
    }
}
