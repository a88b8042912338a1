//! What a site says about its machines and queues, in its own name.
//!
//! With it, the VO's charter and a job's record anybody can compute the charge again
//! (`fairmesh_fairshare::charge`) and compare. Invariant: what is signed is what jobs are charged by
//! from now on. Deliberately not here: how the description travels.

use fairmesh_model::{Now, Signed, SiteDescription, VoId};

use crate::site::Site;

impl Site {
    /// The price list that jobs of `vo` are charged by here, signed by this site. `version` is above
    /// that of every description that the site has signed for the VO.
    ///
    /// # Panics
    /// If the price list is not valid: configurations are checked before they get here.
    pub fn describe(&self, now: Now, vo: VoId, version: u64) -> Signed<SiteDescription> {
        let description = SiteDescription {
            vo,
            site: self.id,
            version,
            at: now.wall,
            prices: (*self.config.charging.prices).clone(),
        };
        Signed::sign(description, &[&self.key]).expect("a configuration's prices are valid")
    }
}
