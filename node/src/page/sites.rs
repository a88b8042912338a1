//! The sites, and how fresh what is known of each is, on one strip.

use std::collections::BTreeMap;

use fairmesh_api::finding::Finding;
use fairmesh_api::words::{age, name_or_id};
use fairmesh_api::{PeerBody, PeerState};
use fairmesh_model::Millis;
use maud::{Markup, html};

use super::html::csv_link;
use super::page_data::PageData;

/// A site as it is shown.
pub(super) struct Row {
    pub(super) id: String,
    pub(super) name: String,
    /// The class of its tile, and the words.
    pub(super) state: (&'static str, &'static str),
    /// How long ago what is known of it was all there is.
    pub(super) in_sync_ms: Option<u64>,
    /// How long ago it signed the last thing that is held.
    pub(super) data_age_ms: Option<u64>,
    /// How long ago the newest usage that it reports ended.
    pub(super) usage_age_ms: Option<u64>,
    pub(super) cores: Option<u32>,
    pub(super) why: Option<String>,
}

/// One row for each site, this site first.
pub(super) fn rows(data: &PageData) -> Vec<Row> {
    let charters = data.said.documents.iter();
    let cores: BTreeMap<String, u32> = charters
        .flat_map(|document| &document.of.cores)
        .map(|(site, cores)| (site.to_string(), *cores))
        .collect();
    let node = &data.said.status.node;
    let own = Row {
        id: node.site.clone(),
        name: fairmesh_model::clean(&node.name),
        state: ("good", "this site"),
        in_sync_ms: None,
        data_age_ms: None,
        usage_age_ms: None,
        cores: cores.get(&node.site).copied(),
        why: None,
    };
    let peers = data.said.status.peers.iter().map(|peer| Row {
        id: peer.site.clone(),
        name: name_or_id(peer.name.as_deref(), &peer.site),
        state: state(peer),
        in_sync_ms: peer.agreed_age_ms,
        data_age_ms: peer.data_age_ms,
        usage_age_ms: peer.usage_age_ms,
        cores: cores.get(&peer.site).copied(),
        why: peer
            .over_budget
            .clone()
            .or_else(|| peer.dial_failure.clone()),
    });
    std::iter::once(own).chain(peers).collect()
}

/// The class of its tile, and its words.
fn state(peer: &PeerBody) -> (&'static str, &'static str) {
    let class = match (peer.state.is_well(), peer.state) {
        (false, _) => "bad",
        (true, PeerState::InSync) => "good",
        (true, _) => "plain",
    };
    (class, peer.state.name())
}

/// The section of the page.
pub(super) fn section(data: &PageData) -> Markup {
    let rows = rows(data);
    let ago = |of: Option<u64>| of.map_or_else(|| "–".to_owned(), |ms| age(Millis(ms)));
    html! {
        section #sites {
            h2 { "Sites" }
            ul.strip {
                @for row in &rows {
                    li.(row.state.0) {
                        strong { (row.name) }
                        span { (row.state.1) @if let Some(ms) = row.in_sync_ms { ", " (age(Millis(ms))) " ago" } }
                    }
                }
            }
            details {
                summary { "The same as a table" }
                div.scroll tabindex="0" role="region" aria-label="Sites" { table {
                    thead { tr {
                        th scope="col" { "Site" }
                        th scope="col" { "State" }
                        th.number scope="col" { "Last in sync" }
                        th.number scope="col" { "Last signed" }
                        th.number scope="col" { "Last usage" }
                        th.number scope="col" { "Cores" }
                        th scope="col" { "Why" }
                    } }
                    tbody { @for row in &rows { tr {
                        th scope="row" { (row.name) }
                        td.(row.state.0) { (row.state.1) }
                        td.number { (ago(row.in_sync_ms)) }
                        td.number { (ago(row.data_age_ms)) }
                        td.number { (ago(row.usage_age_ms)) }
                        td.number { @if let Some(cores) = row.cores { (cores) } @else { "–" } }
                        td { (row.why.as_deref().unwrap_or("")) }
                    } } }
                } }
            }
            (csv_link("/sites.csv", "sites"))
        }
    }
}

/// What the node finds of itself, and what a look at all usage shows.
fn all(data: &PageData) -> impl Iterator<Item = &Finding> {
    data.said.status.notices.iter().chain(&data.namesakes)
}

/// Kinds of notices that are shown above everything else.
const ALARMS_MAX: usize = 4;

/// What is wrong, one line for each kind.
pub(super) fn alarms(data: &PageData) -> Markup {
    let mut codes: Vec<(&Finding, usize)> = Vec::new();
    for notice in all(data).filter(|notice| notice.needs_somebody()) {
        match codes.iter_mut().find(|(of, _)| of.code == notice.code) {
            Some((_, count)) => *count += 1,
            None => codes.push((notice, 0)),
        }
    }
    html! {
        @if !codes.is_empty() {
            ul.notices aria-label="What is wrong" {
                @for (notice, more) in codes.iter().take(ALARMS_MAX) {
                    (line(notice, html! {
                        @if *more > 0 { " " a href="#notices" { "and " (more) " more" } }
                    }))
                }
            }
        }
    }
}

/// All that an operator should know.
pub(super) fn notices(data: &PageData) -> Markup {
    let notices: Vec<&Finding> = all(data).collect();
    html! {
        section #notices {
            h2 { "Notices" }
            @if notices.is_empty() { p { "None." } }
            ul.notices { @for notice in notices { (line(notice, remedy(notice))) } }
        }
    }
}

/// What to do, where somebody should.
fn remedy(notice: &Finding) -> Markup {
    let remedy = notice.remedy.as_ref().filter(|_| notice.needs_somebody());
    html! { @if let Some(remedy) = remedy { br; (remedy) } }
}

fn line(notice: &Finding, more: Markup) -> Markup {
    let class = match notice.severity.as_str() {
        "error" => "bad",
        "warning" => "late",
        _ => "plain",
    };
    html! { li.(class) { strong { (notice.severity) } " " (notice.text) " " code { (notice.code) } (more) } }
}
