//! Tables of entries, a hundred rows a page.
//!
//! Invariant: whatever the number of entries, only the rows of one page are written; ordering them takes one pass and
//! a sort, on the thread that makes the page.

use fairmesh_api::client::encoded;
use fairmesh_fairshare::EntryId;
use maud::{Markup, html};
use serde::Deserialize;

use super::chart;
use super::figures::{Figures, hours, percent};
use super::html::entry_link;
use super::page_data::PageData;

/// Rows of one page.
const ROWS_MAX: usize = 100;

/// What entries are ordered by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sort {
    /// Who is served first.
    #[default]
    Rank,
    Name,
    /// Who should have the most.
    Target,
    /// Who has had the most.
    Used,
}

const SORTS: [(Sort, &str, &str); 4] = [
    (Sort::Name, "name", "Entry"),
    (Sort::Rank, "rank", "Rank"),
    (Sort::Target, "target", "Target %"),
    (Sort::Used, "used", "Used %"),
];

/// The entries right below one, in an order.
fn below(data: &PageData, above: EntryId, sort: Sort) -> Vec<EntryId> {
    let snapshot = data.moment.snapshot();
    let mut entries: Vec<EntryId> = snapshot.children(above).collect();
    let ranking = data.moment.order.ranking();
    match sort {
        // They come in the order of their names.
        Sort::Name => {}
        Sort::Rank => entries.sort_by_key(|entry| ranking.rank(*entry)),
        Sort::Target => {
            entries.sort_by_cached_key(|entry| {
                std::cmp::Reverse(snapshot.level(*entry).target.rounded())
            });
        }
        Sort::Used => {
            entries.sort_by_cached_key(|entry| std::cmp::Reverse(snapshot.level(*entry).usage));
        }
    }
    entries
}

/// The entries right below one: one page of them.
pub(super) fn of_children(
    data: &PageData,
    above: EntryId,
    (page, sort): (Option<usize>, Sort),
) -> Markup {
    let entries = below(data, above, sort);
    let path = data.moment.snapshot().path(above).to_string();
    let pages = entries.len().div_ceil(ROWS_MAX).max(1);
    let page = page.unwrap_or(1).clamp(1, pages);
    let rows = entries.iter().skip((page - 1) * ROWS_MAX).take(ROWS_MAX);
    let link = |page: usize, sort: &str| {
        format!(
            "/entry?path={}&sort={sort}&page={page}#below",
            encoded(&path)
        )
    };
    let (_, now, _) = SORTS.iter().find(|of| of.0 == sort).unwrap_or(&SORTS[1]);
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "Entries below " (path) } { table {
            thead { tr {
                @for (by, word, title) in SORTS {
                    th.number[by != Sort::Name] scope="col" aria-sort=[order_of(by, sort)] {
                        a href=(link(1, word)) { (title) }
                    }
                }
                th.balance scope="col" { "Against the target" }
                th.number scope="col" { "Core-hours" }
                th.number scope="col" { "Below it" }
            } }
            tbody { @for entry in rows { (row(&Figures::of(data, *entry))) } }
        } }
        @if pages > 1 {
            nav.pages aria-label="Pages of the table" {
                @if page > 1 { a href=(link(page - 1, now)) rel="prev" { "Before" } }
                span { "Page " (page) " of " (pages) ", " (entries.len()) " entries" }
                @if page < pages { a href=(link(page + 1, now)) rel="next" { "Next" } }
            }
        }
    }
}

fn order_of(by: Sort, now: Sort) -> Option<&'static str> {
    (by == now).then_some(match by {
        Sort::Rank | Sort::Name => "ascending",
        Sort::Target | Sort::Used => "descending",
    })
}

fn row(of: &Figures) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(entry_link(&of.path)) { (of.name) } }
            (cells(of))
            td.number { (hours(of.usage)) }
            td.number { @if of.below > 0 { (of.below) } @else { "–" } }
        }
    }
}

/// What every table tells of an entry.
fn cells(of: &Figures) -> Markup {
    html! {
        td.number { (of.rank) }
        td.number { (percent(of.target)) }
        td.number { (percent(of.used)) }
        td.balance { (chart::balance(of.used, of.target, of.balance.class())) }
    }
}

/// Entries of any place in the tree, by their whole paths.
pub(super) fn of_found(entries: &[Figures]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Entries found" { table {
            thead { tr {
                th scope="col" { "Entry" }
                th.number scope="col" { "Rank" }
                th.number scope="col" { "Target %" }
                th.number scope="col" { "Used %" }
                th.balance scope="col" { "Against the target" }
                th.number scope="col" { "Core-hours" }
            } }
            tbody { @for of in entries { tr {
                th scope="row" { a href=(entry_link(&of.path)) { (of.path) } }
                (cells(of))
                td.number { (hours(of.usage)) }
            } } }
        } }
    }
}

/// Entries that compete with `own` right beside it: each against it is one more click.
pub(super) fn of_rivals(own: &Figures, rivals: &[Figures]) -> Markup {
    let compared = |other: &str| {
        format!(
            "/entry?path={}&versus={}#versus",
            encoded(&own.path),
            encoded(other)
        )
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label="Who competes" { table {
            thead { tr {
                th scope="col" { "In the order of service" }
                th.number scope="col" { "Rank" }
                th.number scope="col" { "Target %" }
                th.number scope="col" { "Used %" }
                th.balance scope="col" { "Against the target" }
                th scope="col" { "Why" }
            } }
            tbody { @for of in rivals { tr.own[of.entry == own.entry] {
                th scope="row" { a href=(entry_link(&of.path)) { (of.name) } }
                (cells(of))
                td { @if of.entry == own.entry { "this one" } @else {
                    a href=(compared(&of.path)) { (standing(own, of)) span.hidden { " " (of.name) ": why" } }
                } }
            } } }
        } }
    }
}

fn standing(own: &Figures, of: &Figures) -> &'static str {
    match of.rank.cmp(&own.rank) {
        std::cmp::Ordering::Less => "goes first",
        std::cmp::Ordering::Equal => "tied",
        std::cmp::Ordering::Greater => "goes later",
    }
}
