//! What a site's machines cost is known to all members, whatever is lost, and nobody else can say it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_gossip::wire::Push;
use fairmesh_model::{Factor, MachineClass, Millis, PriceList, Signed, SiteDescription, WallTime};
use fairmesh_site::{Charging, Event, Pattern, Table};
use serde_bytes::ByteBuf;

use crate::mesh::{CALM, Mesh, ROUGH};
use crate::node::Rows;
use crate::random::with_seeds;
use crate::vo::{self, next_charter, sign_charter, site_id, site_key};

const SETTLE: Millis = Millis::from_secs(40);

/// Longer than a heartbeat, after which a site may speak again, and an exchange.
const NEXT_SETTLE: Millis = Millis::from_secs(120);

/// A price list that differs from others by its number only.
fn prices(number: u32) -> PriceList {
    let class = MachineClass {
        count: 4,
        cpus: 64,
        mem_mib: 1 << 18,
        gpus: 0,
        disk_mib: 0,
        spec: Factor::ONE,
    };
    let cost = Factor::from_millionths(number);
    PriceList {
        machines: BTreeMap::from([("fat".to_owned(), class)]),
        queues: BTreeMap::from([("long".to_owned(), cost)]),
    }
}

/// The owner of a site edits its configuration.
fn charge(mesh: &mut Mesh, node: usize, list: PriceList) {
    let mut config = mesh.config(vo::timing());
    config.charging = Charging {
        hosts: match list.machines.is_empty() {
            true => Vec::new(),
            false => vec![(Pattern::parse("fat-*"), "fat".to_owned())],
        },
        prices: Arc::new(list),
        ..Charging::default()
    };
    mesh.nodes[node].config = config.clone();
    mesh.handle(node, Event::Reconfigured(Box::new(config)));
}

/// Version, prices, patterns of machines' names and their classes.
type Said = (u64, PriceList, Vec<(String, String)>);

/// What a node holds of a site.
fn known(mesh: &Mesh, node: usize, of: usize) -> Option<Said> {
    let mut held = mesh.nodes[node].site.descriptions(mesh.vo);
    let said = held.find(|said| said.body().site == site_id(of))?.body();
    Some((said.version, said.prices.clone(), said.hosts.clone()))
}

fn assert_all_know(mesh: &Mesh, of: usize, version: u64, list: &PriceList) {
    for node in 0..mesh.nodes.len() {
        let (held, prices, hosts) = known(mesh, node, of).expect("told");
        assert_eq!((held, &prices), (version, list), "at node {node}");
        let is_told = hosts == [("fat-*".to_owned(), "fat".to_owned())];
        assert_eq!(is_told, !list.machines.is_empty());
    }
}

#[test]
fn all_members_come_to_hold_what_each_site_said_last() {
    with_seeds(|seed| {
        let mut mesh = Mesh::found(seed, 4);
        assert_eq!(known(&mesh, 1, 0), None, "there is nothing to tell");
        mesh.faults = ROUGH;
        mesh.cut(2);
        charge(&mut mesh, 0, prices(1));
        charge(&mut mesh, 3, prices(30));
        mesh.run(NEXT_SETTLE);
        charge(&mut mesh, 0, prices(2));
        mesh.run(NEXT_SETTLE);
        assert_eq!(known(&mesh, 2, 0), None, "on the other side");
        mesh.heal();
        mesh.run(SETTLE);
        assert_all_know(&mesh, 0, 2, &prices(2));
        assert_all_know(&mesh, 3, 1, &prices(30));
        // A restart says nothing new; what has gone from the configuration is told.
        mesh.restart(0);
        mesh.restart(1);
        mesh.run(NEXT_SETTLE);
        assert_all_know(&mesh, 0, 2, &prices(2));
        charge(&mut mesh, 0, PriceList::default());
        mesh.run(NEXT_SETTLE);
        assert_all_know(&mesh, 0, 3, &PriceList::default());
    });
}

#[test]
fn a_site_that_lost_its_memory_goes_on_behind_what_it_said_before() {
    with_seeds(|seed| {
        let mut mesh = Mesh::found(seed, 3);
        charge(&mut mesh, 0, prices(1));
        mesh.run(NEXT_SETTLE);
        let backup = mesh.nodes[0].rows.clone();
        charge(&mut mesh, 0, prices(2));
        mesh.run(NEXT_SETTLE);
        for (rows, version) in [(Rows::new(), 3), (backup, 4)] {
            let list = prices(version * 10);
            mesh.nodes[0].config.charging.prices = Arc::new(list.clone());
            mesh.restart_on(0, rows);
            mesh.run(NEXT_SETTLE);
            assert_all_know(&mesh, 0, u64::from(version), &list);
        }
    });
}

#[test]
fn what_one_frame_cannot_hold_comes_in_several() {
    let mut mesh = Mesh::found(1, 8);
    let class = prices(1).machines["fat"];
    let named = |index: usize| format!("{index:0>64}");
    let long = |number| PriceList {
        machines: (0..256).map(|index| (named(index), class)).collect(),
        queues: (0..1_024)
            .map(|index| (named(index), Factor::from_millionths(number)))
            .collect(),
    };
    mesh.cut(7);
    for node in 0..7 {
        let mut config = mesh.config(vo::timing());
        let number = u32::try_from(node).expect("small") + 1;
        config.charging.prices = Arc::new(long(number));
        let hosts = (0..1_024).map(|index| (Pattern::parse(&named(index)), named(0)));
        config.charging.hosts = hosts.collect();
        mesh.handle(node, Event::Reconfigured(Box::new(config)));
    }
    mesh.run(SETTLE);
    mesh.heal();
    mesh.run(SETTLE);
    for of in 0..7 {
        let number = u32::try_from(of).expect("small") + 1;
        let (_, held, hosts) = known(&mesh, 7, of).expect("told");
        assert_eq!((held, hosts.len()), (long(number), 1_024));
    }
}

#[test]
fn nobody_speaks_for_another_and_a_stranger_is_not_heard() {
    let mut mesh = Mesh::found(1, 3);
    charge(&mut mesh, 0, prices(1));
    mesh.run(NEXT_SETTLE);
    let say = |mesh: &mut Mesh, site: usize, signer: usize| {
        let body = SiteDescription {
            vo: mesh.vo,
            site: site_id(site),
            version: 9,
            at: WallTime(0),
            prices: prices(9),
            hosts: Vec::new(),
        };
        let signed = Signed::sign(body, &[&site_key(signer)]).expect("well-formed");
        let event = Event::Pushed {
            from: site_id(2),
            vo: mesh.vo,
            bytes: Push::Description(ByteBuf::from(signed.bytes().to_vec())).to_bytes(),
            token: 1,
        };
        mesh.handle(1, event);
        mesh.nodes[1].verdicts.pop()
    };
    assert_eq!(say(&mut mesh, 0, 2), Some(fairmesh_site::Verdict::Reject));
    assert_eq!(say(&mut mesh, 7, 7), Some(fairmesh_site::Verdict::Ignore));
    assert_all_know(&mesh, 0, 1, &prices(1));
    assert_eq!(known(&mesh, 1, 7), None);
}

#[test]
fn a_site_that_is_listed_no_more_is_forgotten_and_heard_again_when_it_is() {
    let mut mesh = Mesh::found(1, 3);
    charge(&mut mesh, 2, prices(1));
    mesh.run(NEXT_SETTLE);
    let mut second = next_charter(&mesh.charter);
    let all = second.sites.clone();
    second.sites.retain(|member| member.site != site_id(2));
    let second = sign_charter(second);
    assert!(mesh.publish(0, second.bytes()).is_ok());
    mesh.run(SETTLE);
    mesh.restart(1);
    mesh.run(SETTLE);
    for node in [0, 1] {
        assert_eq!(known(&mesh, node, 2), None);
    }
    let mut third = next_charter(&second);
    third.sites = all;
    assert!(mesh.publish(0, sign_charter(third).bytes()).is_ok());
    mesh.run(NEXT_SETTLE);
    assert_all_know(&mesh, 2, 1, &prices(1));
}

#[test]
fn two_machines_with_one_key_do_not_argue_faster_than_a_heartbeat() {
    let mut mesh = Mesh::found(1, 2);
    charge(&mut mesh, 0, prices(1));
    mesh.faults = CALM;
    let heartbeat = vo::timing().heartbeat.0;
    let before = mesh.elapsed_ms;
    let mut version = 1;
    // The twin answers whatever it hears, at once.
    while mesh.elapsed_ms < before + 20 * heartbeat {
        mesh.run(Millis(heartbeat / 10));
        let (held, list, _) = known(&mesh, 0, 0).expect("our own");
        if list == prices(1) {
            version = held + 1;
            let body = SiteDescription {
                vo: mesh.vo,
                site: site_id(0),
                version,
                at: WallTime(0),
                prices: prices(2),
                hosts: Vec::new(),
            };
            let signed = Signed::sign(body, &[&site_key(0)]).expect("well-formed");
            let bytes = Push::Description(ByteBuf::from(signed.bytes().to_vec())).to_bytes();
            let (vo, from) = (mesh.vo, site_id(1));
            let token = 1;
            mesh.handle(
                0,
                Event::Pushed {
                    from,
                    vo,
                    bytes,
                    token,
                },
            );
        }
    }
    assert!((20..=42).contains(&version), "version {version}");
    assert_eq!(mesh.nodes[1].count_rows(Table::Descriptions), 1);
}
