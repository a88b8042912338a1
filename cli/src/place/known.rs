//! How the sites of a VO stand, by what a node knows.

use anyhow::Context as _;
use fairmesh_api::Grid;
use fairmesh_api::client::Control;
use fairmesh_model::Millis;
use futures::FutureExt as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What is needed of a node's answer.
#[derive(Deserialize)]
struct OfNode {
    silence_s: u64,
    sites: Box<RawValue>,
}

/// Asks a node for the sites of a VO, and after which time it believes them no more. It waits for the answer.
pub(crate) fn known_by_node(control: &Control, vo: &str) -> anyhow::Result<(Grid, Millis)> {
    let parameters = [("vo", Some(vo))];
    let asked = control.get::<IgnoredAny>("/v1/sites", &parameters);
    let (_, text) = tokio::runtime::Handle::current().block_on(asked.boxed_local())?;
    let told: OfNode = serde_json::from_str(&text).context("the node's answer")?;
    let grid = Grid::parse(
        &format!("{{\"sites\":{}}}", told.sites),
        "the node's answer",
    )?;
    Ok((grid, Millis::from_secs(told.silence_s)))
}
