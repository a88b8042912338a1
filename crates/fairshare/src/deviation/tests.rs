use super::*;
use proptest::prelude::*;

fn level(percent: u32, usage: u128, parent_usage: u128, distance: Distance) -> Level {
    let target = Share::from_percent(percent).expect("a percentage");
    Level {
        target,
        distance,
        usage,
        parent_usage,
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
    (units, distance, usage).prop_map(|(units, distance, (a, b))| Level {
        target: Share::from_units(units).expect("in range"),
        distance,
        usage: a.min(b),
        parent_usage: a.max(b),
    })
}

proptest! {
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
