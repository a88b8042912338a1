//! Fairmesh's own nodes, which publish heads.

use std::collections::BTreeMap;

use fairmesh_model::{IncarnationId, Seq, SiteId};

use crate::Nodes;
use crate::mesh::Mesh;

/// Nodes, who of them changed last, and how far its heads were before.
pub(crate) struct Heads {
    mesh: Mesh,
    last: SiteId,
    before: Option<Seq>,
}

impl Heads {
    /// Those of `mesh`.
    pub(crate) fn of(mesh: Mesh) -> Self {
        let last = mesh.sites().next().expect("a node");
        Self {
            mesh,
            last,
            before: None,
        }
    }

    fn newest(&self, vector: &BTreeMap<IncarnationId, Seq>) -> Option<Seq> {
        let own = vector.iter().filter(|(stream, _)| stream.site == self.last);
        own.map(|(_, seq)| *seq).max()
    }
}

impl Nodes for Heads {
    async fn change(&mut self, change: u64, cells: usize) -> anyhow::Result<()> {
        let sites: Vec<SiteId> = self.mesh.sites().collect();
        self.last = sites[usize::try_from(change)? % sites.len()];
        let vectors = self.mesh.vectors().await?;
        self.before = vectors.iter().filter_map(|held| self.newest(held)).max();
        self.mesh.report(change, cells).await
    }

    async fn hold_it(&mut self) -> anyhow::Result<bool> {
        let vectors = self.mesh.vectors().await?;
        Ok(vectors.iter().all(|held| self.newest(held) > self.before))
    }
}
