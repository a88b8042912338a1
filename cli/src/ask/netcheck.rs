//! `fairmesh netcheck`: where this node listens, and how each known address does.
//!
//! Exit 0 if every peer is connected or its data arrive through others, 1 if not.

use std::io::Write;

use fairmesh_api::words::name_or_id;
use fairmesh_api::{PeerBody, PeersBody};
use fairmesh_model::clean;

use super::peers::{NO_PEERS, round_trip};
use super::{AskArgs, heading};
use crate::output::{Exit, Table};

/// Check which peers can be reached, at which addresses, and why not
#[derive(Debug, Clone, clap::Args)]
pub struct NetcheckArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked.
pub async fn run(args: &NetcheckArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (answer, done) = args.ask.get::<PeersBody>("/v1/peers", &[], out).await?;
    let body = answer.body;
    if !done {
        for address in &body.listening {
            note!("listening on {}", clean(address));
        }
        if body.listening.is_empty() {
            note!("not listening: this node only dials out");
        }
        table(&body)
            .with_heading(heading(&answer.rests_on))
            .write(out, &args.ask.output)?;
        if body.peers.is_empty() {
            note!("{NO_PEERS}");
        }
    }
    Ok(Exit::of(body.peers.iter().all(|peer| peer.state.is_well())))
}

/// The last failure, below the address that it is of; one of an unlisted address is told in full.
fn failure(peer: &PeerBody, address: &str) -> String {
    let Some(why) = peer.dial_failure.as_deref().map(clean) else {
        return String::new();
    };
    let is_of = |address: &String| why.starts_with(address.as_str());
    match why.strip_prefix(address) {
        // `/p2p/<id>: ` lies between the address and the reason.
        Some(rest) => rest
            .split_once(": ")
            .map_or(rest, |(_, why)| why)
            .to_owned(),
        None if peer.addresses.iter().any(is_of) => String::new(),
        None => why,
    }
}

fn table(body: &PeersBody) -> Table {
    let mut table = Table::new("Peer|Address|State|>RTT|>FailedDials|LastFailure");
    for peer in &body.peers {
        let unknown = ["(none in a charter)".to_owned()];
        let addresses = if peer.addresses.is_empty() {
            &unknown[..]
        } else {
            &peer.addresses
        };
        for address in addresses {
            table.row([
                name_or_id(peer.name.as_deref(), &peer.site),
                clean(address),
                peer.state.name().to_owned(),
                round_trip(peer),
                peer.dials_failed.to_string(),
                failure(peer, address),
            ]);
        }
    }
    table
}
