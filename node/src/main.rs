//! The command line: which command, and how it ends.

use clap::{Parser, Subcommand};

/// Grid-wide fairshare without a server in the middle.
#[derive(Debug, Parser)]
#[command(name = "fairmesh", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch sites share a Grid fairly: real nodes on this machine, no set-up.
    Demo(fairmesh::demo::DemoArgs),
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "fairmesh=warn".into()))
        .with_writer(std::io::stderr)
        .init();
    let outcome = match Cli::parse().command {
        Command::Demo(args) => fairmesh::demo::run(args).await,
    };
    match outcome {
        Ok(code) => std::process::ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("fairmesh: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
