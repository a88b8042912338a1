//! One share of one resource: `10% / 30d, burst 40% / 1d`, `150cpus+`, `2TiB`.
//!
//! Invariant: what [`Grant::to_text`] writes [`Grant::parse`] reads back as the same grant.
//! Source: the form of GRUBER (Euro-Par 2005), section 2, with Maui's signs.

use fairmesh_model::{Millis, Share};
use serde::{Deserialize, Serialize};

/// The long interval, where none is written.
pub const EPOCH: Millis = Millis::from_secs(30 * 86_400);

/// The short interval, where none is written.
pub const BURST: Millis = Millis::from_secs(86_400);

/// The longest interval: ten years, as long as the longest run that is believed.
const INTERVAL_MAX: Millis = Millis::from_secs(10 * 366 * 86_400);

/// What a share is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Cores, by number or as a share of the site.
    Cpu,
    /// Disk, in bytes. It is not given back by waiting, so it has neither intervals nor bursts.
    Disk,
    /// Network, in percent only.
    Net,
}

/// What a share means.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// None: may be passed where nobody else waits; over it, last in order.
    #[default]
    Target,
    /// `+`: no start that would pass it.
    AtMost,
    /// `-`: others are not started into it while the consumer has jobs waiting.
    AtLeast,
}

/// An amount: a share of the site, or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Percent of the parent's.
    Percent(Share),
    /// CPUs, or bytes of disk.
    Units(u64),
}

/// How much, in the mean of which interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The most that may be used in the interval.
    pub amount: Amount,
    /// Above 0.
    pub interval: Millis,
}

/// A share of one resource. Either part may be left out, but not both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grant {
    /// Over the long interval.
    pub share: Option<Bound>,
    /// Whether it is a target, a lower or an upper limit.
    pub sign: Sign,
    /// Over the short interval: always an upper limit.
    pub burst: Option<Bound>,
}

/// Why a share was refused. State is unchanged; the text is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// A word of the grant is missing.
    #[error("a share is missing: write one such as {example}")]
    Missing {
        /// What may stand here.
        example: &'static str,
    },
    /// Not an amount of this resource.
    #[error("`{text}` is no amount: write {example}")]
    Amount {
        /// The text that cannot be parsed.
        text: String,
        /// What may stand here.
        example: &'static str,
    },
    /// Not a length of time.
    #[error("`{0}` is no interval: write one such as 30d, 12h, 90min or 30s, from 1s to ten years")]
    Interval(String),
    /// A second comma, or something other than a burst behind the first.
    #[error("`{0}` is left over: behind the comma stands `burst 40% / 1d`, and nothing behind it")]
    LeftOver(String),
    /// An interval or a burst of disk.
    #[error("disk has no intervals and no bursts: write a share such as 2TiB or 10%")]
    NoAdaptation,
    /// A sign behind a burst.
    #[error("a burst is always an upper limit: write it without a sign")]
    SignedBurst,
}

impl Resource {
    fn example(self) -> &'static str {
        match self {
            Self::Cpu => "10% or 150cpus",
            Self::Disk => "2TiB or 10%",
            Self::Net => "10%",
        }
    }
}

impl Grant {
    /// Reads a share of `resource`.
    ///
    /// # Errors
    /// The first thing that is wrong, and what to write.
    pub fn parse(text: &str, resource: Resource) -> Result<Self, GrantError> {
        let (share, burst) = match text.split_once(',') {
            Some((share, rest)) => {
                let burst = rest.trim().strip_prefix("burst");
                (Some(share), Some(burst.ok_or_else(|| left_over(rest))?))
            }
            None => match text.trim().strip_prefix("burst") {
                Some(burst) => (None, Some(burst)),
                None => (Some(text), None),
            },
        };
        let share = share
            .map(|share| bound(share, resource, EPOCH))
            .transpose()?;
        let burst = burst
            .map(|burst| bound(burst, resource, BURST))
            .transpose()?;
        if burst.is_some_and(|(_, sign)| sign != Sign::Target) {
            return Err(GrantError::SignedBurst);
        }
        if burst.is_some() && resource == Resource::Disk {
            return Err(GrantError::NoAdaptation);
        }
        Ok(Self {
            share: share.map(|(share, _)| share),
            sign: share.map_or(Sign::Target, |(_, sign)| sign),
            burst: burst.map(|(burst, _)| burst),
        })
    }

    /// The share in the form that [`Grant::parse`] reads. Intervals that are the usual ones are left out.
    pub fn to_text(self, resource: Resource) -> String {
        let interval = |interval: Millis, usual: Millis| match interval == usual {
            true => String::new(),
            false => format!(" / {}", interval_text(interval)),
        };
        let share = self.share.map(|bound| {
            let sign = match self.sign {
                Sign::Target => "",
                Sign::AtMost => "+",
                Sign::AtLeast => "-",
            };
            let amount = amount_text(bound.amount, resource);
            format!("{amount}{sign}{}", interval(bound.interval, EPOCH))
        });
        let burst = self.burst.map(|bound| {
            let amount = amount_text(bound.amount, resource);
            format!("burst {amount}{}", interval(bound.interval, BURST))
        });
        let parts: Vec<String> = share.into_iter().chain(burst).collect();
        parts.join(", ")
    }
}

fn left_over(text: &str) -> GrantError {
    GrantError::LeftOver(text.trim().to_owned())
}

/// `share [sign] ["/" interval]`.
fn bound(text: &str, resource: Resource, usual: Millis) -> Result<(Bound, Sign), GrantError> {
    if let Some((_, rest)) = text.split_once(',') {
        return Err(left_over(rest));
    }
    let (share, interval) = match text.split_once('/') {
        Some((share, interval)) => (share.trim(), Some(interval.trim())),
        None => (text.trim(), None),
    };
    if interval.is_some() && resource == Resource::Disk {
        return Err(GrantError::NoAdaptation);
    }
    let signs = [('+', Sign::AtMost), ('-', Sign::AtLeast)];
    let signed = signs
        .into_iter()
        .find_map(|(mark, sign)| Some((share.strip_suffix(mark)?, sign)));
    let (share, sign) = signed.unwrap_or((share, Sign::Target));
    let interval = interval.map_or(Ok(usual), parse_interval)?;
    let amount = parse_amount(share.trim(), resource)?;
    Ok((Bound { amount, interval }, sign))
}

/// Units of disk, the largest first.
const BYTES: [(&str, u64); 6] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Lengths of time, the longest first, in milliseconds.
const INTERVALS: [(&str, u64); 4] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("min", 60_000),
    ("s", 1_000),
];

fn parse_amount(text: &str, resource: Resource) -> Result<Amount, GrantError> {
    let example = resource.example();
    if text.is_empty() {
        return Err(GrantError::Missing { example });
    }
    let percent = text
        .strip_suffix('%')
        .filter(|digits| !digits.starts_with(['+', '-']));
    let percent = percent.and_then(|digits| Share::parse_percent(digits).ok());
    let cpus = || {
        text.strip_suffix("cpus")
            .or_else(|| text.strip_suffix("cpu"))
    };
    let units = || match resource {
        Resource::Cpu => whole(cpus()?),
        Resource::Disk => multiple(text, &BYTES),
        Resource::Net => None,
    };
    let amount = percent
        .map(Amount::Percent)
        .or_else(|| units().map(Amount::Units));
    amount.ok_or_else(|| GrantError::Amount {
        text: text.to_owned(),
        example,
    })
}

/// CPUs such as `150cpus`, and nothing else.
pub(super) fn parse_cpus(text: &str) -> Result<u64, GrantError> {
    match parse_amount(text.trim(), Resource::Cpu) {
        Ok(Amount::Units(cpus)) => Ok(cpus),
        _ => Err(GrantError::Amount {
            text: text.to_owned(),
            example: "150cpus",
        }),
    }
}

fn whole(digits: &str) -> Option<u64> {
    let digits = digits.trim_end();
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_whole.then(|| digits.parse().ok()).flatten()
}

/// A whole number of one of `units`.
fn multiple(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let of = |(name, size): &(&str, u64)| whole(text.strip_suffix(name)?)?.checked_mul(*size);
    units.iter().find_map(of)
}

fn parse_interval(text: &str) -> Result<Millis, GrantError> {
    let interval = multiple(text, &INTERVALS).filter(|ms| (1..=INTERVAL_MAX.0).contains(ms));
    interval
        .map(Millis)
        .ok_or_else(|| GrantError::Interval(text.to_owned()))
}

/// In the largest unit that needs no fraction.
fn in_units(amount: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().find(|(_, size)| amount.is_multiple_of(*size));
    let (name, size) = fits.or(units.last()).expect("there are units");
    format!("{}{name}", amount / size)
}

fn interval_text(interval: Millis) -> String {
    in_units(interval.0, &INTERVALS)
}

fn amount_text(amount: Amount, resource: Resource) -> String {
    match (amount, resource) {
        (Amount::Percent(share), _) => format!("{share}%"),
        (Amount::Units(bytes), Resource::Disk) => in_units(bytes, &BYTES),
        (Amount::Units(cpus), _) => format!("{cpus}cpus"),
    }
}
