//! Who counts is what the charter in force says, on every node alike, however it came there.

use fairmesh_fairshare::EntryId;
use fairmesh_gossip::wire::{Probe, Pull, Request, Response, Summary};
use fairmesh_gossip::{PartKey, Vector, VectorFrame};
use fairmesh_model::{
    Charter, HistoryRule, Incarnation, Millis, Signed, SiteId, WallTime, WindowLength,
};
use fairmesh_site::{Effect, Event};

use super::large_trees::long_history;
use crate::ledger::{Ledger, assert_converged, assert_no_fork, state, sums};
use crate::mesh::Mesh;
use crate::node::Rows;
use crate::random::with_seeds;
use crate::vo::{self, DAY, HOUR, job, next_charter, sign_charter, site_id};

const SETTLE: Millis = Millis::from_secs(40);

fn charter_without(last: &Signed<Charter>, node: usize) -> Signed<Charter> {
    let mut charter = next_charter(last);
    charter.sites.retain(|member| member.site != site_id(node));
    sign_charter(charter)
}

/// What node 0 answers to a site.
fn answer_to(mesh: &mut Mesh, from: SiteId, request: &Request) -> Response {
    let (now, bytes) = (mesh.now(0), request.to_bytes());
    let asked = Event::Requested {
        from,
        bytes,
        channel: 1_000_000,
    };
    let effects = mesh.nodes[0].site.handle(now, asked).into_iter();
    let mut answers = effects.filter_map(|effect| match effect {
        Effect::Answer { bytes, .. } => Response::from_bytes(&bytes).ok(),
        _ => None,
    });
    answers.next().expect("an answer")
}

/// It was away when a charter removed it.
#[test]
fn a_former_member_gets_the_charters_and_nothing_else() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    (0..6).for_each(|round| drop(ledger.report(&mut mesh, round % 3)));
    mesh.run(SETTLE);
    mesh.cut(2);
    let second = charter_without(&mesh.charter, 2);
    assert!(mesh.publish(0, second.bytes()).is_ok());
    let (vo, at) = (mesh.vo, mesh.now(0).wall);
    let [member, former, stranger] = [1, 2, 9].map(site_id);
    let theirs = Summary::default();
    let probe = Request::Probe(Probe {
        at,
        vos: vec![(vo, theirs)],
    });
    let pull = Request::Pull(Pull {
        vo,
        documents: Some(Vec::new()),
        heads: Some(VectorFrame::full(&Vector::new())),
        proofs: Vec::new(),
    });
    let wanted = vec![(site_id(0), Incarnation(1), vec![PartKey::new(1, &[])])];
    let parts = Request::Parts { vo, wanted };
    let Response::Probe(compared) = answer_to(&mut mesh, former, &probe) else {
        panic!("no comparison");
    };
    let [(_, compared)] = compared.vos[..] else {
        panic!("not the VO");
    };
    assert!(compared.heads == theirs.heads && compared.documents != theirs.documents);
    let Response::Pull(given) = answer_to(&mut mesh, former, &pull) else {
        panic!("no charters");
    };
    let charters = [&mesh.charter, &second].map(|charter| &charter.bytes()[..]);
    assert!(given.documents.iter().map(|bytes| &bytes[..]).eq(charters));
    assert!(given.heads.is_empty() && given.proofs.is_empty());
    let refused = answer_to(&mut mesh, former, &parts);
    assert!(matches!(refused, Response::Refused(_)));
    let refused = answer_to(&mut mesh, stranger, &pull);
    assert!(matches!(refused, Response::Refused(_)));
    let Response::Pull(given) = answer_to(&mut mesh, member, &pull) else {
        panic!("a member");
    };
    assert!(given.documents.len() > 2 && !given.heads.is_empty());

    mesh.heal();
    mesh.run(SETTLE);
    let status = mesh.nodes[2].site.vo_status(mesh.now(2));
    assert_eq!((status[0].held.charter_version, status[0].cpus), (2, None));
}

#[test]
fn usage_of_a_site_that_is_no_member_any_more_counts_nowhere() {
    with_seeds(|seed| {
        let (mut mesh, mut members, mut stranger) =
            (Mesh::found(seed, 4), Ledger::default(), Ledger::default());
        (0..12).for_each(|round| drop(members.report(&mut mesh, round % 3)));
        let mut records = Vec::new();
        for _ in 0..6 {
            let mut record = stranger.draw(&mut mesh, 3);
            record.key.cluster = "elsewhere".to_owned();
            assert!(mesh.report(3, std::slice::from_ref(&record)).is_some());
            records.push(record);
        }
        mesh.run(SETTLE);
        let second = charter_without(&mesh.charter, 3);
        // One running node hears of it late, with batches of the stranger under way.
        mesh.cut(2);
        assert!(mesh.publish(0, second.bytes()).is_ok());
        mesh.run(SETTLE);
        mesh.heal();
        mesh.run(SETTLE);
        mesh.drain();
        assert_eq!(sums(&mesh, 0), members.sums);
        let running = state(&mesh, 0);
        assert_eq!(state(&mesh, 2), running);
        // A restarted node and a newcomer come to the same.
        mesh.restart(1);
        mesh.restart_on(2, Rows::new());
        mesh.run(SETTLE);
        mesh.drain();
        assert_eq!(state(&mesh, 1), state(&mesh, 0));
        assert_eq!(state(&mesh, 2), state(&mesh, 0));

        // Listed again, the site brings its usage with it.
        mesh.restart(3);
        let mut third = next_charter(&second);
        third.sites.clone_from(&mesh.charter.claimed().sites);
        assert!(mesh.publish(1, sign_charter(third).bytes()).is_ok());
        mesh.run(SETTLE.times(2));
        records.iter().for_each(|record| members.count(record));
        assert_converged(&mut mesh, &members);
        assert_no_fork(&mesh);
    });
}

/// Found by seed 2003292: what came counted as all that the site had published, once it was listed again.
#[test]
fn a_head_whose_parts_are_under_way_when_its_site_is_dropped_is_read_when_the_site_is_listed_again()
{
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    (0..3).for_each(|_| drop(ledger.report(&mut mesh, 2)));
    mesh.run(SETTLE);
    mesh.cut(1);
    long_history(&mut mesh, 2, &mut ledger);
    mesh.run(SETTLE);
    mesh.heal();
    let asked = |mesh: &Mesh| mesh.nodes[0].site.gossip_stats().part_requests;
    let before = asked(&mesh);
    for _ in 0..SETTLE.0 {
        if asked(&mesh) == before {
            mesh.run(Millis(1));
        }
    }
    assert!(asked(&mesh) > before, "its parts are under way");
    let second = charter_without(&mesh.charter, 2);
    assert!(mesh.publish(0, second.bytes()).is_ok());
    mesh.run(SETTLE);
    let mut third = next_charter(&second);
    third.sites.clone_from(&mesh.charter.claimed().sites);
    assert!(mesh.publish(0, sign_charter(third).bytes()).is_ok());
    mesh.run(SETTLE);
    assert_converged(&mut mesh, &ledger);
}

/// Found by seed 2000634: feeding the tree left a trace of the site, which was taken for what it had published.
#[test]
fn a_site_that_is_dropped_while_a_tree_is_fed_counts_once_it_is_listed_again() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    long_history(&mut mesh, 2, &mut ledger);
    mesh.run(SETTLE);
    let second = sign_charter(next_charter(&mesh.charter));
    assert!(mesh.publish(0, second.bytes()).is_ok());
    assert!(mesh.nodes[0].site.is_feeding());
    let third = charter_without(&second, 2);
    assert!(mesh.publish(0, third.bytes()).is_ok());
    mesh.run(SETTLE);
    let mut fourth = next_charter(&third);
    fourth.sites.clone_from(&mesh.charter.claimed().sites);
    assert!(mesh.publish(0, sign_charter(fourth).bytes()).is_ok());
    mesh.run(SETTLE);
    assert_converged(&mut mesh, &ledger);
}

#[test]
fn a_vo_that_the_configuration_names_no_more_is_left_and_can_be_joined_again() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..9).for_each(|round| drop(ledger.report(&mut mesh, round % 3)));
        let with = mesh.nodes[1].config.clone();
        let without = vo::config(&[], with.introducers.clone(), with.timing);
        let now = mesh.now(1);
        let event = Event::Reconfigured(Box::new(without));
        let effects = mesh.nodes[1].site.handle(now, event);
        assert!(
            effects
                .iter()
                .any(|effect| matches!(effect, Effect::Push { .. }))
        );
        assert!(
            effects
                .iter()
                .any(|effect| matches!(effect, Effect::Unsubscribe { vo } if *vo == mesh.vo))
        );
        for effect in effects {
            mesh.carry_out(1, effect);
        }
        assert!(mesh.nodes[1].site.vectors().is_empty());
        // The tree without it is fed in slices; then nothing is due.
        let is_due = |mesh: &Mesh| mesh.nodes[1].site.next_wakeup(now.mono) <= now.mono;
        for _ in 0..100 {
            if is_due(&mesh) {
                mesh.handle(1, Event::Tick);
            }
        }
        assert!(!is_due(&mesh), "nothing is due for a VO that was left");
        (0..6).for_each(|round| drop(ledger.report(&mut mesh, [0, 2][round % 2])));
        mesh.run(SETTLE);

        mesh.handle(1, Event::Reconfigured(Box::new(with)));
        ledger.report(&mut mesh, 1);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

/// The owner's windows may be others than those in which the VO counts.
#[test]
fn usage_of_a_vo_that_was_left_weighs_by_its_own_age() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..9).for_each(|round| drop(ledger.report(&mut mesh, round % 3)));
        let with = mesh.nodes[1].config.clone();
        for local_window in [900_000, 3_600_000, 86_400_000] {
            let mut without = vo::config(&[], with.introducers.clone(), with.timing);
            without.local_window = WindowLength::from_millis(local_window).expect("divides a day");
            without.local_history = HistoryRule::None { horizon: 400 };
            mesh.handle(1, Event::Reconfigured(Box::new(without)));
            let site = &mesh.nodes[1].site;
            let own = site.usage_cells().filter(|cell| cell.site == site.id());
            let own: u128 = own.map(|cell| u128::from(cell.counters.charge)).sum();
            let root = site.snapshot().sums(EntryId::ROOT).local;
            assert!(own > 0);
            assert_eq!(root, own << 32, "windows of {local_window} ms");
        }
    });
}

#[test]
fn a_vo_that_was_left_is_remembered_over_a_restart() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..9).for_each(|round| drop(ledger.report(&mut mesh, round % 3)));
        mesh.run(SETTLE);
        let with = mesh.nodes[1].config.clone();
        let without = vo::config(&[], with.introducers.clone(), with.timing);
        mesh.nodes[1].config = without.clone();
        mesh.handle(1, Event::Reconfigured(Box::new(without)));
        mesh.restart(1);
        assert!(mesh.nodes[1].site.vectors().is_empty());
        ledger.report(&mut mesh, 0);
        // Nobody can be reached who could hand it the documents again.
        mesh.cut(1);
        mesh.stop(0);
        mesh.nodes[1].config = with.clone();
        mesh.handle(1, Event::Reconfigured(Box::new(with)));
        let status = mesh.nodes[1].site.vo_status(mesh.now(1)).swap_remove(0);
        assert_eq!(status.held.charter_version, 1);
        assert!(!status.held.heads.is_empty());
        mesh.restart(0);
        mesh.heal();
        mesh.run(SETTLE);
        ledger.report(&mut mesh, 1);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

#[test]
fn marks_of_jobs_of_a_vo_that_was_left_are_kept_while_its_usage_counts_when_it_is_named_again() {
    let mut mesh = Mesh::found_with(1, 2, vo::timing(), |charter| {
        charter.history = HistoryRule::None { horizon: 100 * 24 };
    });
    mesh.tick_ms = 600_000;
    let end = mesh.now(1).wall.before(DAY.times(60));
    let old = job("old", "grid", "g0", "u0", (end.before(HOUR), end), 4);
    let report = |mesh: &mut Mesh| {
        let reported = mesh.report(1, std::slice::from_ref(&old));
        let reported = reported.expect("acknowledged");
        (reported.counted, reported.known)
    };
    assert_eq!(report(&mut mesh), (1, 0));
    let with = mesh.nodes[1].config.clone();
    let without = vo::config(&[], with.introducers.clone(), with.timing);
    mesh.handle(1, Event::Reconfigured(Box::new(without.clone())));
    mesh.run(DAY.times(2));
    let before = mesh.nodes[1].forget_before;
    assert!(before > WallTime(0) && before <= end, "{before:?}");
    mesh.handle(1, Event::Reconfigured(Box::new(with)));
    assert_eq!(report(&mut mesh), (0, 1));
    mesh.handle(1, Event::Reconfigured(Box::new(without)));
    mesh.run(DAY.times(42));
    assert!(mesh.nodes[1].forget_before > end, "it counts no more");
}

#[test]
fn a_charter_that_lists_a_site_again_may_be_handed_in_at_that_site() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 4), Ledger::default());
        (0..8).for_each(|round| drop(ledger.report(&mut mesh, round % 4)));
        mesh.run(SETTLE);
        let second = charter_without(&mesh.charter, 3);
        assert!(mesh.publish(0, second.bytes()).is_ok());
        mesh.run(SETTLE);
        let mut third = next_charter(&second);
        third.sites.clone_from(&mesh.charter.claimed().sites);
        assert!(mesh.publish(3, second.bytes()).is_ok());
        assert!(mesh.publish(3, sign_charter(third).bytes()).is_ok());
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
    });
}
