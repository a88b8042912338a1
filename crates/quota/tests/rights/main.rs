//! Rights, alone and in a Grid whose messages are lost, repeated and late, and whose disks are torn, restored
//! and wiped.

mod claims;
mod grid;
#[cfg(feature = "mutants")]
mod mutants;
mod passing;
mod play;
mod prices;
mod properties;
mod worked;

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{
    AccountPath, Allocation, AllocationSlice, CoreMillis, Factor, Importance, Incarnation, JobKey,
    PartOf, Role, Signed, SigningKey, SiteId, Verified, VoId, WallTime,
};
use fairmesh_quota::{GrantError, Grants, HoldRequest, Ledger, SliceId};

fn site(number: u8) -> SiteId {
    SiteId::from_bytes([number; 32])
}

fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).expect("valid")
}

/// Credit of `/P-A1` for everybody below it.
fn allocation(slices: Vec<AllocationSlice>, split: &[u64]) -> Allocation {
    Allocation::new(
        VoId::from_bytes([7; 32]),
        path("/P-A1"),
        WallTime(1)..WallTime(u64::MAX),
        slices,
        (0..).map(site).zip(split.iter().copied()).collect(),
    )
}

fn slice(amount: u64, start: u64, end: u64) -> AllocationSlice {
    AllocationSlice {
        amount: CoreMillis(amount),
        start: WallTime(start),
        end: WallTime(end),
    }
}

fn verified(body: Allocation) -> Verified<Allocation> {
    let key = SigningKey::from_secret(&[9; 32]);
    let role = Role::single(key.key_id());
    let signed = Signed::sign(body, &[&key]).expect("a valid allocation");
    signed.verify(&[&role]).expect("signed by its role")
}

/// The allocations in force, and the slices of all of them.
fn grants(bodies: Vec<Allocation>) -> (Grants, Vec<SliceId>) {
    let mut grants = Grants::default();
    let documents: Vec<_> = bodies.into_iter().map(verified).collect();
    for document in &documents {
        grants.adopt(document).expect("nothing else is in force");
    }
    let slices = documents.iter().flat_map(|document| {
        let allocation = document.hash().into();
        let places = (0..).zip(&document.body().slices);
        places.map(move |(index, _)| SliceId { allocation, index })
    });
    (grants, slices.collect())
}

/// So many hundredths of each slice of an allocation, at least 1, for `/P-A1/U-A11`; split the other way round.
fn part(whole: &Allocation, percent: u64) -> Allocation {
    let slices = whole.slices.iter().map(|slice| AllocationSlice {
        amount: CoreMillis((slice.amount.0 * percent / 100).max(1)),
        ..*slice
    });
    let (sites, weights): (Vec<_>, Vec<_>) = whole.split.clone().into_iter().unzip();
    Allocation {
        path: path("/P-A1/U-A11"),
        slices: slices.collect(),
        split: sites.into_iter().zip(weights.into_iter().rev()).collect(),
        part_of: Some(PartOf {
            allocation: verified(whole.clone()).hash().into(),
            slices: (0..).zip(&whole.slices).map(|(place, _)| place).collect(),
        }),
        ..whole.clone()
    }
}

fn job(number: u8) -> JobKey {
    JobKey {
        cluster: "c".to_owned(),
        job: number.to_string(),
        instance: 0,
    }
}

/// A job of a member of `/P-A1` that may cost `charge`.
fn request(number: u8, charge: u64) -> HoldRequest {
    HoldRequest {
        job: job(number),
        user: path("/P-A1/U-A11"),
        account: None,
        charge: CoreMillis(charge),
        price: Factor::ONE,
        least: Factor::from_millionths(500_000),
        importance: Importance::default(),
        until: WallTime(u64::MAX),
        owner: None,
        is_exempt: false,
        may_wait: false,
        is_idle: false,
    }
}

fn members(count: u8) -> BTreeSet<SiteId> {
    (0..count).map(site).collect()
}

type Rows = BTreeMap<SliceId, fairmesh_quota::Row>;

/// Receives a head where nobody else can be asked whether he holds it, too.
fn receive(
    ledger: &mut Ledger,
    from: SiteId,
    incarnation: u64,
    rows: impl IntoIterator<Item = (SliceId, fairmesh_quota::Row)>,
) {
    ledger.receive(from, Incarnation(incarnation), rows);
    let offers = ledger.unconfirmed();
    offers.iter().for_each(|offer| ledger.confirm(offer));
}
