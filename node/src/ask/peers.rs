//! `fairmesh peers`: reachable now, age of data, in sync.

use std::io::Write;

use fairmesh_model::Millis;

use super::{AskArgs, heading, name_or_id};
use crate::control::answer::{PeerBody, PeersBody};
use crate::control::clean;
use crate::output::{Align, Exit, Table, age};

/// Said instead of an empty table.
pub(super) const NO_PEERS: &str =
    "no other site is known: the charters of the VOs in the configuration name them";

/// List the other sites: reachable now, age of their data, in sync
#[derive(Debug, Clone, clap::Args)]
pub struct PeersArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked.
pub async fn run(args: &PeersArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (answer, done) = args.ask.get::<PeersBody>("/v1/peers", &[], out).await?;
    if !done {
        let table = peer_table(&answer.body.peers).with_heading(heading(&answer.rests_on));
        table.write(out, &args.ask.output)?;
        if answer.body.peers.is_empty() {
            note!("{NO_PEERS}");
        }
    }
    Ok(Exit::Success)
}

/// Peers as a table.
pub(super) fn peer_table(peers: &[PeerBody]) -> Table {
    let mut table = Table::new(&[
        ("Peer", Align::Left),
        ("Site", Align::Left),
        ("Reachable", Align::Left),
        ("DataAge", Align::Right),
        ("InSync", Align::Left),
        ("RTT", Align::Right),
        ("BytesIn", Align::Right),
        ("BytesOut", Align::Right),
        ("Trouble", Align::Left),
    ]);
    for peer in peers {
        let since =
            |ms: Option<u64>| ms.map_or_else(|| "no data yet".to_owned(), |ms| age(Millis(ms)));
        table.row([
            name_or_id(peer.name.as_deref(), &peer.site),
            peer.site.chars().take(8).collect(),
            yes_no(peer.reachable),
            since(peer.data_age_ms),
            in_sync(peer),
            round_trip(peer),
            peer.bytes_in.to_string(),
            peer.bytes_out.to_string(),
            trouble(peer),
        ]);
    }
    table
}

/// Whether nothing is to be pulled from it, and when that was found.
fn in_sync(peer: &PeerBody) -> String {
    let found = peer.agreed_age_ms.filter(|_| peer.in_sync);
    found.map_or_else(
        || "no".to_owned(),
        |ms| format!("yes, {} ago", age(Millis(ms))),
    )
}

/// The last ping, in milliseconds, of a peer that is reachable.
pub(super) fn round_trip(peer: &PeerBody) -> String {
    let now = peer.round_trip_us.filter(|_| peer.reachable);
    now.map_or_else(
        || "-".to_owned(),
        |us| format!("{}.{:03}ms", us / 1_000, us % 1_000),
    )
}

/// What it sends too much of, or why it is not reached.
fn trouble(peer: &PeerBody) -> String {
    let unreached = peer.dial_failure.as_ref().filter(|_| !peer.reachable);
    let why = peer.over_budget.as_ref().or(unreached);
    why.map(|why| clean(why)).unwrap_or_default()
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}
