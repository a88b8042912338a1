//! `fairmesh quota`: what is left of a project's credit, what a batch system asks about jobs, what an authority
//! grants and takes back, and what a leader passes on.
//!
//! `hold` exits with 0 where the job may run and 1 where it may not; the message for its user is on standard
//! error. So it can stand in any scheduler's script before a job.
//! Deliberately not here: drafts (`fairmesh policy new allocation`), and the node's side (`control::quota`).

mod authority;
mod calls;
mod history;
mod leader;
mod show;

use std::io::Write;

pub(crate) use calls::seconds;

use crate::ask::AskArgs;
use crate::output::{Exit, Finishing};

/// Ask for, hold, charge, grant and take back what projects may spend
#[derive(Debug, Clone, clap::Args)]
pub struct QuotaArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: QuotaCommand,
}

/// What can be done.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum QuotaCommand {
    /// Show what is left of accounts' credit, here and in the VO
    Show(show::ShowArgs),
    /// Show who granted what, which rights moved, and which jobs here ran beyond their quota or beside it
    History(history::HistoryArgs),
    /// Show what users were charged in a month, at each site
    Summary(history::SummaryArgs),
    /// Hold what a job may cost: exit 0 if it may run, 1 if not
    Hold(calls::HoldArgs),
    /// Charge a job by hand; what a feed reports needs no such call
    Commit(calls::CommitArgs),
    /// Free what a job holds that did not run
    Release(calls::JobArgs),
    /// Show what a job would cost at each site, the cheapest first
    Quote(calls::QuoteArgs),
    /// Send all that is left here to the other sites, before this one leaves
    Drain(AskArgs),
    /// Sign an allocation and hand it to a node, which spreads it
    Grant(authority::GrantArgs),
    /// End an allocation now: what is neither used nor held is gone
    Revoke(authority::RevokeArgs),
    /// Pass a part of an allocation on to an account below its path, as one of its leaders
    Pass(leader::PassArgs),
    /// See whether what is granted fits what the sites can run, week by week
    Plan(authority::PlanArgs),
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, or a file not be read.
pub async fn run(args: &QuotaArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut out = Finishing::new(out);
    let exit = done(args, &mut out).await?;
    out.finish(exit)
}

async fn done(args: &QuotaArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        QuotaCommand::Show(args) => show::run(args, out).await,
        QuotaCommand::History(args) => history::history(args, out).await,
        QuotaCommand::Summary(args) => history::summary(args, out).await,
        QuotaCommand::Hold(args) => calls::hold(args, out).await,
        QuotaCommand::Commit(args) => calls::commit(args, out).await,
        QuotaCommand::Release(args) => calls::release(args, out).await,
        QuotaCommand::Quote(args) => calls::quote(args, out).await,
        QuotaCommand::Drain(args) => calls::drain(args, out).await,
        QuotaCommand::Grant(args) => authority::grant(args, out).await,
        QuotaCommand::Revoke(args) => authority::revoke(args, out).await,
        QuotaCommand::Pass(args) => leader::pass(args, out).await,
        QuotaCommand::Plan(args) => authority::plan(args, out),
    }
}
