//! What a site's machines cost is known to all members, whatever is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{Factor, MachineClass, Millis, PriceList};
use fairmesh_site::{Charging, Event, Pattern};

use crate::mesh::{Mesh, ROUGH};
use crate::node::Rows;
use crate::random::with_seeds;
use crate::vo::{self, next_charter, sign_charter, site_id};

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
        properties: BTreeSet::new(),
        queues: BTreeSet::new(),
    };
    let cost = Factor::from_millionths(number);
    PriceList {
        machines: BTreeMap::from([("fat".to_owned(), class)]),
        queues: BTreeMap::from([("long".to_owned(), cost)]),
        ..PriceList::default()
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

/// Prices, patterns of machines' names and their classes.
type Told = (PriceList, Vec<(String, String)>);

/// What a node holds of a site.
fn known(mesh: &Mesh, node: usize, of: usize) -> Option<Told> {
    let mut held = mesh.nodes[node].site.descriptions(mesh.vo);
    let (_, described) = held.find(|(site, _)| *site == site_id(of))?;
    Some(((*described.prices).clone(), described.hosts.clone()))
}

fn assert_all_know(mesh: &Mesh, of: usize, list: &PriceList) {
    for node in 0..mesh.nodes.len() {
        let (prices, hosts) = known(mesh, node, of).expect("told");
        assert_eq!(&prices, list, "at node {node}");
        assert_eq!(hosts, [("fat-*".to_owned(), "fat".to_owned())]);
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
        assert_all_know(&mesh, 0, &prices(2));
        assert_all_know(&mesh, 3, &prices(30));
        // A restart says nothing new; what has gone from the configuration is told.
        mesh.restart(0);
        mesh.restart(1);
        mesh.run(NEXT_SETTLE);
        assert_all_know(&mesh, 0, &prices(2));
        charge(&mut mesh, 0, PriceList::default());
        mesh.run(NEXT_SETTLE);
        (0..4).for_each(|node| assert_eq!(known(&mesh, node, 0), None, "at node {node}"));
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
            assert_all_know(&mesh, 0, &list);
        }
    });
}

#[test]
fn what_one_frame_cannot_hold_comes_in_several() {
    let mut mesh = Mesh::found(1, 8);
    let class = &prices(1).machines["fat"];
    let named = |index: usize| format!("{index:0>64}");
    let long = |number| PriceList {
        machines: (0..256)
            .map(|index| (named(index), class.clone()))
            .collect(),
        queues: (0..1_024)
            .map(|index| (named(index), Factor::from_millionths(number)))
            .collect(),
        ..PriceList::default()
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
        let (held, hosts) = known(&mesh, 7, of).expect("told");
        assert_eq!((held, hosts.len()), (long(number), 1_024));
    }
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
    assert_all_know(&mesh, 2, &prices(1));
}
