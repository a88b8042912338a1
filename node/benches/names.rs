//! How the cost of names grows: a configuration with so many rules, people or entries, and the questions about one user.
//!
//! Goals (docs/benchmarks.md): 1 s of CPU for each reader at 100,000, 20 ms for the entries of a user, no exponent above 1.1.
//! Invariant: what is measured is the CPU time of this thread, the least of several runs; the exponent is that from
//! 10,000 to 100,000.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use fairmesh_model::{Incarnation, MonoTime, Now, SigningKey, WallTime, Weight};
use fairmesh_node::config::Config;
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{Site, Words};

const SIZES: [usize; 2] = [10_000, 100_000];

/// Questions of a run, so that one is measured that takes less than the clock tells.
const QUESTIONS: usize = 1_000;

/// Runs of each measurement.
const RUNS: usize = 3;

/// Accounts that the entries and people are of.
const GROUPS: usize = 100;

fn main() {
    let [small, large] = SIZES;
    println!("| what | at {small} | at {large} | exponent |\n|---|--:|--:|--:|");
    let shapes = [
        (Shape::Rules, "rules `user -> path`"),
        (Shape::Templates, "rules `group -> template`"),
        (Shape::People, "people"),
    ];
    for (shape, name) in shapes {
        of_reader(&format!("read {name}"), |count| files(count, shape, 0));
        let worlds = SIZES.map(|count| world(count, shape));
        row(&format!("check {name}"), &worlds, 1, |world, _| {
            black_box(world.config.doubts().len());
        });
        row(
            &format!("resolve: {name}"),
            &worlds,
            QUESTIONS,
            |world, at| {
                let [user, group] = [format!("u{at}"), format!("g{at}")];
                let words = Words {
                    user: Some(&user),
                    group: Some(&group),
                    ..Words::default()
                };
                assert!(black_box(world.site.view().account(words)).is_some());
            },
        );
        row(&format!("of_user: {name}"), &worlds, 10, |world, at| {
            let entries = world.site.view().entries_of(&format!("u{at}"));
            assert_eq!(black_box(entries).len(), 1);
        });
        row(
            &format!("is_of_another: {name}"),
            &worlds,
            QUESTIONS,
            |world, at| {
                let view = world.site.view();
                let path = path(at).parse().expect("a path");
                assert!(view.is_of_another("nobody", &view.account_at(&path)));
            },
        );
    }
    of_reader("read [shares] of fairmesh.toml", |count| {
        files(1, Shape::Rules, count)
    });
}

/// What a configuration maps people by.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Rules,
    Templates,
    People,
}

/// A configuration, and the text of its people map.
struct Files {
    config: String,
    people: String,
}

fn path(at: usize) -> String {
    format!("/a{}/u{at}", at % GROUPS)
}

/// Paths of a tree with `count` entries.
fn tree(count: usize) -> impl Iterator<Item = String> {
    let groups = (0..GROUPS.min(count)).map(|group| format!("/a{group}"));
    groups.chain((0..count.saturating_sub(GROUPS)).map(path))
}

fn files(count: usize, shape: Shape, entries: usize) -> Files {
    let (mut rules, mut people) = (String::new(), "user,subject,path\n".to_owned());
    for at in 0..count {
        let (path, account) = (path(at), at % GROUPS);
        let written = match shape {
            Shape::Rules => write!(rules, "[[identity]]\nuser = \"u{at}\"\npath = \"{path}\"\n"),
            Shape::Templates => {
                write!(
                    rules,
                    "[[identity]]\ngroup = \"g{at}\"\npath = \"/a{account}/{{user}}\"\n"
                )
            }
            Shape::People => writeln!(people, "u{at},\"/CN=Person {at}, of here\",{path}"),
        };
        written.expect("a text takes everything");
    }
    let mut shares = "[shares]\n".to_owned();
    for path in tree(entries) {
        writeln!(shares, "\"{path}\" = 1").expect("a text takes everything");
    }
    let config = format!("people = \"people.csv\"\n[site]\nname = \"s\"\n{rules}{shares}");
    Files { config, people }
}

impl Files {
    fn read(&self) -> Config {
        let people = |_: &Path| Ok(self.people.clone());
        let config = Config::parse(&self.config, Path::new("/b/fairmesh.toml"), &people);
        config.expect("a valid configuration")
    }
}

struct World {
    config: Config,
    site: Site,
}

/// A site with so many rules or people, and as many entries.
fn world(count: usize, shape: Shape) -> World {
    let mut config = files(count, shape, 0).read();
    let entries = tree(count).map(|path| {
        let path = path.parse().expect("a path");
        (path, SiteEntry::local(Weight::whole(1)))
    });
    config.policy = SitePolicy::new(entries.collect()).expect("a tree");
    let mut site = config.to_site_config();
    // Built at once, whatever it takes: nobody waits here.
    site.timing.build_entries = usize::MAX;
    let now = Now {
        mono: MonoTime(0),
        wall: WallTime(1_700_000_000_000),
    };
    let key = SigningKey::from_secret(&[7; 32]);
    let site = Site::new(site, key, Incarnation(1), 1, now);
    World { config, site }
}

fn of_reader(what: &str, files: impl Fn(usize) -> Files) {
    let files = SIZES.map(files);
    row(what, &files, 1, |files, _| {
        black_box(files.read());
    });
}

/// Measures both sizes, a question each of `questions`, and prints a line.
fn row<T>(what: &str, of: &[T; 2], questions: usize, ask: impl Fn(&T, usize)) {
    let took = of.each_ref().map(|of| {
        let runs = (0..RUNS).map(|_| {
            let began = cpu_time();
            (0..questions).for_each(|at| ask(of, at * 7 % (SIZES[0] - GROUPS)));
            (cpu_time() - began) / u32::try_from(questions).expect("few")
        });
        runs.min().unwrap_or_default()
    });
    let [small, large] = took.map(|of| of.as_secs_f64().max(1e-9));
    let growth = f64::from(u32::try_from(SIZES[1] / SIZES[0]).expect("small")).ln();
    let exponent = (large / small).ln() / growth;
    println!("| {what} | {:?} | {:?} | {exponent:.2} |", took[0], took[1]);
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).expect("a time"),
        u32::try_from(time.tv_nsec).expect("less than a second"),
    )
}
