//! `fairmesh sla`: usage SLAs as they are written, what they come to, and whether sites keep them.
//!
//! Invariant: every finding names its entry, its site and both values, and how old what is known of the site is.
//! Deliberately not here: SLAs of the mesh, which `fairmesh place` goes by.

mod check;
mod draft;
mod show;

use std::io::Write;
use std::path::{Path, PathBuf};

use fairmesh_broker::Sla;

use crate::output::{Exit, OutputArgs};

/// Show usage SLAs, and check them against how sites stand
#[derive(Debug, Clone, clap::Args)]
pub struct SlaArgs {
    #[command(subcommand)]
    command: SlaCommand,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum SlaCommand {
    Show(ShowArgs),
    Check(CheckArgs),
    Draft(DraftArgs),
}

/// Show each entry, what it is entitled to and what it may never pass
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
SLA.toml has an entry a line; a sign makes a share a limit (+) or a guarantee (-):
    [sla]
    \"/VO-A\"      = { cpu = \"10% / 30d, burst 40% / 1d\", disk = \"2TiB\", extensible = true }
    \"/VO-A/P-A1\" = { cpu = \"25%+\", at_most = \"150cpus\" }
    \"/VO-B\"      = { cpu = \"5%-\" }")]
pub struct ShowArgs {
    /// The SLAs
    #[arg(value_name = "SLA.toml")]
    pub sla: PathBuf,
    /// CPUs that they share out: of a site, or all that sites contribute to a VO
    #[arg(long, value_name = "CPUS", default_value_t = 100)]
    pub total: u64,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Say which limits are passed and which guarantees are broken; it ends with 1 if any is
#[derive(Debug, Clone, clap::Args)]
pub struct CheckArgs {
    /// The SLAs of a site's owner: an entry `/NAME` is of the VO of that name
    #[arg(value_name = "SLA.toml")]
    pub sla: PathBuf,
    /// How the sites stand (see `fairmesh place --help`)
    #[arg(long, value_name = "GRID.json")]
    pub grid: PathBuf,
    /// Only this site
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Draft SLAs from what a Slurm is configured to do, or say where that differs from what was agreed
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
Slurm says it with
    sacctmgr --parsable2 show assoc format=Account,ParentName,User,Fairshare,GrpTRES,GrpTRESMins
An account's fairshare becomes a target among its siblings, and GrpTRES cpu=N a limit. Read the draft and change
what was not meant: nobody has agreed to it yet. With --sla it ends with 1 where anything differs.")]
pub struct DraftArgs {
    /// What sacctmgr has printed; - for standard input
    #[arg(value_name = "FILE")]
    pub associations: PathBuf,
    /// Compare with this document instead: both values of each entry that differs
    #[arg(long, value_name = "SLA.toml")]
    pub sla: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &SlaArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        SlaCommand::Show(args) => show::show(args, out),
        SlaCommand::Check(args) => check::check(args, out),
        SlaCommand::Draft(args) => draft::draft(args, out),
    }
}

fn parsed(file: &Path) -> anyhow::Result<Sla> {
    Ok(Sla::parse(
        &crate::emulate::read(file)?,
        &file.display().to_string(),
    )?)
}

/// Units of 10⁻⁹ as a percentage, with the decimals that it has.
fn percent(units: u64) -> String {
    let text = format!("{}.{:07}", units / 10_000_000, units % 10_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
