use fairmesh_model::{MonoTime, Now};

use super::*;

fn factor(text: &str) -> Factor {
    Factor::parse(text).expect("a factor")
}

#[test]
fn prices_follow_load_between_their_limits() {
    for (load, price) in [
        ("1.5", "1.3"),
        ("0.1", "0.6"),
        ("4", "2"),
        ("0", "0.55"),
        ("0.93", "1"),
    ] {
        assert_eq!(
            LoadPrice::default().at(factor(load)),
            factor(price),
            "{load}"
        );
    }
    let steep = LoadPrice {
        gain: factor("20"),
        ..LoadPrice::default()
    };
    assert_eq!(steep.at(factor("0")), factor("0.5"));
}

#[test]
fn importance_costs_its_fee() {
    let importance = |number| Importance::try_from(number).expect("in range");
    for (number, fee, price) in [
        (100, "1", "1.2"),
        (200, "1", "2.4"),
        (150, "0.5", "1.5"),
        (0, "0.5", "0.6"),
        (0, "1", "0.5"),
        (200, "0", "1.2"),
    ] {
        let with_fee = with_fee(
            factor("1.2"),
            importance(number),
            factor(fee),
            factor("0.5"),
        );
        assert_eq!(with_fee, factor(price), "{number} {fee}");
    }
    let cheap = with_fee(factor("0.4"), importance(0), factor("1"), factor("0.5"));
    assert_eq!(cheap, factor("0.4"));
}

#[test]
fn nights_and_week_ends_have_prices() {
    let night = Hours {
        days: [true, true, true, true, true, false, false],
        from_minute: 20 * 60,
        until_minute: 6 * 60,
        price: factor("0.7"),
    };
    let week_end = Hours {
        days: [false, false, false, false, false, true, true],
        from_minute: 0,
        until_minute: 0,
        price: factor("0.5"),
    };
    // Hours since the epoch, which was a Thursday.
    for (hour, price) in [
        (0, "0.7"),
        (6, "1"),
        (19, "1"),
        (20, "0.7"),
        (24 + 20, "0.7"),
        (48 + 5, "0.7"),
        (48 + 6, "0.5"),
        (72 + 23, "0.5"),
        (96, "1"),
        (96 + 6, "1"),
    ] {
        let at = WallTime(hour * 3_600_000);
        assert_eq!(by_calendar(&[night, week_end], at), factor(price), "{hour}");
    }
}

#[test]
fn what_is_held_covers_what_is_charged() {
    let wall = CoreMillis(8 * 3_600_000);
    let price = factor("1.25");
    assert_eq!(hold(wall, Factor::ONE, price), CoreMillis(36_000_000));
    assert_eq!(
        charge(CoreMillis(8 * 3_000_000), price, Factor::ONE),
        CoreMillis(30_000_000)
    );
    let third = factor("0.333333");
    for amount in [0, 1, 2, 3, 999, u64::MAX] {
        let amount = CoreMillis(amount);
        assert!(charge(amount, third, Factor::ONE) <= hold(amount, Factor::ONE, third));
    }
    assert_eq!(hold(CoreMillis(1), Factor::ONE, third), CoreMillis(1));
    assert_eq!(charge(CoreMillis(1), third, Factor::ONE), CoreMillis(0));
    assert_eq!(charge(CoreMillis(8), price, factor("0.5")), CoreMillis(5));
    assert_eq!(
        hold(CoreMillis(u64::MAX), Factor::MAX, Factor::MAX),
        CoreMillis(u64::MAX)
    );
}

fn at(minutes: u64) -> Now {
    Now {
        mono: MonoTime(minutes * 60_000),
        wall: WallTime(7 + minutes * 60_000),
    }
}

#[test]
fn a_price_by_load_is_of_the_mean_of_a_quarter_of_an_hour() {
    let pricing = Pricing::Load(LoadPrice::default());
    let mut poster = Poster::default();
    let mut look = |minutes, load: &str| {
        poster.look(at(minutes), &pricing, Some(factor(load)));
        poster.posted().expect("it is published")
    };
    let first = look(0, "3");
    assert_eq!((first.price, first.since), (factor("1"), WallTime(7)));
    // Ten minutes of 3 and five of 0 are 2 on average: 1 + 0.5 × 1.1.
    assert_eq!(look(10, "0"), first);
    let second = look(15, "0.1");
    assert_eq!(
        (second.price, second.since),
        (factor("1.55"), at(15).wall),
        "a new one"
    );
    assert_eq!(look(29, "9"), second);
    // Fourteen minutes of 0.1 and one of 9.
    assert_eq!(look(30, "9").price, factor("0.9"));
}

#[test]
fn where_nobody_says_what_runs_the_load_is_the_usual_one() {
    let pricing = Pricing::Load(LoadPrice::default());
    let mut poster = Poster::default();
    assert!(poster.look(at(0), &pricing, Some(factor("4"))));
    assert!(poster.look(at(15), &pricing, None));
    assert_eq!(poster.price(), factor("2"));
    assert!(poster.look(at(30), &pricing, None));
    assert_eq!(poster.price(), factor("1"));
    assert_eq!(load(150, 100), Some(factor("1.5")));
    assert_eq!(load(1, 0), None);
    assert_eq!(load(u64::MAX, 1), Some(Factor::MAX));
}

#[test]
fn the_usual_price_is_not_published() {
    let mut poster = Poster::default();
    assert_eq!(poster.price(), Factor::ONE);
    assert!(poster.look(at(0), &Pricing::Fixed, None));
    assert_eq!((poster.price(), poster.posted()), (Factor::ONE, None));
    let nights = Pricing::Calendar(vec![Hours {
        days: [true; 7],
        from_minute: 0,
        until_minute: 1,
        price: factor("0.5"),
    }]);
    assert!(poster.look(at(0), &nights, None));
    assert!(!poster.look(at(0), &nights, None));
    assert!(poster.look(at(1), &nights, None));
    assert_eq!(
        poster.posted().map(|posted| posted.price),
        Some(Factor::ONE)
    );
}
