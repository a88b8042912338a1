//! `GET /v1/prices[?vo=][&site=]`: what each site's machines and queues cost, as it has signed.
//!
//! Invariant: all that is told was signed by the site that it speaks of, this one among them.

use axum::response::IntoResponse;
use fairmesh_api::words::is_id;
use fairmesh_api::{HostsBody, MachineBody, PricesBody, QosBody, QueueBody, SitePricesBody};
use fairmesh_model::{Now, SiteId, VoId, clean};
use fairmesh_site::Site;
use serde::Deserialize;

use super::State;
use super::error::ApiError;
use super::extract::Params;
use super::rests_on::{answer, site_name};
use super::text::all_clean;
use super::usage::find_vos;

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
    let sites = move |site: &Site, now: Now| listed(site, now, &query);
    let (rests_on, sites) = shared.ask(sites).await?;
    // A site may have thousands of words.
    let bodies = |site: &Site, _, some: &mut dyn Iterator<Item = Listed>| {
        some.filter_map(|of| body(site, of)).collect()
    };
    let sites = shared.node().ask_of_each(sites, bodies).await?;
    Ok(answer("prices", rests_on, PricesBody { sites }))
}

/// A VO and its name, a site, and when that signed what it says of its machines.
type Listed = ((VoId, Option<String>), SiteId, u64);

fn listed(site: &Site, now: Now, query: &Query) -> Result<Vec<Listed>, ApiError> {
    let vos = find_vos(site, now, query.vo.as_deref())?;
    let wanted = query.site.as_deref();
    let wanted = wanted.map(|wanted| find_site(site, wanted)).transpose()?;
    let told = vos.into_iter().flat_map(|vo| {
        let signed_at = site.coverage_of(vo.0).signed_at;
        let of_vo = site.descriptions(vo.0);
        let of_vo = of_vo.filter(|(of, _)| wanted.is_none_or(|wanted| wanted == *of));
        of_vo.map(move |(of, _)| (vo.clone(), of, signed_at.get(&of).map_or(0, |at| at.0)))
    });
    Ok(told.collect())
}

/// The site that `wanted` names: its name in a charter, its id, or the beginning of one.
pub(super) fn find_site(site: &Site, wanted: &str) -> Result<SiteId, ApiError> {
    let others = site.peers().into_iter().map(|peer| peer.site);
    let all: Vec<SiteId> = others.chain([site.id()]).collect();
    let is_meant =
        |id: &&SiteId| is_id(&id.to_string(), wanted) || site.site_name(**id) == Some(wanted);
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

fn body(site: &Site, ((vo, vo_name), of, signed_ms): Listed) -> Option<SitePricesBody> {
    let (_, said) = site.descriptions(vo).find(|(site, _)| *site == of)?;
    let machines = said.prices.machines.iter();
    let queues = said.prices.queues.iter();
    let qos = said.prices.qos.iter();
    Some(SitePricesBody {
        vo: vo.to_string(),
        vo_name,
        site: of.to_string(),
        name: site_name(site, of),
        signed_ms,
        machines: machines
            .map(|(class, machine)| MachineBody {
                class: clean(class),
                count: machine.count,
                cpus: machine.cpus,
                mem_mib: machine.mem_mib,
                gpus: machine.gpus,
                disk_mib: machine.disk_mib,
                spec: machine.spec.to_string(),
                properties: all_clean(&machine.properties),
                queues: all_clean(&machine.queues),
            })
            .collect(),
        queues: queues
            .map(|(queue, cost)| QueueBody {
                queue: clean(queue),
                cost: cost.to_string(),
            })
            .collect(),
        qos: qos
            .map(|(qos, cost)| QosBody {
                qos: clean(qos),
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
    })
}
