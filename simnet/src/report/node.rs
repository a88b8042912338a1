//! One node's state as JSON.
//!
//! Invariant: what is written is what the node holds, in an order that does not change from run to
//! run; keys of sites are their numbers where they have one.
//!
//! Deliberately not here: counters cell by cell, and documents' contents; hashes tell them apart.

use serde_json::{Value, json};

use fairmesh_model::{SiteId, VoId};
use fairmesh_site::{Site, Table, VoStatus};

use crate::world::World;

/// The state of a node.
pub fn node_state(world: &World, index: usize) -> Value {
    let node = world.node(index);
    let now = world.now_at(index);
    let tables: serde_json::Map<String, Value> = Table::ALL
        .iter()
        .map(|table| (format!("{table:?}"), node.disk.count_rows(*table).into()))
        .collect();
    let notices: Vec<Value> = node
        .notices
        .iter()
        .map(|notice| json!({ "code": notice.code(), "text": notice.to_string() }))
        .collect();
    json!({
        "node": index,
        "site": node.id.to_string(),
        "stopped": node.stopped().map(|why| format!("{why:?}")),
        "life": node.life(),
        "clock_ahead_ms": node.clock.ahead_ms(world.now()),
        "peers": world.peers_of(index).collect::<Vec<_>>(),
        "disk": {
            "rows": tables,
            "set_aside": node.disk.set_aside(),
            "is_filling": node.disk.is_filling(),
            "floor": node.disk.side().map(|side| side.incarnation_floor.0.to_string()),
            "journal_bytes": node.disk.journal_bytes(),
        },
        "verdicts": format!("{:?}", node.verdicts),
        "notices": notices,
        "vos": node.site().map(|site| vos(world, site, now)),
    })
}

fn vos(world: &World, site: &Site, now: fairmesh_model::Now) -> Vec<Value> {
    let statuses = site.vo_status(now);
    let state = |status: &VoStatus| {
        let vo = status.vo;
        let streams: serde_json::Map<String, Value> = status
            .held
            .heads
            .iter()
            .map(|(stream, seq)| {
                let of = name(world, stream.site);
                (format!("{of} {}", stream.incarnation.0), seq.0.into())
            })
            .collect();
        let signed: serde_json::Map<String, Value> = status
            .coverage
            .signed_at
            .iter()
            .map(|(of, at)| (name(world, *of), now.wall.since(*at).0.into()))
            .collect();
        json!({
            "vo": vo.to_string(),
            "name": status.name,
            "charter_version": status.held.charter_version,
            "documents": status.held.documents.map(|hash| hash.to_string()),
            "counters": status.held.counters.map(|hash| hash.to_string()),
            "view": site.view_digest(vo).map(|hash| hash.to_string()),
            "vector": streams,
            "signed_ms_ago": signed,
            "sites_known": status.coverage.sites_known,
            "sites_total": status.coverage.sites_total,
            "charge_core_ms": charge(site, vo),
            "warnings": status.warnings,
        })
    };
    statuses.iter().map(state).collect()
}

fn charge(site: &Site, vo: VoId) -> u64 {
    let by_account = site.usage_by_account(Some(vo));
    by_account.values().map(|counters| counters.charge).sum()
}

fn name(world: &World, site: SiteId) -> String {
    let index = world.index_of(site);
    index.map_or_else(|| site.to_string(), |index| format!("site {index}"))
}
