//! What running jobs are still expected to use: one register per site.
//!
//! Predictions shrink, so they are no counters. Lattice: per site the maximum of (incarnation,
//! version, hash), the last writer wins, and only the site writes.
//!
//! Sheets of silent sites do not count. They stay: the caller, who knows the time, may have been
//! wrong about it, and nodes that hold the same sheets must come to count the same ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, ContentHash, CoreMillis, InFlightSheet, Incarnation, SiteId, Verified, VoId,
    WallTime, mutated,
};

#[derive(Debug, Clone)]
struct Register {
    version: (Incarnation, u64, ContentHash),
    sheet: Arc<Verified<InFlightSheet>>,
    counts: bool,
}

impl Register {
    fn counted_rows(&self) -> &[(AccountPath, CoreMillis)] {
        if self.counts {
            &self.sheet.body().rows
        } else {
            &[]
        }
    }
}

/// The in-flight sheets of one VO.
#[derive(Debug, Clone)]
pub struct InFlight {
    vo: VoId,
    registers: BTreeMap<SiteId, Register>,
}

impl InFlight {
    /// No sheet of any site.
    pub fn new(vo: VoId) -> Self {
        Self {
            vo,
            registers: BTreeMap::new(),
        }
    }

    /// Takes a sheet, if it is newer than what is known of its site, and says by how much the
    /// expected charge of each account changed. `None` where it is not newer or of another VO.
    pub fn offer_sheet(
        &mut self,
        sheet: Arc<Verified<InFlightSheet>>,
    ) -> Option<Vec<(AccountPath, i128)>> {
        let body = sheet.body();
        let version = (body.incarnation, body.version, sheet.hash());
        let known = self.registers.get(&body.site);
        if sheet.vo() != self.vo
            || known.is_some_and(|known| known.version >= version && !mutated!(OldRunningWins))
        {
            return None;
        }
        let old = known.map_or(&[][..], Register::counted_rows);
        let changes = differences(old, &body.rows);
        self.registers.insert(
            body.site,
            Register {
                version,
                sheet: sheet.clone(),
                counts: true,
            },
        );
        Some(changes)
    }

    /// Counts the sheets signed at `since` or later, and no others. Returns the changes of expected
    /// charge by site.
    pub fn count_since(&mut self, since: WallTime) -> Vec<(SiteId, Vec<(AccountPath, i128)>)> {
        let mut changes = Vec::new();
        for (site, register) in &mut self.registers {
            let body = register.sheet.body();
            let counts = body.at >= since || mutated!(SilentRunForEver);
            if counts == register.counts {
                continue;
            }
            register.counts = counts;
            let change = if counts {
                differences(&[], &body.rows)
            } else {
                differences(&body.rows, &[])
            };
            changes.push((*site, change));
        }
        changes
    }

    /// Lets go of the sheet of a site that counts no more.
    pub fn drop_site(&mut self, site: SiteId) {
        self.registers.remove(&site);
    }

    /// The sheet of a site.
    pub fn sheet(&self, site: SiteId) -> Option<&Arc<Verified<InFlightSheet>>> {
        Some(&self.registers.get(&site)?.sheet)
    }

    /// All sheets, by site, those of silent sites among them.
    pub fn sheets(&self) -> impl Iterator<Item = &Arc<Verified<InFlightSheet>>> {
        self.registers.values().map(|register| &register.sheet)
    }

    /// What is expected of each site whose sheet counts.
    pub fn counted(&self) -> impl Iterator<Item = (SiteId, &[(AccountPath, CoreMillis)])> {
        let counts = self.registers.iter().filter(|(_, held)| held.counts);
        counts.map(|(site, held)| (*site, held.counted_rows()))
    }

    /// The newest version known of each site: the digest that peers compare.
    pub fn versions(&self) -> BTreeMap<SiteId, (Incarnation, u64)> {
        let version = |register: &Register| (register.version.0, register.version.1);
        self.registers
            .iter()
            .map(|(site, register)| (*site, version(register)))
            .collect()
    }

    /// Sheets that a peer with `versions` lacks.
    pub fn newer_than(
        &self,
        versions: &BTreeMap<SiteId, (Incarnation, u64)>,
    ) -> Vec<Arc<Verified<InFlightSheet>>> {
        let newer = |sheet: &&Arc<Verified<InFlightSheet>>| {
            let body = sheet.body();
            versions
                .get(&body.site)
                .is_none_or(|known| *known < (body.incarnation, body.version))
        };
        self.sheets().filter(newer).cloned().collect()
    }
}

/// Account by account, new minus old, without zeros, ascending.
fn differences(
    old: &[(AccountPath, CoreMillis)],
    new: &[(AccountPath, CoreMillis)],
) -> Vec<(AccountPath, i128)> {
    let mut sums: BTreeMap<&AccountPath, i128> = BTreeMap::new();
    for (path, charge) in new {
        *sums.entry(path).or_default() += i128::from(charge.0);
    }
    for (path, charge) in old {
        *sums.entry(path).or_default() -= i128::from(charge.0);
    }
    sums.into_iter()
        .filter(|(_, change)| *change != 0)
        .map(|(path, change)| (path.clone(), change))
        .collect()
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{Role, Signed, SigningKey};

    use super::*;

    fn sheet(incarnation: u64, version: u64, rows: &[(&str, u64)]) -> Arc<Verified<InFlightSheet>> {
        let key = SigningKey::from_secret(&[7; 32]);
        let rows = rows
            .iter()
            .map(|(path, ms)| (AccountPath::parse(path).expect("valid"), CoreMillis(*ms)));
        let body = InFlightSheet {
            vo: VoId::from_bytes([1; 32]),
            site: key.site_id(),
            incarnation: Incarnation(incarnation),
            version,
            at: WallTime(0),
            rows: rows.collect(),
        };
        let role = Role::single(key.site_id());
        Arc::new(
            Signed::sign(body, &[&key])
                .and_then(|signed| signed.verify(&[&role]))
                .expect("verifies"),
        )
    }

    #[test]
    fn the_newest_version_of_the_newest_life_replaces_all_others() {
        let path = |text| AccountPath::parse(text).expect("valid");
        let mut register = InFlight::new(VoId::from_bytes([1; 32]));
        let first = sheet(1, 5, &[("/a", 10), ("/b", 4)]);
        assert_eq!(
            register.offer_sheet(first.clone()),
            Some(vec![(path("/a"), 10), (path("/b"), 4)])
        );
        let shrunk = sheet(2, 1, &[("/a", 3), ("/b", 4)]);
        assert_eq!(
            register.newer_than(&BTreeMap::new()).as_slice(),
            std::slice::from_ref(&first)
        );
        assert_eq!(
            register.offer_sheet(shrunk.clone()),
            Some(vec![(path("/a"), -7)])
        );
        assert_eq!(register.offer_sheet(first), None);
        assert_eq!(register.newer_than(&register.versions()), []);

        assert_eq!(register.offer_sheet(shrunk), None);
    }

    #[test]
    fn a_sheet_that_is_too_old_counts_again_when_the_clock_is_set_right() {
        let path = |text| AccountPath::parse(text).expect("valid");
        let mut register = InFlight::new(VoId::from_bytes([1; 32]));
        let held = sheet(1, 1, &[("/a", 3), ("/b", 4)]);
        let site = held.body().site;
        register.offer_sheet(held).expect("is new");
        let (fell, rose) = (
            vec![(path("/a"), -3), (path("/b"), -4)],
            vec![(path("/a"), 3), (path("/b"), 4)],
        );
        assert_eq!(register.count_since(WallTime(0)), []);
        assert_eq!(register.count_since(WallTime(1)), [(site, fell)]);
        assert_eq!(register.counted().count(), 0);
        assert_eq!(register.count_since(WallTime(1)), []);
        assert_eq!(register.count_since(WallTime(0)), [(site, rose)]);
        register.count_since(WallTime(1));
        assert_eq!(
            register.offer_sheet(sheet(1, 2, &[("/a", 1)])),
            Some(vec![(path("/a"), 1)]),
            "what did not count is not taken back"
        );
    }

    #[test]
    fn a_sheet_of_another_vo_is_not_taken() {
        let mut register = InFlight::new(VoId::from_bytes([2; 32]));
        assert_eq!(register.offer_sheet(sheet(1, 1, &[])), None);
    }
}
