//! Where a job could go, as this site knows: its own machines as they are now, others' as they have told.
//!
//! Invariant: only sites are named that take forwarded jobs of the VO, and can be reached; what was sent to them since
//! they told is counted.

use std::sync::Arc;

use fairmesh_broker::engine::Engine;
use fairmesh_broker::forward::Place;
use fairmesh_broker::utility::ONE;
use fairmesh_broker::weigh::weigh;
use fairmesh_broker::{Verdict, judge};
use fairmesh_model::{Now, SiteId, VoId};

use super::offer::JobRequest;
use crate::advert::own::AdvertHandler;
use crate::advert::part::Advert;
use crate::forward::handler::ForwardHandler;

impl ForwardHandler<'_> {
    /// Places for a job, this site among them where it takes jobs.
    pub(super) fn places(&mut self, now: Now, job: &JobRequest) -> Vec<Place> {
        // The owner may have left the VO since the job came.
        if !self.vos.contains_key(&job.vo) {
            return Vec::new();
        }
        AdvertHandler::new(self.cx, self.own, self.vos, self.sources).renew_advert(now, job.vo);
        let connected: Vec<SiteId> = self.gossip.peers().collect();
        let wishes = job.wishes().ok().flatten();
        let name: Arc<str> = job.vo.to_string().into();
        let request = job.request(&name);
        let place = |(site, advert): (SiteId, Option<&Advert>)| {
            let advert = advert.filter(|advert| advert.takes)?;
            if site != self.cx.id && !connected.contains(&site) {
                return None;
            }
            let mut known = self
                .vos
                .known_by(self.cx.id, now, (job.vo, &name), site, advert);
            let wished = wishes.as_ref().map(|wishes| (wishes, job.normalised));
            let best = weigh(&mut known, &request, wished);
            let class = known.view.machines.as_ref().zip(best);
            let class = class.map(|(machines, best)| machines.class(best).0.to_owned());
            let sent = self.forward.sent_since(site, advert.at);
            let view = known.view.with_sent(&name, sent);
            let silence = Some(self.cx.config.timing.silence);
            let waits = match judge(Engine::default(), &view, &request, silence) {
                Verdict::Now { .. } => false,
                Verdict::Wait { .. } => true,
                Verdict::No(_) => return None,
            };
            let held = view
                .total
                .saturating_sub(view.idle())
                .saturating_add(view.waiting);
            let load = u128::from(held) * u128::from(ONE) / u128::from(view.total.max(1));
            Some(Place {
                site: site.to_string(),
                class: class.unwrap_or_default(),
                utility: known.utility.unwrap_or(ONE),
                load: u64::try_from(load).unwrap_or(u64::MAX),
                waits,
            })
        };
        self.vos
            .adverts(self.cx.id, job.vo)
            .filter_map(place)
            .collect()
    }

    /// The class that a sender wants for a job, if it is still free here.
    pub(super) fn wanted_free(
        &self,
        (vo, job): (VoId, &JobRequest),
        wanted: &str,
        places: &[Place],
    ) -> Option<String> {
        let own = self.cx.id.to_string();
        let could_start = |place: &&Place| place.site == own && !place.waits;
        places.iter().find(could_start)?;
        let free = self.vos.get(&vo)?.advert.live()?;
        let is_free = match free.classes.get(wanted) {
            Some(free) => *free >= u64::from(job.cpus),
            // Of which machines are free it knows nothing, but that some are. Others name no class but its own.
            None => {
                let own = &self.cx.config.charging.prices.machines;
                wanted.is_empty() || (free.classes.is_empty() && own.contains_key(wanted))
            }
        };
        is_free.then(|| wanted.to_owned())
    }
}
