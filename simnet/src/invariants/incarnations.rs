//! The incarnation rule.
//!
//! Invariant checked: two lives of a site never sign under one incarnation, whatever became of its
//! disk; and as long as it has its side file, which remembers the last one, a new life's is higher
//! than any that anybody holds of it. That file is whole at each start, unless the disk flips a bit of it:
//! who loses it goes by the clock, and clocks are set back.

use std::collections::HashMap;

use fairmesh_model::{ContentHash, Incarnation, IncarnationId, Seq, SiteId, VoId};

use super::{Invariant, Seen, Violation};

pub(super) struct Incarnations {
    /// In which life of its site each was first signed under. Only looked up, as is `first`.
    life_of: HashMap<(SiteId, Incarnation), u32>,
    /// The first head of each incarnation: one that a peer gives back is the same.
    first: HashMap<(VoId, IncarnationId), ContentHash>,
    /// The newest head of each incarnation: a later one was signed since. Only looked up.
    newest: HashMap<(VoId, IncarnationId), Seq>,
    highest: Vec<Incarnation>,
    remembers: Vec<bool>,
}

impl Incarnations {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            life_of: HashMap::new(),
            first: HashMap::new(),
            newest: HashMap::new(),
            highest: vec![Incarnation(0); nodes],
            remembers: vec![true; nodes],
        }
    }
}

impl Invariant for Incarnations {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let is_half = |node: &usize| seen.world.node(*node).disk.losses().half_sides > 0;
        if let Some(node) = seen.node.filter(is_half) {
            let message = "found half a side file, though no bit of it was flipped";
            return Err(Violation::at(node, message));
        }
        // What a liar signs is what its script makes it sign.
        let own = seen.facts.heads.iter();
        let own = own.filter(|found| found.own && !seen.is_liar(found.node));
        for found in own {
            let (node, head) = (found.node, &found.head);
            let stream = IncarnationId {
                site: head.site,
                incarnation: head.incarnation,
            };
            let newest = self.newest.entry((head.vo, stream)).or_default();
            if head.seq.0 > 1 && head.seq <= *newest {
                continue;
            }
            *newest = head.seq.max(*newest);
            let life = seen.world.node(node).life();
            *checks += 1;
            if head.seq.0 == 1
                && self.first.insert((head.vo, stream), found.hash) == Some(found.hash)
            {
                continue;
            }
            let number = stream.incarnation.0;
            match self.life_of.insert((stream.site, stream.incarnation), life) {
                Some(before) if before != life => {
                    let message = format!("signs under incarnation {number} of life {before}");
                    return Err(Violation::at(node, message));
                }
                Some(_) => continue,
                None => {}
            }
            let highest = self.highest[node];
            if stream.incarnation <= highest && self.remembers[node] {
                let message = format!("begins incarnation {number}, though {} is known", highest.0);
                return Err(Violation::at(node, message));
            }
            self.highest[node] = highest.max(stream.incarnation);
        }
        Ok(())
    }

    fn forgot(&mut self, node: usize, keeps_side: bool) {
        self.remembers[node] &= keeps_side;
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_cluster::Seed;
    use fairmesh_gossip::Head;
    use fairmesh_model::WallTime;

    use super::*;
    use crate::facts::watch::{Facts, HeadSeen};
    use crate::liar::Liar;
    use crate::oracle::Oracle;
    use crate::vo::{OwnerSpec, Vo, VoSpec, site_id};
    use crate::world::{StepKind, World, WorldSpec};

    /// Seeds 8000046 and 8000061: a liar had forged heads of countless incarnations of its own, and its node began
    /// one below them. An honest site that does so has lost what it knew.
    #[test]
    fn a_site_begins_above_all_it_has_signed_unless_it_lies() {
        let vo = Vo::found(0, VoSpec::small("grid", 1)).expect("a valid VO");
        let vos = std::slice::from_ref(&vo);
        let spec = WorldSpec::of_vos(1, vos, &OwnerSpec::default());
        let world = World::founded(Seed(1), spec, vos);
        let began = |number: u64| {
            let head = Head {
                vo: vo.id,
                site: site_id(0),
                incarnation: Incarnation(number),
                seq: Seq(1),
                at: WallTime(number),
                root: ContentHash::of(b"nothing"),
                covers: Vec::new(),
            };
            HeadSeen {
                node: 0,
                hash: ContentHash::of(&number.to_be_bytes()),
                head,
                own: true,
            }
        };
        let judged = |liars: &[Liar]| {
            let facts = Facts {
                heads: vec![began(5), began(4)],
                ..Facts::default()
            };
            let seen = Seen {
                world: &world,
                node: Some(0),
                kind: StepKind::Started,
                facts: &facts,
                oracle: &Oracle::new(1),
                books: &crate::facts::Books::default(),
                deep: true,
                whole: &[true],
                vos: &[vo.id],
                liars,
            };
            Incarnations::new(1).after_step(&seen, &mut 0)
        };
        let liar = Liar {
            site: 0,
            lie: "incarnations".to_owned(),
        };
        assert_eq!(judged(&[liar]), Ok(()));
        let broken = judged(&[]).expect_err("it knew of the fifth");
        assert_eq!(broken.message, "begins incarnation 4, though 5 is known");
    }
}
