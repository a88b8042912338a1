//! Other VOs' policies that those of ours mount.
//!
//! A member of a VO that mounts another's policy holds that one's charters and policies: from `vos` where the
//! site takes part in it, too, else from here. They travel with the documents of the VO that mounts them, among
//! its members, and only as far as the other VO lets them (`VoPolicies::shown_to`). Nobody is asked for anything
//! else of the other VO, and whoever is no member of the VO that mounts it is not answered at all.
//!
//! Invariant: what is shown is a function of the documents held; it is worked out anew when these, or the VOs
//! that the site takes part in, change.
//! Deliberately not here: where the entries go (`fairmesh_policy::compile`).

use std::collections::BTreeSet;
use std::sync::Arc;

use fairmesh_model::VoId;
use fairmesh_policy::VoPolicies;

use crate::document::Document;
use crate::vo::Vo;
use crate::vos::Vos;

/// Most VOs that are read at a time and mounted no more: they are kept for when they are mounted again.
const IDLE_MAX: usize = 64;

impl Vos {
    /// Sees whose policies are mounted now, and what their readers may have.
    pub(crate) fn follow_mounts(&mut self) {
        let mounted = self.mounted();
        for inner in &mounted {
            if !self.contains_key(inner) && !self.read.contains_key(inner) {
                let left = self.left.get(inner).map(|vo| Arc::clone(&vo.policies));
                let unknown = || Arc::new(VoPolicies::new(*inner));
                self.read.insert(*inner, left.unwrap_or_else(unknown));
            }
        }
        let vos = &self.members;
        self.read.retain(|inner, _| !vos.contains_key(inner));
        if self.read.len() > mounted.len() + IDLE_MAX {
            self.read.retain(|inner, _| mounted.contains(inner));
        }
        for vo in self.ids() {
            let mounted = self[&vo].policies.mounted();
            let inner = mounted.iter().filter_map(|inner| self.policies_of(*inner));
            let shown = inner.flat_map(|inner| inner.shown_to(vo)).collect();
            self.listed(vo).show(shown);
        }
    }

    fn mounted(&self) -> BTreeSet<VoId> {
        let of = |vo: &Vo| vo.policies.mounted();
        self.values().flat_map(of).collect()
    }

    /// What is in force of VOs that the site takes no part in, and whose policies others mount.
    pub(crate) fn read_policies(&self) -> impl Iterator<Item = (VoId, &VoPolicies)> {
        let mounted = self.mounted();
        let read = self.read.iter().map(|(vo, policies)| (*vo, &**policies));
        read.filter(move |(vo, policies)| mounted.contains(vo) && policies.charter().is_some())
    }

    /// The charters and policies of a VO, whether the site takes part in it or reads them alone.
    pub(crate) fn policies_of(&self, vo: VoId) -> Option<&VoPolicies> {
        let member = self.get(&vo).map(|vo| &vo.policies);
        member.or_else(|| self.read.get(&vo)).map(|held| &**held)
    }

    /// Whether a document of `of` may come with those of `vo`: its own do, and those of VOs whose policies it
    /// mounts.
    pub(crate) fn brings(&self, vo: VoId, of: VoId) -> bool {
        let held = self.get(&vo);
        vo == of || held.is_some_and(|held| held.policies.mounted().contains(&of))
    }

    /// Whether a document that is handed in here would go nowhere: the site only reads the policies of its VO, whose
    /// charter lets none of those that mount them have it.
    pub(crate) fn keeps_to_itself(&self, document: &Document) -> bool {
        let Some(read) = self.read.get(&document.vo()) else {
            return false;
        };
        let said = match document {
            Document::Charter(charter) => Some(&charter.claimed().readers),
            Document::Policy(_) | Document::Allocation(_) | Document::Snapshot(_) => None,
        };
        let held = read.charter().map(|charter| &charter.body().readers);
        let mut readers = said.into_iter().chain(held).flatten();
        !readers.any(|reader| self.brings(*reader, document.vo()))
    }

    /// Takes part from now on in a VO whose policies were only read: they are known already.
    pub(crate) fn join_read(&mut self, vo: VoId, held: &mut Vo) {
        let read = self.read.remove(&vo);
        let documents = read.iter().flat_map(|read| read.documents());
        for document in documents.filter_map(|(_, _, bytes)| Document::read(bytes)) {
            // What is refused here its members bring.
            let _ = held.adopt(document);
        }
    }
}
