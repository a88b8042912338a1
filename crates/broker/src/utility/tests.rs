//! Equation 1 by its example, the baselines beside it, and its laws.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn os(name: &str, value: u32) -> Choice {
    Choice {
        wish: Wish::Os(name.to_owned()),
        value,
    }
}

fn one(options: Vec<Choice>) -> Requirement {
    Requirement {
        options,
        weight: ONE,
    }
}

/// OS: MacOS is worth 1 and Linux a half; architecture: 64 bits.
fn wishes() -> Vec<Requirement> {
    let arch = Choice {
        wish: Wish::Arch("64".to_owned()),
        value: ONE,
    };
    vec![
        one(vec![os("macos", ONE), os("linux", ONE / 2)]),
        one(vec![arch]),
    ]
}

fn class<'a>(os: &'a str, arch: &'a str) -> Class<'a> {
    Class {
        os,
        arch,
        cpus: 8,
        mem_mib: 1_000,
        disk_mib: 500,
        spec: Factor::parse("1.5").expect("a factor"),
        ..Class::default()
    }
}

fn utility(requirements: Vec<Requirement>, class: &Class<'_>, matching: Matching) -> Option<u32> {
    let wishes = Wishes::new(requirements, Millis(3_000)).expect("valid");
    Some(wishes.utility(class, matching, false)?.millionths)
}

#[test]
pub(crate) fn a_class_is_worth_the_best_options_that_it_has() {
    use Matching::{All, Binary, Partial};
    // class, partial, binary, all
    let rows = [
        (class("linux", "64"), Some(750_000), Some(500_000), None),
        (class("macos", "64"), Some(ONE), Some(ONE), Some(ONE)),
        (class("macos", "32"), Some(500_000), Some(500_000), None),
        (class("linux", "32"), Some(250_000), None, None),
        (class("hpux", "32"), None, None, None),
    ];
    for (class, partial, binary, all) in rows {
        let worth = [Partial, Binary, All].map(|matching| utility(wishes(), &class, matching));
        assert_eq!(worth, [partial, binary, all], "{class:?}");
    }
    let wishes = Wishes::new(wishes(), Millis(0)).expect("valid");
    let taken = wishes
        .utility(&class("linux", "32"), Partial, false)
        .expect("something")
        .taken;
    assert_eq!(taken, [Some(1), None]);
}

/// The options' order plays no part: the best that is satisfied counts.
#[test]
pub(crate) fn more_is_worth_more() {
    let mut requirements = vec![one(vec![os("linux", 3), os("linux", 9), os("macos", ONE)])];
    assert_eq!(
        utility(
            requirements.clone(),
            &class("linux", "64"),
            Matching::Partial
        ),
        Some(9)
    );
    requirements[0].options.reverse();
    assert_eq!(
        utility(requirements, &class("linux", "64"), Matching::Partial),
        Some(9)
    );
}

#[test]
pub(crate) fn weights_shrink_a_utility_unless_it_is_normalised() {
    let mut requirements = wishes();
    requirements[0].weight = ONE / 2;
    let wishes = Wishes::new(requirements, Millis(0)).expect("valid");
    let worth = |normalised| {
        wishes
            .utility(&class("linux", "64"), Matching::Partial, normalised)
            .expect("something")
            .millionths
    };
    // (0.5 × 0.5 + 1) ÷ 2, and ÷ 1.5.
    assert_eq!((worth(false), worth(true)), (625_000, 833_333));
    let nothing = Requirement {
        options: vec![os("linux", ONE)],
        weight: 0,
    };
    let nothing = Wishes::new(vec![nothing], Millis(0)).expect("valid");
    assert_eq!(
        nothing.utility(&class("linux", "64"), Matching::Partial, true),
        None
    );
}

#[test]
pub(crate) fn amounts_are_at_least_there_and_time_at_most_taken() {
    let rows = [
        (Wish::Cpus(8), Wish::Cpus(9)),
        (Wish::MemMib(1_000), Wish::MemMib(1_001)),
        (Wish::DiskMib(500), Wish::DiskMib(501)),
        (
            Wish::Spec(Factor::parse("1.5").expect("a factor")),
            Wish::Spec(Factor::parse("1.500001").expect("a factor")),
        ),
        // Three seconds at 1.5 times the speed are two.
        (Wish::Time(Millis(2_000)), Wish::Time(Millis(1_999))),
    ];
    for (met, unmet) in rows {
        let worth = |wish: &Wish| {
            utility(
                vec![one(vec![Choice {
                    wish: wish.clone(),
                    value: 7,
                }])],
                &class("", ""),
                Matching::Partial,
            )
        };
        assert_eq!((worth(&met), worth(&unmet)), (Some(7), None), "{met:?}");
    }
    let tags = BTreeSet::from(["infiniband".to_owned()]);
    let tagged = Class {
        tags: Some(&tags),
        ..Class::default()
    };
    let tag = one(vec![Choice {
        wish: Wish::Tag("infiniband".to_owned()),
        value: ONE,
    }]);
    assert_eq!(
        utility(vec![tag.clone()], &tagged, Matching::All),
        Some(ONE)
    );
    assert_eq!(utility(vec![tag], &Class::default(), Matching::All), None);
}

#[test]
fn wishes_are_bounded() {
    let many = |requirements, options| {
        Wishes::new(
            vec![one(vec![os("x", 1); options]); requirements],
            Millis(0),
        )
    };
    assert!(many(REQUIREMENTS_MAX, OPTIONS_MAX).is_ok());
    assert_eq!(many(0, 1), Err(WishesError::Empty));
    assert_eq!(many(1, 0), Err(WishesError::Requirement(1)));
    assert!(matches!(
        many(REQUIREMENTS_MAX + 1, 1),
        Err(WishesError::TooMany { .. })
    ));
    assert!(matches!(
        many(1, OPTIONS_MAX + 1),
        Err(WishesError::TooMany { .. })
    ));
    let dear = Wishes::new(
        vec![one(vec![os("x", 1)]), one(vec![os("x", ONE + 1)])],
        Millis(0),
    );
    assert_eq!(dear, Err(WishesError::Requirement(2)));
}

fn any_requirement() -> impl Strategy<Value = Requirement> {
    let choice = ("[a-d]", 0..=ONE).prop_map(|(name, value)| os(&name, value));
    (proptest::collection::vec(choice, 1..5), 0..=ONE)
        .prop_map(|(options, weight)| Requirement { options, weight })
}

proptest! {
    #[test]
    fn more_is_never_worth_less(
        mut requirements in proptest::collection::vec(any_requirement(), 1..5),
        extra in ("[a-d]", 0..=ONE),
        name in "[a-d]",
        normalised in any::<bool>(),
        raise in 0..=ONE,
    ) {
        let class = class(&name, "64");
        let worth = |requirements: &[Requirement]| {
            let wishes = Wishes::new(requirements.to_vec(), Millis(0)).expect("valid");
            wishes.utility(&class, Matching::Partial, normalised).map_or(0, |of| of.millionths)
        };
        let before = worth(&requirements);
        prop_assert!(before <= ONE);
        let mut turned = requirements.clone();
        turned.reverse();
        turned.iter_mut().for_each(|of| of.options.reverse());
        prop_assert_eq!(worth(&turned), before);
        let value = &mut requirements[0].options[0].value;
        *value = raise.max(*value);
        let raised = worth(&requirements);
        prop_assert!(raised >= before);
        requirements[0].options.push(os(&extra.0, extra.1));
        prop_assert!(worth(&requirements) >= raised);
    }
}
