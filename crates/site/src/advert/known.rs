//! What a broker here knows of the members of a VO: what they have published last, and of this site how it is now.
//!
//! Invariant: each member is named once, also one that says nothing; what is free of its classes is of the same
//! advert as all else.

use std::sync::Arc;

use fairmesh_broker::Known;
use fairmesh_model::{Now, SiteId, VoId};

use super::Advert;
use crate::vo::Vo;
use crate::vos::Vos;

impl Vos {
    /// The member sites of a VO, each with what it has said last of its free CPUs; of this site as it is now.
    pub(crate) fn adverts(
        &self,
        own: SiteId,
        vo: VoId,
    ) -> impl Iterator<Item = (SiteId, Option<&Advert>)> {
        let held = self.get(&vo).into_iter();
        held.flat_map(move |held| {
            let members = held
                .charter()
                .into_iter()
                .flat_map(|charter| &charter.sites);
            members.map(move |member| (member.site, advert_from(own, held, member.site)))
        })
    }

    /// What a broker makes of an advert of a site. The VO comes with its name, so that it is written out once for all
    /// sites.
    pub(crate) fn known_by(
        &self,
        own: SiteId,
        now: Now,
        (vo, vo_name): (VoId, &Arc<str>),
        site: SiteId,
        advert: &Advert,
    ) -> Known {
        let name = self
            .site_name_in(vo, site)
            .map_or_else(|| site.to_string(), str::to_owned);
        let mut view = advert.view(name, vo_name, now);
        let held = self.get(&vo);
        if let Some((machines, free)) = held.and_then(|of| of.published.machines(site, advert)) {
            view.spec = machines.slowest().unwrap_or_default();
            (view.machines, view.classes) = (Some(machines), free);
        }
        Known {
            known_at: advert.at,
            own: site == own,
            view,
            utility: None,
        }
    }

    /// The name of a site in the charter of a VO: no other VO's says what it is called there.
    pub(crate) fn site_name_in(&self, vo: VoId, site: SiteId) -> Option<&str> {
        let member = self.get(&vo)?.charter()?.member(site)?;
        Some(member.name.as_str())
    }
}

fn advert_from(own: SiteId, held: &Vo, site: SiteId) -> Option<&Advert> {
    match site == own {
        true => held.advert.live.as_ref(),
        false => held.published.advert(site),
    }
}
