use super::*;

fn share(percent: u32) -> Share {
    Share::from_percent(percent).expect("a percentage")
}

fn rules() -> Vec<HistoryRule> {
    vec![
        HistoryRule::default(),
        HistoryRule::HalfLife {
            windows: 1,
            horizon: 100,
        },
        HistoryRule::HalfLife {
            windows: u32::MAX,
            horizon: u32::MAX,
        },
        HistoryRule::Windows {
            length: 24,
            count: 30,
            factor: share(80),
        },
        HistoryRule::Windows {
            length: 0,
            count: 0,
            factor: share(0),
        },
        HistoryRule::Windows {
            length: 1,
            count: u32::MAX,
            factor: Share::from_units(999_999_999).expect("below one"),
        },
        HistoryRule::None { horizon: 500 },
        HistoryRule::RunningOnly,
    ]
}

#[test]
fn weights_begin_at_one_and_never_rise() {
    for rule in rules() {
        let table = WeightTable::new(rule, WindowLength::HOUR);
        let running_only = rule == HistoryRule::RunningOnly;
        assert_eq!(
            table.weight_at_age(0),
            if running_only { 0 } else { ONE },
            "{rule:?}"
        );
        let far = [4_095, 4_096, 4_097, 100_000, u32::MAX - 1, u32::MAX];
        let ages: Vec<u32> = (0..6_000).chain(far).collect();
        let weights: Vec<u64> = ages.iter().map(|age| table.weight_at_age(*age)).collect();
        let mut pairs: Vec<_> = ages.iter().zip(&weights).collect();
        pairs.sort();
        assert!(
            pairs.windows(2).all(|pair| pair[0].1 >= pair[1].1),
            "{rule:?}"
        );
    }
}

#[test]
fn half_lives_halve_and_factors_multiply() {
    let half = WeightTable::new(
        HistoryRule::HalfLife {
            windows: 168,
            horizon: 5_000,
        },
        WindowLength::HOUR,
    );
    for halvings in 0..29 {
        assert_eq!(half.weight_at_age(168 * halvings), ONE >> halvings);
    }
    assert_eq!(
        half.weight_at_age(84),
        3_037_000_499,
        "the square root of a half, rounded down"
    );
    assert_eq!(half.weight_at_age(5_000), 0);
    let rule = HistoryRule::Windows {
        length: 24,
        count: 3,
        factor: share(50),
    };
    let windows = WeightTable::new(rule, WindowLength::HOUR);
    let by_age: Vec<u64> = [0, 23, 24, 47, 48, 71, 72]
        .map(|age| windows.weight_at_age(age))
        .to_vec();
    assert_eq!(by_age, [ONE, ONE, ONE / 2, ONE / 2, ONE / 4, ONE / 4, 0]);
    assert_eq!(windows.horizon_windows(), 72);
}

#[test]
fn old_days_weigh_as_one_and_the_future_weighs_as_the_present() {
    let table = WeightTable::new(
        HistoryRule::HalfLife {
            windows: 10,
            horizon: 2_000,
        },
        WindowLength::HOUR,
    );
    let reference = Window(24 * 100 + 5);
    for day in 0..=97 {
        let of_day = table.weight_of_span(Span::Day(day), reference);
        for hour in 0..24 {
            assert_eq!(table.weight(Window(day * 24 + hour), reference), of_day);
        }
    }
    assert_ne!(
        table.weight(Window(98 * 24), reference),
        table.weight(Window(98 * 24 + 23), reference)
    );
    assert_eq!(table.weight(Window(u32::MAX), reference), ONE);
    let all: Vec<u64> = (0..reference.0)
        .map(|window| table.weight(Window(window), reference))
        .collect();
    assert!(all.windows(2).all(|pair| pair[0] <= pair[1]));
}

#[test]
fn spans_convert_to_the_window_at_their_middle() {
    let day = WindowLength::from_millis(86_400_000).expect("a day");
    let table = WeightTable::new(HistoryRule::default(), WindowLength::HOUR);
    assert_eq!(
        table.convert(Span::Window(Window(3)), day),
        Span::Window(Window(3 * 24 + 12))
    );
    assert_eq!(
        table.convert(Span::Window(Window(3)), WindowLength::HOUR),
        Span::Window(Window(3))
    );
    assert_eq!(table.convert(Span::Day(3), day), Span::Day(3));
}
