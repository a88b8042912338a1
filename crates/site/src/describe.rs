//! What a site says of its machines, queues and price, in the heads of all its VOs.
//!
//! Invariant: it is what the configuration in force says, and the price that a hold would have now. Deliberately not
//! here: its form (`kinds`).

use fairmesh_model::{VoId, mutated};

use crate::kinds::{DESCRIPTION, Description, description_parts};
use crate::site::Site;

impl Site {
    /// Says in every VO's next head what the site's machines cost.
    pub(crate) fn describe_all(&mut self) {
        let vos = self.vos.ids().into_iter();
        vos.for_each(|vo| self.describe(vo));
    }

    pub(crate) fn describe(&mut self, vo: VoId) {
        let charging = &self.cx.config.charging;
        let held = self.vos.get_mut(&vo);
        let posted = held.and_then(|held| {
            held.quota.described = held.quota.posted();
            held.quota.described
        });
        let hosts = charging.hosts.iter().filter(|_| !mutated!(HostsUnsaid));
        let description = Description {
            prices: charging.prices.clone(),
            hosts: hosts
                .map(|(hosts, class)| (hosts.text(), class.clone()))
                .collect(),
            price: posted.map(|posted| (posted.price, posted.since)),
        };
        let parts = description_parts(&description);
        self.own.set_parts(vo, DESCRIPTION, parts);
    }
}
