//! `cargo xtask sizes`: what a node takes of a machine, at sites of three sizes.
//!
//! For each size it starts three release nodes of one VO, each a program of its own with its default settings. Every
//! site reports a job a day of each user, and when every node holds all usage, the nodes are left alone for a minute.
//! The figures come from `/proc`, from the data folders and from the nodes' own metrics. The table in `DOCUMENT` lists
//! of each figure the largest of the three nodes.
//!
//! Deliberately not here: goals and ratios, which `cargo xtask bench` measures.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::steps::{cargo, root};

const DOCUMENT: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- sizes: begin, written by `cargo xtask sizes` -->\n";
const END: &str = "<!-- sizes: end -->\n";

/// Projects of each size; with its users a project is a hundred entries of the share tree. A policy has 100,000 at most.
const PROJECTS: [u64; 3] = [1, 100, 1_000];
const USERS_OF_A_PROJECT: u64 = 99;

/// Days on which each user ran a job at each site: with three sites, 1.2 million cells of the largest size.
const DAYS: u64 = 4;
const SITES: [&str; 3] = ["s0", "s1", "s2"];

/// How long nodes are left alone, and before that, until the allocator has returned what it no longer needs.
const REST: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(30);

/// Clock ticks a second, as `/proc` counts CPU time on Linux.
const TICKS: f64 = 100.0;

type Outcome<T> = Result<T, String>;

/// Measures all sizes and writes the table.
pub(crate) fn run() -> Outcome<()> {
    let mut build = cargo();
    build.args(["build", "--release", "--package", "fairmesh"]);
    printed(build.current_dir(root()))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    let program = fs::canonicalize(target.join("release/fairmesh")).map_err(failed("the build"))?;
    let mut table = "| users | entries | RSS, no usage | RSS with all usage | of it anonymous | highest RSS | disk | \
                     CPU, a job reported | CPU at rest | received for a cell | received at rest |\n\
                     |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for projects in PROJECTS {
        let line = measure(&program, projects)?;
        print!("{line}");
        table += &line;
    }
    let document = root().join(DOCUMENT);
    let text = fs::read_to_string(&document).map_err(failed(DOCUMENT))?;
    let (before, rest) = text
        .split_once(BEGIN)
        .ok_or("the table's first mark is away")?;
    let (_, after) = rest
        .split_once(END)
        .ok_or("the table's last mark is away")?;
    let machine = machine();
    let text = format!("{before}{BEGIN}{machine}\n\n{table}{END}{after}");
    fs::write(&document, text).map_err(failed(DOCUMENT))
}

/// One line of the table.
fn measure(program: &Path, projects: u64) -> Outcome<String> {
    let folder = std::env::temp_dir().join(format!("fairmesh-sizes-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(failed("the folder"))?;
    let mesh = Mesh::start(program, &folder, projects)?;
    let users = projects * USERS_OF_A_PROJECT;
    mesh.wait("fairmesh_tree_entries", users)?;
    sleep(SETTLE);
    let empty = mesh.sample()?;
    for (number, node) in mesh.nodes.iter().enumerate() {
        let jobs = folder.join("jobs.jsonl");
        fs::write(&jobs, records(number, projects)).map_err(failed("the records"))?;
        printed(node.command(program).arg("report").arg(&jobs))?;
    }
    let (jobs, others) = (users * DAYS, SITES.len() as u64 - 1);
    mesh.wait("fairmesh_cells_taken_total", jobs * others)?;
    sleep(SETTLE);
    let full = mesh.sample()?;
    sleep(REST);
    let rest = mesh.sample()?;
    drop(mesh);
    fs::remove_dir_all(&folder).map_err(failed("the folder"))?;
    let most = |of: &dyn Fn(usize) -> f64| (0..SITES.len()).map(of).fold(0.0, f64::max);
    let jobs = jobs as f64;
    // Of a second at rest, and of the load without what the same time at rest takes.
    let at_rest = |node: usize, of: fn(&Sample) -> f64| {
        (of(&rest[node]) - of(&full[node])) / (rest[node].at - full[node].at).as_secs_f64()
    };
    let of_load = |node: usize, of: fn(&Sample) -> f64| {
        let s = (full[node].at - empty[node].at).as_secs_f64();
        of(&full[node]) - of(&empty[node]) - at_rest(node, of) * s
    };
    Ok(format!(
        "| {users} | {} | {:.0} MB | {:.0} MB | {:.0} MB | {:.0} MB | {:.1} MB | {:.0} µs | {:.2} % | {:.1} bytes | {:.0} bytes/s |\n",
        projects * (USERS_OF_A_PROJECT + 1),
        most(&|node| empty[node].rss_mb),
        most(&|node| rest[node].rss_mb),
        most(&|node| rest[node].anonymous_mb),
        most(&|node| rest[node].highest_mb),
        most(&|node| rest[node].disk_mb),
        most(&|node| of_load(node, |sample| sample.cpu_s) / jobs * 1e6),
        most(&|node| at_rest(node, |sample| sample.cpu_s) * 100.0),
        most(&|node| of_load(node, |sample| sample.received) / (jobs * others as f64)),
        most(&|node| at_rest(node, |sample| sample.received)),
    ))
}

/// What one node takes.
struct Sample {
    at: Instant,
    rss_mb: f64,
    anonymous_mb: f64,
    highest_mb: f64,
    disk_mb: f64,
    cpu_s: f64,
    received: f64,
}

struct Node {
    child: Child,
    folder: PathBuf,
}

impl Node {
    /// Starts one, and returns it with the address where it listens.
    fn start(program: &Path, folder: PathBuf) -> Outcome<(Self, String)> {
        let log = File::create(folder.join("log")).map_err(failed("the log"))?;
        let mut run = Command::new(program);
        run.args(["run", "--config"])
            .arg(folder.join("fairmesh.toml"));
        let child = run.stdout(Stdio::piped()).stderr(log).spawn();
        let mut node = Self {
            child: child.map_err(failed("the node"))?,
            folder,
        };
        let mut line = String::new();
        if let Some(out) = node.child.stdout.take() {
            BufReader::new(out)
                .read_line(&mut line)
                .map_err(failed("the node"))?;
        }
        match line.trim().rsplit_once(" listens on ") {
            Some((_, address)) => Ok((node, address.to_owned())),
            None => Err(format!(
                "a node does not start: see {}",
                node.folder.join("log").display()
            )),
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("FAIRMESH_SOCKET", self.folder.join("data/run/control.sock"));
        command
    }

    /// A metric without labels.
    fn metric(&self, program: &Path, name: &str) -> Outcome<f64> {
        let text = printed(self.command(program).arg("metrics"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|value| value.trim().parse().ok());
        value.ok_or_else(|| format!("no metric {name}"))
    }

    fn sample(&self, program: &Path) -> Outcome<Sample> {
        let proc = |file: &str| {
            let path = format!("/proc/{}/{file}", self.child.id());
            fs::read_to_string(path).map_err(failed(file))
        };
        let (status, stat) = (proc("status")?, proc("stat")?);
        let mb = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
            kib.unwrap_or(f64::NAN) * 1_024.0 / 1e6
        };
        let after_name = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks = after_name.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
        let disk = printed(
            Command::new("du")
                .args(["-sk"])
                .arg(self.folder.join("data")),
        )?;
        let kib = disk
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse().ok());
        Ok(Sample {
            at: Instant::now(),
            rss_mb: mb("VmRSS:"),
            anonymous_mb: mb("RssAnon:"),
            highest_mb: mb("VmHWM:"),
            disk_mb: kib.unwrap_or(f64::NAN) * 1_024.0 / 1e6,
            cpu_s: ticks / TICKS,
            received: self.metric(program, "fairmesh_wire_received_bytes_total ")?,
        })
    }
}

struct Mesh {
    nodes: Vec<Node>,
    program: PathBuf,
}

impl Mesh {
    /// Founds the VO in `folder` and starts its nodes. Each calls those before it; the first one gets the documents.
    fn start(program: &Path, folder: &Path, projects: u64) -> Outcome<Self> {
        let run = |line: &str| {
            let mut command = Command::new(program);
            let words = command.args(line.split_whitespace()).current_dir(folder);
            printed(words).map(|text| text.trim().to_owned())
        };
        let mut ids = Vec::new();
        for site in SITES {
            ids.push(run(&format!(
                "init {site} --name {site} --cpus 1000000 --quiet"
            ))?);
        }
        let authority = run("policy keygen key")?;
        run(&format!(
            "policy new charter --name vo --authority {authority} --threshold 1 --policy {authority} \
             --site s0/member.toml --site s1/member.toml --site s2/member.toml -o charter.toml"
        ))?;
        run("policy sign charter.toml --key key")?;
        let vo = run("policy show charter.cbor --id")?;
        run("policy new shares --charter charter.cbor -o shares.toml")?;
        let shares = folder.join("shares.toml");
        let text = fs::read_to_string(&shares).map_err(failed("shares.toml"))?;
        fs::write(&shares, text + &entries(projects)).map_err(failed("shares.toml"))?;
        run("policy sign shares.toml --key key")?;
        let mut mesh = Self {
            nodes: Vec::new(),
            program: program.to_owned(),
        };
        let mut peers = Vec::new();
        for (site, id) in SITES.into_iter().zip(ids) {
            let site = folder.join(site);
            let config = configuration(&vo, &peers);
            fs::write(site.join("fairmesh.toml"), config).map_err(failed("fairmesh.toml"))?;
            let (node, address) = Node::start(program, site)?;
            peers.push(format!("{id}@{address}"));
            mesh.nodes.push(node);
        }
        for document in ["charter.cbor", "shares.cbor"] {
            let mut publish = mesh.nodes[0].command(program);
            printed(
                publish
                    .args(["policy", "publish"])
                    .arg(folder.join(document)),
            )?;
        }
        Ok(mesh)
    }

    /// Waits until that metric of every node has reached `least`.
    fn wait(&self, metric: &str, least: u64) -> Outcome<()> {
        let metric = format!("{metric} ");
        for node in &self.nodes {
            while node.metric(&self.program, &metric)? < least as f64 {
                sleep(Duration::from_secs(1));
            }
        }
        Ok(())
    }

    fn sample(&self) -> Outcome<Vec<Sample>> {
        let samples = self.nodes.iter().map(|node| node.sample(&self.program));
        samples.collect()
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // It may have ended, which the measurement reports.
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
    }
}

/// A site's own configuration: what is not here has its default.
fn configuration(vo: &str, peers: &[String]) -> String {
    format!(
        "[site]\nname = \"site\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\npeers = {peers:?}\n\
         [vos]\nvo = \"{vo}\"\n\
         [[identity]]\naccount = \"*\"\nvo = \"vo\"\npath = \"/{{account}}/{{user}}\"\nshared_names = true\n\
         [shares]\n\"/vo\" = {{ share = 1, mount = \"vo\" }}\n"
    )
}

/// The lines of the VO's policy: projects, and the users of each.
fn entries(projects: u64) -> String {
    let mut text = String::new();
    for project in 0..projects {
        let _ = writeln!(text, "\"/p{project:03}\" = 1");
        for user in 0..USERS_OF_A_PROJECT {
            let _ = writeln!(text, "\"/p{project:03}/u{project:03}{user:02}\" = 1");
        }
    }
    text
}

/// A job a day of each user, of one core and at most an hour. Each is within one hour, so it makes one cell.
fn records(site: usize, projects: u64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let mut text = String::new();
    for job in 0..projects * USERS_OF_A_PROJECT * DAYS {
        let (user, day) = (job / DAYS, job % DAYS);
        let (project, user) = (user / USERS_OF_A_PROJECT, user % USERS_OF_A_PROJECT);
        let end = now / 3_600 * 3_600 - 1 - day * 86_400;
        let start = (end - 3_000) * 1_000 - job.wrapping_mul(0x9e37_79b9) % 500_000;
        let _ = writeln!(
            text,
            "{{\"cluster\":\"s{site}\",\"job\":\"{job}\",\"user\":\"u{project:03}{user:02}\",\
             \"account\":\"p{project:03}\",\"start_ms\":{start},\"end_ms\":{end}000,\"cores\":1}}"
        );
    }
    text
}

/// The machine, without its name: cores, memory, system.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let (cpus, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model);
    let kib = memory
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok());
    let load = read("/proc/loadavg");
    format!(
        "Measured on {cores} cores ({model}) with {} GB of memory, for all three nodes; load {} at the end.",
        kib.unwrap_or(0) * 1_024 / 1_000_000_000,
        load.split(' ').next().unwrap_or("?"),
    )
}

/// What a command prints on its standard output.
fn printed(command: &mut Command) -> Outcome<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command:?} ended with {}", output.status)),
    }
}

fn failed(what: &str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}
