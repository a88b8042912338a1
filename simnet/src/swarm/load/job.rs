//! One job: whose it is, and what it asks for.
//!
//! Sizes lie in the ranges of the logs of real clusters: mostly one to 64 cores with up to 8 GiB
//! each, some with GPUs, some spread over nodes, some with far more memory than their cores' part,
//! and now and then one that no machine could run.
//!
//! Invariant: a job that asks for nothing unusual draws as many numbers as one that does, so that
//! less of one kind shifts nothing of another.

use fairmesh_cluster::Stream;
use fairmesh_model::{Chunk, JobKey, Origin, Placement, Terms, UsageRecord, WallTime};

use super::{Feeds, Offer};
use crate::swarm::{LoadOptions, VoOptions};

impl Feeds {
    /// A job of somebody, without times.
    pub(super) fn job(&mut self, site: usize, mounted: &[usize]) -> Offer {
        let load = self.load;
        let feed = &mut self.feeds[site];
        feed.jobs += 1;
        let name = format!("{site}-{}", feed.jobs);
        let random = &mut feed.random;
        // One in ten is the site's own, one in a hundred is nobody's.
        let draw = random.below(100);
        let vo = (draw >= 11 && !mounted.is_empty()).then(|| mounted[random.index(mounted.len())]);
        let (groups, users) = vo.map_or((2, 2), |vo| (self.vos[vo].groups, self.vos[vo].users));
        let group = format!("g{}", random.index(groups));
        // Now and then somebody whom no policy names.
        let user = random.index(users + 1) % (users + usize::from(random.below(20) == 0));
        let user = format!("u{user}");
        let account = match vo {
            Some(vo) => VoOptions::name(vo),
            None if draw == 0 => "nobody".to_owned(),
            None => "local".to_owned(),
        };
        let subject = (random.below(4) == 0).then(|| format!("/O=grid/CN={user}"));
        let origin = Origin {
            user: Some(user),
            account: Some(account),
            group: Some(group),
            subject,
        };
        Offer {
            record: asking(random, load, name, origin),
            vo,
        }
    }
}

fn asking(random: &mut Stream, load: LoadOptions, job: String, origin: Origin) -> UsageRecord {
    let mut is = |permille: u64| random.below(1_000) < permille;
    let (has_gpus, has_memory, has_nodes) = (
        is(load.gpu_permille),
        is(load.memory_permille),
        is(load.nodes_permille),
    );
    let (is_cheap, is_too_large) = (is(load.discount_permille), is(load.too_large_permille));
    let cores = match random.below(3) {
        0 => 1,
        1 => random.between(1, 16),
        _ => random.between(1, 64),
    };
    let nodes = random.between(2, 4);
    let mem_mib = cores * random.between(64, 8 << 10);
    let large_mib = random.between(16 << 10, 512 << 10);
    let gpus = random.between(1, 4);
    let disk_mib = random.below(64 << 10);
    let queue = random.index(4);
    let machine = random.index(6);
    let cores = if is_too_large { 20_000 } else { cores };
    let record = UsageRecord {
        key: JobKey {
            cluster: "swarm".to_owned(),
            job,
            instance: 0,
        },
        origin,
        start: WallTime(0),
        end: WallTime(0),
        cores: u32::try_from(cores).expect("few"),
        gpus: if has_gpus {
            u32::try_from(gpus).expect("few")
        } else {
            0
        },
        mem_mib: if has_memory { large_mib } else { mem_mib },
        placement: Placement {
            nodes: if has_nodes {
                u32::try_from(nodes).expect("few")
            } else {
                0
            },
            disk_mib: if has_nodes { disk_mib } else { 0 },
            energy_j: 0,
            queue: ["short", "long"].get(queue).map(|&name| name.to_owned()),
            qos: (machine > 3).then(|| "urgent".to_owned()),
            machine: ["thin", "n01-7", "g02"]
                .get(machine)
                .map(|&name| name.to_owned()),
            terms: if is_cheap {
                Terms::Preemptible
            } else {
                Terms::Regular
            },
            properties: match has_memory && queue == 0 {
                true => vec!["ib".to_owned()],
                false => Vec::new(),
            },
            chunks: Vec::new(),
            next_instance: None,
        },
        running: false,
    };
    match has_nodes && nodes > 2 {
        true => with_chunks(record),
        false => record,
    }
}

/// The same job, said to hold most on its first node.
fn with_chunks(mut record: UsageRecord) -> UsageRecord {
    let place = &record.placement;
    let first = Chunk {
        nodes: 1,
        cores: record.cores - record.cores / 3,
        gpus: record.gpus - record.gpus / 2,
        mem_mib: record.mem_mib - record.mem_mib / 4,
        disk_mib: place.disk_mib / 2,
        machine: place.machine.clone(),
    };
    let others = Chunk {
        nodes: place.nodes - first.nodes,
        cores: record.cores - first.cores,
        gpus: record.gpus - first.gpus,
        mem_mib: record.mem_mib - first.mem_mib,
        disk_mib: place.disk_mib - first.disk_mib,
        machine: None,
    };
    record.placement.chunks = vec![first, others];
    record
}
