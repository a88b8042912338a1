//! A signed document in force, as pages show it.

use std::collections::BTreeMap;

use fairmesh_model::{VoId, WallTime, clean};
use fairmesh_policy::DocumentKind;

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

    pub(super) fn standing(&self, now: WallTime) -> &'static str {
        match self.of.expires.0.checked_sub(now.0) {
            None | Some(0) => "bad",
            // A snapshot lives a day: that it is signed anew is a program's business.
            Some(left) if left < SOON_MS && self.of.kind != DocumentKind::Snapshot => "late",
            Some(_) => "good",
        }
    }
}
