//! `fairmesh policy snapshot`: signs a snapshot of all that is in force at a node, and hands it in there.
//!
//! It is for a timer, on a machine that is online, with a key that can do nothing else (docs/snapshot.md).
//!
//! Invariant: nothing is signed of a node that lacks what the last snapshot named. Else whoever cuts that node off
//! would have his freeze vouched for. What keeps one VO from its snapshot keeps no other. Deliberately not here: roles of
//! several keys, whose snapshots are made with `new snapshot` and signed one after the other.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use fairmesh_api::client::documents;
use fairmesh_api::words::until;
use fairmesh_model::{Charter, Millis, Signed, SigningKey, Verified, VoId, clean};
use fairmesh_node::config::quantity::parse_duration;
use fairmesh_policy::{DocumentKind, HighestSeen, VoPolicies};

use super::clock;
use super::document::PolicyDocument;
use crate::ask::{self, NodeArgs};
use crate::init::load_key;
use crate::output::Exit;

/// Options of `snapshot`.
#[derive(Debug, Clone, clap::Args)]
pub struct SnapshotArgs {
    /// The file with the online key, which the charter names below [snapshot]
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// For how long it is valid: a few times as long as the timer waits, and 31 days at most
    #[arg(long, default_value = "1d", value_name = "TIME", value_parser = valid)]
    pub valid: Millis,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Reads for how long a snapshot is valid.
pub(super) fn valid(text: &str) -> Result<Millis, String> {
    let length =
        parse_duration(text).filter(|length| *length <= fairmesh_model::documents::VALID_MAX);
    length.ok_or_else(|| "write a length of time of 31 days at most, such as 1d or 12h".to_owned())
}

pub(super) async fn run(args: &SnapshotArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let key = load_key(&args.key)?;
    let control = args.node.control();
    let all = by_vo(&documents::held(&control).await?);
    let signs = |policies: &VoPolicies| {
        let role = policies.snapshot_role();
        role.is_some_and(|role| role.keys.contains(&key.key_id()))
    };
    let mine: Vec<VoPolicies> = all.into_values().filter(signs).collect();
    ensure!(
        !mine.is_empty(),
        "no charter at this node names {} below [snapshot]: `fairmesh policy new charter --snapshot` makes one that \
         does",
        key.key_id().checked()
    );
    let mut exit = Exit::Success;
    for policies in &mine {
        let name = policies.charter().map(Verified::body);
        let name = name.map_or_else(String::new, |charter: &Charter| clean(&charter.name));
        let snapshot = match signed(policies, &key, args.valid) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                note!("fairmesh: VO {name}: {error:#}");
                exit = Exit::Failure;
                continue;
            }
        };
        let published = documents::publish(&control, snapshot.bytes().to_vec()).await;
        let published = published.with_context(|| format!("VO {name}: the snapshot was not taken"));
        if ask::unless_refused(published)?.is_none() {
            exit = Exit::Failure;
            continue;
        }
        let body = snapshot.claimed();
        writeln!(
            out,
            "VO {name}: snapshot {} names charter {}, share policies: {}, allocations: {}; it expires {}",
            body.version,
            body.charter.version,
            body.policies.len(),
            body.allocations.len(),
            until(body.expires, body.issued)
        )?;
    }
    Ok(exit)
}

/// What is in force of each VO, of these documents.
pub(crate) fn by_vo(held: &[Vec<u8>]) -> BTreeMap<VoId, VoPolicies> {
    let mut documents: BTreeMap<VoId, Vec<(DocumentKind, &[u8])>> = BTreeMap::new();
    for bytes in held {
        if let Ok(document) = PolicyDocument::parse(bytes) {
            let of_vo = documents.entry(document.vo()).or_default();
            of_vo.push((document.kind(), bytes));
        }
    }
    let restored = documents.into_iter().map(|(vo, documents)| {
        let (policies, _) = VoPolicies::restore(vo, &HighestSeen::default(), documents);
        (vo, policies)
    });
    restored.collect()
}

/// The next snapshot.
///
/// # Errors
/// If this key alone cannot sign it, and if documents are missing that the last one named.
fn signed(
    policies: &VoPolicies,
    key: &SigningKey,
    valid: Millis,
) -> anyhow::Result<Signed<fairmesh_model::Snapshot>> {
    let threshold = policies.snapshot_role().map_or(0, |role| role.threshold);
    ensure!(
        threshold == 1,
        "{threshold} keys must sign the snapshot: use `fairmesh policy new snapshot`, then `sign`, then `publish`"
    );
    let lacking = policies.vouched().and_then(|of| of.compared.first);
    if let Some((document, have)) = lacking {
        anyhow::bail!(
            "nothing is signed: the last snapshot names {document}, and this node has version {have} of it: is it \
             cut off? (`fairmesh peers`)"
        );
    }
    let now = clock::now();
    let body = policies.next_snapshot(now, now.after(valid));
    Ok(Signed::sign(
        body.context("no charter has arrived")?,
        &[key],
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_lives_a_month_at_most() {
        assert_eq!(valid("12h"), Ok(Millis::from_secs(43_200)));
        assert!(valid("31d").is_ok() && valid("32d").is_err() && valid("soon").is_err());
    }
}
