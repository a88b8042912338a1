//! Jobs that fit into what a VO has left, on three real nodes: refused by none of them, whatever was asked before.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fairmesh_tests::{Node, Site, Vo};

use crate::PROGRAM;
use crate::quota::Shell;

/// How long the sites may take until they have heard each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three sites of one VO, whose project has ten core-hours at each.
struct Grid {
    folder: tempfile::TempDir,
    nodes: Vec<Node>,
}

impl Grid {
    fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let names = ["a", "b", "c"];
        let sites = names.map(|name| Site::init(PROGRAM, &folder.path().join(name), name));
        let sites = sites.into_iter().collect::<anyhow::Result<Vec<Site>>>()?;
        let members: Vec<_> = sites
            .iter()
            .zip(names)
            .map(|(site, name)| (site.id, name))
            .collect();
        let vo = Vo::found("physics", &members, &["ann"])?;
        let mut nodes: Vec<Node> = Vec::new();
        for (site, name) in sites.iter().zip(names) {
            let peers: Vec<_> = sites
                .iter()
                .zip(&nodes)
                .map(|(of, node)| (of.id, node.address.as_str()))
                .collect();
            site.configure(name, &peers, &[("physics", vo.id())])?;
            nodes.push(site.start()?);
        }
        vo.publish(&nodes[0])?;
        fs::write(folder.path().join("charter.cbor"), vo.charter())?;
        let key = folder.path().join("authority.key");
        fs::write(&key, "a5".repeat(32))?;
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
        let grid = Self { folder, nodes };
        let draft = "policy new allocation --charter charter.cbor --path /ann --amount 30 --slices 1 --days 30 -o q.toml";
        grid.at(0).says(draft, true, "")?;
        grid.at(0)
            .says("quota grant q.toml --key authority.key", true, "")?;
        for node in 0..3 {
            grid.at(node).shows("30.00")?;
            // Rights count once a site has heard all others since its start.
            let began = Instant::now();
            while grid.hold_at_once(&[(node, "warm", 10)])? != [true] {
                ensure!(began.elapsed() < PATIENCE, "node {node} grants nothing");
            }
            grid.release(node, "warm")?;
        }
        Ok(grid)
    }

    fn at(&self, node: usize) -> Shell<'_> {
        Shell {
            folder: self.folder.path(),
            node: &self.nodes[node],
        }
    }

    /// Asks for jobs, each at its node, all at one moment: which of them run.
    fn hold_at_once(&self, jobs: &[(usize, &str, u32)]) -> anyhow::Result<Vec<bool>> {
        let hold = |(node, job, cores): &(usize, &str, u32)| {
            let call = format!(
                "quota hold {job} --cluster c --user ann --account physics --cores {cores} --time 1h"
            );
            self.at(*node).run(&call).map(|(runs, _)| runs)
        };
        thread::scope(|scope| {
            let asked: Vec<_> = jobs
                .iter()
                .map(|job| scope.spawn(move || hold(job)))
                .collect();
            asked
                .into_iter()
                .map(|asked| asked.join().expect("no panic"))
                .collect()
        })
    }

    fn release(&self, node: usize, job: &str) -> anyhow::Result<()> {
        self.at(node)
            .says(&format!("quota release {job} --cluster c"), true, "")
    }
}

#[test]
fn jobs_that_fit_into_what_the_vo_has_left_are_granted_at_every_node() -> anyhow::Result<()> {
    let grid = Grid::start()?;
    // On the first try, of what three sites have.
    ensure!(grid.hold_at_once(&[(0, "first", 24)])? == [true]);
    grid.release(0, "first")?;
    // Two that cannot both run, again and again.
    for round in 0..3 {
        let jobs = [(1, format!("b{round}"), 18), (2, format!("c{round}"), 18)];
        let asked = [(1, jobs[0].1.as_str(), 18), (2, jobs[1].1.as_str(), 18)];
        let run = grid.hold_at_once(&asked)?;
        ensure!(
            run.iter().filter(|runs| **runs).count() == 1,
            "round {round}: {run:?}"
        );
        let (node, job, _) = &jobs[usize::from(run[1])];
        grid.release(*node, job)?;
    }
    // One that was refused while another one held most runs elsewhere when that has ended.
    ensure!(grid.hold_at_once(&[(0, "holder", 20)])? == [true]);
    ensure!(grid.hold_at_once(&[(1, "retried", 24)])? == [false]);
    grid.release(0, "holder")?;
    ensure!(grid.hold_at_once(&[(2, "retried", 24)])? == [true]);
    Ok(())
}
