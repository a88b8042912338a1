//! A placement by what a node knows of a thousand sites with twenty classes of machines each: what the adverts say is
//! made into views, the machines are weighed, and the sites are put in order.
//!
//! Goal: 1 ms. Before that it says what one site's advert and machines take, as bytes and in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use fairmesh_broker::utility::{Choice, ONE, Requirement, Wish, Wishes};
use fairmesh_broker::weigh::weigh;
use fairmesh_broker::{
    Chooser, Engine, Known, Machines, Ranking, Request, Selector, Standing, rank,
};
use fairmesh_model::{
    Factor, MachineClass, Millis, MonoTime, Now, PriceList, Share, WallTime, cbor,
};
use fairmesh_site::Advert;

const SITES: u64 = 1_000;
const CLASSES: u64 = 20;
const VO: &str = "5f3c9a0e1b7d2468ace013579bdf02468ace13579bdf02468ace13579bdf0246";
const NOW: Now = Now {
    mono: MonoTime(0),
    wall: WallTime(1_700_000_060_000),
};

struct Site {
    name: String,
    advert: Advert,
    prices: Arc<PriceList>,
    machines: Arc<Machines>,
    free: Arc<[u64]>,
}

fn class(site: u64, index: u64) -> MachineClass {
    let of = |names: [&str; 4], at: u64| names[usize::try_from(at % 4).expect("small")].to_owned();
    MachineClass {
        count: 10,
        cpus: u32::try_from(8 << (index % 4)).expect("small"),
        mem_mib: 16_384 << (index % 5),
        gpus: 0,
        disk_mib: 100_000,
        spec: Factor::from_millionths(500_000 + 100_000 * u32::try_from(index).expect("small")),
        properties: BTreeSet::from([
            "os=".to_owned() + &of(["linux", "macos", "solaris", "windows"], site + index),
            "arch=".to_owned() + &of(["x86-64", "arm64", "riscv64", "x86-64"], index / 4),
            "infiniband".to_owned(),
        ]),
        queues: BTreeSet::new(),
    }
}

fn site(number: u64) -> Site {
    let name = |index: u64| format!("class-{index:02}");
    let machines: BTreeMap<String, MachineClass> = (0..CLASSES)
        .map(|index| (name(index), class(number, index)))
        .collect();
    let classes = (0..CLASSES).map(|index| (name(index), (number * 7 + index * 13) % 80));
    let classes: BTreeMap<String, u64> = classes.collect();
    let cpus = |of: &MachineClass| u64::from(of.count) * u64::from(of.cpus);
    let total = machines.values().map(cpus).sum();
    let prices = Arc::new(PriceList {
        machines,
        ..PriceList::default()
    });
    let laid_out = Machines::new(Arc::clone(&prices));
    Site {
        free: laid_out.lay_out(&classes),
        machines: Arc::new(laid_out),
        name: format!("site-{number:04}"),
        advert: Advert {
            at: WallTime(NOW.wall.0 - 30_000),
            total,
            free: classes.values().sum(),
            waiting: number % 50,
            wait: Some(Millis::from_secs(number)),
            standing: Some(Standing {
                epoch_used: 100_000_000,
                epoch_share: Share::from_percent(20).expect("a percentage"),
                burst_used: 200,
                burst_limit: 2_000,
                ..Standing::default()
            }),
            classes: Arc::new(classes),
            takes: false,
        },
        prices,
    }
}

/// As many requirements as Vasques' experiment has, with all options.
fn wishes() -> Wishes {
    let options = |wishes: Vec<Wish>| Requirement {
        options: (1..)
            .zip(wishes)
            .map(|(rank, wish)| Choice {
                wish,
                value: ONE / rank,
            })
            .collect(),
        weight: ONE,
    };
    let hours = |count: u64| Wish::Time(Millis::from_secs(3_600 * count));
    let requirements = vec![
        options(
            ["macos", "linux", "solaris", "windows"]
                .map(|of| Wish::Os(of.to_owned()))
                .into(),
        ),
        options(
            ["arm64", "x86-64"]
                .map(|of| Wish::Arch(of.to_owned()))
                .into(),
        ),
        options([1, 2, 3, 4].map(hours).into()),
        options(vec![Wish::MemMib(65_536), Wish::MemMib(32_768)]),
    ];
    Wishes::new(requirements, Millis::from_secs(7_200)).expect("within all limits")
}

fn place(sites: &[Site], wishes: Option<&Wishes>) -> usize {
    let mut request = Request::of_cpus(VO, 8);
    request.job.held.mem_mib = 16_384;
    let vo = Arc::from(VO);
    let mut candidates: Vec<_> = sites
        .iter()
        .map(|of| {
            let mut view = of.advert.view(of.name.clone(), &vo, NOW);
            view.machines = Some(Arc::clone(&of.machines));
            view.classes = Arc::clone(&of.free);
            let known_at = of.advert.at;
            let known = Known {
                view,
                known_at,
                ..Known::default()
            };
            (known, None)
        })
        .collect();
    for (known, best) in &mut candidates {
        *best = weigh(known, &request, wishes.map(|of| (of, false)));
    }
    let chooser = Chooser::new(match wishes {
        Some(_) => Selector::Utility,
        None => Selector::default(),
    });
    let by = Ranking {
        engine: Engine::default(),
        silence: Some(Millis::from_secs(600)),
        chooser: &chooser,
    };
    let known: Vec<&Known> = candidates.iter().map(|(known, _)| known).collect();
    let ranked = rank(&known, &request, by, &mut |_| 0);
    assert_eq!(ranked.taken.len() + ranked.refused.len(), sites.len());
    ranked.taken.len()
}

/// Pages of this process in memory, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

fn placements(criterion: &mut Criterion) {
    let before = resident_kib();
    let sites: Vec<Site> = (0..SITES).map(site).collect();
    println!(
        "one site: advert {} bytes, machines {} bytes; in memory {} KiB",
        cbor::to_vec(&sites[500].advert).len(),
        cbor::to_vec(&*sites[500].prices).len(),
        (resident_kib() - before) / SITES,
    );
    let wishes = wishes();
    println!(
        "{} of {SITES} may have the job",
        place(&sites, Some(&wishes))
    );
    let mut group = criterion.benchmark_group("place/1000x20");
    group.bench_function("no wishes", |bench| {
        bench.iter(|| place(black_box(&sites), None));
    });
    group.bench_function("four wishes", |bench| {
        bench.iter(|| place(black_box(&sites), Some(&wishes)));
    });
    group.finish();
}

criterion_group!(benches, placements);
criterion_main!(benches);
