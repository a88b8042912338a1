use fairmesh_model::Weight;

use super::*;
use proptest::prelude::*;

fn level(percent: u32, usage: u128, parent_usage: u128, distance: Distance) -> Level {
    let target = Target::published(Weight::whole(percent));
    Level {
        target,
        distance,
        usage,
        parent_usage,
        ..Level::MISSING
    }
}

const HALF: Distance = Distance::Mix {
    k: match Share::from_percent(50) {
        Some(half) => half,
        None => Share::ZERO,
    },
};

#[test]
fn deviations_by_rows() {
    // target %, usage, parent's usage, absolute, relative, half of each
    let rows = [
        (50, 1, 2, "+0.0000000", "+0.0000000", "+0.0000000"),
        (50, 1, 4, "+25.0000000", "+50.0000000", "+37.5000000"),
        (25, 1, 1, "-75.0000000", "-300.0000000", "-187.5000000"),
        (30, 1, 3, "-3.3333333", "-11.1111111", "-7.2222222"),
        (30, 0, 9, "+30.0000000", "+100.0000000", "+65.0000000"),
        (30, 0, 0, "+30.0000000", "+100.0000000", "+65.0000000"),
        (0, 0, 9, "+0.0000000", "+0.0000000", "+0.0000000"),
        (0, 1, 4, "-25.0000000", "-inf", "-inf"),
        (
            100,
            u128::MAX,
            u128::MAX,
            "+0.0000000",
            "+0.0000000",
            "+0.0000000",
        ),
    ];
    for (percent, usage, parent, absolute, relative, mixed) in rows {
        let distances = [
            (Distance::Absolute, absolute),
            (Distance::Relative, relative),
            (HALF, mixed),
        ];
        for (distance, expected) in distances {
            let text = level(percent, usage, parent, distance)
                .deviation()
                .to_string();
            assert_eq!(text, expected, "{percent} % {usage}/{parent} {distance:?}");
        }
    }
}

#[test]
fn infinities_are_equal_and_lowest() {
    let little = level(0, 1, 9, Distance::Relative).deviation();
    let much = level(0, 9, 9, Distance::Relative).deviation();
    let bad = level(1, u128::MAX, u128::MAX, Distance::Relative).deviation();
    assert_eq!(little, much);
    assert!(little < bad);
}

#[test]
fn missing_levels_count_as_nothing() {
    let on_target = level(50, 1, 2, Distance::Absolute);
    let over = level(40, 1, 2, Distance::Absolute);
    let short = DeviationVector::new(&[on_target]);
    assert_eq!(short.compare(&DeviationVector::EMPTY), Ordering::Equal);
    assert_eq!(
        short.compare(&DeviationVector::new(&[on_target, on_target])),
        Ordering::Equal
    );
    assert_eq!(
        short.compare(&DeviationVector::new(&[on_target, over])),
        Ordering::Greater
    );
}

fn any_level() -> impl Strategy<Value = Level> {
    let distance = prop_oneof![
        Just(Distance::Absolute),
        Just(Distance::Relative),
        (0..=Share::ONE).prop_map(|k| Distance::Mix {
            k: Share::from_units(k).expect("in range")
        }),
    ];
    let usage = prop_oneof![(any::<u128>(), any::<u128>()), (0u128..6, 0u128..6)];
    let units = prop_oneof![
        Just(0),
        Just(Share::ONE),
        (0u32..=4).prop_map(|n| n * 250_000_000),
        0..=Share::ONE
    ];
    let most = prop_oneof![Just(Share::ONE), 0..=Share::ONE];
    let all = (units, most, distance, usage);
    all.prop_map(|(units, most, distance, (a, b))| Level {
        target: Target::of_units(u64::from(units)),
        at_most: Share::from_units(most).expect("in range"),
        distance,
        usage: a.min(b),
        parent_usage: a.max(b),
    })
}

#[test]
fn what_is_over_its_limit_is_behind_all_that_is_not() {
    let limited = |percent: u32, most: u32, usage: u128| {
        let at_most = Share::from_percent(most).expect("a percentage");
        let level = level(percent, usage, 100, Distance::Absolute);
        Level { at_most, ..level }
    };
    // target %, at most %, usage of 100
    let rows = [
        (30, 40, 40, false),
        (30, 40, 41, true),
        (30, 30, 30, false),
        (30, 30, 31, true),
        (0, 0, 0, false),
        (0, 0, 1, true),
        (30, 100, 100, false),
    ];
    for (percent, most, usage, over) in rows {
        let level = limited(percent, most, usage);
        assert_eq!(level.is_over(), over, "{percent} {most} {usage}");
    }
    // Far less above its target than the other, and behind it: 11 points against 60.
    let (over, far) = (limited(30, 40, 41), level(10, 70, 100, Distance::Absolute));
    assert!(over.deviation() < far.deviation());
    assert!(over.deviation() < Deviation::MINUS_INFINITY);
    // Those over their limits are ordered as ever, and nobody who has nothing is over.
    assert!(limited(30, 40, 41).deviation() > limited(30, 35, 50).deviation());
    assert_eq!(
        limited(30, 40, 41).deviation(),
        limited(30, 35, 41).deviation()
    );
    let unused = Level {
        parent_usage: 0,
        ..limited(0, 0, 0)
    };
    assert!(!unused.is_over());
}

proptest! {
    /// A limit moves one entry behind those within theirs and nobody past anybody else; more of others' use
    /// never makes it worse.
    #[test]
    fn a_limit_moves_an_entry_back_alone(a in any_level(), b in any_level(), more in any::<u64>()) {
        let free = |level: Level| Level { at_most: Share::WHOLE, ..level }.deviation();
        let (over_a, over_b) = (a.is_over(), b.is_over());
        let expected = match (over_a, over_b) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => free(a).cmp(&free(b)),
        };
        prop_assert_eq!(a.deviation().cmp(&b.deviation()), expected);
        let others = Level { parent_usage: a.parent_usage.saturating_add(u128::from(more)), ..a };
        prop_assert!(others.deviation() >= a.deviation());
    }

    #[test]
    fn comparison_is_a_total_order(levels in prop::collection::vec(any_level(), 3)) {
        let [a, b, c] = [0, 1, 2].map(|index| levels[index].deviation());
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a.cmp(&a), Ordering::Equal);
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
        if a == b {
            prop_assert_eq!(a.cmp(&c), b.cmp(&c));
        }
    }

    #[test]
    fn digits_never_invert_deviations_of_one_distance(a in any_level(), b in any_level(), bits in 1u32..=64) {
        let b = Level { distance: a.distance, ..b };
        let order = a.deviation().cmp(&b.deviation());
        let digits = crate::digit::digit(&a, bits).cmp(&crate::digit::digit(&b, bits));
        prop_assert!(digits.is_eq() || digits == order);
    }
}

#[test]
fn a_share_of_zero_is_last_whatever_is_used_and_the_less_used_first() {
    let zero = |usage, distance| Level {
        target: Target::of_siblings(0, 4),
        ..level(0, usage, 100, distance)
    };
    let over = Level {
        target: Target::of_siblings(1, 4),
        at_most: Share::from_percent(50).expect("a percentage"),
        ..level(0, 99, 100, Distance::Absolute)
    };
    for distance in [Distance::Absolute, Distance::Relative, HALF] {
        let order = [
            zero(60, distance),
            zero(40, distance),
            zero(0, distance),
            over,
        ];
        let order = order.map(|level| level.deviation());
        assert!(order.is_sorted_by(|a, b| a < b), "{distance}: {order:?}");
        assert_eq!(zero(40, distance).deviation().to_string(), "-40.0000000");
    }
    // Accounts without a line have no target, and no share of zero.
    assert_eq!(Level::MISSING.deviation(), Deviation::ZERO);
}

#[test]
fn a_weight_ties_exactly_with_that_part_of_the_usage() {
    let third = |distance| Level {
        target: Target::of_siblings(10, 30),
        ..level(0, 1_000, 3_000, distance)
    };
    for distance in [Distance::Absolute, Distance::Relative, HALF] {
        assert_eq!(third(distance).deviation(), Deviation::ZERO, "{distance}");
    }
}
