//! The command line: which command, and how it ends. A library function, so that tests can run the
//! very program without finding the binary first.

use std::io::{self, Write as _};
use std::process::ExitCode;

use fairmesh_node::log::{self, Lines, Logged};

use crate::output::Exit;
use crate::schedulers::command::{self, SystemArgs};
use crate::{
    arc, ask, bugreport, demo, doctor, emulate, forward, init, manual, place, policy_cmd, queue,
    quota_cmd, run, sla, slurm, top,
};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use fairmesh_model::hides;
use fairmesh_schedulers::condor::Condor;
use fairmesh_schedulers::gridengine::GridEngine;
use fairmesh_schedulers::lsf::Lsf;
use fairmesh_schedulers::pbs::Pbs;
use futures::FutureExt as _;

/// Grid-wide fairshare without a server in the middle.
#[derive(Debug, Parser)]
#[command(name = "fairmesh", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Init(init::InitArgs),
    /// Check a configuration and what it names, without starting anything.
    CheckConfig(run::ConfigArgs),
    /// Run a node until SIGTERM; SIGHUP reads the configuration again.
    Run(run::RunArgs),
    Status(ask::status::StatusArgs),
    Peers(ask::peers::PeersArgs),
    Share(ask::share::ShareArgs),
    Prices(ask::prices::PricesArgs),
    Prio(ask::prio::PrioArgs),
    Explain(ask::explain::ExplainArgs),
    Usage(ask::usage::UsageArgs),
    Report(ask::report::ReportArgs),
    Records(ask::records::RecordsArgs),
    Correct(ask::correct::CorrectArgs),
    Remap(ask::remap::RemapArgs),
    Audit(ask::correct::AuditArgs),
    Netcheck(ask::netcheck::NetcheckArgs),
    Top(top::TopArgs),
    Doctor(doctor::DoctorArgs),
    Bugreport(bugreport::BugreportArgs),
    Metrics(ask::metrics::MetricsArgs),
    Emulate(emulate::EmulateArgs),
    Place(place::PlaceArgs),
    Queue(queue::QueueArgs),
    Forward(forward::ForwardArgs),
    Sla(sla::SlaArgs),
    Quota(quota_cmd::QuotaArgs),
    Policy(policy_cmd::PolicyArgs),
    Slurm(slurm::SlurmArgs),
    /// Work with a Grid Engine beside the node: priorities into it, usage out of it
    #[command(name = "gridengine")]
    GridEngine(SystemArgs),
    /// Work with an HTCondor beside the node: priorities into it, usage out of it
    Condor(SystemArgs),
    /// Work with a PBS beside the node: priorities into it, usage out of it
    Pbs(SystemArgs),
    /// Work with an LSF beside the node: priorities into it, usage out of it
    Lsf(SystemArgs),
    Arc(arc::ArcArgs),
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    Man {
        /// The folder; it is made if it is not there.
        folder: std::path::PathBuf,
    },
}

/// Runs the command that the program was called with.
#[tokio::main]
pub async fn main() -> ExitCode {
    // The runtime polls from several places. Behind a pointer, all commands are compiled once and not once for each.
    run_command().boxed_local().await
}

async fn run_command() -> ExitCode {
    // For kernels that give huge pages to everybody; the allocator asks for none. Children inherit this. A kernel without
    // huge pages refuses, which changes nothing.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if is_service(&arguments)
        && let Err(error) = log::start_service()
    {
        note!("fairmesh: no thread for the log, which may hold up the node: {error}");
    }
    tracing_subscriber::fmt()
        .with_env_filter(log_filter(&arguments))
        .with_writer(Logged)
        .log_internal_errors(false)
        .with_ansi(
            io::IsTerminal::is_terminal(&io::stderr()) && std::env::var_os("NO_COLOR").is_none(),
        )
        .event_format(Lines::for_standard_error())
        .init();
    let told = manual::completed(command_line()).get_matches();
    let cli = Cli::from_arg_matches(&told).unwrap_or_else(|error| error.exit());
    let ended = dispatch(cli.command).await;
    let code = exit_code(ended);
    log::finish();
    code
}

fn exit_code(ended: anyhow::Result<Exit>) -> ExitCode {
    match ended {
        Ok(exit) => exit.into(),
        Err(error) if is_broken_pipe(&error) => ExitCode::from(READER_GONE),
        Err(error) => {
            // Files and peers have their words in it.
            note!("fairmesh: {}", escaped(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

/// Lines of which all is seen.
pub(crate) fn escaped(text: &str) -> String {
    let shown = |c: char| match !hides(c) || matches!(c, '\n' | '\t') {
        true => c.to_string(),
        false => c.escape_unicode().to_string(),
    };
    text.chars().map(shown).collect()
}

/// The whole command line, as clap knows it.
pub(crate) fn command_line() -> clap::Command {
    Cli::command()
}

async fn dispatch(command: Command) -> anyhow::Result<Exit> {
    let mut out = io::stdout();
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Run(args) => run::run(&args).await,
        Command::Init(args) => init::run(&args, &mut out),
        Command::CheckConfig(args) => run::check_config(&args, &mut out),
        Command::Status(args) => ask::status::run(&args, &mut out).await,
        Command::Peers(args) => ask::peers::run(&args, &mut out).await,
        Command::Share(args) => ask::share::run(&args, &mut out).await,
        Command::Prices(args) => ask::prices::run(&args, &mut out).await,
        Command::Prio(args) => ask::prio::run(&args, &mut out).await,
        Command::Explain(args) => ask::explain::run(&args, &mut out).await,
        Command::Usage(args) => ask::usage::run(&args, &mut out).await,
        Command::Report(args) => ask::report::run(&args, &mut out).await,
        Command::Records(args) => ask::records::run(&args, &mut out).await,
        Command::Correct(args) => ask::correct::run(&args, &mut out).await,
        Command::Remap(args) => ask::remap::run(&args, &mut out).await,
        Command::Audit(args) => ask::correct::audit(&args, &mut out).await,
        Command::Netcheck(args) => ask::netcheck::run(&args, &mut out).await,
        Command::Top(args) => top::run(&args, &mut out).await,
        Command::Doctor(args) => doctor::run(&args, &mut out).await,
        Command::Bugreport(args) => bugreport::run(&args, &mut out).await,
        Command::Metrics(args) => ask::metrics::run(&args, &mut out).await,
        Command::Emulate(args) => emulate::run(&args, &mut out, &policy_cmd::read_tree),
        Command::Place(args) => place::run(&args, &mut out).await,
        Command::Queue(args) => tokio::task::block_in_place(|| queue::run(&args, &mut out)),
        Command::Forward(args) => forward::run(&args, &mut out).await,
        Command::Sla(args) => tokio::task::block_in_place(|| sla::run(&args, &mut out)),
        Command::Quota(args) => quota_cmd::run(&args, &mut out).await,
        Command::Policy(args) => policy_cmd::run(&args, &mut out).await,
        Command::Slurm(args) => slurm::run(&args, &mut out).await,
        Command::GridEngine(args) => command::run::<GridEngine>(&args, &mut out).await,
        Command::Condor(args) => command::run::<Condor>(&args, &mut out).await,
        Command::Pbs(args) => command::run::<Pbs>(&args, &mut out).await,
        Command::Lsf(args) => command::run::<Lsf>(&args, &mut out).await,
        Command::Arc(args) => arc::run(&args).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut command_line(), "fairmesh", &mut out);
            Ok(Exit::Success)
        }
        Command::Man { folder } => {
            std::fs::create_dir_all(&folder)?;
            manual::write(command_line(), &folder)?;
            writeln!(out, "manual pages are in {}", folder.display())?;
            Ok(Exit::Success)
        }
    }
}

/// Libraries that write a line for each thing that a peer does wrong, at the peer's pace. What matters of it the node
/// says itself, once a minute.
const QUIET_PEERS: &str = "warn,fairmesh=info,libp2p_swarm=error,libp2p_request_response=error,\
                           libp2p_gossipsub=off,libp2p_identify=error,libp2p_ping=error,yamux=error";

/// Whether these arguments start a service.
fn is_service(arguments: &[String]) -> bool {
    let has = |argument: &str| arguments.iter().any(|given| given == argument);
    match arguments.first().map(String::as_str) {
        Some("run") => true,
        Some("report") => has("--follow"),
        Some("forward" | "queue") => has("run"),
        _ => is_of_batch_system(arguments) && ["run", "feed", "sync"].into_iter().any(has),
    }
}

fn is_of_batch_system(arguments: &[String]) -> bool {
    let command = arguments.first();
    command.is_some_and(|command| fairmesh_schedulers::NAMES.contains(&command.as_str()))
}

/// What is logged: warnings, and what the node itself has to say, unless FAIRMESH_LOG says otherwise.
fn log_filter(arguments: &[String]) -> tracing_subscriber::EnvFilter {
    tracing_subscriber::EnvFilter::try_from_env("FAIRMESH_LOG").unwrap_or_else(|_| {
        if is_service(arguments) || is_of_batch_system(arguments) {
            QUIET_PEERS.into()
        } else {
            "error".into()
        }
    })
}

/// How a command ends whose reader has gone away (`fairmesh … | head`), as a shell says it of what SIGPIPE has killed:
/// not all was said, so it is no success, and nobody is left to be told why.
const READER_GONE: u8 = 128 + 13;

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
