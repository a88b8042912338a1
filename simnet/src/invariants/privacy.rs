//! What the members of a VO hold stays among them.
//!
//! Invariant checked: a node answers requests about a VO of the sites that the charter lists. Former members get
//! charters alone, all others are refused. Documents of a VO whose policy another VO mounts go to the members of
//! the other VO if the charter lists that VO among its readers. The charter is the newest that the node holds when
//! the request arrives: the same step may adopt newer ones after the answer. Deliberately not here: pushes, which
//! the network restricts, and liars, which may send anything to anybody.

use super::{Invariant, Seen, Violation};

pub(super) struct Privacy;

impl Invariant for Privacy {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let served = &seen.facts.served;
        *checks += served.len() as u64;
        let Some(served) = served.iter().find(|served| !served.is_member) else {
            return Ok(());
        };
        let (to, vo) = (served.to.short(), served.vo.short());
        let message = format!(
            "answers site {to} about VO {vo}, of which it is neither a member nor a reader"
        );
        Err(Violation::at(served.node, message))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use fairmesh_cluster::Seed;
    use fairmesh_gossip::wire::{Pull, Request};
    use fairmesh_round::Input;
    use fairmesh_site::Event;

    use super::*;
    use crate::facts::watch::{SharedFacts, Watch};
    use crate::oracle::Oracle;
    use crate::vo::{OwnerSpec, Vo, VoSpec, site_id};
    use crate::world::{Action, StepKind, World, WorldSpec};

    const SITES: usize = 3;
    const ASKED: usize = 1;
    const ASKER: usize = 2;

    fn watched() -> (World, Vo, SharedFacts) {
        let vo = Vo::found(0, VoSpec::small("grid", SITES)).expect("a valid VO");
        let vos = std::slice::from_ref(&vo);
        let spec = WorldSpec::of_vos(SITES, vos, &OwnerSpec::default());
        let mut world = World::founded(Seed(1), spec, vos);
        let facts = SharedFacts::default();
        let node_of = world.nodes().iter().map(|node| (node.id, node.index));
        let watch = Watch::new(Rc::clone(&facts), None, None, node_of.collect());
        world.set_tamper(Some(Box::new(watch)));
        (world, vo, facts)
    }

    /// The asker's request reaches the other, which is busy: it waits for what comes next.
    fn ask(world: &mut World, vo: &Vo) {
        let pull = Request::Pull(Pull {
            vo: vo.id,
            documents: Some(Vec::new()),
            heads: None,
            proofs: Vec::new(),
        });
        let asked = Event::Requested {
            from: site_id(ASKER),
            bytes: pull.to_bytes(),
            channel: 1,
        };
        let inbox = &mut world.node_mut(ASKED).inbox;
        inbox.push((Input::Event(asked), None));
    }

    fn remove(world: &mut World) {
        let removed = world.apply(&Action::Remove {
            node: ASKED,
            vo: "grid".to_owned(),
            sites: vec![ASKER],
        });
        removed.expect("it is signed by its authority");
    }

    fn judge(world: &World, vo: &Vo, facts: &SharedFacts) -> (u64, Result<(), Violation>) {
        let mut checks = 0;
        let seen = Seen {
            world,
            node: Some(ASKED),
            kind: StepKind::Publish,
            facts: &facts.take(),
            oracle: &Oracle::new(SITES),
            books: &crate::facts::Books::default(),
            deep: true,
            whole: &[true; SITES],
            vos: &[vo.id],
            liars: &[],
        };
        let judged = Privacy.after_step(&seen, &mut checks);
        (checks, judged)
    }

    /// Found by seed 500353: a node took a member's question and the charter that drops it in one round.
    #[test]
    fn a_member_that_the_next_event_of_the_round_removes_was_answered_rightly() {
        let (mut world, vo, facts) = watched();
        ask(&mut world, &vo);
        remove(&mut world);
        assert_eq!(judge(&world, &vo, &facts), (1, Ok(())));
    }

    fn asked_after_its_removal() -> (u64, Result<(), Violation>) {
        let (mut world, vo, facts) = watched();
        remove(&mut world);
        ask(&mut world, &vo);
        world
            .publish(ASKED, vo.policy.bytes())
            .expect("it is known");
        judge(&world, &vo, &facts)
    }

    #[test]
    fn who_asks_after_the_charter_that_removes_it_may_have_charters() {
        assert_eq!(asked_after_its_removal(), (1, Ok(())));
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn a_former_member_that_gets_more_than_charters_is_found() {
        let _planted = fairmesh_model::mutant::plant("StrangersServed");
        let (_, judged) = asked_after_its_removal();
        assert!(judged.is_err(), "it gets the policy, too");
    }
}
