//! Prices: the factor on a job's charge, what the job holds, and what it costs.
//!
//! Invariant: a job's price is fixed at its hold, so its cost depends only on how long it ran. Holds are rounded up and
//! charges are rounded down, so a job that runs as long as requested never costs more than it holds.
//! Deliberately not here: the charge itself (`fairmesh-fairshare`).
//! Source: plug-in prices, fixed or following load, a fee for importance, cheap nights: Gardfjäll's thesis
//! (Umeå University), sections 3.5 and 3.6.2. The formulas are our own.

use fairmesh_model::{Allocation, CoreMillis, Factor, Importance, Millis, WallTime, mutant};

mod posted;

pub use posted::{Posted, Poster, Pricing, load};

/// Minutes in a day.
const DAY_MINUTES: u16 = 1_440;

/// The highest price that a site's owner may ask if the allocation has no `price_max`: twice the usual one.
const MOST: Factor = Factor::from_millionths(2_000_000);

/// The shortest time between two prices by load, and the length of the mean that each is computed from.
pub const LOAD_PRICE_EVERY: Millis = Millis::from_secs(900);

/// Core-milliseconds that a job holds: its charge for the whole requested time × hold factor × price, rounded up.
pub fn hold(charge: CoreMillis, factor: Factor, price: Factor) -> CoreMillis {
    // Three factors of 64, 32 and 32 bits fit.
    let product =
        u128::from(charge.0) * u128::from(factor.millionths()) * u128::from(price.millionths());
    let units = u128::from(Factor::UNITS) * u128::from(Factor::UNITS);
    let held = mutant!(HoldRoundedDown, product.div_ceil(units), product / units);
    CoreMillis(u64::try_from(held).unwrap_or(u64::MAX))
}

/// Core-milliseconds that a job costs: its charge × price × the charged part of the price, rounded down.
pub fn charge(charge: CoreMillis, price: Factor, part: Factor) -> CoreMillis {
    let product =
        u128::from(charge.0) * u128::from(price.millionths()) * u128::from(part.millionths());
    let units = u128::from(Factor::UNITS) * u128::from(Factor::UNITS);
    let cost = mutant!(ChargeRoundedUp, product / units, product.div_ceil(units));
    CoreMillis(u64::try_from(cost).unwrap_or(u64::MAX))
}

/// A job's price: the owner's price, at most the allocation's `price_max`, with the allocation's fee for the job's
/// importance. Low importance does not lower it below `least`. The fee comes after the limit: it is the user's
/// choice, not the owner's.
pub fn of_job(asked: Factor, importance: Importance, terms: &Allocation, least: Factor) -> Factor {
    let most = terms.price_max.unwrap_or(MOST);
    let price = mutant!(PriceUnbounded, asked.min(most), asked);
    mutant!(
        FeeForgotten,
        with_fee(price, importance, terms.fee, least),
        price
    )
}

/// The price with the fee for a job's importance: × (1 + fee × (importance − 100) / 100), and at least the lower of
/// `least` and the price.
pub fn with_fee(price: Factor, importance: Importance, fee: Factor, least: Factor) -> Factor {
    let above = i128::from(importance.get()) - 100;
    let units = i128::from(Factor::UNITS);
    let share = 100 * units + i128::from(fee.millionths()) * above;
    let with_fee = i128::from(price.millionths()) * share / (100 * units);
    let least = i128::from(least.min(price).millionths());
    from_millionths(with_fee.max(least))
}

/// A weekly span in UTC, and its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    /// The days on which it begins, Monday first.
    pub days: [bool; 7],
    /// Its first minute of the day, 0 to 1,439.
    pub from_minute: u16,
    /// The minute at which it ends, excluded; if not after `from_minute`, that of the next day.
    pub until_minute: u16,
    /// The price in the span.
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

/// The price by a calendar: that of the first span that contains `at`, or 1.
pub fn by_calendar(calendar: &[Hours], at: WallTime) -> Factor {
    let span = calendar.iter().find(|span| span.contain(at));
    span.map_or(Factor::ONE, |span| span.price)
}

/// A price that follows load: base × (1 + gain × (load − usual)), between two limits, in steps of 5 % of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadPrice {
    /// The price at the usual load.
    pub base: Factor,
    /// How much of the base it changes by for each unit of load.
    pub gain: Factor,
    /// The usual load.
    pub usual: Factor,
    /// The lowest price, whatever the load.
    pub least: Factor,
    /// The highest price, whatever the load.
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
    /// The price at a load: cores that run jobs or are waited for ÷ all cores, as a mean of 15 minutes.
    pub fn at(&self, load: Factor) -> Factor {
        let millionths = |factor: Factor| i128::from(factor.millionths());
        let units = i128::from(Factor::UNITS);
        let change = millionths(self.gain) * (millionths(load) - millionths(self.usual));
        let price = millionths(self.base) * (units * units + change) / (units * units);
        // In steps, because every new price is published to all members.
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
mod tests;
