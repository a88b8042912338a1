//! `fairmesh policy new`: a draft, from nothing or from the version before.
//!
//! Invariant: a draft made from a document differs from it in version, predecessor and dates only,
//! until people edit it. Deliberately not here: signing.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use fairmesh_model::{
    AccountPath, Allocation, Charter, KeyId, MemberSite, Millis, Role, SharePolicy, VoId, WallTime,
    WindowLength,
};
use fairmesh_node::config::Source;
use fairmesh_node::config::quantity::parse_moment;
use fairmesh_quota::slices::{Period, by_capacity, expiring, windows};

use super::allocation_draft::{allocation_toml, parse_core_hours};
use super::charter_draft::{charter_toml, parse_member};
use super::clock;
use super::document::{PolicyDocument, as_text, read_bytes};
use super::members;
use super::shares_draft::shares_toml;
use super::snapshot::valid;
use super::snapshot_draft::snapshot_toml;
use super::verify::chain_of;
use crate::init::write_new;
use crate::output::Exit;

const DAY_MS: u64 = 86_400_000;

/// What kind of draft.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum NewCommand {
    /// A charter: keys, member sites and rules of a VO
    Charter(NewCharterArgs),
    /// A share policy: target shares of a VO, or of a subtree that was delegated
    Shares(NewSharesArgs),
    /// An allocation: credit of an account, in slices, split among the sites
    Allocation(NewAllocationArgs),
    /// A snapshot of what is in force of these documents; at a node `fairmesh policy snapshot` does it all in one
    Snapshot(NewSnapshotArgs),
}

/// Options of a new snapshot.
#[derive(Debug, Clone, clap::Args)]
pub struct NewSnapshotArgs {
    /// The VO's documents: its charters, from the first, its share policies, allocations and the last snapshot
    #[arg(value_name = "DOC.cbor", required = true)]
    pub documents: Vec<PathBuf>,
    /// For how long it is valid, 31 days at most
    #[arg(long, default_value = "1d", value_name = "TIME", value_parser = valid)]
    pub valid: Millis,
    /// The file to make [default: print the draft]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Options of all kinds.
#[derive(Debug, Clone, clap::Args)]
pub struct DraftArgs {
    /// The version before, signed: everything is taken from it
    #[arg(long, value_name = "OLD.cbor")]
    pub from: Option<PathBuf>,
    /// Days until it should be renewed
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..))]
    pub days: u32,
    /// The file to make [default: print the draft]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Options of a new charter.
#[derive(Debug, Clone, clap::Args)]
pub struct NewCharterArgs {
    /// What people call the VO
    #[arg(long, conflicts_with = "from")]
    pub name: Option<String>,
    /// Id of a key that signs charters; repeat it for each
    #[arg(long = "authority", value_name = "KEY-ID", conflicts_with = "from")]
    pub authority: Vec<KeyId>,
    /// How many of them must sign
    #[arg(long, default_value_t = 1, conflicts_with = "from")]
    pub threshold: u32,
    /// Id of a key that signs the share policy [default: as for charters]
    #[arg(long = "policy", value_name = "KEY-ID", conflicts_with = "from")]
    pub policy: Vec<KeyId>,
    /// Id of a key that is online and signs snapshots, alone (docs/snapshot.md) [default: as before]
    #[arg(long = "snapshot", value_name = "KEY-ID")]
    pub snapshot: Vec<KeyId>,
    /// What the owner of a site sends, its member.toml: one [[site]] and nothing else; repeat it for each. It
    /// replaces the entry of its id or, where the site has a new key, of its name
    #[arg(long = "site", value_name = "MEMBER.toml")]
    pub site: Vec<PathBuf>,
    /// Options of all kinds.
    #[command(flatten)]
    pub draft: DraftArgs,
}

/// Options of a new share policy.
#[derive(Debug, Clone, clap::Args)]
pub struct NewSharesArgs {
    /// The VO's id
    #[arg(long, conflicts_with = "from", required_unless_present_any = ["from", "charter"])]
    pub vo: Option<VoId>,
    /// A charter of the VO, to take the id from
    #[arg(long, value_name = "CHARTER.cbor", conflicts_with_all = ["from", "vo"])]
    pub charter: Option<PathBuf>,
    /// What is divided: `/`, or a path that was delegated
    #[arg(long, default_value = "/", conflicts_with = "from")]
    pub path: AccountPath,
    /// Options of all kinds.
    #[command(flatten)]
    pub draft: DraftArgs,
}

/// Options of a new allocation.
#[derive(Debug, Clone, clap::Args)]
pub struct NewAllocationArgs {
    /// The VO's charter: whose members the credit is split among
    #[arg(long, value_name = "CHARTER.cbor", conflicts_with = "from")]
    pub charter: Option<PathBuf>,
    /// Whose credit: an account, and all below it
    #[arg(long, conflicts_with = "from")]
    pub path: Option<AccountPath>,
    /// How much, core-hours
    #[arg(long, value_name = "CORE-HOURS", conflicts_with = "from")]
    pub amount: Option<String>,
    /// In how many slices; the period is --days long
    #[arg(long, default_value_t = 1, conflicts_with = "from",
          value_parser = clap::value_parser!(u32).range(1..=400))]
    pub slices: u32,
    /// From when [default: now]
    #[arg(long, value_name = "TIME", conflicts_with = "from", value_parser = moment)]
    pub start: Option<WallTime>,
    /// All slices can be spent from the beginning, each until its own end
    #[arg(long, conflicts_with = "from")]
    pub expiring: bool,
    /// Days for which what is left of a slice can still be spent after its end
    #[arg(long, default_value_t = 0, conflicts_with = "from")]
    pub grace_days: u32,
    /// The same for every site, and not by its CPUs
    #[arg(long, conflicts_with = "from")]
    pub equal: bool,
    /// Id of a key that may pass parts of it on to accounts below its path; repeat it for each
    #[arg(long = "leader", value_name = "KEY-ID", conflicts_with = "from")]
    pub leaders: Vec<KeyId>,
    /// Options of all kinds.
    #[command(flatten)]
    pub draft: DraftArgs,
}

pub(super) fn run(command: &NewCommand, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let now = clock::now();
    let (about, draft, file) = match command {
        NewCommand::Charter(args) => (
            "A charter: edit it, then `fairmesh policy sign`.",
            charter(args, now)?,
            &args.draft.out,
        ),
        NewCommand::Shares(args) => (
            "A share policy: edit it, then `fairmesh policy sign`.",
            shares(args, now)?,
            &args.draft.out,
        ),
        NewCommand::Allocation(args) => (
            "An allocation: edit it, then `fairmesh quota grant FILE --key KEY`.",
            allocation(args, now)?,
            &args.draft.out,
        ),
        NewCommand::Snapshot(args) => (
            "A snapshot: `fairmesh policy sign` it.",
            snapshot(args, now)?,
            &args.out,
        ),
    };
    let text = format!("# {about}\n\n{draft}");
    match file {
        Some(file) => write_new(file, text.as_bytes(), 0o644)?,
        None => out.write_all(text.as_bytes())?,
    }
    Ok(Exit::Success)
}

fn expiry(args: &DraftArgs, now: WallTime) -> WallTime {
    now.after(Millis(DAY_MS).times(u64::from(args.days)))
}

fn charter(args: &NewCharterArgs, now: WallTime) -> anyhow::Result<String> {
    let expires = expiry(&args.draft, now);
    let sites = args.site.iter().map(|file| member(file));
    let sites = sites.collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(from) = &args.draft.from {
        let document = PolicyDocument::read(from)?.whole()?;
        let PolicyDocument::Charter(old) = &document else {
            bail!("{} is no charter: {}", from.display(), document.name());
        };
        let mut next = old.claimed().clone();
        next.version = next_version(next.version)?;
        next.vo = Some(old.vo());
        next.previous = Some(old.hash());
        (next.issued, next.expires) = (now, expires);
        next.snapshot = any_of(&args.snapshot).or(next.snapshot);
        for change in sites
            .into_iter()
            .filter_map(|site| members::put(&mut next, site))
        {
            // The draft may go to standard output.
            note!("note: {change}");
        }
        return Ok(charter_toml(&next));
    }
    let authority = Role {
        keys: args.authority.iter().copied().collect(),
        threshold: args.threshold,
    };
    let keys = authority.keys.len();
    ensure!(
        keys == 0 || u32::try_from(keys).is_ok_and(|keys| (1..=keys).contains(&args.threshold)),
        "--threshold {}: {keys} keys are named with --authority, and so many of them must sign; name more, or a \
         threshold from 1 to {keys}",
        args.threshold
    );
    let first = Charter {
        version: 1,
        vo: None,
        previous: None,
        name: args.name.clone().unwrap_or_else(|| "VO".to_owned()),
        issued: now,
        expires,
        policy: any_of(&args.policy).unwrap_or_else(|| authority.clone()),
        authority,
        sites,
        window: WindowLength::HOUR,
        history: Default::default(),
        usage_mode: Default::default(),
        charging: Default::default(),
        discounts: fairmesh_model::Discounts::NONE,
        distance: Default::default(),
        readers: Default::default(),
        snapshot: any_of(&args.snapshot),
    };
    let example = match first.sites[..] {
        [] => {
            "#   [[site]]\n#   name = \"hpc1\"\n#   id = \"<64 hex digits>\"\n#   cpus = 1024\n\
             #   addresses = [\"/dns4/hpc1.example/tcp/7600\"]\n"
        }
        _ => "",
    };
    Ok(charter_toml(&first) + example)
}

fn member(file: &Path) -> anyhow::Result<MemberSite> {
    let (name, bytes) = (file.display().to_string(), read_bytes(file)?);
    let text = as_text(&bytes).with_context(|| format!("{name} is no text"))?;
    Ok(parse_member(Source { file: &name, text })?)
}

/// The role of keys of which one must sign, if any are named.
fn any_of(keys: &[KeyId]) -> Option<Role> {
    let role = Role {
        keys: keys.iter().copied().collect(),
        threshold: 1,
    };
    (!keys.is_empty()).then_some(role)
}

fn snapshot(args: &NewSnapshotArgs, now: WallTime) -> anyhow::Result<String> {
    let (policies, verdicts) = chain_of(&args.documents)?;
    for (name, verdict) in verdicts {
        if let Err(why) = verdict {
            bail!("{name}: {why}");
        }
    }
    let next = policies.next_snapshot(now, now.after(args.valid));
    Ok(snapshot_toml(&next.context("no charter is among them")?))
}

fn shares(args: &NewSharesArgs, now: WallTime) -> anyhow::Result<String> {
    let expires = expiry(&args.draft, now);
    if let Some(from) = &args.draft.from {
        let document = PolicyDocument::read(from)?.whole()?;
        let PolicyDocument::Shares(old) = &document else {
            bail!("{} is no share policy: {}", from.display(), document.name());
        };
        let mut next = old.claimed().clone();
        next.version = next_version(next.version)?;
        next.previous = Some(old.hash());
        (next.issued, next.expires) = (now, expires);
        return Ok(shares_toml(&next));
    }
    let vo = match (&args.vo, &args.charter) {
        (Some(vo), _) => *vo,
        (None, Some(charter)) => PolicyDocument::read(charter)?.vo(),
        (None, None) => bail!("give the VO's id (--vo) or its charter (--charter)"),
    };
    let first = SharePolicy {
        vo,
        path: args.path.clone(),
        version: 1,
        previous: None,
        issued: now,
        expires,
        usage: None,
        distance: None,
        shares: Default::default(),
    };
    Ok(shares_toml(&first) + "# \"/P-B1\" = 60\n# \"/P-B1/U-B11\" = 50\n")
}

fn allocation(args: &NewAllocationArgs, now: WallTime) -> anyhow::Result<String> {
    let expires = expiry(&args.draft, now);
    if let Some(from) = &args.draft.from {
        let PolicyDocument::Allocation(old) = PolicyDocument::read(from)?.whole()? else {
            bail!("{} is no allocation", from.display());
        };
        let mut next = old.claimed().clone();
        next.version = next_version(next.version)?;
        next.id = next.id.or_else(|| Some(old.hash().into()));
        (next.issued, next.expires) = (now, expires);
        return Ok(allocation_toml(&next));
    }
    let (Some(charter), Some(path), Some(amount)) = (&args.charter, &args.path, &args.amount)
    else {
        bail!("give --charter, --path and --amount; or --from an allocation that is to be changed");
    };
    let PolicyDocument::Charter(charter) = PolicyDocument::read(charter)? else {
        bail!("{} is no charter", charter.display());
    };
    let amount = parse_core_hours(amount)
        .with_context(|| format!("--amount {amount}: write core-hours, such as 1200 or 0.5"))?;
    let start = args.start.unwrap_or(now);
    let period = Period {
        from: start,
        until: start.after(Millis(DAY_MS).times(u64::from(args.draft.days))),
        slices: args.slices,
        grace: Millis(DAY_MS).times(u64::from(args.grace_days)),
    };
    let slices = match args.expiring {
        true => expiring(amount, period),
        false => windows(amount, period),
    };
    let split = match args.equal {
        true => (charter.claimed().sites.iter())
            .map(|member| (member.site, 1))
            .collect(),
        false => by_capacity(charter.claimed()),
    };
    let first = Allocation {
        leaders: any_of(&args.leaders),
        ..Allocation::new(
            charter.vo(),
            path.clone(),
            now..period.until.after(period.grace),
            slices,
            split,
        )
    };
    Ok(allocation_toml(&first))
}

fn moment(text: &str) -> Result<WallTime, String> {
    let problem = "write a date, 2027-11-21, or a moment with its zone, 2027-11-21T12:00:00Z";
    parse_moment(text).ok_or_else(|| problem.to_owned())
}

fn next_version(version: u64) -> anyhow::Result<u64> {
    version
        .checked_add(1)
        .context("there is no higher version: rotate the role's keys first")
}
