//! `fairmesh peers`: the state of each other site, and the age of its data.

use std::collections::BTreeMap;
use std::io::Write;

use fairmesh_api::words::{age, name_or_id};
use fairmesh_api::{PeerBody, PeerState, PeersBody};
use fairmesh_model::{Millis, clean};

use super::{AskArgs, heading};
use crate::output::{Exit, Table, or_dash};

/// Said instead of an empty table.
pub(super) const NO_PEERS: &str =
    "no other site is known: the charters of the VOs in the configuration name them";

/// List the other sites: their state, and the age of their data
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
    let mut table = Table::new(
        "Peer|Site|State|>DataAge|>UsageAge|>LastInSync|>RTT|>BytesIn|>BytesOut|Trouble",
    );
    for peer in peers {
        let since =
            |ms: Option<u64>| ms.map_or_else(|| "no data yet".to_owned(), |ms| age(Millis(ms)));
        table.row([
            name_or_id(peer.name.as_deref(), &peer.site),
            peer.site.chars().take(8).collect(),
            peer.state.name().to_owned(),
            since(peer.data_age_ms),
            or_dash(peer.usage_age_ms.map(|ms| age(Millis(ms)))),
            or_dash(peer.agreed_age_ms.map(|ms| age(Millis(ms)))),
            round_trip(peer),
            peer.bytes_in.to_string(),
            peer.bytes_out.to_string(),
            trouble(peer),
        ]);
    }
    table
}

/// The last ping, in milliseconds, of a peer that is reachable.
pub(super) fn round_trip(peer: &PeerBody) -> String {
    let now = peer.round_trip_us.filter(|_| peer.reachable);
    or_dash(now.map(|us| format!("{}.{:03}ms", us / 1_000, us % 1_000)))
}

/// From how many peers on a summary takes the place of their table.
const LISTED_MAX: usize = 24;

/// Peers for a page about something else: all of them, or, of many, how many are in which state, and some that are not well.
pub(super) fn peer_summary(peers: &[PeerBody]) -> Vec<Table> {
    if peers.len() <= LISTED_MAX {
        return vec![peer_table(peers)];
    }
    let mut states: BTreeMap<PeerState, usize> = BTreeMap::new();
    for peer in peers {
        *states.entry(peer.state).or_default() += 1;
    }
    let mut counts = Table::new("State|>Sites");
    for (state, sites) in states {
        counts.row([state.name().to_owned(), sites.to_string()]);
    }
    let worst = peers.iter().filter(|peer| !peer.state.is_well());
    let worst: Vec<PeerBody> = worst.take(LISTED_MAX).cloned().collect();
    let worst = Some(worst).filter(|worst| !worst.is_empty());
    let worst = worst.map(|worst| peer_table(&worst));
    std::iter::once(counts).chain(worst).collect()
}

/// What it sends too much of, or why it is not reached.
fn trouble(peer: &PeerBody) -> String {
    let unreached = peer.dial_failure.as_ref().filter(|_| !peer.reachable);
    let why = peer.over_budget.as_ref().or(unreached);
    why.map(|why| clean(why)).unwrap_or_default()
}
