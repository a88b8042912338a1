//! What a site says of its machines, queues and price, in the heads of all its VOs.
//!
//! Invariant: it is what the configuration in force says, and the price that a hold would have now. Deliberately not
//! here: its form (`kinds`).

use fairmesh_model::{VoId, mutated};

use crate::config::SiteConfig;
use crate::kinds::{DESCRIPTION, Description, description_parts};
use crate::parts::{Own, Vos};

/// Puts into the next head of every VO what the site's machines cost.
pub(crate) fn describe_all(config: &SiteConfig, own: &mut Own, vos: &mut Vos) {
    for vo in vos.ids() {
        describe(config, own, vos, vo);
    }
}

/// Puts it into the next head of one VO.
pub(crate) fn describe(config: &SiteConfig, own: &mut Own, vos: &mut Vos, vo: VoId) {
    let charging = &config.charging;
    let posted = vos.get_mut(&vo).and_then(|held| {
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
    own.set_parts(vo, DESCRIPTION, description_parts(&description));
}
