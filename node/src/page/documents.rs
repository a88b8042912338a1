//! The signed documents in force, and how long they are.

use std::collections::BTreeMap;

use fairmesh_model::{Allocation, Charter, SharePolicy, Signed, Snapshot, VoId, WallTime};
use maud::{Markup, html};

use super::gather::Seen;
use super::html::{csv_link, date};
use crate::control::clean;
use crate::driver::{Gone, NodeHandle};
use crate::output::until;

/// From when on before its end a document is marked.
const SOON_MS: u64 = 30 * 86_400_000;

/// A document in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    /// The name of its VO.
    pub(super) vo: String,
    /// What it is.
    pub(super) kind: &'static str,
    /// What it divides or grants.
    pub(super) path: String,
    pub(super) version: u64,
    pub(super) expires: WallTime,
    /// Member sites and their cores, of a charter.
    pub(super) cores: Vec<(String, u32)>,
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
            let documents = bytes.iter();
            let documents = documents.filter_map(|(vo, bytes)| Self::read(name(vo), bytes));
            documents.collect()
        });
        read.await.map_err(|_| Gone)
    }

    fn read(vo: String, bytes: &[u8]) -> Option<Self> {
        let document = |kind, path: String, version, expires| Self {
            vo: vo.clone(),
            kind,
            path: clean(&path),
            version,
            expires,
            cores: Vec::new(),
        };
        if let Ok(charter) = Signed::<Charter>::parse(bytes) {
            let of = charter.claimed();
            let sites = of.sites.iter();
            return Some(Self {
                cores: sites.map(|it| (it.site.to_string(), it.cores)).collect(),
                ..document("charter", "/".to_owned(), of.version, of.expires)
            });
        }
        if let Ok(policy) = Signed::<SharePolicy>::parse(bytes) {
            let of = policy.claimed();
            let path = of.path.to_string();
            return Some(document("share policy", path, of.version, of.expires));
        }
        if let Ok(allocation) = Signed::<Allocation>::parse(bytes) {
            let of = allocation.claimed();
            let path = of.path.to_string();
            return Some(document("allocation", path, of.version, of.expires));
        }
        let snapshot = Signed::<Snapshot>::parse(bytes).ok()?;
        let of = snapshot.claimed();
        Some(document("snapshot", "/".to_owned(), of.version, of.expires))
    }
}

impl Document {
    fn standing(&self, now: WallTime) -> &'static str {
        match self.expires.0.checked_sub(now.0) {
            None | Some(0) => "bad",
            // A snapshot lives a day: that it is signed anew is a program's business.
            Some(left) if left < SOON_MS && self.kind != "snapshot" => "late",
            Some(_) => "good",
        }
    }
}

/// The section of the page.
pub(super) fn section(seen: &Seen) -> Markup {
    let now = WallTime(seen.said.rests_on.as_of_ms);
    html! {
        section #documents {
            h2 { "Documents in force" }
            @if seen.said.documents.is_empty() {
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
                    tbody { @for document in seen.said.documents.iter() { tr {
                        th scope="row" { (document.vo) }
                        td { (document.kind) }
                        td { (document.path) }
                        td.number { (document.version) }
                        td.(document.standing(now)) { (until(document.expires, now)) }
                        td { (date(document.expires)) }
                    } } }
                } }
                (csv_link("/documents.csv", "documents"))
            }
        }
    }
}
