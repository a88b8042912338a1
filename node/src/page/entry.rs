//! The page of an entry of the share tree: where it stands and why, who competes with it, what it used, when and
//! where, and what is below it. The root's is the front page, with notices, sites and documents.

use fairmesh_api::client::encoded;
use fairmesh_api::words::name_or_id;
use fairmesh_fairshare::EntryId;
use maud::{Markup, html};

use super::figures::{Figures, hours, percent};
use super::html::{csv_link, entry_link, page as framed};
use super::page_data::PageData;
use super::table::{self, Sort};
use super::usage::{EntryUsage, Usage};
use super::{chart, documents, icicle, sites};
use crate::control::explained;
use crate::words::explanation::{Whose, comparison_words, level_words, reason};

/// Entries that are named before and behind one that competes with them.
const RIVALS_MAX: usize = 6;

pub(super) fn page(
    data: &PageData,
    usage: &Usage,
    entry: EntryId,
    versus: Option<EntryId>,
    part: (Option<usize>, Sort),
) -> Markup {
    let own = Figures::of(data, entry);
    let is_root = entry == EntryId::ROOT;
    let used = usage.usage_of(data, entry);
    let site = fairmesh_model::clean(&data.said.status.node.name);
    let title = if is_root { "Shares" } else { &own.path };
    let body = html! {
        @if is_root {
            h1 { "Shares at " (site) }
            (sites::alarms(data))
        } @else {
            (crumbs(&own.path))
            h1 { (own.name) }
            (facts(data, &own))
            (why(data, entry, versus))
        }
        @if own.below > 0 { (below(data, entry, &own, part)) }
        @if !is_root { (rivals(data, &own)) }
        (history(&used, &own))
        (places(data, &used, &own))
        @if is_root {
            (sites::section(data))
            (documents::section(data))
            (sites::notices(data))
        }
    };
    framed(data, title, body)
}

/// The way down from the root.
fn crumbs(path: &str) -> Markup {
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at);
    let above: Vec<&str> = ends.map(|end| &path[..end]).collect();
    html! {
        nav.crumbs aria-label="Where it is" {
            a href="/" { "all" }
            @for path in above {
                " / " a href=(entry_link(path)) { (path.rsplit('/').next().unwrap_or(path)) }
            }
        }
    }
}

fn facts(data: &PageData, own: &Figures) -> Markup {
    let ranks = data.moment.order.ranking().count();
    html! {
        dl.facts {
            div { dt { "Rank" } dd { (own.rank) small { " of " (ranks) } } }
            div { dt { "Target" } dd { (percent(own.target)) " %" } }
            div { dt { "Used" } dd { (percent(own.used)) " %" } }
            div.(own.balance.class()) { dt { "Against its target" } dd.words { (own.balance.words()) } }
            div { dt { "Weighted usage" } dd { (hours(own.usage)) small { " core-hours" } } }
        }
    }
}

/// What `fairmesh explain` says.
fn why(data: &PageData, entry: EntryId, versus: Option<EntryId>) -> Markup {
    let (body, _) = explained(&data.moment, entry, versus);
    let mut compared = Vec::new();
    if let Some(comparison) = &body.comparison {
        // A vector takes everything.
        let _ = comparison_words(&body, comparison, &mut compared);
    }
    let compared = String::from_utf8_lossy(&compared);
    html! {
        section #why {
            h2 { "Why it stands there" }
            p { (reason(&body, Whose::Nobody)) }
            ol { @for level in &body.levels { li { (level_words(level)) } } }
            @if !compared.is_empty() {
                div #versus.versus tabindex="-1" { @for line in compared.lines() { p { (line.trim()) } } }
            }
        }
    }
}

fn below(data: &PageData, entry: EntryId, own: &Figures, part: (Option<usize>, Sort)) -> Markup {
    let csv = format!("/shares.csv?path={}", encoded(&own.path));
    html! {
        section #tree {
            h2 { @if entry == EntryId::ROOT { "The share tree" } @else { "Below it" } }
            (icicle::icicle(data, entry))
            div #below { (table::of_children(data, entry, part)) }
            (csv_link(&csv, "all entries below"))
        }
    }
}

/// The nearest in the order of service, of those at its own level.
fn rivals(data: &PageData, own: &Figures) -> Markup {
    let snapshot = data.moment.snapshot();
    let ranking = data.moment.order.ranking();
    let Some(parent) = snapshot.parent(own.entry) else {
        return html! {};
    };
    let mut siblings: Vec<EntryId> = snapshot.children(parent).collect();
    siblings.sort_by_key(|entry| ranking.rank(*entry));
    let at = siblings.iter().position(|entry| *entry == own.entry);
    let at = at.unwrap_or(0);
    let (from, to) = (
        at.saturating_sub(RIVALS_MAX),
        (at + RIVALS_MAX + 1).min(siblings.len()),
    );
    let near: Vec<Figures> = siblings[from..to]
        .iter()
        .map(|entry| Figures::of(data, *entry))
        .collect();
    let above = snapshot.path(parent).to_string();
    html! {
        section #rivals {
            h2 { "Who competes with it" }
            @if siblings.len() == 1 {
                p { "Nobody: it is alone below " (above) "." }
            } @else {
                p {
                    "Of the " (siblings.len()) " entries of "
                    a href=(entry_link(&above)) { @if above == "/" { "this site" } @else { (above) } }
                    @if near.len() < siblings.len() { ", the nearest in the order of service." }
                    @else { ", in the order of service." }
                }
                (table::of_rivals(own, &near))
            }
        }
    }
}

fn history(used: &EntryUsage, own: &Figures) -> Markup {
    let csv = format!("/history.csv?path={}", encoded(&own.path));
    html! {
        section #history {
            h2 { "Usage in time" }
            (chart::history(used, &own.path))
            @if !used.steps.is_empty() {
                details {
                    summary { "The same as a table" }
                    div.scroll tabindex="0" role="region" aria-label="Usage in time" { (chart::history_table(used)) }
                }
                (csv_link(&csv, "usage in time"))
            }
        }
    }
}

fn places(data: &PageData, used: &EntryUsage, own: &Figures) -> Markup {
    let names = sites::rows(data);
    let whole: f64 = used
        .by_site
        .iter()
        .map(|(_, charge)| chart::of(*charge))
        .sum();
    let csv = format!("/usage.csv?path={}", encoded(&own.path));
    html! {
        section #where {
            h2 { "Where it was used" }
            @if used.by_site.is_empty() {
                p { "Nowhere yet." }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Where it was used" { table {
                    thead { tr {
                        th scope="col" { "Site" }
                        th.number scope="col" { "Core-hours" }
                        th.number scope="col" { "%" }
                        th.balance scope="col" { "Part of it" }
                    } }
                    tbody { @for (site, charge) in &used.by_site {
                        @let part = chart::of(*charge) / whole.max(1.0) * 100.0;
                        tr {
                            th scope="row" { (site_name(&names, &site.to_string())) }
                            td.number { (hours(chart::of(*charge))) }
                            td.number { (percent(part)) }
                            td.balance { (chart::bar(part)) }
                        }
                    } }
                } }
                p.note {
                    "As the sites published it, not weighed by its age."
                    @if !used.is_global { " At this level only this site's usage counts." }
                }
                (csv_link(&csv, "usage by site"))
            }
        }
    }
}

/// What a site is called.
pub(super) fn site_name(names: &[sites::Row], id: &str) -> String {
    let known = names.iter().find(|row| row.id == id);
    known.map_or_else(|| name_or_id(None, id), |row| row.name.clone())
}
