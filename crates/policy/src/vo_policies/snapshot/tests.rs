//! What the TUF specification (section 1.5.2) says attackers do about snapshots, and what the thief of the online
//! key can do.

use fairmesh_model::signed::DocumentError;
use fairmesh_model::{Document as _, Millis, ShareEntry, VoId};

use super::*;
use crate::testing::*;

const ONLINE: u8 = 50;

/// A VO as `vo_with_delegates` makes it, whose next charter says that key [`ONLINE`] signs snapshots.
fn vo_with_snapshots() -> (VoPolicies, Signed<Charter>) {
    let (mut vo, first) = vo_with_delegates();
    let next = sign_charter(with_role(next_charter(&first), ONLINE), &[1]);
    vo.adopt_charter(next.clone()).expect("it follows");
    (vo, next)
}

fn with_role(charter: Charter, seed: u8) -> Charter {
    Charter {
        snapshot: Some(role(&[seed], 1)),
        ..charter
    }
}

/// What is in force, signed by the online key; valid for a while after [`NOW`].
fn snapshot_of(vo: &VoPolicies) -> Signed<Snapshot> {
    let body = vo.next_snapshot(NOW, NOW.after(Millis(1_000)));
    sign_snapshot(body.expect("it is founded"), &[ONLINE])
}

fn said(vo: &VoPolicies, now: WallTime) -> Vec<String> {
    let warnings = vo.snapshot_warnings(now).into_iter();
    warnings.map(|warning| warning.to_string()).collect()
}

fn shares(
    vo: &VoPolicies,
    at: &str,
    version: u64,
    below: &[(&str, ShareEntry)],
    seed: u8,
) -> Signed<fairmesh_model::SharePolicy> {
    sign_policy(policy(vo.vo(), at, version, below), &[seed])
}

/// Everything that is held, offered to a node that knows the VO's id alone.
fn newcomer(shown: &VoPolicies) -> VoPolicies {
    let mut vo = VoPolicies::new(shown.vo());
    for (kind, _, bytes) in shown.documents() {
        vo.adopt(kind, bytes).expect("they come in order");
    }
    vo
}

#[test]
fn a_vo_without_a_snapshot_role_is_as_it_was() {
    let (mut vo, charter) = vo_with_delegates();
    let says = |bytes: &[u8]| bytes.windows(8).any(|word| word == b"snapshot");
    assert!(!says(charter.bytes()));
    assert!(!says(&fairmesh_model::cbor::to_vec(&vo.highest_seen())));
    let (digest, body) = (vo.digest(), vo.next_snapshot(NOW, EXPIRES));
    let offered = sign_snapshot(body.expect("it is founded"), &[ONLINE]);
    assert_eq!(vo.adopt_snapshot(offered), Err(PolicyError::NoSnapshotRole));
    assert_eq!((vo.digest(), said(&vo, EXPIRES)), (digest, vec![]));
}

#[test]
fn indefinite_freeze_shows_when_the_snapshot_expires_and_stops_nothing() {
    let (mut vo, _) = vo_with_snapshots();
    assert_eq!(
        said(&vo, NOW),
        ["no snapshot has arrived: nobody vouches that what is in force here is the newest"]
    );
    let snapshot = snapshot_of(&vo);
    assert_eq!(vo.adopt_snapshot(snapshot.clone()), Ok(Adopted::InForce));
    assert_eq!(vo.adopt_snapshot(snapshot), Ok(Adopted::Known));
    let frozen = NOW.after(Millis(1_000));
    assert_eq!(said(&vo, WallTime(frozen.0 - 1)), Vec::<String>::new());
    let told = said(&vo, frozen);
    assert!(told[0].starts_with("snapshot 1 ("), "{told:?}");
    assert!(
        told[0].contains("expired at 1970-01-01T00:33:21Z: since then nobody vouches"),
        "{told:?}"
    );
    assert_eq!(vo.in_force(frozen).entries, vo.in_force(NOW).entries);
    // The thief of a clock's time gets nothing by a snapshot that lives for ever.
    let body = vo.next_snapshot(NOW, NOW.after(Millis::from_secs(32 * 86_400)));
    assert!(body.expect("it is founded").validate().is_err());
}

#[test]
fn mix_and_match_is_named_with_what_is_held_back() {
    let (mut vo, _) = vo_with_snapshots();
    let divided = shares(&vo, "/a", 1, &[("/x", entry(10))], 20);
    vo.adopt_policy(divided).expect("the delegate's");
    let mut withheld = vo.clone();
    // Two policies that belong together come into force, and an attacker shows one of them alone.
    let root = [
        ("/a", delegated(30, role(&[20], 1))),
        ("/b", delegated(70, role(&[30], 1))),
    ];
    let (root, below) = (
        shares(&vo, "/", 2, &root, 10),
        shares(&vo, "/a", 2, &[("/y", entry(5))], 20),
    );
    vo.adopt_policy(root.clone()).expect("version 2");
    vo.adopt_policy(below.clone()).expect("version 2");
    let snapshot = snapshot_of(&vo);
    assert_eq!(vo.adopt_snapshot(snapshot.clone()), Ok(Adopted::InForce));
    assert_eq!(
        (said(&vo, NOW), vo.vouched().map(|of| of.compared)),
        (vec![], Some(Compared::default()))
    );
    withheld.adopt_policy(root).expect("version 2");
    withheld.adopt_snapshot(snapshot).expect("the newest");
    let told = said(&withheld, NOW);
    assert!(
        told[0].contains("names share policy 2 of `/a` ("),
        "{told:?}"
    );
    assert!(
        told[0].ends_with("which has not arrived; version 1 is here"),
        "{told:?}"
    );
    // Nothing of it is out of force for that.
    assert_eq!(lines(&withheld), ["/a 30", "/a/x 10", "/b 70"]);
    withheld.adopt_policy(below).expect("version 2");
    assert_eq!(said(&withheld, NOW), Vec::<String>::new());
    assert_eq!(withheld.digest(), vo.digest());
}

#[test]
fn a_newcomer_that_is_shown_an_old_chain_says_that_nobody_vouches_for_it() {
    let (mut vo, second) = vo_with_snapshots();
    let before = newcomer(&vo);
    let old = snapshot_of(&vo);
    vo.adopt_snapshot(old).expect("the first");
    let shown = vo.clone();
    // The VO goes on: another online key, and other shares.
    let third = sign_charter(with_role(next_charter(&second), 51), &[1]);
    vo.adopt_charter(third).expect("it follows");
    let later = NOW.after(Millis::from_secs(86_400));
    // Whoever holds the newcomer's connections has the old chain, with the snapshot of then or without it.
    let with = said(&newcomer(&shown), later);
    assert!(with[0].contains("since then nobody vouches"), "{with:?}");
    let without = said(&before, later);
    assert!(
        without[0].starts_with("no snapshot has arrived"),
        "{without:?}"
    );
    // What he holds of the new one is refused by the old chain, and the other way about.
    let body = vo.next_snapshot(later, later.after(Millis(9)));
    let fresh = sign_snapshot(body.expect("it is founded"), &[51]);
    let refused = newcomer(&shown).adopt_snapshot(fresh.clone());
    assert!(matches!(
        refused,
        Err(PolicyError::Document(DocumentError::Threshold { .. }))
    ));
    assert_eq!(vo.adopt_snapshot(fresh), Ok(Adopted::InForce));
    // A chain that the snapshot names and the newcomer has not: the role is that of before.
    let fourth = sign_charter(
        next_charter(&sign_charter(
            vo.charter().expect("third").body().clone(),
            &[1],
        )),
        &[1],
    );
    let mut behind = newcomer(&vo);
    vo.adopt_charter(fourth).expect("it follows");
    let body = vo.next_snapshot(later, later.after(Millis(9)));
    behind
        .adopt_snapshot(sign_snapshot(body.expect("it is founded"), &[51]))
        .expect("of one role");
    assert!(
        said(&behind, later)[0].contains("names charter 4 ("),
        "{:?}",
        said(&behind, later)
    );
}

#[test]
fn rollback_of_a_snapshot_is_refused_also_after_a_restart_that_lost_it() {
    let (mut vo, _) = vo_with_snapshots();
    let version = |version| Snapshot {
        version,
        ..snapshot_of(&vo).claimed().clone()
    };
    let [old, new] = [version(7), version(8)].map(|body| sign_snapshot(body, &[ONLINE]));
    vo.adopt_snapshot(new).expect("the newest");
    let rollback = || {
        Err(PolicyError::Rollback {
            kind: DocumentKind::Snapshot,
            path: path("/"),
            have: 8,
            got: 7,
        })
    };
    assert_eq!(vo.adopt_snapshot(old.clone()), rollback());
    let kept = vo
        .documents()
        .filter(|(kind, ..)| *kind != DocumentKind::Snapshot);
    let kept = kept.map(|(kind, _, bytes)| (kind, &bytes[..]));
    let (mut restored, refused) = VoPolicies::restore(vo.vo(), &vo.highest_seen(), kept);
    assert_eq!(
        (refused, restored.adopt_snapshot(old)),
        (vec![], rollback())
    );
}

#[test]
fn fast_forward_of_a_snapshot_ends_with_the_online_key() {
    let (mut vo, charter) = vo_with_snapshots();
    let stolen = Snapshot {
        version: u64::MAX,
        ..snapshot_of(&vo).claimed().clone()
    };
    vo.adopt_snapshot(sign_snapshot(stolen, &[ONLINE]))
        .expect("well signed");
    let rightful = snapshot_of(&vo);
    assert_eq!(rightful.claimed().version, u64::MAX);
    let rotated = sign_charter(with_role(next_charter(&charter), 51), &[1]);
    vo.adopt_charter(rotated).expect("it follows");
    assert_eq!(vo.snapshot_warnings(NOW), [Warning::NoSnapshot]);
    let fresh = vo.next_snapshot(NOW, EXPIRES).expect("it is founded");
    assert_eq!(fresh.version, 1);
    assert_eq!(
        vo.adopt_snapshot(sign_snapshot(fresh, &[51])),
        Ok(Adopted::InForce)
    );
}

#[test]
fn the_online_key_signs_nothing_else() {
    let (mut vo, charter) = vo_with_snapshots();
    let threshold = |refused: Result<Adopted, PolicyError>| {
        matches!(
            refused,
            Err(PolicyError::Document(DocumentError::Threshold { .. }))
        )
    };
    assert!(threshold(
        vo.adopt_charter(sign_charter(next_charter(&charter), &[ONLINE]))
    ));
    let theft = shares(&vo, "/", 2, &[("/thief", entry(100))], ONLINE);
    assert!(threshold(vo.adopt_policy(theft)));
    // And a charter that would give it more to do is none.
    for more in ["authority", "policy"] {
        let mut both = next_charter(&charter);
        let of = if more == "policy" {
            &mut both.policy
        } else {
            &mut both.authority
        };
        of.keys.insert(key(ONLINE).key_id());
        let problem = both.validate().expect_err("the online key signs more");
        assert!(problem.contains(more), "{problem}");
    }
}

#[test]
fn the_thief_of_the_online_key_makes_one_warning_of_what_does_not_exist() {
    let (mut vo, _) = vo_with_snapshots();
    let (entries, mut body) = (vo.in_force(NOW).entries, snapshot_of(&vo).claimed().clone());
    let nowhere = Named {
        version: 1,
        hash: ContentHash::of(b"nowhere"),
    };
    let invented = (0..100).map(|k| (path(&format!("/a/{k:02}")), nowhere));
    body.policies.extend(invented);
    vo.adopt_snapshot(sign_snapshot(body, &[ONLINE]))
        .expect("well signed");
    let told = said(&vo, NOW);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].ends_with("none is here; and 99 more documents"),
        "{told:?}"
    );
    assert_eq!(vo.in_force(NOW).entries, entries);
}

#[test]
fn what_is_newer_than_the_snapshot_counts_and_is_no_reason_to_worry() {
    let (mut vo, charter) = vo_with_snapshots();
    let below = shares(&vo, "/a", 1, &[("/x", entry(10))], 20);
    vo.adopt_policy(below).expect("the delegate's");
    let snapshot = snapshot_of(&vo);
    vo.adopt_snapshot(snapshot).expect("the first");
    // The delegation goes to others: what the snapshot names below it has ended.
    let root = [("/a", delegated(60, role(&[21], 1)))];
    vo.adopt_policy(shares(&vo, "/", 2, &root, 10))
        .expect("version 2");
    assert_eq!(lines(&vo), ["/a 60"]);
    assert_eq!(said(&vo, NOW), Vec::<String>::new());
    assert_eq!(vo.vouched().map(|of| of.compared.newer), Some(1));
    // So does another coordinator.
    let rotated = Charter {
        policy: role(&[11], 1),
        ..next_charter(&charter)
    };
    vo.adopt_charter(sign_charter(rotated, &[1]))
        .expect("it follows");
    assert_eq!(lines(&vo), Vec::<String>::new());
    assert_eq!(said(&vo, NOW), Vec::<String>::new());
}

#[test]
fn of_two_snapshots_of_one_version_everybody_holds_the_same() {
    let (mut vo, _) = vo_with_snapshots();
    let at = |expires| {
        sign_snapshot(
            Snapshot {
                expires,
                ..snapshot_of(&vo).claimed().clone()
            },
            &[ONLINE],
        )
    };
    let mut rivals = [at(EXPIRES), at(EXPIRES.after(Millis(1)))];
    rivals.sort_by_key(|of| of.hash());
    let [first, second] = rivals;
    let mut other = vo.clone();
    assert_eq!(vo.adopt_snapshot(first.clone()), Ok(Adopted::InForce));
    assert_eq!(
        vo.adopt_snapshot(second.clone()),
        Err(PolicyError::SnapshotRival { version: 1 })
    );
    assert_eq!(other.adopt_snapshot(second), Ok(Adopted::InForce));
    assert_eq!(other.adopt_snapshot(first), Ok(Adopted::InForce));
    assert_eq!((vo.digest(), vo.alarms()), (other.digest(), vec![]));
}

#[test]
fn a_snapshot_of_another_vo_is_refused_and_readers_are_shown_none() {
    let (mut vo, charter) = vo_with_snapshots();
    let foreign = Snapshot {
        vo: VoId::from_bytes([7; 32]),
        ..snapshot_of(&vo).claimed().clone()
    };
    let refused = vo.adopt_snapshot(sign_snapshot(foreign, &[ONLINE]));
    assert!(matches!(refused, Err(PolicyError::WrongVo { .. })));
    let reader = VoId::from_bytes([9; 32]);
    let lists = Charter {
        readers: [reader].into(),
        ..next_charter(&charter)
    };
    vo.adopt_charter(sign_charter(lists, &[1]))
        .expect("it follows");
    let snapshot = snapshot_of(&vo);
    vo.adopt_snapshot(snapshot.clone()).expect("the first");
    let shown = vo.shown_to(reader);
    assert_eq!(shown.len(), vo.documents().count() - 1);
    assert!(shown.iter().all(|(hash, _)| *hash != snapshot.hash()));
}
