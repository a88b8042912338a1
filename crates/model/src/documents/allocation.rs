//! The allocation: credit that an authority grants a project, for a time, on all sites of a VO.
//!
//! Its slices say how much may be spent and when; its split says how much of each slice every site holds
//! to begin with. Both are fixed for as long as the allocation exists, because sites spend by them without
//! asking: a later version can end slices earlier (which takes back what is not used or held by then) and
//! change the terms. More credit is another allocation for the same path.
//!
//! A part of an allocation may be passed on below its path by those whom it names as its leaders: that is an
//! allocation, too, which says what it is a part of. Its rights are made of rights of the whole, by each site for
//! itself, so nothing is granted twice (docs/quotas.md). A part is strict, and its prices are those of the whole:
//! no leader lets jobs run that the authority would not.
//!
//! Invariant: the amounts are above 0 and fit the counters; every slice begins before it ends; somebody
//! holds every slice. Deliberately not here: counters, holds and decisions (`fairmesh-quota`).
//! Source: SGAS's allocations, in Gardfjäll's thesis (Umeå University), sections 3.2 and 3.4.3.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::charter::CHARTER_SITES_MAX;
use crate::factor::Factor;
use crate::ids::{AllocationId, SiteId, VoId};
use crate::path::AccountPath;
use crate::signed::{Document, Role};
use crate::time::WallTime;
use crate::units::{CoreMillis, Share};

/// Most slices of one allocation: bounds what every member counts for it. More than a day each for a year.
pub const SLICES_MAX: usize = 400;

/// Most shares of one allocation, which are its slices times the sites that it is split among: bounds what every
/// member works out for it. A day each for a year among 179 sites, or a month each for two and a half years among
/// 2,000.
const SHARES_MAX: usize = 1 << 16;

/// The most that one slice may grant: 20 billion core-hours. Counters of rights grow with every hold and
/// transfer and are 64 bits wide; this leaves them room for a hundred times the largest grant.
pub const AMOUNT_MAX: CoreMillis = CoreMillis(1 << 56);

/// Most paths that an allocation names as its members: bounds the document. Larger groups have a path.
const MEMBERS_MAX: usize = 4_096;

/// Most parts of one allocation that leaders pass on: each is a counter in every row of the slices that it is a part
/// of, and a full row still fits a part of a head.
pub const PARTS_MAX: usize = 256;

/// What happens to a job that a quota does not cover.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum QuotaMode {
    /// The job is refused.
    #[default]
    Strict,
    /// It runs while the overdraft has room.
    Soft,
    /// It runs; the overdraft is counted and nothing more. Not in SGAS.
    Advisory,
}

/// Who settles an overdraft.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// Rights that become free or begin to live, before anything else is spent of them.
    #[default]
    Next,
    /// Nobody: it stays until the authority deals with it.
    Manual,
}

/// An amount and when it may be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationSlice {
    /// How much, above 0 and at most [`AMOUNT_MAX`].
    pub amount: CoreMillis,
    /// The first moment at which it can be spent.
    pub start: WallTime,
    /// Before when. What is neither used nor held then has perished.
    pub end: WallTime,
}

/// What an allocation is a part of, where leaders have passed it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartOf {
    /// The whole, which is no part of anything itself.
    pub allocation: AllocationId,
    /// Of which of its slices each slice of this one is a part, by their places from 0, in rising order.
    pub slices: Vec<u32>,
}

/// Credit of one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The VO whose members may spend it.
    pub vo: VoId,
    /// Whose credit: accounts at this path and below spend it.
    pub path: AccountPath,
    /// 1, then rising with every change; gaps are allowed.
    pub version: u64,
    /// The allocation; absent in version 1, whose own hash it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<AllocationId>,
    /// When it was signed, by the signer's clock.
    pub issued: WallTime,
    /// When it should have been renewed. Expiry degrades answers, it does not stop them; slices end by
    /// themselves.
    pub expires: WallTime,
    /// The amounts, in an order that never changes.
    pub slices: Vec<AllocationSlice>,
    /// How every slice is divided among the sites to begin with, by weight.
    pub split: BTreeMap<SiteId, u64>,
    /// Who may spend, as paths at or below `path`; everybody there, where nobody is named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub members: BTreeSet<AccountPath>,
    /// What happens to jobs beyond it; the VO's rule (strict) where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<QuotaMode>,
    /// The overdraft of all sites together beyond which the soft mode refuses.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub overdraft_max: CoreMillis,
    /// Who settles an overdraft.
    #[serde(default, skip_serializing_if = "is_next")]
    pub settle: Settlement,
    /// The most that one job may hold; no limit where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_max: Option<CoreMillis>,
    /// What a job holds, of what it would cost if it ran as long as it asked to.
    #[serde(default, skip_serializing_if = "is_one")]
    pub hold_factor: Factor,
    /// What the greatest importance costs beyond the price, and the least below it, of the price; 0 is no fee.
    #[serde(default = "no_fee", skip_serializing_if = "is_no_fee")]
    pub fee: Factor,
    /// The highest price that a site's owner may ask of it, before the fee; 2 where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_max: Option<Factor>,
    /// What a job on machines that would stand idle is charged of its price; 0 is nothing.
    #[serde(default, skip_serializing_if = "is_one")]
    pub idle_charge: Factor,
    /// What it is a part of, where leaders pass it on; it is granted by the path's authority where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<PartOf>,
    /// Who may pass parts of it on below its path; nobody where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaders: Option<Role>,
    /// The most of each slice that a site may have at a time, used and held included; any part where it is not named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at_most: BTreeMap<SiteId, Share>,
}

impl Document for Allocation {
    const TYPE: &'static str = "allocation";
    const BYTES_MAX: usize = 1 << 20;

    fn vo(&self) -> Option<VoId> {
        Some(self.vo)
    }

    fn validate(&self) -> Result<(), String> {
        if self.version == 0 || self.id.is_none() != (self.version == 1) {
            let with = if self.id.is_some() { "" } else { "out" };
            return Err(format!("version {} with{with} an id", self.version));
        }
        if self.expires <= self.issued {
            return Err("expires before it is issued".to_owned());
        }
        self.validate_slices()?;
        self.validate_split()?;
        self.validate_parts()?;
        if self.members.len() > MEMBERS_MAX {
            return Err(format!("more than {MEMBERS_MAX} members"));
        }
        let strangers = self.members.iter();
        let mut strangers = strangers.filter(|member| !member.starts_with(&self.path));
        match strangers.next() {
            Some(member) => Err(format!("member `{member}` is not below `{}`", self.path)),
            None if self.hold_factor.millionths() == 0 => Err("hold_factor is 0".to_owned()),
            None if self.price_max.is_some_and(|most| most.millionths() == 0) => {
                Err("price_max is 0".to_owned())
            }
            None => Ok(()),
        }
    }
}

impl Allocation {
    /// The first version of a strict one that says nothing else of its terms: valid from when it is issued until it
    /// expires.
    pub fn new(
        vo: VoId,
        path: AccountPath,
        valid: Range<WallTime>,
        slices: Vec<AllocationSlice>,
        split: BTreeMap<SiteId, u64>,
    ) -> Self {
        Self {
            vo,
            path,
            version: 1,
            id: None,
            issued: valid.start,
            expires: valid.end,
            slices,
            split,
            members: BTreeSet::new(),
            mode: Some(QuotaMode::Strict),
            overdraft_max: CoreMillis(0),
            settle: Settlement::default(),
            hold_max: None,
            hold_factor: Factor::ONE,
            fee: no_fee(),
            price_max: None,
            idle_charge: Factor::ONE,
            part_of: None,
            leaders: None,
            at_most: BTreeMap::new(),
        }
    }

    /// What `new`, another version of this allocation, says otherwise and may not: sites may have spent by
    /// this one already. `None` where it may take its place.
    pub fn forbidden_change(&self, new: &Self) -> Option<&'static str> {
        // Of two of one version it is not known which was first, so either may end sooner.
        let is_later = new.version > self.version;
        let keeps = |a: &AllocationSlice, b: &AllocationSlice| {
            (a.amount, a.start) == (b.amount, b.start) && (b.end <= a.end || !is_later)
        };
        let mut slices = self.slices.iter().zip(&new.slices);
        let keeps = self.slices.len() == new.slices.len() && slices.all(|(a, b)| keeps(a, b));
        match () {
            () if self.path != new.path => Some("the path"),
            () if self.part_of != new.part_of => Some("what it is a part of"),
            () if self.split != new.split => Some("the split"),
            () if self.at_most != new.at_most => Some("what a site may have at most"),
            () if !keeps => Some("what its slices grant, or how long"),
            () => None,
        }
    }

    /// Why this allocation, a part, does not fit the first version of the whole that it names. `None` where it does.
    pub fn misfit(&self, whole: &Self) -> Option<&'static str> {
        let part_of = self.part_of.as_ref()?;
        let mut pairs = part_of.slices.iter().zip(&self.slices);
        let fits = |(place, part): (&u32, &AllocationSlice)| {
            let slice = whole.slices.get(*place as usize);
            slice.is_some_and(|slice| {
                part.amount <= slice.amount && part.start >= slice.start && part.end <= slice.end
            })
        };
        match () {
            () if whole.part_of.is_some() => Some("it is part of a part"),
            () if !self.path.starts_with(&whole.path) || self.path == whole.path => {
                Some("its path does not lie below that of the whole")
            }
            () if !pairs.all(fits) => {
                Some("a slice is larger or lasts longer than that of the whole")
            }
            () => None,
        }
    }

    fn validate_parts(&self) -> Result<(), String> {
        if let Some(leaders) = &self.leaders {
            leaders.validate("leaders")?;
        }
        let Some(part_of) = &self.part_of else {
            return Ok(());
        };
        let is_rising = part_of.slices.is_sorted_by(|a, b| a < b);
        match () {
            () if self.leaders.is_some() => Err("a part with leaders of its own".to_owned()),
            () if self.mode.unwrap_or_default() != QuotaMode::Strict => {
                Err("a part that is not strict".to_owned())
            }
            () if self.overdraft_max.0 > 0 => Err("a part with an overdraft".to_owned()),
            () if part_of.slices.len() != self.slices.len() || !is_rising => {
                Err("each slice has to be a part of one slice, in their order".to_owned())
            }
            () => Ok(()),
        }
    }

    fn validate_slices(&self) -> Result<(), String> {
        if self.slices.is_empty() || self.slices.len() > SLICES_MAX {
            return Err(format!("none or more than {SLICES_MAX} slices"));
        }
        for (index, slice) in (1..).zip(&self.slices) {
            if slice.amount.0 == 0 || slice.amount > AMOUNT_MAX {
                return Err(format!(
                    "slice {index}: nothing, or more than can be counted"
                ));
            }
            if slice.end <= slice.start {
                return Err(format!("slice {index} ends before it begins"));
            }
        }
        Ok(())
    }

    fn validate_split(&self) -> Result<(), String> {
        if self.split.len() > CHARTER_SITES_MAX {
            return Err(format!("split among more than {CHARTER_SITES_MAX} sites"));
        }
        let (slices, sites) = (self.slices.len(), self.split.len());
        if slices * sites > SHARES_MAX {
            return Err(format!(
                "{slices} slices among {sites} sites are more than {SHARES_MAX} shares: cut it into fewer slices"
            ));
        }
        let mut weights = self.split.values().copied();
        let sum = weights.try_fold(0_u64, u64::checked_add);
        let Some(sum) = sum.filter(|sum| *sum > 0) else {
            return Err("a split of no weight, or of too much".to_owned());
        };
        if self.at_most.len() > CHARTER_SITES_MAX {
            return Err(format!("more than {CHARTER_SITES_MAX} sites in at_most"));
        }
        let has_more = |(site, most): (&SiteId, &Share)| {
            let weight = self.split.get(site).copied().unwrap_or(0);
            u128::from(weight) * u128::from(Share::ONE) > u128::from(sum) * u128::from(most.units())
        };
        match self
            .at_most
            .iter()
            .find(|(site, most)| has_more((site, most)))
        {
            Some((site, most)) => Err(format!(
                "the split gives site {site} more than the {most} that it may have at most"
            )),
            None => Ok(()),
        }
    }
}

const fn no_fee() -> Factor {
    Factor::from_millionths(0)
}

fn is_no_fee(fee: &Factor) -> bool {
    *fee == no_fee()
}

fn is_one(factor: &Factor) -> bool {
    *factor == Factor::ONE
}

fn is_nothing(amount: &CoreMillis) -> bool {
    amount.0 == 0
}

fn is_next(settle: &Settlement) -> bool {
    *settle == Settlement::Next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbor;
    use crate::ids::ContentHash;
    use crate::signed::{Signed, SigningKey};

    fn valid() -> Allocation {
        let slice = AllocationSlice {
            amount: CoreMillis(1_000),
            start: WallTime(2),
            end: WallTime(5),
        };
        let path = AccountPath::parse("/P-A1").expect("valid");
        let split = BTreeMap::from([(SiteId::from_bytes([1; 32]), 3)]);
        let valid = WallTime(1)..WallTime(9);
        Allocation {
            mode: None,
            ..Allocation::new(VoId::from_bytes([7; 32]), path, valid, vec![slice], split)
        }
    }

    fn part_of(slices: &[u32]) -> Option<PartOf> {
        Some(PartOf {
            allocation: ContentHash::of(b"1").into(),
            slices: slices.to_vec(),
        })
    }

    #[test]
    fn a_part_lies_within_the_whole() {
        let whole = valid();
        let part = Allocation {
            path: AccountPath::parse("/P-A1/U-A11").expect("valid"),
            part_of: part_of(&[0]),
            ..valid()
        };
        assert_eq!(part.misfit(&whole), None);
        let bad: [fn(&mut Allocation, &mut Allocation); 6] = [
            |part, whole| part.path = whole.path.clone(),
            |part, _| part.path = AccountPath::parse("/P-A2/U-A11").expect("valid"),
            |part, _| part.slices[0].amount = CoreMillis(1_001),
            |part, _| part.slices[0].end = WallTime(6),
            |part, _| part.part_of = part_of(&[1]),
            |_, whole| whole.part_of = part_of(&[0]),
        ];
        for (index, change) in bad.into_iter().enumerate() {
            let (mut part, mut whole) = (part.clone(), whole.clone());
            change(&mut part, &mut whole);
            assert!(part.misfit(&whole).is_some(), "{index}");
        }
    }

    #[test]
    fn what_is_signed_is_read_back() {
        let key = SigningKey::from_secret(&[5; 32]);
        let role = Role::single(key.key_id());
        let full = Allocation {
            version: 2,
            id: Some(ContentHash::of(b"1").into()),
            members: BTreeSet::from([AccountPath::parse("/P-A1/U-A11").expect("valid")]),
            mode: Some(QuotaMode::Soft),
            overdraft_max: CoreMillis(5),
            settle: Settlement::Manual,
            hold_max: Some(CoreMillis(9)),
            hold_factor: Factor::from_millionths(800_000),
            fee: Factor::ONE,
            price_max: Some(Factor::from_millionths(1_500_000)),
            idle_charge: Factor::from_millionths(0),
            leaders: Some(role.clone()),
            at_most: BTreeMap::from([(SiteId::from_bytes([1; 32]), Share::WHOLE)]),
            ..valid()
        };
        let part = Allocation {
            path: AccountPath::parse("/P-A1/U-A11").expect("valid"),
            part_of: Some(PartOf {
                allocation: ContentHash::of(b"1").into(),
                slices: vec![3],
            }),
            ..valid()
        };
        for body in [valid(), full, part] {
            let signed = Signed::sign(body.clone(), &[&key]).expect("valid");
            let read = Signed::<Allocation>::parse(signed.bytes()).expect("our own");
            assert_eq!(read.verify(&[&role]).expect("signed").body(), &body);
        }
        // What nobody says is not written: older nodes' documents keep their bytes.
        assert!(cbor::to_vec(&valid()).len() < 160);
    }

    fn shares(a: &mut Allocation, sites: u8) {
        a.slices = vec![a.slices[0]; SLICES_MAX];
        let site = |number| SiteId::from_bytes([number; 32]);
        a.split = (0..sites).map(|number| (site(number), 1)).collect();
    }

    #[test]
    fn what_no_site_could_count_is_refused() {
        let with = |change: fn(&mut Allocation)| {
            let mut changed = valid();
            change(&mut changed);
            changed.validate()
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|a| shares(a, 163)), Ok(()));
        let bad: [fn(&mut Allocation); 20] = [
            |a| shares(a, 164),
            |a| a.version = 0,
            |a| a.version = 2,
            |a| a.id = Some(ContentHash::of(b"1").into()),
            |a| a.expires = a.issued,
            |a| a.slices.clear(),
            |a| a.slices = vec![a.slices[0]; SLICES_MAX + 1],
            |a| a.slices[0].amount = CoreMillis(0),
            |a| a.slices[0].amount = AMOUNT_MAX.plus(CoreMillis(1)),
            |a| a.slices[0].end = a.slices[0].start,
            |a| a.split.values_mut().for_each(|weight| *weight = 0),
            |a| a.members = BTreeSet::from([AccountPath::root()]),
            |a| a.hold_factor = Factor::from_millionths(0),
            |a| a.price_max = Some(Factor::from_millionths(0)),
            |a| a.part_of = part_of(&[]),
            |a| {
                a.slices = vec![a.slices[0]; 2];
                a.part_of = part_of(&[1, 1]);
            },
            |a| {
                a.part_of = part_of(&[0]);
                a.leaders = Some(Role::single(SigningKey::from_secret(&[5; 32]).key_id()));
            },
            |a| {
                a.part_of = part_of(&[0]);
                a.mode = Some(QuotaMode::Advisory);
            },
            |a| {
                a.part_of = part_of(&[0]);
                a.overdraft_max = CoreMillis(1);
            },
            |a| _ = a.at_most.insert(SiteId::from_bytes([1; 32]), Share::ZERO),
        ];
        for (index, change) in bad.into_iter().enumerate() {
            assert!(with(change).is_err(), "{index}");
        }
        let mut heavy = valid();
        heavy.split.insert(SiteId::from_bytes([2; 32]), u64::MAX);
        assert!(heavy.validate().is_err());
    }
}
