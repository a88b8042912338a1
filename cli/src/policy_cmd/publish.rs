//! `fairmesh policy publish`: hands signed documents to a node, and says first what would fall.
//!
//! A charter that names other keys for `/`, or a policy that delegates to others, takes the force from what the
//! old keys have signed: with one command a whole share tree can go. Invariant: whatever the node has in force
//! that would fall is named, and nothing is published, unless somebody agrees. Deliberately not here: whether a
//! document is valid, which the node says.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use fairmesh_api::client::{Control, documents};
use fairmesh_api::{Answer, SharesBody, StatusBody, UsageBody};
use fairmesh_model::{AccountPath, VoId};
use fairmesh_policy::{DocumentKind, DocumentRef, HighestSeen, VoPolicies};

use super::document::PolicyDocument;
use super::lost::{Lost, lost};
use super::verify::in_order;
use crate::ask::{self, NodeArgs};
use crate::emulate::ShareTree;
use crate::output::Exit;

/// Options of `publish`.
#[derive(Debug, Clone, clap::Args)]
pub struct PublishArgs {
    /// Documents of one VO: charters are published first, then share policies from the top down, then
    /// allocations, then a snapshot
    #[arg(value_name = "DOC.cbor", required = true)]
    pub documents: Vec<PathBuf>,
    /// Publish although a document in force falls by it and nothing takes its place
    #[arg(long)]
    pub yes: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
}

pub(super) async fn run(args: &PublishArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let documents = in_order(&args.documents)?;
    let control = args.node.control();
    if !may_publish(&control, &documents, args.yes, out).await? {
        return Ok(Exit::Failure);
    }
    for (file, document) in &documents {
        let published = documents::publish(&control, document.bytes().to_vec()).await;
        let published = published.with_context(|| {
            let name = document.name();
            format!("{file}: {name} was not taken")
        });
        match ask::unless_refused(published)? {
            Some(said) => writeln!(out, "{file}: {said}")?,
            None => return Ok(Exit::Failure),
        }
    }
    Ok(Exit::Success)
}

/// Names what would fall at a node; whether the documents are to be published all the same.
pub(crate) async fn may_publish(
    control: &Control,
    documents: &[(String, PolicyDocument)],
    yes: bool,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let held = documents::held(control).await?;
    let falls = falls(&held, documents)?;
    for document in &falls {
        writeln!(
            out,
            "falls: {document} is in force, and nothing takes its place"
        )?;
    }
    let lost = lost_at(control, &held, documents).await?;
    for entry in &lost {
        writeln!(out, "{entry}")?;
    }
    if (falls.is_empty() && lost.is_empty()) || yes || is_agreed(out)? {
        return Ok(true);
    }
    if falls.is_empty() {
        writeln!(
            out,
            "nothing is published: add --yes to publish all the same"
        )?;
        return Ok(false);
    }
    writeln!(
        out,
        "nothing is published. What the old and the new keys have both signed stays in force: let them sign \
         the next version, publish that, and then this; or publish what takes its place in the same command; \
         or add --yes"
    )?;
    Ok(false)
}

/// Entries of the VO whose weighted usage at the node would have no entry once the documents are published.
async fn lost_at(
    control: &Control,
    held: &[Vec<u8>],
    documents: &[(String, PolicyDocument)],
) -> anyhow::Result<Vec<Lost>> {
    let (before, after) = before_and_after(held, documents)?;
    let tree = |of: &VoPolicies| {
        let policies = of
            .policies()
            .map(|policy| ShareTree::of_policy(policy.body()));
        ShareTree::union(policies.flatten()).ok()
    };
    let (Some(old), Some(new)) = (tree(&before), tree(&after)) else {
        return Ok(Vec::new());
    };
    if old == new {
        return Ok(Vec::new());
    }
    let usage = usage_at(control, documents[0].1.vo(), &old).await?;
    Ok(lost(&old, &new, usage.unwrap_or_default()))
}

/// What the accounts of a VO were charged, weighted as the node weights its entries; none where it mounts no such VO. An
/// entry's usage is divided among its accounts by what each was charged in all.
pub(super) async fn usage_at(
    control: &Control,
    vo: VoId,
    tree: &ShareTree,
) -> anyhow::Result<Option<Vec<(AccountPath, u128)>>> {
    let (status, _): (Answer<StatusBody>, String) = control.get("/v1/status", &[]).await?;
    let vo = vo.to_string();
    let mount = status.body.vos.into_iter().find(|of| of.vo == vo);
    let Some(mount) = mount.and_then(|of| of.mount) else {
        return Ok(None);
    };
    let below = [("path", Some(mount.as_str()))];
    let (shares, _): (Answer<SharesBody>, String) = control.get("/v1/shares", &below).await?;
    let mount = AccountPath::parse(&mount)?;
    let entries = shares.body.entries.into_iter().filter(|entry| entry.leaf);
    let entries = entries.filter_map(|entry| {
        let path = AccountPath::parse(&entry.path).ok()?.relative_to(&mount)?;
        Some((path, entry.usage_core_ms.parse::<u128>().ok()?))
    });
    let entries: BTreeMap<AccountPath, u128> = entries.collect();
    let of_vo = [("vo", Some(vo.as_str()))];
    let (charged, _): (Answer<UsageBody>, String) = control.get("/v1/usage", &of_vo).await?;
    let charged = charged
        .body
        .ledgers
        .into_iter()
        .flat_map(|of| of.by_account);
    let reader = tree.reader();
    let mut of_entries: BTreeMap<AccountPath, Vec<(AccountPath, u128)>> = BTreeMap::new();
    for account in charged {
        let charge = account.counters.charge_core_ms.parse().unwrap_or(0);
        let path = AccountPath::parse(&account.id)?;
        let entry = reader.path(reader.resolve(&path).entry).clone();
        of_entries.entry(entry).or_default().push((path, charge));
    }
    let mut usage = Vec::new();
    for (entry, weighted) in entries {
        let accounts = of_entries.remove(&entry).unwrap_or_default();
        let all: u128 = accounts.iter().map(|(_, charge)| charge).sum();
        if all == 0 {
            usage.push((entry, weighted));
            continue;
        }
        let part = |(path, charge)| (path, weighted.saturating_mul(charge) / all);
        usage.extend(accounts.into_iter().map(part));
    }
    Ok(Some(usage))
}

/// What is in force of `held`, and would be no more once the documents are published.
pub(super) fn falls(
    held: &[Vec<u8>],
    documents: &[(String, PolicyDocument)],
) -> anyhow::Result<Vec<DocumentRef>> {
    let (before, after) = before_and_after(held, documents)?;
    Ok(before.falls(&after))
}

/// The VO's documents as the node holds them, and once these are published.
fn before_and_after(
    held: &[Vec<u8>],
    documents: &[(String, PolicyDocument)],
) -> anyhow::Result<(VoPolicies, VoPolicies)> {
    let vo = documents[0].1.vo();
    for (file, document) in documents {
        ensure!(
            document.vo() == vo,
            "{file} is of another VO than {}: one command for each VO",
            documents[0].0
        );
    }
    let known = held.iter().filter_map(|bytes| {
        let document = PolicyDocument::parse(bytes).ok()?;
        let kind: DocumentKind = document.kind();
        (document.vo() == vo).then_some((kind, &bytes[..]))
    });
    let (before, _) = VoPolicies::restore(vo, &HighestSeen::default(), known);
    let mut after = before.clone();
    for (_, document) in documents {
        // Why one is refused the node says.
        let _ = document.adopt(&mut after);
    }
    Ok((before, after))
}

/// Asks whoever sits at the terminal, if anybody does.
fn is_agreed(out: &mut dyn Write) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Ok(false);
    }
    write!(out, "publish all the same? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}
