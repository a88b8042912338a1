//! What running jobs are still expected to use: one register per site.
//!
//! Predictions shrink, so they are no counters. Lattice: per site the maximum of (incarnation,
//! version, hash), the last writer wins, and only the site writes. Sheets of silent sites are
//! dropped by the caller, who knows the time; the version stays, so that a peer who has not noticed
//! the silence yet cannot bring the same sheet back.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, ContentHash, CoreMillis, InFlightSheet, Incarnation, SiteId, Verified, VoId,
};

#[derive(Debug, Clone)]
struct Register {
    version: (Incarnation, u64, ContentHash),
    sheet: Option<Arc<Verified<InFlightSheet>>>,
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
        if sheet.vo() != self.vo || known.is_some_and(|known| known.version >= version) {
            return None;
        }
        let old = known
            .and_then(|known| known.sheet.as_ref())
            .map_or(&[][..], |old| &old.body().rows);
        let changes = differences(old, &body.rows);
        self.registers.insert(
            body.site,
            Register {
                version,
                sheet: Some(sheet.clone()),
            },
        );
        Some(changes)
    }

    /// Drops the sheet of a site that has fallen silent; only a newer one brings it back.
    pub fn drop_sheet(&mut self, site: SiteId) -> Vec<(AccountPath, i128)> {
        let dropped = self
            .registers
            .get_mut(&site)
            .and_then(|register| register.sheet.take());
        dropped.map_or_else(Vec::new, |old| differences(&old.body().rows, &[]))
    }

    /// The sheet of a site.
    pub fn sheet(&self, site: SiteId) -> Option<&Arc<Verified<InFlightSheet>>> {
        self.registers.get(&site)?.sheet.as_ref()
    }

    /// All sheets, by site.
    pub fn sheets(&self) -> impl Iterator<Item = &Arc<Verified<InFlightSheet>>> {
        self.registers
            .values()
            .filter_map(|register| register.sheet.as_ref())
    }

    /// The newest version known of each site, dropped or not: the digest that peers compare.
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
    use fairmesh_model::{Role, Signed, SigningKey, WallTime};

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

        let site = shrunk.body().site;
        assert_eq!(
            register.drop_sheet(site),
            vec![(path("/a"), -3), (path("/b"), -4)]
        );
        assert_eq!(register.offer_sheet(shrunk), None);
        assert!(register.offer_sheet(sheet(2, 2, &[("/a", 1)])).is_some());
    }

    #[test]
    fn a_sheet_of_another_vo_is_not_taken() {
        let mut register = InFlight::new(VoId::from_bytes([2; 32]));
        assert_eq!(register.offer_sheet(sheet(1, 1, &[])), None);
    }
}
