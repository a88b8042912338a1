//! One test for each attack that the TUF specification (section 1.5.2) and TUF's advisories name.

use fairmesh_model::signed::DocumentError;
use fairmesh_model::{Document, Millis, Signed, WallTime};

use super::*;
use crate::in_force::Warning;
use crate::testing::*;

fn is_threshold(result: &Result<Adopted, PolicyError>) -> bool {
    matches!(
        result,
        Err(PolicyError::Document(DocumentError::Threshold { .. }))
    )
}

fn rollback(at: &str, have: u64, got: u64) -> Result<Adopted, PolicyError> {
    Err(PolicyError::Rollback {
        kind: DocumentKind::SharePolicy,
        path: path(at),
        have,
        got,
    })
}

#[test]
fn arbitrary_installation() {
    let (mut vo, charter) = vo_with_delegates();
    let (digest, stranger) = (vo.digest(), 99);
    let forged = policy(vo.vo(), "/", 2, &[("/thief", entry(100))]);
    assert!(is_threshold(
        &vo.adopt_policy(sign_policy(forged, &[stranger]))
    ));
    let forged = Charter {
        policy: role(&[stranger], 1),
        ..next_charter(&charter)
    };
    assert!(is_threshold(
        &vo.adopt_charter(sign_charter(forged, &[stranger]))
    ));
    // A charter 1 of the thief's own makes another VO.
    let own = first_charter(role(&[stranger], 1), role(&[stranger], 1));
    let refused = vo.adopt_charter(sign_charter(own, &[stranger]));
    assert!(matches!(refused, Err(PolicyError::WrongVo { .. })));
    // And so does a policy of another VO, well signed there.
    let other = VoId::from_bytes([7; 32]);
    let foreign = sign_policy(policy(other, "/", 2, &[]), &[10]);
    assert!(matches!(
        vo.adopt_policy(foreign),
        Err(PolicyError::WrongVo { .. })
    ));
    assert_eq!(vo.digest(), digest);
}

#[test]
fn rollback_of_a_policy() {
    let (mut vo, _) = vo_with_delegates();
    let version = |version, share| {
        sign_policy(
            policy(vo.vo(), "/a", version, &[("/x", entry(share))]),
            &[20],
        )
    };
    let (old, new) = (version(3, 30), version(4, 40));
    assert_eq!(vo.adopt_policy(old.clone()), Ok(Adopted::InForce));
    assert_eq!(vo.adopt_policy(new.clone()), Ok(Adopted::InForce));
    assert_eq!(vo.adopt_policy(old.clone()), rollback("/a", 4, 3));
    assert_eq!(vo.adopt_policy(new), Ok(Adopted::Known));
    assert_eq!(lines(&vo), ["/a 60", "/a/x 40", "/b 40"]);
    // The memory survives a restart, even one that lost the document.
    let seen = vo.highest_seen();
    let kept: Vec<_> = vo
        .documents()
        .filter(|(_, hash, _)| {
            vo.policies()
                .all(|p| p.hash() != *hash || p.body().version < 4)
        })
        .map(|(kind, _, bytes)| (kind, bytes.clone()))
        .collect();
    let kept = kept.iter().map(|(kind, bytes)| (*kind, &bytes[..]));
    let (mut restored, refused) = VoPolicies::restore(vo.vo(), &seen, kept);
    assert_eq!(refused, []);
    assert_eq!(restored.adopt_policy(old), rollback("/a", 4, 3));
    let behind = Warning::Behind {
        kind: DocumentKind::SharePolicy,
        path: path("/a"),
        seen: 4,
        have: 0,
    };
    assert!(restored.warnings(NOW).contains(&behind));
}

#[test]
fn fast_forward() {
    let (mut vo, charter) = vo_with_delegates();
    // A thief with the policy key signs the last version there is.
    let stolen = sign_policy(
        policy(vo.vo(), "/", u64::MAX, &[("/thief", entry(100))]),
        &[10],
    );
    assert_eq!(vo.adopt_policy(stolen.clone()), Ok(Adopted::InForce));
    let rightful = policy(vo.vo(), "/", 2, &[("/a", entry(100))]);
    let by_old_key = sign_policy(rightful.clone(), &[10]);
    assert_eq!(vo.adopt_policy(by_old_key), rollback("/", u64::MAX, 2));
    // New keys start afresh, and the thief's document is out of force at once.
    let rotated = Charter {
        policy: role(&[11], 1),
        ..next_charter(&charter)
    };
    vo.adopt_charter(sign_charter(rotated, &[1]))
        .expect("charter 2");
    assert_eq!(lines(&vo), Vec::<String>::new());
    assert_eq!(
        vo.adopt_policy(sign_policy(rightful, &[11])),
        Ok(Adopted::InForce)
    );
    assert!(is_threshold(&vo.adopt_policy(stolen)));
    assert_eq!(lines(&vo), ["/a 100"]);
}

#[test]
fn indefinite_freeze() {
    let (vo, _) = vo_with_delegates();
    let expired = |now| {
        let warnings = vo.in_force(now).warnings.into_iter();
        warnings
            .filter(|warning| matches!(warning, Warning::Expired { .. }))
            .count()
    };
    assert_eq!(expired(WallTime(EXPIRES.0 - 1)), 0);
    assert_eq!(expired(EXPIRES), 2, "the charter and the root policy");
    let much_later = EXPIRES.after(Millis::from_secs(86_400));
    assert_eq!(vo.in_force(much_later).entries, vo.in_force(NOW).entries);
}

#[test]
fn a_document_from_the_future_counts_and_is_remarked_on() {
    let (vo, _) = vo_with_delegates();
    let early = |now| {
        let warnings = vo.warnings(now).into_iter();
        warnings
            .filter(|warning| matches!(warning, Warning::NotYetValid { .. }))
            .count()
    };
    let tolerated = ISSUED.before(crate::in_force::CLOCK_TOLERANCE);
    assert_eq!(early(tolerated), 0);
    assert_eq!(early(WallTime(tolerated.0 - 1)), 2);
    assert_eq!(vo.in_force(WallTime(0)).entries.len(), 2);
}

#[test]
fn mix_and_match() {
    let (mut vo, _) = vo_with_delegates();
    let child = sign_policy(policy(vo.vo(), "/a", 9, &[("/x", entry(10))]), &[20]);
    vo.adopt_policy(child.clone())
        .expect("version 1 delegates to key 20");
    let to = |version, seed| {
        let shares = [("/a", delegated(70, role(&[seed], 1)))];
        sign_policy(policy(vo.vo(), "/", version, &shares), &[10])
    };
    let (second, third) = (to(2, 21), to(3, 20));
    // Version 2 delegates to others: the old delegate's policy does not count, kept or offered.
    vo.adopt_policy(second).expect("version 2");
    assert_eq!(lines(&vo), ["/a 70"]);
    assert!(!vo.hashes().contains(&child.hash()));
    assert!(is_threshold(&vo.adopt_policy(child.clone())));
    let fresh = sign_policy(policy(vo.vo(), "/a", 1, &[("/y", entry(5))]), &[21]);
    assert_eq!(vo.adopt_policy(fresh), Ok(Adopted::InForce));
    assert_eq!(lines(&vo), ["/a 70", "/a/y 5"]);
    // Version 3 gives it back, and what was kept is in force again.
    vo.adopt_policy(third).expect("version 3");
    assert_eq!(lines(&vo), ["/a 70", "/a/x 10"]);
    assert_eq!(vo.adopt_policy(child), Ok(Adopted::Known));
}

#[test]
fn a_policy_signed_by_the_old_and_the_new_delegate_stays_in_force() {
    let (mut vo, _) = vo_with_delegates();
    let child = sign_policy(policy(vo.vo(), "/a", 1, &[("/x", entry(10))]), &[20, 21]);
    vo.adopt_policy(child.clone()).expect("signed by key 20");
    let shares = [("/a", delegated(70, role(&[21], 1)))];
    let second = sign_policy(policy(vo.vo(), "/", 2, &shares), &[10]);
    vo.adopt_policy(second).expect("version 2");
    assert_eq!(lines(&vo), ["/a 70", "/a/x 10"]);
}

#[test]
fn endless_data() {
    let (mut vo, _) = vo_with_delegates();
    for (kind, limit) in [
        (DocumentKind::SharePolicy, SharePolicy::BYTES_MAX),
        (DocumentKind::Charter, Charter::BYTES_MAX),
    ] {
        // A byte too many is refused by size, before the first byte is looked at.
        let refused = vo
            .adopt(kind, &vec![0xff; limit + 1])
            .expect_err("too large");
        assert!(
            refused.to_string().contains(&limit.to_string()),
            "{refused}"
        );
    }
}

#[test]
fn key_compromise() {
    let authority = role(&[1, 2, 3], 2);
    let charter = sign_charter(first_charter(authority, role(&[10, 11, 12], 2)), &[1, 2]);
    let mut vo = VoPolicies::new(charter.vo());
    vo.adopt_charter(charter.clone()).expect("charter 1");
    // One key of a 2-of-3 is not enough, however often it signs.
    let theft = policy(vo.vo(), "/", 1, &[("/thief", entry(100))]);
    assert!(is_threshold(
        &vo.adopt_policy(sign_policy(theft.clone(), &[10]))
    ));
    let takeover = Charter {
        authority: role(&[1, 98, 99], 2),
        ..next_charter(&charter)
    };
    assert!(is_threshold(
        &vo.adopt_charter(sign_charter(takeover, &[1, 98, 99]))
    ));
    // Two keys are stolen, and the authority rotates: what it signed before no longer counts.
    vo.adopt_policy(sign_policy(theft, &[10, 11]))
        .expect("two of three");
    let rotated = Charter {
        policy: role(&[12, 13], 2),
        authority: role(&[3, 4], 2),
        ..next_charter(&charter)
    };
    let rotated = sign_charter(rotated, &[1, 2, 3, 4]);
    vo.adopt_charter(rotated.clone()).expect("charter 2");
    assert_eq!(lines(&vo), Vec::<String>::new());
    // A rival charter by the old keys that keeps them loses, and nothing can be built on it.
    let rival = sign_charter(
        Charter {
            name: "rival".to_owned(),
            ..next_charter(&charter)
        },
        &[1, 2],
    );
    let outcome = vo
        .adopt_charter(rival.clone())
        .expect("a valid rival is kept as evidence");
    assert!(matches!(outcome, Adopted::Concurrent(_)));
    assert_eq!(vo.charter().map(Verified::hash), Some(rotated.hash()));
    let after_rival = sign_charter(next_charter(&rival), &[1, 2]);
    assert!(matches!(
        vo.adopt_charter(after_rival),
        Err(PolicyError::Outranked { .. })
    ));
    // Once charter 3 stands on charter 2, the place is settled.
    vo.adopt_charter(sign_charter(next_charter(&rotated), &[3, 4]))
        .expect("charter 3");
    assert_eq!(vo.alarms(), []);
    assert!(matches!(
        vo.adopt_charter(rival),
        Err(PolicyError::Rollback { .. })
    ));
}

#[test]
fn non_sequential_charter() {
    let (mut vo, first) = vo_with_delegates();
    let second = sign_charter(next_charter(&first), &[1]);
    let third = sign_charter(next_charter(&second), &[1]);
    assert_eq!(
        vo.adopt_charter(third.clone()),
        Err(PolicyError::Missing { have: 1, got: 3 })
    );
    // Version 3 that names charter 1 as its predecessor does not jump the queue either.
    let jump = Charter {
        previous: Some(first.hash()),
        ..third.claimed().clone()
    };
    let jump = sign_charter(jump, &[1]);
    assert_eq!(
        vo.adopt_charter(jump.clone()),
        Err(PolicyError::Missing { have: 1, got: 3 })
    );
    assert_eq!(vo.adopt_charter(second.clone()), Ok(Adopted::InForce));
    let refused = vo.adopt_charter(jump);
    assert!(
        matches!(refused, Err(PolicyError::UnknownPredecessor { .. })),
        "{refused:?}"
    );
    assert_eq!(vo.adopt_charter(third), Ok(Adopted::InForce));
    assert_eq!(vo.adopt_charter(second), Ok(Adopted::Known));
    assert_eq!(vo.adopt_charter(first), Ok(Adopted::Known));
}

#[test]
fn a_charter_needs_the_old_keys_and_the_new_ones() {
    let (mut vo, first) = vo_with_delegates();
    let rotated = Charter {
        authority: role(&[2], 1),
        ..next_charter(&first)
    };
    assert!(is_threshold(
        &vo.adopt_charter(sign_charter(rotated.clone(), &[1]))
    ));
    assert!(is_threshold(
        &vo.adopt_charter(sign_charter(rotated.clone(), &[2]))
    ));
    assert_eq!(
        vo.adopt_charter(sign_charter(rotated, &[1, 2])),
        Ok(Adopted::InForce)
    );
}

#[test]
fn ignored_terminating_delegation() {
    let (mut vo, _) = vo_with_delegates();
    // Neither the delegate of another subtree nor the signers above may speak for a delegated one.
    for seeds in [&[10][..], &[1]] {
        let theft = sign_policy(policy(vo.vo(), "/a", 1, &[("/x", entry(1))]), seeds);
        assert!(is_threshold(&vo.adopt_policy(theft)), "{seeds:?}");
    }
    // A delegate has no say about a path that he did not delegate, not even below his own.
    let below = sign_policy(policy(vo.vo(), "/a/x", 1, &[]), &[20]);
    assert_eq!(
        vo.adopt_policy(below),
        Err(PolicyError::NotYet { path: path("/a/x") })
    );
    // And a policy cannot hold entries below what it delegates.
    let both = [("/a", delegated(60, role(&[20], 1))), ("/a/x", entry(1))];
    assert!(Signed::sign(policy(vo.vo(), "/", 2, &both), &[&key(10)]).is_err());
}

#[test]
fn cached_before_verified() {
    let (mut vo, _) = vo_with_delegates();
    let (hashes, seen) = (vo.hashes(), vo.highest_seen());
    // A forged high version is refused, leaves no trace, and does not block the real next one.
    let forged = sign_policy(policy(vo.vo(), "/a", 1_000, &[]), &[99]);
    assert!(is_threshold(&vo.adopt_policy(forged.clone())));
    assert_eq!((vo.hashes(), vo.highest_seen()), (hashes, seen));
    assert_eq!(vo.document(forged.hash()), None);
    let real = sign_policy(policy(vo.vo(), "/a", 1, &[]), &[20]);
    assert_eq!(vo.adopt_policy(real), Ok(Adopted::InForce));
}

#[test]
fn junk_signatures_on_a_known_document_change_nothing() {
    let (mut vo, _) = vo_with_delegates();
    let mut child = sign_policy(policy(vo.vo(), "/a", 1, &[]), &[20]);
    vo.adopt_policy(child.clone()).expect("adopted");
    let bytes = vo.document(child.hash()).expect("kept");
    child.add_signature(&key(99)).expect("signs");
    assert_eq!(vo.adopt_policy(child.clone()), Ok(Adopted::Known));
    assert_eq!(vo.document(child.hash()), Some(bytes));
}

#[test]
fn a_thousand_forms_of_one_version_cost_no_memory() {
    let (mut vo, _) = vo_with_delegates();
    for share in 0..40 {
        let form = sign_policy(policy(vo.vo(), "/a", 1, &[("/x", entry(share))]), &[20]);
        vo.adopt_policy(form).expect("valid");
    }
    let before = vo.documents().count();
    assert_eq!(before, 2 + crate::slot::CONCURRENT_MAX);
    assert_eq!(vo.alarms().len(), 1);
    let higher = sign_policy(policy(vo.vo(), "/a", 2, &[("/x", entry(7))]), &[20]);
    assert_eq!(vo.adopt_policy(higher), Ok(Adopted::InForce));
    assert_eq!((vo.documents().count(), vo.alarms()), (3, vec![]));
}

#[test]
fn the_window_length_is_fixed_for_life() {
    let (mut vo, first) = vo_with_delegates();
    let minute = fairmesh_model::WindowLength::from_millis(60_000).expect("divides a day");
    let changed = Charter {
        window: minute,
        ..next_charter(&first)
    };
    let refused = vo.adopt_charter(sign_charter(changed, &[1]));
    assert!(matches!(refused, Err(PolicyError::Fixed { .. })));
}

#[test]
fn a_delegation_that_would_widen_is_refused_by_name() {
    let (mut vo, _) = vo_with_delegates();
    let digest = vo.digest();
    // The delegate of `/b` divides `/a`, alone or with everybody else's help but the delegate's of `/a`.
    for seeds in [&[30][..], &[1, 10, 30]] {
        let theft = sign_policy(policy(vo.vo(), "/a", 1, &[("/x", entry(1))]), seeds);
        let refused = vo.adopt_policy(theft).expect_err("it is not his");
        let said = "share policy of `/a` is signed by who divides `/b` and nothing beside it";
        assert_eq!(refused.to_string(), said);
    }
    // He divides the whole VO, hands `/a` on from below his own, or says how his own level is compared.
    let whole = sign_policy(policy(vo.vo(), "/", 2, &[("/b", entry(100))]), &[30]);
    let refused = vo.adopt_policy(whole).expect_err("it is not his");
    assert_eq!(
        refused.to_string(),
        "share policy of `/` is signed by who divides `/b` and nothing beside it"
    );
    let hands_on = policy(vo.vo(), "/b", 1, &[("/a", delegated(1, role(&[40], 1)))]);
    vo.adopt_policy(sign_policy(hands_on, &[30]))
        .expect("`/b/a` is his to hand on");
    let theft = sign_policy(policy(vo.vo(), "/a", 1, &[]), &[40]);
    let refused = vo.adopt_policy(theft).expect_err("not `/a`");
    assert_eq!(
        refused.to_string(),
        "share policy of `/a` is signed by who divides `/b/a` and nothing beside it"
    );
    let mut compared = policy(vo.vo(), "/b", 2, &[]);
    compared.distance = Some(fairmesh_model::Distance::Relative);
    let refused = Signed::sign(compared, &[&key(30)]).expect_err("the policy above says that");
    assert!(
        refused
            .to_string()
            .contains("`usage` and `distance` of `/b` are for the policy that delegates it")
    );
    assert_ne!(vo.digest(), digest);
    assert_eq!(lines(&vo), ["/a 60", "/b 40", "/b/a 1"]);
}

#[test]
fn who_divides_one_path_takes_nobodys_place() {
    let (mut vo, _) = vo_with_delegates();
    let mut divide = |at: &str, key: u8, shares: &[(&str, fairmesh_model::ShareEntry)]| {
        let signed = sign_policy(policy(vo.vo(), at, 1, shares), &[key]);
        vo.adopt_policy(signed).expect("it is his to divide");
    };
    divide("/b", 30, &[("/x", delegated(50, role(&[31], 1)))]);
    divide("/b/x", 31, &[("/y", delegated(50, role(&[32], 1)))]);
    divide("/b/x/y", 32, &[("/u", entry(7))]);
    let many = |from: usize| -> Vec<_> {
        let names = (from..from + POLICIES_MAX).map(|at| format!("/{at:05}"));
        names.map(|at| (at, delegated(1, role(&[20], 1)))).collect()
    };
    for (at, from) in [("/a", 0), ("/a/00000", 10_000)] {
        let many = many(from);
        let many: Vec<_> = many
            .iter()
            .map(|(at, of)| (at.as_str(), of.clone()))
            .collect();
        divide(at, 20, &many);
    }
    assert!(lines(&vo).contains(&"/b/x/y/u 7".to_owned()));
    let ignored = vo
        .warnings(NOW)
        .into_iter()
        .find_map(|warning| match warning {
            Warning::TooManyPolicies { ignored, .. } => Some(ignored),
            _ => None,
        });
    // With `/`, `/a`, `/b`, `/b/x` and `/b/x/y` there are so many paths.
    assert_eq!(ignored, Some(5 + 2 * POLICIES_MAX - POLICIES_MAX));
}
