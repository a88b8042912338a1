//! The commands that ask a running node over `control.sock`, and feed it.
//!
//! Each command is an `…Args` for clap and a `run(&args, out)`. Data go to `out`, words to standard
//! error; every table is headed by what it rests on. `Ok` is 0 or 1 for the shell (see `Exit`): 1
//! also where the node knows no such thing, or refuses a document. An `Err` means that the node
//! could not be asked, for which the caller exits with 2.
//!
//! Invariant: words of the node, of peers and of files are printed without control characters;
//! `--json` prints the node's own versioned JSON as it came.
//! Deliberately not here: signing policies (`policy_cmd`) and computing offline (`emulate`).

pub mod correct;
pub mod explain;
pub mod metrics;
pub mod netcheck;
pub mod peers;
pub mod prices;
pub mod prio;
pub mod records;
pub mod remap;
pub mod report;
pub mod share;
pub mod status;
pub mod usage;

mod export;

mod totals;

use std::io::Write;
use std::path::PathBuf;

use fairmesh_api::client::{AskError, Control};
use fairmesh_api::words::{age, name_or_id, timestamp, until};
use fairmesh_api::{Answer, RestsOn, ViewBody};
use fairmesh_model::{Millis, WallTime};
use serde::de::DeserializeOwned;

use crate::output::{Exit, OutputArgs, Table};

/// Where a packaged node has its socket.
const SOCKET_DEFAULT: &str = "/run/fairmesh/control.sock";

/// The node to ask.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct NodeArgs {
    /// The node's control socket [default: $FAIRMESH_SOCKET, or /run/fairmesh/control.sock]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub socket: Option<PathBuf>,
}

impl NodeArgs {
    /// The way to the node.
    pub fn control(&self) -> Control {
        let by_environment = || std::env::var_os("FAIRMESH_SOCKET").map(PathBuf::from);
        let path = self.socket.clone().or_else(by_environment);
        Control::new(path.unwrap_or_else(|| PathBuf::from(SOCKET_DEFAULT)))
    }
}

/// The node to ask, and the form of the answer.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AskArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl AskArgs {
    /// The way to the node.
    pub fn control(&self) -> Control {
        self.node.control()
    }

    /// Asks; with `--json` writes the answer as it came. Says whether it did.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, Option<&str>)],
        out: &mut dyn Write,
    ) -> anyhow::Result<(Answer<T>, bool)> {
        let (answer, text) = self.control().get(path, parameters).await?;
        if self.output.json {
            writeln!(out, "{text}")?;
        }
        Ok((answer, self.output.json))
    }

    /// Asks, and writes the answer as a table below what it rests on, or as it came. Says how that ended, and gives the
    /// answer if there is more to say of it.
    pub(crate) async fn table<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, Option<&str>)],
        out: &mut dyn Write,
        table: impl FnOnce(&T) -> Table,
    ) -> anyhow::Result<(Exit, Option<T>)> {
        let Some((answer, done)) = unless_refused(self.get(path, parameters, out).await)? else {
            return Ok((Exit::Failure, None));
        };
        if done {
            return Ok((Exit::Success, None));
        }
        let table = table(&answer.body).with_heading(heading(&answer.rests_on));
        table.write(out, &self.output)?;
        Ok((Exit::Success, Some(answer.body)))
    }
}

/// Tells a refusal of the node to standard error and gives `None`: the question was understood,
/// and the answer is no, which is another exit code than that nobody answers.
///
/// # Errors
/// Everything else.
pub fn unless_refused<T>(asked: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    let is_no = |error: &anyhow::Error| {
        matches!(
            error.downcast_ref(),
            Some(AskError::Refused {
                status: 404 | 422,
                ..
            })
        )
    };
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_no(&error) => {
            note!("fairmesh: {error:#}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The line above a table, and one for each VO whose documents have expired or that nobody vouches for.
pub(crate) fn heading(rests_on: &RestsOn) -> String {
    let now = WallTime(rests_on.as_of_ms);
    let expired = rests_on.views.iter().filter_map(|view| {
        let at = WallTime(view.expires_ms?);
        let name = name_or_id(view.name.as_deref(), &view.vo);
        let told = format!(
            "\nVO {name}: what is in force expired {}: see `fairmesh status`",
            until(at, now)
        );
        (at <= now).then_some(told)
    });
    let unvouched = rests_on.views.iter().filter_map(|view| {
        let why = fairmesh_model::clean(view.snapshot.as_deref()?);
        let name = name_or_id(view.name.as_deref(), &view.vo);
        Some(format!("\nVO {name}: {why}: see `fairmesh status`"))
    });
    let foreign = rests_on.views.iter().filter(|view| !view.is_member);
    let foreign = foreign.map(|view| format!("\n{}: see `fairmesh status`", no_member(view)));
    std::iter::once(as_of(rests_on))
        .chain(foreign)
        .chain(expired)
        .chain(unvouched)
        .collect()
}

/// That a VO's charter does not list the node's site.
pub(crate) fn no_member(view: &ViewBody) -> String {
    let name = name_or_id(view.name.as_deref(), &view.vo);
    let version = view.charter_version;
    format!(
        "charter {version} of VO {name} does not list this site: no other site counts what it uses"
    )
}

/// When it was, of how many sites, and how long ago the stalest data of another one were known to be current.
fn as_of(rests_on: &RestsOn) -> String {
    let at = timestamp(WallTime(rests_on.as_of_ms / 1_000 * 1_000));
    let coverage = &rests_on.coverage;
    let (known, sites) = (coverage.sites_known, coverage.sites_total);
    if sites == 0 {
        return format!("as of {at}, 0 of 0 sites: no charter has arrived yet");
    }
    let oldest = coverage.stalest.as_ref().or(coverage.oldest.as_ref());
    let oldest = oldest.map_or_else(
        || "no other known yet".to_owned(),
        |oldest| format!("oldest {} ago", age(Millis(oldest.age_ms))),
    );
    format!("as of {at}, {known} of {sites} sites, {oldest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairmesh_api::{CoverageBody, OldestBody, ViewBody};

    #[test]
    fn a_table_says_what_it_rests_on() {
        let mut rests_on = RestsOn {
            as_of_ms: 1_000_000_000_750,
            coverage: CoverageBody {
                sites_known: 5,
                sites_total: 6,
                stalest: Some(OldestBody {
                    site: "ab".repeat(32),
                    name: None,
                    age_ms: 12_000,
                }),
                ..CoverageBody::default()
            },
            ..RestsOn::default()
        };
        assert_eq!(
            as_of(&rests_on),
            "as of 2001-09-09T01:46:40Z, 5 of 6 sites, oldest 12s ago"
        );
        rests_on.coverage.stalest = None;
        assert!(as_of(&rests_on).ends_with("no other known yet"));
        rests_on.coverage.sites_total = 0;
        assert!(as_of(&rests_on).ends_with("no charter has arrived yet"));
    }

    #[test]
    fn a_table_says_that_it_goes_by_expired_documents() {
        let day = |days: u64| days * 86_400_000;
        let view = |name: &str, expires_ms| ViewBody {
            vo: "ab".repeat(32),
            name: Some(name.to_owned()),
            is_member: true,
            charter_version: 1,
            documents: None,
            counters: None,
            expires_ms,
            snapshot: (name == "chemistry").then(|| "no snapshot has arrived".to_owned()),
        };
        let rests_on = RestsOn {
            as_of_ms: day(10),
            views: vec![
                view("physics", Some(day(7))),
                view("bio", Some(day(11))),
                view("chemistry", None),
            ],
            ..RestsOn::default()
        };
        let heading = heading(&rests_on);
        let told = "\nVO physics: what is in force expired 3 days ago: see `fairmesh status`\
                    \nVO chemistry: no snapshot has arrived: see `fairmesh status`";
        assert!(
            heading.ends_with(told) && heading.lines().count() == 3,
            "{heading}"
        );
    }
}
