//! `fairmesh policy new`: a draft, from nothing or from the version before.
//!
//! Invariant: a draft made from a document differs from it in version, predecessor and dates only,
//! until people edit it. Deliberately not here: signing.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use fairmesh_model::{
    AccountPath, Charter, KeyId, Millis, Role, SharePolicy, VoId, WallTime, WindowLength,
};

use super::charter_draft::charter_toml;
use super::clock;
use super::document::PolicyDocument;
use super::shares_draft::shares_toml;
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
}

/// Options of both kinds.
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
    /// Options of both kinds.
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
    /// Options of both kinds.
    #[command(flatten)]
    pub draft: DraftArgs,
}

pub(super) fn run(command: &NewCommand, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let now = clock::now();
    match command {
        NewCommand::Charter(args) => {
            let text = format!(
                "# A charter: edit it, then `fairmesh policy sign`.\n\n{}",
                charter(args, now)?
            );
            finish(&text, args.draft.out.as_deref(), out)
        }
        NewCommand::Shares(args) => {
            let text = format!(
                "# A share policy: edit it, then `fairmesh policy sign`.\n\n{}",
                shares(args, now)?
            );
            finish(&text, args.draft.out.as_deref(), out)
        }
    }
}

fn finish(text: &str, file: Option<&Path>, out: &mut dyn Write) -> anyhow::Result<Exit> {
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
    if let Some(from) = &args.draft.from {
        let PolicyDocument::Charter(old) = PolicyDocument::read(from)? else {
            bail!("{} is a share policy, not a charter", from.display());
        };
        let mut next = old.claimed().clone();
        next.version = next_version(next.version)?;
        next.vo = Some(old.vo());
        next.previous = Some(old.hash());
        (next.issued, next.expires) = (now, expires);
        return Ok(charter_toml(&next));
    }
    let role = |keys: &[KeyId]| Role {
        keys: keys.iter().copied().collect(),
        threshold: args.threshold,
    };
    let policy = if args.policy.is_empty() {
        role(&args.authority)
    } else {
        Role {
            threshold: 1,
            ..role(&args.policy)
        }
    };
    let first = Charter {
        version: 1,
        vo: None,
        previous: None,
        name: args.name.clone().unwrap_or_else(|| "VO".to_owned()),
        issued: now,
        expires,
        authority: role(&args.authority),
        policy,
        sites: Vec::new(),
        window: WindowLength::HOUR,
        history: Default::default(),
        usage_mode: Default::default(),
        charging: Default::default(),
        discounts: fairmesh_model::Discounts::NONE,
        distance: Default::default(),
        readers: Default::default(),
    };
    let sites = "#   [[site]]\n#   name = \"hpc1\"\n#   id = \"<64 hex digits>\"\n#   cores = 1024\n\
                 #   addresses = [\"/dns4/hpc1.example/tcp/7600\"]\n";
    Ok(charter_toml(&first) + sites)
}

fn shares(args: &NewSharesArgs, now: WallTime) -> anyhow::Result<String> {
    let expires = expiry(&args.draft, now);
    if let Some(from) = &args.draft.from {
        let PolicyDocument::Shares(old) = PolicyDocument::read(from)? else {
            bail!("{} is a charter, not a share policy", from.display());
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

fn next_version(version: u64) -> anyhow::Result<u64> {
    version
        .checked_add(1)
        .context("there is no higher version: rotate the role's keys first")
}
