//! What is in force depends on the set of documents, not on the order in which they came.

use std::collections::BTreeMap;

use fairmesh_model::{Named, ShareEntry, Signed};
use proptest::prelude::*;

use super::*;
use crate::testing::*;

type Offer = (DocumentKind, Arc<[u8]>);

/// A role of one to three keys from three.
fn any_role(first: u8) -> impl Strategy<Value = Role> {
    let seeds: Vec<u8> = (first..first + 3).collect();
    let seeds = proptest::sample::subsequence(seeds, 1..=3);
    (seeds, 1..=3u32).prop_map(|(seeds, threshold)| {
        let most = u32::try_from(seeds.len()).expect("at most three");
        role(&seeds, threshold.min(most))
    })
}

/// Charters in a chain, the last one perhaps with a rival.
fn charters() -> impl Strategy<Value = Vec<Signed<Charter>>> {
    let snapshot = prop::option::weighted(0.8, any_role(30));
    let roles = proptest::collection::vec((any_role(1), any_role(10), snapshot), 1..4);
    (roles, any::<bool>()).prop_map(|(roles, rival)| {
        let everyone: Vec<u8> = (1..4).collect();
        let mut chain: Vec<Signed<Charter>> = Vec::new();
        for (authority, policy, snapshot) in roles {
            let next = match chain.last() {
                None => first_charter(authority, policy),
                Some(last) => Charter {
                    authority,
                    policy,
                    ..next_charter(last)
                },
            };
            let next = Charter { snapshot, ..next };
            chain.push(sign_charter(next, &everyone));
        }
        if rival && chain.len() > 1 {
            let rival = Charter {
                name: "rival".to_owned(),
                ..chain[chain.len() - 1].claimed().clone()
            };
            chain.push(sign_charter(rival, &everyone));
        }
        chain
    })
}

/// What stands for the path of a draft that is no share policy.
const SNAPSHOT: &str = "a snapshot";

#[derive(Debug, Clone)]
struct Draft {
    at: &'static str,
    version: u64,
    share: u32,
    delegate: Option<Role>,
    signers: Vec<u8>,
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let draft = (
        prop::sample::select(vec!["/", "/", "/x", "/x", "/x/x", SNAPSHOT, SNAPSHOT]),
        1..4u64,
        0..3u32,
        prop::option::weighted(0.8, any_role(10)),
        proptest::sample::subsequence(vec![10, 11, 12], 1..=3),
    );
    let draft = draft.prop_map(|(at, version, share, delegate, signers)| Draft {
        at,
        version,
        share,
        delegate,
        signers,
    });
    proptest::collection::vec(draft, 1..24)
}

fn offers(charters: &[Signed<Charter>], drafts: &[Draft]) -> Vec<Offer> {
    let (first, vo) = (&charters[0], charters[0].vo());
    let charters = charters
        .iter()
        .map(|c| (DocumentKind::Charter, c.bytes().clone()));
    let policies = drafts.iter().map(|draft| {
        if draft.at == SNAPSHOT {
            return snapshot(first, draft);
        }
        let divided = ShareEntry {
            delegate: draft.delegate.clone(),
            ..entry(draft.share)
        };
        let policy = policy(vo, draft.at, draft.version, &[("/x", divided)]);
        let signed = sign_policy(policy, &draft.signers);
        (DocumentKind::SharePolicy, signed.bytes().clone())
    });
    charters.chain(policies).collect()
}

/// What a draft names of the first charter and of `/`; some of it is not there.
fn snapshot(charter: &Signed<Charter>, draft: &Draft) -> Offer {
    let named = |version, hash| Named { version, hash };
    let unknown = named(draft.version, ContentHash::of(b"unknown"));
    let body = Snapshot {
        vo: charter.vo(),
        version: draft.version,
        issued: ISSUED,
        expires: EXPIRES,
        charter: named(1, charter.hash()),
        policies: (0..draft.share).map(|_| (path("/"), unknown)).collect(),
        allocations: BTreeMap::new(),
    };
    let signers: Vec<u8> = draft.signers.iter().map(|seed| seed + 20).collect();
    (
        DocumentKind::Snapshot,
        sign_snapshot(body, &signers).bytes().clone(),
    )
}

/// Offers everything again and again, until nothing more changes.
fn settle(vo: VoId, offers: &[Offer]) -> VoPolicies {
    let mut policies = VoPolicies::new(vo);
    loop {
        let before = (policies.digest(), policies.highest_seen());
        for (kind, bytes) in offers {
            let _ = policies.adopt(*kind, bytes);
        }
        if before == (policies.digest(), policies.highest_seen()) {
            return policies;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_order_with_retries_gives_the_same(
        charters in charters(),
        drafts in drafts(),
        orders in proptest::collection::vec(any::<u64>(), 36),
    ) {
        let offers = offers(&charters, &drafts);
        let mut shuffled: Vec<(u64, Offer)> = orders.into_iter().zip(offers.clone()).collect();
        shuffled.sort_by_key(|(order, _)| *order);
        let shuffled: Vec<Offer> = shuffled.into_iter().map(|(_, offer)| offer).collect();
        prop_assert_eq!(shuffled.len(), offers.len());
        let vo = charters[0].vo();
        let (a, b) = (settle(vo, &offers), settle(vo, &shuffled));
        prop_assert_eq!(a.hashes(), b.hashes());
        prop_assert_eq!(a.digest(), b.digest());
        prop_assert_eq!(a.in_force(NOW).entries, b.in_force(NOW).entries);
        prop_assert_eq!(a.alarms(), b.alarms());
        prop_assert_eq!(a.vouched(), b.vouched());
    }

    #[test]
    fn two_members_that_exchange_documents_agree(
        charters in charters(),
        drafts in drafts(),
        heard_by_first in proptest::collection::vec(any::<bool>(), 36),
    ) {
        let offers = offers(&charters, &drafts);
        let vo = charters[0].vo();
        let heard = |first: bool| {
            let told = offers.iter().zip(&heard_by_first).filter(|(_, to)| **to == first);
            told.map(|(offer, _)| offer.clone()).collect::<Vec<_>>()
        };
        let (mut a, mut b) = (settle(vo, &heard(true)), settle(vo, &heard(false)));
        for _ in 0..offers.len() {
            exchange(&a, &mut b);
            exchange(&b, &mut a);
        }
        prop_assert_eq!(a.digest(), b.digest());
        prop_assert_eq!(a.in_force(NOW).entries, b.in_force(NOW).entries);
        prop_assert_eq!(a.vouched(), b.vouched());
    }

    #[test]
    fn a_restart_changes_nothing(charters in charters(), drafts in drafts()) {
        let policies = settle(charters[0].vo(), &offers(&charters, &drafts));
        let documents: BTreeMap<_, _> = policies
            .documents()
            .map(|(kind, hash, bytes)| (hash, (kind, &bytes[..])))
            .collect();
        let seen = policies.highest_seen();
        let (restored, refused) =
            VoPolicies::restore(policies.vo(), &seen, documents.into_values());
        prop_assert_eq!(refused, vec![]);
        prop_assert_eq!(restored.digest(), policies.digest());
        // Of a role out of force it may know more, if a rival was offered first; never less.
        let remembered = restored.highest_seen();
        prop_assert_eq!(remembered.charter, seen.charter);
        let covered = |old: &SeenVersion| {
            remembered.policies.iter().any(|new| {
                (&new.path, new.keys) == (&old.path, old.keys)
                    && new.signatures >= old.signatures
                    && new.version >= old.version
            })
        };
        prop_assert!(seen.policies.iter().all(covered));
        prop_assert_eq!(restored.in_force(NOW), policies.in_force(NOW));
        prop_assert_eq!(restored.vouched(), policies.vouched());
    }
}

/// What anti-entropy does: offer what the other does not list.
fn exchange(from: &VoPolicies, to: &mut VoPolicies) {
    let has = to.hashes();
    for (kind, hash, bytes) in from.documents() {
        if !has.contains(&hash) {
            let _ = to.adopt(kind, bytes);
        }
    }
}

#[test]
fn of_two_charters_the_lower_hash_is_in_force_until_a_successor_settles_it() {
    let (_, first) = vo_with_delegates();
    let rivals: Vec<_> = ["red", "green", "blue"]
        .map(|name| {
            let charter = Charter {
                name: name.to_owned(),
                ..next_charter(&first)
            };
            sign_charter(charter, &[1])
        })
        .into();
    let lowest = rivals.iter().map(Signed::hash).min();
    let mut vo = VoPolicies::new(first.vo());
    vo.adopt_charter(first.clone()).expect("charter 1");
    for rival in &rivals {
        vo.adopt_charter(rival.clone()).expect("valid");
    }
    assert_eq!(vo.charter().map(Verified::hash), lowest);
    assert_eq!(vo.alarms().len(), 1);
    assert!(
        vo.alarms()[0].to_string().contains("charter 2"),
        "{}",
        vo.alarms()[0]
    );
    // The authority may settle on any of them.
    let other = rivals
        .iter()
        .find(|rival| Some(rival.hash()) != lowest)
        .expect("three");
    vo.adopt_charter(sign_charter(next_charter(other), &[1]))
        .expect("charter 3");
    assert_eq!((vo.alarms(), vo.charters().count()), (vec![], 3));
}
