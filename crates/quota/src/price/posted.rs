//! The price that a site's owner asks now: fixed, by the hour, or by the load of the machines.
//!
//! Invariant: a price by load changes at most every [`LOAD_PRICE_EVERY`] and follows the mean load of that time.
//! Without a known load it is the price at the usual load. Deliberately not here: who receives it, and how high a VO
//! lets it be (`site`, `ledger`).

use fairmesh_model::{Factor, MonoTime, Now, WallTime, mutant};

use super::{Hours, LOAD_PRICE_EVERY, LoadPrice, by_calendar};

/// The owner's rule for the price.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Pricing {
    /// The price is 1; the charging rule alone decides what machines and queues cost.
    #[default]
    Fixed,
    /// The price follows the hours of the week in UTC; the first span that contains the time counts.
    Calendar(Vec<Hours>),
    /// The price follows the load of the machines.
    Load(LoadPrice),
}

impl Pricing {
    /// The lowest price that low importance can lead to.
    pub fn least(&self) -> Factor {
        match self {
            Self::Load(by_load) => by_load.least,
            Self::Fixed | Self::Calendar(_) => LoadPrice::default().least,
        }
    }

    /// The highest price that the rule can yield.
    pub fn most(&self) -> Factor {
        match self {
            Self::Fixed => Factor::ONE,
            Self::Calendar(hours) => {
                let prices = hours.iter().map(|hours| hours.price);
                prices.fold(Factor::ONE, Factor::max)
            }
            Self::Load(by_load) => by_load.most,
        }
    }
}

/// A price, and since when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    /// The factor on a job's charge.
    pub price: Factor,
    /// The time of its last change, by the site's own clock.
    pub since: WallTime,
}

/// Keeps the price of one site up to date.
#[derive(Debug, Clone, Default)]
pub struct Poster {
    pricing: Pricing,
    posted: Option<Posted>,
    mean: Option<Mean>,
}

/// The mean of the load over time, weighted by time.
#[derive(Debug, Clone, Copy)]
struct Mean {
    began: MonoTime,
    looked: MonoTime,
    /// The load at the last observation; `None` if it was unknown.
    load: Option<Factor>,
    /// The sum of load in millionths × milliseconds, and the milliseconds with a known load.
    sum: u128,
    length: u64,
}

impl Poster {
    /// The current price; 1 before the first [`Poster::look`].
    pub fn price(&self) -> Factor {
        self.posted.map_or(Factor::ONE, |posted| posted.price)
    }

    /// The price to publish; `None` for a fixed price, which is always 1.
    pub fn posted(&self) -> Option<Posted> {
        self.posted.filter(|_| self.pricing != Pricing::Fixed)
    }

    /// Updates the price for the time and the load ([`load`]; `None` if it is unknown). Returns whether the price
    /// changed.
    pub fn look(&mut self, now: Now, pricing: &Pricing, load: Option<Factor>) -> bool {
        if self.pricing != *pricing {
            self.pricing = pricing.clone();
            (self.posted, self.mean) = (None, None);
        }
        let price = match &self.pricing {
            Pricing::Fixed => Factor::ONE,
            Pricing::Calendar(hours) => by_calendar(hours, now.wall),
            Pricing::Load(by_load) => {
                let by_load = *by_load;
                let mean = self.mean.get_or_insert(Mean::begin(now.mono, load));
                mean.look(now.mono, load);
                let every = mutant!(PriceWithEveryLoad, LOAD_PRICE_EVERY.0, 0);
                let is_due = now.mono >= mean.began.after(fairmesh_model::Millis(every));
                match (is_due, self.posted) {
                    (false, Some(posted)) => posted.price,
                    (false, None) => by_load.at(by_load.usual),
                    (true, _) => {
                        let mean_load = mean.load().unwrap_or(by_load.usual);
                        *mean = Mean::begin(now.mono, load);
                        by_load.at(mean_load)
                    }
                }
            }
        };
        let is_new = self.posted.is_none_or(|posted| posted.price != price);
        if is_new {
            let since = now.wall;
            self.posted = Some(Posted { price, since });
        }
        is_new
    }
}

impl Mean {
    fn begin(now: MonoTime, load: Option<Factor>) -> Self {
        Self {
            began: now,
            looked: now,
            load,
            sum: 0,
            length: 0,
        }
    }

    /// Adds the time since the last observation, with the load of that observation.
    fn look(&mut self, now: MonoTime, load: Option<Factor>) {
        let length = now.since(self.looked).0;
        if let Some(was) = self.load {
            self.sum += u128::from(was.millionths()) * u128::from(length);
            self.length += length;
        }
        (self.looked, self.load) = (now, load);
    }

    fn load(&self) -> Option<Factor> {
        let mean = self.sum.checked_div(u128::from(self.length))?;
        Some(Factor::from_millionths(u32::try_from(mean).ok()?))
    }
}

/// The load: `wanted` cores that run jobs or are waited for ÷ all `cores`; `None` for a site without cores.
pub fn load(wanted: u64, cores: u64) -> Option<Factor> {
    let millionths = u128::from(wanted) * u128::from(Factor::UNITS);
    let millionths = millionths.checked_div(u128::from(cores))?;
    Some(Factor::from_millionths(
        u32::try_from(millionths).unwrap_or(u32::MAX),
    ))
}
