//! The price that a site's owner asks at the moment: the usual one, by the hour, or by the load of his machines.
//!
//! Invariant: by load there is a new price every [`LOAD_PRICE_EVERY`] at most, of the mean of that time; where
//! nobody said how much ran, it is the price at the usual load.
//! Deliberately not here: whom it is published to, and what a VO lets an owner ask (`site`, `ledger`).

use fairmesh_model::{Factor, MonoTime, Now, WallTime, mutant};

use super::{Hours, LOAD_PRICE_EVERY, LoadPrice, by_calendar};

/// What an owner's price follows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Pricing {
    /// Nothing: it is 1, and the charging rule says what machines and queues cost.
    #[default]
    Fixed,
    /// The hours of the week, in UTC; of several spans the first that contains the moment.
    Calendar(Vec<Hours>),
    /// The load of the machines.
    Load(LoadPrice),
}

impl Pricing {
    /// What a price does not fall below because a job is unimportant, unless it is lower anyway.
    pub fn least(&self) -> Factor {
        match self {
            Self::Load(by_load) => by_load.least,
            Self::Fixed | Self::Calendar(_) => LoadPrice::default().least,
        }
    }

    /// The highest price that it can come to.
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
    /// The price.
    pub price: Factor,
    /// Since when, by the site's own clock.
    pub since: WallTime,
}

/// Keeps the price of one site up to date.
#[derive(Debug, Clone, Default)]
pub struct Poster {
    pricing: Pricing,
    posted: Option<Posted>,
    mean: Option<Mean>,
}

/// A mean of the load over time.
#[derive(Debug, Clone, Copy)]
struct Mean {
    began: MonoTime,
    looked: MonoTime,
    /// As it was then.
    load: Option<Factor>,
    /// Millionths of load × milliseconds, and these milliseconds.
    sum: u128,
    length: u64,
}

impl Poster {
    /// What is asked now; 1 before anybody has looked.
    pub fn price(&self) -> Factor {
        self.posted.map_or(Factor::ONE, |posted| posted.price)
    }

    /// What is to be published: nothing where the price is the usual one for good.
    pub fn posted(&self) -> Option<Posted> {
        self.posted.filter(|_| self.pricing != Pricing::Fixed)
    }

    /// Looks at the time and at the load: cores that run jobs and that jobs wait for, over all; `None` where it
    /// is not known. Whether there is a new price.
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
                        let of = mean.load().unwrap_or(by_load.usual);
                        *mean = Mean::begin(now.mono, load);
                        by_load.at(of)
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

    /// It was since the last look what it was then.
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

/// The load of so many cores that run jobs or are waited for.
pub fn load(wanted: u64, cores: u64) -> Option<Factor> {
    let millionths = u128::from(wanted) * u128::from(Factor::UNITS);
    let millionths = millionths.checked_div(u128::from(cores))?;
    Some(Factor::from_millionths(
        u32::try_from(millionths).unwrap_or(u32::MAX),
    ))
}
