//! The signed documents in force, and how long they are.

use std::collections::BTreeMap;

use fairmesh_api::words::until;
use fairmesh_model::{VoId, WallTime, clean};
use fairmesh_policy::DocumentKind;
use maud::{Markup, html};

use super::gather::PageData;
use super::html::{csv_link, date};
use crate::control;
use crate::driver::{Gone, NodeHandle};

/// From when on before its end a document is marked.
const SOON_MS: u64 = 30 * 86_400_000;

/// A document in force.
pub(super) struct Document {
    /// The name of its VO.
    pub(super) vo: String,
    /// What it says of itself.
    pub(super) of: control::Document,
}

impl Document {
    /// All that are held; they are read here, and not on the node's task.
    pub(super) async fn all(node: &NodeHandle) -> Result<Vec<Self>, Gone> {
        let (names, bytes) = node
            .ask(|site, now| {
                let status = site.vo_status(now);
                let of = |vo: VoId| site.documents(vo).into_iter().map(move |bytes| (vo, bytes));
                let own = status.iter().flat_map(|of_vo| of(of_vo.vo));
                let bytes: Vec<_> = own.chain(site.read_documents()).collect();
                let names = status.into_iter().map(|of| (of.vo, of.name));
                (names.collect::<BTreeMap<_, _>>(), bytes)
            })
            .await?;
        let read = tokio::task::spawn_blocking(move || {
            let name = |vo: &VoId| match names.get(vo) {
                Some(Some(name)) => clean(name),
                _ => vo.short(),
            };
            let documents = bytes.iter().filter_map(|(vo, bytes)| {
                let of = control::Document::read(bytes)?;
                Some(Self { vo: name(vo), of })
            });
            documents.collect()
        });
        read.await.map_err(|_| Gone)
    }

    /// What it divides or grants.
    pub(super) fn path(&self) -> String {
        clean(self.of.path.as_str())
    }

    fn standing(&self, now: WallTime) -> &'static str {
        match self.of.expires.0.checked_sub(now.0) {
            None | Some(0) => "bad",
            // A snapshot lives a day: that it is signed anew is a program's business.
            Some(left) if left < SOON_MS && self.of.kind != DocumentKind::Snapshot => "late",
            Some(_) => "good",
        }
    }
}

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
