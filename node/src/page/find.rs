//! Finding an entry by a part of its path.
//!
//! Invariant: all entries are looked through once, on the thread that makes the page, and few are shown.

use maud::{Markup, html};

use super::figures::Figures;
use super::html::page as framed;
use super::page_data::PageData;
use super::table;

/// Entries that are shown.
const FOUND_MAX: usize = 100;

pub(super) fn page(data: &PageData, sought: &str) -> Markup {
    let sought = fairmesh_model::clean(sought.trim());
    let wanted = sought.to_lowercase();
    let snapshot = data.moment.snapshot();
    let is_found = |path: &str| !wanted.is_empty() && path.to_lowercase().contains(&wanted);
    let mut found: Vec<_> = snapshot
        .ids()
        .skip(1)
        .filter(|entry| is_found(snapshot.path(*entry).as_str()))
        .collect();
    // Whoever is called just that comes first, and else the shortest way down.
    found.sort_by_cached_key(|entry| {
        let path = snapshot.path(*entry);
        let name = path.name().unwrap_or_default().to_lowercase();
        (
            name != wanted,
            !name.contains(&wanted),
            path.depth(),
            *entry,
        )
    });
    let count = found.len();
    found.truncate(FOUND_MAX);
    let figures: Vec<Figures> = found
        .iter()
        .map(|entry| Figures::of(data, *entry))
        .collect();
    let body = html! {
        h1 { "Entries with “" (sought) "”" }
        @match count {
            0 => p { "The share tree has none. Names of users, projects and VOs are found, and parts of them." },
            _ => {
                p { (count) @if count > FOUND_MAX { " are found; these are the first " (FOUND_MAX) "." }
                    @else { " found." } }
                (table::of_found(&figures))
            }
        }
    };
    framed(data, "Find", body)
}
