//! `fairmesh sla`: usage SLAs as they are written, what they come to, and whether sites keep them.
//!
//! Invariant: every finding names its entry, its site and both values, and how old what is known of the site is.
//! Deliberately not here: SLAs of the mesh (nodes do not publish them yet), and what batch systems are configured
//! to do.

mod check;
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

/// Runs the command.
pub fn run(args: &SlaArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        SlaCommand::Show(args) => show::show(args, out),
        SlaCommand::Check(args) => check::check(args, out),
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
