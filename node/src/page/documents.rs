//! The signed documents in force, and how long they are.

use fairmesh_api::words::until;
use fairmesh_model::WallTime;
use maud::{Markup, html};

use super::html::{csv_link, date};
use super::page_data::PageData;

/// The section of the page.
pub(super) fn section(data: &PageData) -> Markup {
    let now = WallTime(data.said.rests_on.as_of_ms);
    html! {
        section #documents {
            h2 { "Documents in force" }
            @if data.said.documents.is_empty() {
                p { "This site takes part in no VO, or no charter has arrived yet." }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Documents in force" { table {
                    thead { tr {
                        th scope="col" { "VO" }
                        th scope="col" { "Document" }
                        th scope="col" { "Divides" }
                        th.number scope="col" { "Version" }
                        th scope="col" { "Expires" }
                        th scope="col" { "On" }
                    } }
                    tbody { @for document in data.said.documents.iter() { tr {
                        th scope="row" { (document.vo) }
                        td { (document.of.kind) }
                        td { (document.path()) }
                        td.number { (document.of.version) }
                        td.(document.standing(now)) { (until(document.of.expires, now)) }
                        td { (date(document.of.expires)) }
                    } } }
                } }
                (csv_link("/documents.csv", "documents"))
            }
        }
    }
}
