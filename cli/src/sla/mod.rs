//! `fairmesh sla`: usage SLAs as they are written, what they come to, and whether sites keep them, by what a node
//! knows of its VOs' sites or by a file.
//!
//! Invariant: every finding names its entry, its site and both values, and how old what is known of the site is.

mod check;
mod draft;
mod show;
mod stand;

use std::io::Write;
use std::path::{Path, PathBuf};

use fairmesh_api::Grid;
use fairmesh_model::Millis;

use crate::ask::NodeArgs;
use crate::emulate::read_as;
use crate::output::{Exit, OutputArgs};
use crate::place::known_by_node;

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

/// Show each entry, what it is entitled to and what it may never pass; or how a VO stands at each site
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
SLA.toml has an entry a line; a sign makes a share a limit (+) or a guarantee (-):
    [sla]
    \"/VO-A\"      = { cpu = \"10% / 30d, burst 40% / 1d\", disk = \"2TiB\", extensible = true }
    \"/VO-A/P-A1\" = { cpu = \"25%+\", at_most = \"150cpus\" }
    \"/VO-B\"      = { cpu = \"5%-\" }

Without SLA.toml it asks a node, which answers with what each site says it grants the VO, what the VO has had of it,
how many CPUs it could start on now, and how old that is.")]
pub struct ShowArgs {
    /// The SLAs
    #[arg(
        value_name = "SLA.toml",
        required_unless_present = "vo",
        conflicts_with_all = ["vo", "socket"]
    )]
    pub sla: Option<PathBuf>,
    /// How this VO stands at its sites, by what a node knows
    #[arg(long, value_name = "NAME")]
    pub vo: Option<String>,
    /// Only this site
    #[arg(long, value_name = "NAME", requires = "vo")]
    pub site: Option<String>,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
    /// CPUs that they share out: of a site, or all that sites contribute to a VO
    #[arg(long, value_name = "CPUS", default_value_t = 100)]
    pub total: u64,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Say which limits are passed and which guarantees are broken; it ends with 1 if any is, and where a site grants
/// nothing of what was agreed or no site could be looked at
#[derive(Debug, Clone, clap::Args)]
pub struct CheckArgs {
    /// The SLAs of a site's owner: an entry `/NAME` is of the VO of that name; without them sites are held to what they
    /// say themselves
    #[arg(value_name = "SLA.toml", required_unless_present = "vo")]
    pub sla: Option<PathBuf>,
    /// How the sites stand (see `fairmesh place --help`) [default: by what a node knows]
    #[arg(long, value_name = "GRID.json", conflicts_with = "socket")]
    pub grid: Option<PathBuf>,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Only this VO
    #[arg(long, value_name = "NAME")]
    pub vo: Option<String>,
    /// Only this site
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Draft SLAs from what a batch system is configured to do, or say where that differs from what was agreed
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
Slurm says it with
    sacctmgr --parsable2 show assoc format=Account,ParentName,User,Fairshare,GrpTRES,GrpTRESMins
    scontrol --oneliner show partition
An account's fairshare becomes a target among its siblings, and GrpTRES cpu=N a limit, as do the CPUs of the
partitions that an account may use where those are not all. HTCondor says it with
    condor_config_val -dump GROUP_
A group's quota becomes a target where it accepts surplus, and a limit where not. PBS and LSF say it with
    qmgr -c 'print server'
    bqueues -l QUEUE
max_run_res.ncpus of a group or project becomes a limit, and USER_SHARES become targets. Read the draft and change
what was not meant: nobody has agreed to it yet. With --sla it ends with 1 where anything differs.")]
pub struct DraftArgs {
    /// What sacctmgr has printed; - for standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["condor", "pbs", "lsf"])]
    pub associations: Option<PathBuf>,
    /// What scontrol has printed of Slurm's partitions
    #[arg(long, value_name = "FILE", requires = "associations")]
    pub partitions: Option<PathBuf>,
    /// What condor_config_val has printed, instead of Slurm; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "associations")]
    pub condor: Option<PathBuf>,
    /// What qmgr has printed, instead of Slurm; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["associations", "condor"])]
    pub pbs: Option<PathBuf>,
    /// What bqueues has printed, instead of Slurm; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["associations", "condor", "pbs"])]
    pub lsf: Option<PathBuf>,
    /// Compare with this document instead: both values of each entry that differs
    #[arg(long, value_name = "SLA.toml")]
    pub sla: Option<PathBuf>,
}

/// Runs a subcommand of `fairmesh sla`.
pub fn run(args: &SlaArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        SlaCommand::Show(args) => match &args.vo {
            Some(vo) => {
                let (grid, silence) = known_by_node(&args.node.control(), vo)?;
                stand::show(args, vo, &grid, silence, out)
            }
            None => show::show(args, out),
        },
        SlaCommand::Check(args) => check::check(args, out),
        SlaCommand::Draft(args) => draft::draft(args, out),
    }
}

/// The sites of a VO as a node knows them, or those of a file; and after which time they are silent.
fn sites_of(
    grid: Option<&Path>,
    node: &NodeArgs,
    vo: &str,
) -> anyhow::Result<(Grid, Option<Millis>)> {
    match grid {
        Some(file) => Ok((read_as(file, Grid::parse)?, None)),
        None => known_by_node(&node.control(), vo).map(|(grid, silence)| (grid, Some(silence))),
    }
}

/// Units of 10⁻⁹ as a percentage, with the decimals that it has.
fn percent(units: u64) -> String {
    let text = format!("{}.{:07}", units / 10_000_000, units % 10_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
