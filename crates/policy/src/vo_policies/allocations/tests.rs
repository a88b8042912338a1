//! Who may grant what, and what a later version may say.

use fairmesh_model::{AllocationSlice, CoreMillis, PartOf, SiteId, VoId};

use super::*;
use crate::testing::*;
use crate::vo_policies::HELD_BYTES_MAX;
use crate::vo_policies::room::BRANCH_BYTES_MAX;

fn allocation(vo: VoId, at: &str) -> Allocation {
    let slice = |start, end| AllocationSlice {
        amount: CoreMillis(1_000),
        start: WallTime(start),
        end: WallTime(end),
    };
    Allocation::new(
        vo,
        path(at),
        ISSUED..EXPIRES,
        vec![slice(100, 20_000_000), slice(200, 30_000_000)],
        BTreeMap::from([(SiteId::from_bytes([1; 32]), 1)]),
    )
}

fn signed(body: Allocation, seeds: &[u8]) -> Signed<Allocation> {
    let keys: Vec<_> = seeds.iter().map(|seed| key(*seed)).collect();
    Signed::sign(body, &keys.iter().collect::<Vec<_>>()).expect("a valid allocation")
}

/// Version `version`, which ends the first slice at `end`.
fn later(first: &Signed<Allocation>, version: u64, end: u64) -> Allocation {
    let mut body = first.claimed().clone();
    (body.version, body.id) = (version, Some(first.hash().into()));
    body.slices[0].end = WallTime(end);
    body
}

fn in_force(vo: &VoPolicies) -> Vec<u64> {
    vo.allocations().map(|held| held.body().version).collect()
}

#[test]
fn credit_is_granted_by_whoever_signs_for_its_path() {
    let (mut vo, _) = vo_with_delegates();
    let id = vo.vo();
    let before = vo.digest();
    let rows = [
        ("/c", 10, true),
        ("/c", 20, false),
        ("/a", 20, true),
        ("/a", 10, false),
        ("/a/u", 20, true),
        ("/a/u", 30, false),
        ("/", 10, true),
    ];
    for (expires, (at, seed, is_taken)) in (EXPIRES.0..).zip(rows) {
        let expires = WallTime(expires);
        let body = Allocation {
            expires,
            ..allocation(id, at)
        };
        let adopted = vo.adopt_allocation(signed(body, &[seed]));
        assert_eq!(
            adopted == Ok(Adopted::InForce),
            is_taken,
            "{at} {seed} {adopted:?}"
        );
        assert_eq!(adopted.is_err(), !is_taken);
    }
    assert_eq!(vo.allocations().count(), 4);
    assert_ne!(vo.digest(), before);
    let again = vo.adopt_allocation(signed(allocation(id, "/c"), &[10]));
    assert_eq!(again, Ok(Adopted::Known));
    let foreign = allocation(VoId::from_bytes([9; 32]), "/c");
    let foreign = vo.adopt_allocation(signed(foreign, &[10]));
    assert!(matches!(foreign, Err(PolicyError::WrongVo { .. })));
    let early = VoPolicies::new(id).adopt_allocation(signed(allocation(id, "/c"), &[10]));
    assert!(matches!(early, Err(PolicyError::NotYet { .. })));
}

#[test]
fn later_versions_end_slices_sooner_and_grant_the_same() {
    let (mut vo, _) = vo_with_delegates();
    let first = signed(allocation(vo.vo(), "/c"), &[10]);
    let offer = |vo: &mut VoPolicies, body| vo.adopt_allocation(signed(body, &[10]));
    let early = offer(&mut vo, later(&first, 2, 150));
    assert!(matches!(
        early,
        Err(PolicyError::NoFirst { version: 2, .. })
    ));
    vo.adopt_allocation(first.clone()).expect("the first");
    assert_eq!(
        offer(&mut vo, later(&first, 3, 5_000)),
        Ok(Adopted::InForce)
    );
    assert_eq!(in_force(&vo), [1, 3]);
    let older = offer(&mut vo, later(&first, 2, 150));
    assert!(matches!(
        older,
        Err(PolicyError::Rollback {
            have: 3,
            got: 2,
            ..
        })
    ));
    let longer = offer(&mut vo, later(&first, 4, 20_000_001));
    assert!(matches!(
        longer,
        Err(PolicyError::Regrant { version: 4, .. })
    ));
    let mut more = later(&first, 4, 150);
    more.slices[1].amount = CoreMillis(1_001);
    assert!(matches!(
        offer(&mut vo, more),
        Err(PolicyError::Regrant { .. })
    ));
    // Always against the first, so that who skipped a version takes what others take.
    assert_eq!(
        offer(&mut vo, later(&first, 4, 6_000)),
        Ok(Adopted::InForce)
    );
    assert_eq!(in_force(&vo), [1, 4]);
}

#[test]
fn of_two_forms_of_one_version_all_take_the_same() {
    let (empty, _) = vo_with_delegates();
    let first = signed(allocation(empty.vo(), "/c"), &[10]);
    let forms = [5_000, 6_000].map(|end| signed(later(&first, 2, end), &[10]));
    let both = |order: [usize; 2]| {
        let mut vo = empty.clone();
        vo.adopt_allocation(first.clone()).expect("the first");
        let taken = order.map(|form| vo.adopt_allocation(forms[form].clone()).is_ok());
        assert!(taken[0]);
        vo.digest()
    };
    assert_eq!(both([0, 1]), both([1, 0]));
}

/// Hands `/a` to another key, by version `version` of the root policy.
fn delegate(vo: &mut VoPolicies, version: u64, seed: u8) {
    let shares = [
        ("/a", delegated(60, role(&[seed], 1))),
        ("/b", delegated(40, role(&[30], 1))),
    ];
    let root = sign_policy(policy(vo.vo(), "/", version, &shares), &[10]);
    vo.adopt_policy(root).expect("the root policy");
}

#[test]
fn a_revocation_that_the_new_keys_have_not_signed_is_named_before_and_after() {
    let (mut vo, _) = vo_with_delegates();
    let first = signed(allocation(vo.vo(), "/a"), &[20]);
    let revoked = later(&first, 2, 150);
    let adopt = |vo: &mut VoPolicies, body: &Allocation, seed| {
        let adopted = vo.adopt_allocation(signed(body.clone(), &[seed]));
        assert_eq!(adopted, Ok(Adopted::InForce));
    };
    adopt(&mut vo, first.claimed(), 20);
    adopt(&mut vo, &revoked, 20);
    let before = vo.clone();
    let falls = |after: &VoPolicies| -> Vec<u64> {
        let falls = before.falls(after);
        falls.iter().map(|of| of.version).collect()
    };
    let lapsed = |vo: &VoPolicies| {
        let mut warnings = vo.warnings(NOW).into_iter();
        let of =
            |warning| matches!(warning, Warning::Lapsed { document, .. } if document.version == 2);
        warnings.any(of)
    };
    delegate(&mut vo, 2, 21);
    adopt(&mut vo, first.claimed(), 21);
    assert_eq!((in_force(&vo), falls(&vo)), (vec![1], vec![2]));
    assert!(lapsed(&vo) && !lapsed(&before));
    adopt(&mut vo, &revoked, 21);
    assert_eq!((in_force(&vo), falls(&vo)), (vec![1, 2], vec![]));
    assert!(!lapsed(&vo));
}

#[test]
fn what_a_role_out_of_force_has_granted_does_not_count_until_it_is_back() {
    let (mut vo, _) = vo_with_delegates();
    let id = vo.vo();
    let credit = signed(allocation(id, "/a"), &[20]);
    vo.adopt_allocation(credit.clone())
        .expect("signed by its role");
    let with_it = vo.digest();
    delegate(&mut vo, 2, 21);
    assert!(in_force(&vo).is_empty());
    assert!(
        vo.documents()
            .all(|(kind, ..)| kind != DocumentKind::Allocation)
    );
    // Signed again by who is in charge now, it is the same allocation.
    let both = signed(credit.claimed().clone(), &[20, 21]);
    assert_eq!(both.hash(), credit.hash());
    assert_eq!(vo.adopt_allocation(both), Ok(Adopted::InForce));
    assert_eq!(in_force(&vo), [1]);
    delegate(&mut vo, 3, 20);
    assert_eq!(in_force(&vo), [1]);
    assert_ne!(vo.digest(), with_it, "the policy is another");
}

/// A part of the second slice of `whole`, at `at`.
fn part(whole: &Signed<Allocation>, at: &str) -> Allocation {
    let body = allocation(whole.vo(), at);
    Allocation {
        slices: vec![body.slices[1]],
        part_of: Some(PartOf {
            allocation: whole.hash().into(),
            slices: vec![1],
        }),
        ..body
    }
}

#[test]
fn leaders_pass_on_parts_below_the_path_for_as_long_as_they_are_named() {
    let (mut vo, _) = vo_with_delegates();
    let whole = Allocation {
        leaders: Some(role(&[77], 1)),
        ..allocation(vo.vo(), "/c")
    };
    let whole = signed(whole, &[10]);
    let first = part(&whole, "/c/u");
    let early = vo.adopt_allocation(signed(first.clone(), &[77]));
    assert!(
        matches!(&early, Err(PolicyError::NoWhole { .. })),
        "{early:?}"
    );
    vo.adopt_allocation(whole.clone()).expect("the whole");
    // Whoever signs for the path is no leader.
    let of_authority = vo.adopt_allocation(signed(first.clone(), &[10]));
    assert!(matches!(of_authority, Err(PolicyError::Document(_))));
    for at in ["/c", "/d/u"] {
        let beside = vo.adopt_allocation(signed(part(&whole, at), &[77]));
        assert!(matches!(beside, Err(PolicyError::Misfit { .. })), "{at}");
    }
    let first = signed(first, &[77]);
    assert_eq!(vo.adopt_allocation(first.clone()), Ok(Adopted::InForce));
    let paths = |vo: &VoPolicies| -> Vec<String> {
        let all = vo.allocations();
        all.map(|held| held.body().path.to_string()).collect()
    };
    assert_eq!(paths(&vo), ["/c", "/c/u"]);
    // A part of a part has nobody who could sign it.
    let below = vo.adopt_allocation(signed(part(&first, "/c/u/v"), &[77]));
    assert!(matches!(below, Err(PolicyError::NoWhole { .. })));
    // The authority names others: what the one before has passed on counts when they have signed it.
    let mut others = later(&whole, 2, 20_000_000);
    others.leaders = Some(role(&[78], 1));
    vo.adopt_allocation(signed(others, &[10]))
        .expect("a later version");
    assert_eq!(paths(&vo), ["/c", "/c"]);
    let both = signed(first.claimed().clone(), &[77, 78]);
    assert_eq!(vo.adopt_allocation(both), Ok(Adopted::InForce));
    assert_eq!(paths(&vo), ["/c", "/c", "/c/u"]);
}

#[test]
fn no_leader_takes_all_the_room() {
    let (mut vo, _) = vo_with_delegates();
    let whole = Allocation {
        leaders: Some(role(&[77], 1)),
        ..allocation(vo.vo(), "/c")
    };
    let whole = signed(whole, &[10]);
    vo.adopt_allocation(whole.clone()).expect("the whole");
    for number in 0..=PARTS_MAX {
        let body = part(&whole, &format!("/c/u{number}"));
        let adopted = vo.adopt_allocation(signed(body, &[77]));
        assert_eq!(adopted.is_ok(), number < PARTS_MAX, "{number} {adopted:?}");
    }
    // Nor those before all that the next ones may have.
    let second = Allocation {
        leaders: Some(role(&[78], 1)),
        ..later(&whole, 2, 20_000_000)
    };
    let before = vo.clone();
    vo.adopt_allocation(signed(second, &[10]))
        .expect("new leaders");
    assert_eq!(before.falls(&vo).len(), PARTS_MAX, "each is named");
    let of_new = signed(part(&whole, "/c/new"), &[78]);
    vo.adopt_allocation(of_new).expect("there is room again");
}

#[test]
fn credit_that_should_have_been_renewed_is_named_and_counts() {
    let (mut vo, _) = vo_with_delegates();
    let credit = signed(allocation(vo.vo(), "/c"), &[10]);
    vo.adopt_allocation(credit).expect("signed by its role");
    let says = |vo: &VoPolicies, at| {
        let warnings = vo.warnings(at).into_iter();
        warnings
            .filter(|warning| warning.to_string().starts_with("allocation"))
            .count()
    };
    assert_eq!(says(&vo, NOW), 0);
    assert_eq!(says(&vo, EXPIRES), 1);
    assert_eq!(
        says(&vo, WallTime(30_000_000)),
        0,
        "there is nothing left to renew"
    );
    assert_eq!(in_force(&vo), [1]);
}

#[test]
fn who_mounts_a_policy_learns_nothing_of_credit() {
    let (mut vo, charter) = vo_with_delegates();
    let credit = signed(allocation(vo.vo(), "/c"), &[10]);
    let reader = VoId::from_bytes([7; 32]);
    let mut next = next_charter(&charter);
    next.readers = [reader].into();
    vo.adopt_charter(sign_charter(next, &[1]))
        .expect("it follows");
    let shown = vo.shown_to(reader);
    vo.adopt_allocation(credit).expect("signed by its role");
    assert!(!shown.is_empty());
    assert_eq!(vo.shown_to(reader), shown);
}

/// An allocation that stands for one that its role has signed.
fn credit(body: Allocation, number: usize, seed: u8) -> (AllocationId, Credit) {
    let role = role(&[seed], 1);
    let document = signed(body, &[seed])
        .verify(&[&role])
        .expect("signed by it");
    let kept = Kept {
        document,
        role,
        counts: true,
    };
    let id = AllocationId::from_bytes(
        *fairmesh_model::ContentHash::of(&number.to_be_bytes()).as_bytes(),
    );
    (
        id,
        Credit {
            first: kept,
            later: None,
        },
    )
}

#[test]
fn who_divides_one_path_leaves_credit_to_others_whoever_came_first() {
    let (mut vo, _) = vo_with_delegates();
    let id = vo.vo();
    let (_, one) = credit(allocation(id, "/a"), 0, 20);
    let fill = |vo: &mut VoPolicies, until: usize| {
        for number in vo.allocations.len()..until {
            let (id, _) = credit(allocation(id, "/a"), number, 20);
            vo.allocations.insert(id, one.clone());
        }
    };
    let of_a = |expires| Allocation {
        expires: WallTime(expires),
        ..allocation(id, "/a/u")
    };
    let later = Allocation {
        issued: ISSUED.after(fairmesh_model::Millis(1)),
        ..of_a(EXPIRES.0)
    };
    let others = [("/b", 30), ("/c", 10)].map(|(at, seed)| signed(allocation(id, at), &[seed]));
    fill(&mut vo, ALLOCATIONS_MAX - 1);
    let mut before = vo.clone();
    let full = vo.adopt_allocation(signed(later.clone(), &[20]));
    assert_eq!(full, Ok(Adopted::InForce));
    for other in &others {
        assert_eq!(vo.adopt_allocation(other.clone()), Ok(Adopted::InForce));
    }
    // Of his own the one that was issued last is in force no more, and nor is any after that.
    assert_eq!(vo.allocations().count(), ALLOCATIONS_MAX);
    let refused = vo.adopt_allocation(signed(later.clone(), &[20]));
    assert!(
        matches!(refused, Err(PolicyError::TooMany { .. })),
        "{refused:?}"
    );
    for document in others.iter().chain([&signed(later, &[20])]) {
        let _ = before.adopt_allocation(document.clone());
    }
    assert_eq!(before.digest(), vo.digest());
    assert_eq!(before.allocations().count(), ALLOCATIONS_MAX);
}

#[test]
fn who_divides_one_path_fills_no_room_but_his_own() {
    let (mut vo, _) = vo_with_delegates();
    let id = vo.vo();
    let long = "x".repeat(200);
    let member = |number| path(&format!("/a/{number}/{long}"));
    let large = |issued| Allocation {
        members: (0..4_096).map(member).collect(),
        issued: WallTime(issued),
        ..allocation(id, "/a")
    };
    let (_, one) = credit(large(ISSUED.0), 0, 20);
    let bytes = one.first.document.bytes().len();
    // All that the VO has room for, but for less than one more.
    for number in 0..HELD_BYTES_MAX / bytes - 1 {
        let (id, _) = credit(allocation(id, "/a"), number, 20);
        vo.allocations.insert(id, one.clone());
    }
    let one_more = vo.adopt_allocation(signed(large(ISSUED.0 + 1), &[20]));
    assert!(
        matches!(one_more, Err(PolicyError::Full { .. })),
        "{one_more:?}"
    );
    let left = vo.allocation_bytes();
    assert!((BRANCH_BYTES_MAX - bytes..=BRANCH_BYTES_MAX).contains(&left));
    let others: Vec<_> = (0..4)
        .map(|number| Allocation {
            issued: WallTime(ISSUED.0 + number),
            members: (0..4_096)
                .map(|of| path(&format!("/b/{of}/{long}")))
                .collect(),
            ..allocation(id, "/b")
        })
        .collect();
    for other in others {
        let taken = vo.adopt_allocation(signed(other, &[30]));
        assert_eq!(taken, Ok(Adopted::InForce));
    }
    let own = policy(id, "/a", 1, &[("/x", entry(10))]);
    vo.adopt_policy(sign_policy(own, &[20]))
        .expect("it is small");
    assert!(
        vo.allocation_bytes() > left,
        "others have room of their own"
    );
}
