//! `GET /v1/sites?vo=`: how the sites of a VO stand, in the form that brokers take from files.
//!
//! Invariant: what is written is read by `fairmesh place --grid` as the same view, but for ages, which are rounded up.

use axum::response::IntoResponse;
use fairmesh_api::{GridDiskBody, GridSiteBody, GridStandingBody, SitesBody};
use fairmesh_broker::disk::DiskRoom;
use fairmesh_broker::{Sign, SiteView, Standing};
use fairmesh_model::{Now, Share, clean};
use fairmesh_site::Site;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::State;
use super::error::ApiError;
use super::extract::Params;
use super::rests_on::answer;
use super::usage::find_vo;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    vo: String,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let known = move |site: &Site, now: Now| sites(site, now, &query.vo);
    let (rests_on, sites) = shared.ask(known).await?;
    Ok(answer("sites", rests_on, sites))
}

fn sites(site: &Site, now: Now, wanted: &str) -> Result<SitesBody, ApiError> {
    let vo = find_vo(site, now, wanted)?;
    let known = site.known_sites(now, vo).into_iter();
    let views = known.filter_map(|(_, known)| Some(known?.view));
    Ok(SitesBody {
        silence_s: site.silence().0.div_ceil(1_000),
        sites: views.map(|view| body(&view, wanted)).collect(),
    })
}

fn body(view: &SiteView, vo: &str) -> GridSiteBody {
    let standings = view.vos.values();
    GridSiteBody {
        name: clean(&view.name),
        total: view.total,
        free: view.free,
        waiting: view.waiting,
        vos: standings.map(|of| (vo.to_owned(), standing(of))).collect(),
        wait_s: view.wait.map(|wait| wait.0.div_ceil(1_000)),
        spec: number(view.spec.to_string()),
        age_s: view.age.map(|age| age.0.div_ceil(1_000)),
    }
}

fn standing(of: &Standing) -> GridStandingBody {
    let percent = |units: u64| {
        let one = u64::from(Share::ONE) / 100;
        number(format!("{}.{:07}", units / one, units % one))
    };
    GridStandingBody {
        epoch_used: percent(of.epoch_used),
        epoch_share: percent(of.epoch_share.units().into()),
        burst_used: of.burst_used,
        burst_limit: of.burst_limit,
        extensible: of.extensible,
        sign: match of.sign {
            Sign::AtMost => "limit",
            Sign::Target => "target",
            Sign::AtLeast => "guarantee",
        },
        waiting: of.waiting,
        over_s: of.over_for.map(|over| over.0 / 1_000),
        disk: (of.disk != DiskRoom::default()).then_some(GridDiskBody {
            quota_mib: of.disk.quota_mib,
            share_mib: of.disk.share_mib,
            staged_mib: of.disk.staged_mib,
        }),
    }
}

fn number(digits: String) -> Box<RawValue> {
    RawValue::from_string(digits).expect("digits with a point are a JSON number")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fairmesh_api::Grid;
    use fairmesh_model::{Factor, Millis};

    use super::*;

    #[test]
    fn a_view_is_read_back_by_who_reads_files() {
        let standing = Standing {
            epoch_used: 123_456_789,
            epoch_share: Share::from_units(1).expect("a share"),
            sign: Sign::AtLeast,
            burst_used: 3,
            burst_limit: 4,
            extensible: true,
            waiting: 5,
            over_for: Some(Millis(9_000)),
            disk: DiskRoom {
                quota_mib: None,
                share_mib: Some(10),
                staged_mib: 4,
                reserved_mib: 0,
            },
        };
        let view = SiteView {
            name: "s".to_owned(),
            total: 40,
            free: Some(30),
            waiting: 6,
            vos: BTreeMap::from([("physics".into(), standing.into())]),
            wait: Some(Millis(7_000)),
            spec: Factor::from_millionths(1_250_000),
            age: Some(Millis(7_001)),
            ..SiteView::default()
        };
        let sites = SitesBody {
            silence_s: 1,
            sites: vec![body(&view, "physics")],
        };
        let text = serde_json::to_string(&sites).expect("plain data");
        let text = text.replace("\"silence_s\":1,", "");
        let read = Grid::parse(&text, "test").expect("a GRID.json");
        let aged = SiteView {
            age: Some(Millis(8_000)),
            ..view
        };
        assert_eq!(read.sites, [aged]);
    }
}
