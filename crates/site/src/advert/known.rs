//! What a broker here knows of the members of a VO: what they have published last, and of this site how it is now.
//!
//! Invariant: each member is named once, also one that says nothing; what is free of its classes is of the same advert as
//! all else.

use std::sync::Arc;

use fairmesh_broker::Known;
use fairmesh_model::{Millis, Now, SiteId, VoId};

use super::Advert;
use crate::site::Site;
use crate::vo::Vo;

impl Site {
    /// The member sites of a VO, each with what it has said last of its free CPUs; of this site as it is now.
    pub fn adverts(&self, vo: VoId) -> impl Iterator<Item = (SiteId, Option<&Advert>)> {
        let held = self.vos.get(&vo).into_iter();
        held.flat_map(move |held| {
            let members = held
                .charter()
                .into_iter()
                .flat_map(|charter| &charter.sites);
            members.map(move |member| (member.site, self.advert_from(held, member.site)))
        })
    }

    fn advert_from<'a>(&self, held: &'a Vo, site: SiteId) -> Option<&'a Advert> {
        match site == self.cx.id {
            true => held.advert.live.as_ref(),
            false => held.published.advert(site),
        }
    }

    /// What a broker of a VO's jobs here knows of each member; `None` of one that says nothing. The VO's name
    /// in views is its id.
    pub fn known_sites(&self, now: Now, vo: VoId) -> Vec<(SiteId, Option<Known>)> {
        let adverts = self.adverts(vo);
        let named = (vo, &vo.to_string().into());
        let known = adverts.map(|(site, advert)| {
            let known = advert.map(|advert| self.known_by(now, named, site, advert));
            (site, known)
        });
        known.collect()
    }

    /// After which a site of which nothing is heard is silent.
    pub fn silence(&self) -> Millis {
        self.cx.config.timing.silence
    }

    /// Whether the owner lets VOs know what is free.
    pub fn tells_what_is_free(&self) -> bool {
        self.cx.config.advert.is_some()
    }

    /// What a broker makes of an advert of a site. The VO comes with its name, so that it is written out once for all sites.
    pub fn known_by(
        &self,
        now: Now,
        (vo, vo_name): (VoId, &Arc<str>),
        site: SiteId,
        advert: &Advert,
    ) -> Known {
        let name = self
            .site_name_in(vo, site)
            .map_or_else(|| site.to_string(), str::to_owned);
        let mut view = advert.view(name, vo_name, now);
        let held = self.vos.get(&vo);
        if let Some((machines, free)) = held.and_then(|of| of.published.machines(site, advert)) {
            view.spec = machines.slowest().unwrap_or_default();
            (view.machines, view.classes) = (Some(machines), free);
        }
        Known {
            known_at: advert.at,
            own: site == self.cx.id,
            view,
            utility: None,
        }
    }
}
