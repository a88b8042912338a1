//! Prices: what a job's charge is multiplied by, what it holds, and what it costs.
//!
//! Invariant: a price is fixed for a job at its hold, so what it costs in the end depends on nothing but how
//! long it ran. What is held is rounded up and what is charged is rounded down, so a job that runs as long as
//! it asked to never costs more than it holds.
//! Deliberately not here: the charge itself (`fairmesh-fairshare`).
//! Source: plug-in prices, fixed or following load, a fee for importance, cheap nights: Gardfjäll's thesis
//! (Umeå University), sections 3.5 and 3.6.2. The formulas are our own.

use fairmesh_model::{CoreMillis, Factor, Importance, Millis, WallTime, mutant};

/// Minutes of a day.
const DAY_MINUTES: u16 = 1_440;

/// A new price by load comes so often at most.
pub const LOAD_PRICE_EVERY: Millis = Millis::from_secs(900);

/// What a job holds: what it would be charged if it ran as long as it asked to, × hold factor × price, rounded
/// up.
pub fn hold(charge: CoreMillis, factor: Factor, price: Factor) -> CoreMillis {
    // Three factors of 64, 32 and 32 bits fit.
    let product =
        u128::from(charge.0) * u128::from(factor.millionths()) * u128::from(price.millionths());
    let units = u128::from(Factor::UNITS) * u128::from(Factor::UNITS);
    let held = mutant!(HoldRoundedDown, product.div_ceil(units), product / units);
    CoreMillis(u64::try_from(held).unwrap_or(u64::MAX))
}

/// What a job costs: its charge × price, rounded down.
pub fn charge(charge: CoreMillis, price: Factor) -> CoreMillis {
    let product = u128::from(charge.0) * u128::from(price.millionths());
    let units = u128::from(Factor::UNITS);
    let cost = mutant!(ChargeRoundedUp, product / units, product.div_ceil(units));
    CoreMillis(u64::try_from(cost).unwrap_or(u64::MAX))
}

/// The price with the fee for a job's importance: × (1 + fee × (importance − 100) / 100), never below `least`
/// unless the price itself is.
pub fn with_fee(price: Factor, importance: Importance, fee: Factor, least: Factor) -> Factor {
    let above = i128::from(importance.get()) - 100;
    let units = i128::from(Factor::UNITS);
    let share = 100 * units + i128::from(fee.millionths()) * above;
    let with_fee = i128::from(price.millionths()) * share / (100 * units);
    let least = i128::from(least.min(price).millionths());
    from_millionths(with_fee.max(least))
}

/// A span of every week, in UTC, and its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    /// On which days, Monday first.
    pub days: [bool; 7],
    /// From which minute of the day.
    pub from_minute: u16,
    /// Up to which minute, excluded. Not after `from_minute`: on into the next day.
    pub until_minute: u16,
    /// The price.
    pub price: Factor,
}

impl Hours {
    fn contain(&self, at: WallTime) -> bool {
        let minutes = at.0 / 60_000;
        let minute = u16::try_from(minutes % u64::from(DAY_MINUTES)).expect("minutes of a day");
        // The epoch was a Thursday.
        let day =
            usize::try_from((minutes / u64::from(DAY_MINUTES) + 3) % 7).expect("days of a week");
        let is_over_night = self.until_minute <= self.from_minute;
        let begins = self.days[day]
            && minute >= self.from_minute
            && (is_over_night || minute < self.until_minute);
        let goes_on = is_over_night && self.days[(day + 6) % 7] && minute < self.until_minute;
        begins || goes_on
    }
}

/// The price by a calendar: of the first span that contains the moment; 1 where none does.
pub fn by_calendar(calendar: &[Hours], at: WallTime) -> Factor {
    let span = calendar.iter().find(|span| span.contain(at));
    span.map_or(Factor::ONE, |span| span.price)
}

/// How a price follows load: base × (1 + gain × (load − usual)), between two limits, in steps of 5 % of the
/// base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadPrice {
    /// The price at the usual load.
    pub base: Factor,
    /// How much of the base it changes by for each unit of load.
    pub gain: Factor,
    /// The usual load.
    pub usual: Factor,
    /// The lowest price.
    pub least: Factor,
    /// The highest price.
    pub most: Factor,
}

impl Default for LoadPrice {
    fn default() -> Self {
        Self {
            base: Factor::ONE,
            gain: Factor::from_millionths(500_000),
            usual: Factor::from_millionths(900_000),
            least: Factor::from_millionths(500_000),
            most: Factor::from_millionths(2_000_000),
        }
    }
}

impl LoadPrice {
    /// The price at a load: cores that are running and waited for, over the cores there are, as a mean of 15
    /// minutes.
    pub fn at(&self, load: Factor) -> Factor {
        let millionths = |factor: Factor| i128::from(factor.millionths());
        let units = i128::from(Factor::UNITS);
        let change = millionths(self.gain) * (millionths(load) - millionths(self.usual));
        let price = millionths(self.base) * (units * units + change) / (units * units);
        // A price that moved with every job would be news all the time.
        let step = (millionths(self.base) / 20).max(1);
        let price = (price + step / 2).div_euclid(step) * step;
        let (least, most) = (millionths(self.least), millionths(self.most));
        from_millionths(price.min(most).max(least))
    }
}

fn from_millionths(millionths: i128) -> Factor {
    let millionths = u32::try_from(millionths.max(0)).unwrap_or(u32::MAX);
    Factor::from_millionths(millionths)
}

#[cfg(test)]
mod tests {
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
            charge(CoreMillis(8 * 3_000_000), price),
            CoreMillis(30_000_000)
        );
        let third = factor("0.333333");
        for amount in [0, 1, 2, 3, 999, u64::MAX] {
            let amount = CoreMillis(amount);
            assert!(charge(amount, third) <= hold(amount, Factor::ONE, third));
        }
        assert_eq!(hold(CoreMillis(1), Factor::ONE, third), CoreMillis(1));
        assert_eq!(charge(CoreMillis(1), third), CoreMillis(0));
        assert_eq!(
            hold(CoreMillis(u64::MAX), Factor::MAX, Factor::MAX),
            CoreMillis(u64::MAX)
        );
    }
}
