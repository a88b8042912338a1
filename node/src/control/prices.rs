//! `GET /v1/prices[?vo=][&site=]`: what each site's machines and queues cost, as it has signed.
//!
//! Invariant: all that is told was signed by the site that it speaks of, this one among them.

use std::collections::BTreeMap;

use axum::response::IntoResponse;
use fairmesh_model::{Now, SiteId, VoId};
use fairmesh_site::{Description, Site};
use serde::Deserialize;

use super::State;
use super::answer::{HostsBody, MachineBody, PricesBody, QueueBody, SitePricesBody};
use super::error::ApiError;
use super::extract::Params;
use super::rests_on::{answer, rests_on, site_name};
use super::text::clean;
use super::usage::{ID_DIGITS_MIN, find_vos};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    vo: Option<String>,
    site: Option<String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let (rests_on, sites) = shared
        .node()
        .ask(move |site, now| (rests_on(site, now), listed(site, now, &query)))
        .await?;
    Ok(answer("prices", rests_on, PricesBody { sites: sites? }))
}

fn listed(site: &Site, now: Now, query: &Query) -> Result<Vec<SitePricesBody>, ApiError> {
    let vos = match &query.vo {
        Some(wanted) => find_vos(site, now, wanted)?,
        None => site.vo_status(now).iter().map(|of| of.vo).collect(),
    };
    let wanted = query.site.as_deref();
    let wanted = wanted.map(|wanted| find_site(site, wanted)).transpose()?;
    let told = vos.into_iter().flat_map(|vo| {
        let of_vo = site.descriptions(vo);
        of_vo.map(move |(of, description)| (vo, of, description))
    });
    let told = told.filter(|(_, site, _)| wanted.is_none_or(|of| of == *site));
    let names = site.vo_status(now).into_iter();
    let names: BTreeMap<VoId, Option<String>> = names.map(|of| (of.vo, of.name)).collect();
    let named = |(vo, of, description): (VoId, SiteId, &Description)| {
        let vo_name = names.get(&vo).and_then(Option::as_deref);
        body(site, (vo, vo_name.map(clean)), of, description)
    };
    Ok(told.map(named).collect())
}

/// The site that `wanted` names: its name in a charter, its id, or the beginning of one.
pub(super) fn find_site(site: &Site, wanted: &str) -> Result<SiteId, ApiError> {
    let others = site.peers().into_iter().map(|peer| peer.site);
    let all: Vec<SiteId> = others.chain([site.id()]).collect();
    let is_meant = |id: &&SiteId| {
        let by_id = wanted.len() >= ID_DIGITS_MIN && id.to_string().starts_with(wanted);
        by_id || site.site_name(**id) == Some(wanted)
    };
    let found: Vec<&SiteId> = all.iter().filter(is_meant).collect();
    match found[..] {
        [one] => Ok(*one),
        [] => {
            let names = all.iter().filter_map(|id| site_name(site, *id));
            let hint = format!("known here: {}", names.collect::<Vec<_>>().join(", "));
            Err(ApiError::not_found(format!("no site is called `{wanted}`")).hint(hint))
        }
        _ => {
            let ids: Vec<String> = found.iter().map(|id| id.to_string()).collect();
            let hint = format!("name it by its id: {}", ids.join(", "));
            Err(ApiError::not_found(format!("several sites are called `{wanted}`")).hint(hint))
        }
    }
}

fn body(
    site: &Site,
    (vo, vo_name): (VoId, Option<String>),
    of: SiteId,
    said: &Description,
) -> SitePricesBody {
    let machines = said.prices.machines.iter();
    let queues = said.prices.queues.iter();
    SitePricesBody {
        vo: vo.to_string(),
        vo_name,
        site: of.to_string(),
        name: site_name(site, of),
        signed_ms: site.coverage_of(vo).signed_at.get(&of).map_or(0, |at| at.0),
        machines: machines
            .map(|(class, machine)| MachineBody {
                class: clean(class),
                count: machine.count,
                cpus: machine.cpus,
                mem_mib: machine.mem_mib,
                gpus: machine.gpus,
                disk_mib: machine.disk_mib,
                spec: machine.spec.to_string(),
                properties: machine.properties.iter().map(|name| clean(name)).collect(),
                queues: machine.queues.iter().map(|name| clean(name)).collect(),
            })
            .collect(),
        queues: queues
            .map(|(queue, cost)| QueueBody {
                queue: clean(queue),
                cost: cost.to_string(),
            })
            .collect(),
        hosts: said
            .hosts
            .iter()
            .map(|(hosts, class)| HostsBody {
                hosts: clean(hosts),
                class: clean(class),
            })
            .collect(),
    }
}
