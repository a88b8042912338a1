//! What an operator reads of nodes: notices of `GET /v1/status`, commands, logs and the page.
//!
//! Invariant: a node that does not answer is an error like any other, so nothing that is not read counts as green.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::mesh::{Mesh, PAGE, SITES, name};
use crate::Node;

/// Time between two looks at all nodes.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A notice of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) code: String,
    pub(super) is_info: bool,
    pub(super) text: String,
}

/// All notices of a node, the worst first.
pub(super) fn notices(node: &Node) -> Vec<Notice> {
    let asked = node.http("GET", "/v1/status", b"");
    let error = |text: String| {
        vec![Notice {
            code: "no-answer".to_owned(),
            is_info: false,
            text,
        }]
    };
    let answer = match asked {
        Ok(answer) if answer.status == 200 => answer,
        Ok(answer) => return error(answer.text),
        Err(why) => return error(format!("{why:#}")),
    };
    let listed = answer.body["notices"].as_array().into_iter().flatten();
    let text = |of: &serde_json::Value| of.as_str().unwrap_or_default().to_owned();
    listed
        .map(|notice| Notice {
            code: text(&notice["code"]),
            is_info: notice["severity"] == "info",
            text: text(&notice["text"]),
        })
        .collect()
}

/// The first warning or error of each node that has one.
pub(super) fn warnings(mesh: &Mesh) -> Vec<(usize, Notice)> {
    let of_node = |(site, node)| {
        let found = notices(node).into_iter().find(|notice| !notice.is_info);
        found.map(|notice| (site, notice))
    };
    mesh.awake().filter_map(of_node).collect()
}

/// Waits until no node has a warning, and `status` of each ends with 0; what is there then, if it takes longer.
pub(super) fn await_clear(
    mesh: &mut Mesh,
    at_most: Duration,
) -> anyhow::Result<Result<Duration, String>> {
    let began = Instant::now();
    loop {
        mesh.tick()?;
        let found = warnings(mesh);
        if found.is_empty() {
            let sites: Vec<usize> = mesh.awake().map(|(site, _)| site).collect();
            let failed = sites.iter().find_map(|site| {
                let output = mesh.command(*site).arg("status").output().ok()?;
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                (output.status.code() != Some(0)).then(|| format!("{}: {text}", name(*site)))
            });
            match failed {
                None => return Ok(Ok(began.elapsed())),
                Some(text) if began.elapsed() > at_most => return Ok(Err(text)),
                Some(_) => {}
            }
        }
        if let Some((site, notice)) = found.first()
            && began.elapsed() > at_most
        {
            let Notice { code, text, .. } = notice;
            let more = found.len() - 1;
            return Ok(Err(format!(
                "{}: {text} [{code}], and {more} more nodes",
                name(*site)
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Waits until each node knows what all sites have used; whether that is so in time.
pub(super) fn await_usage_of_all(mesh: &mut Mesh, at_most: Duration) -> anyhow::Result<bool> {
    let began = Instant::now();
    loop {
        mesh.tick()?;
        let knows_all = |(_, node): (usize, &Node)| {
            let answer = node.http("GET", "/v1/status", b"").ok()?;
            let vo = &answer.body["vos"][0];
            Some(vo["sites_total"] == SITES && vo["sites_known"] == vo["sites_total"])
        };
        if mesh.awake().all(|node| knows_all(node) == Some(true)) {
            return Ok(true);
        }
        if began.elapsed() > at_most {
            return Ok(false);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What a command prints on both streams about a node, and its exit status.
pub(super) fn asked(mesh: &Mesh, site: usize, line: &str) -> anyhow::Result<(Option<i32>, String)> {
    let output = mesh.command(site).args(line.split(' ')).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((output.status.code(), text))
}

/// `doctor` with the node's configuration.
pub(super) fn doctor(mesh: &Mesh, site: usize) -> anyhow::Result<(Option<i32>, String)> {
    let config = mesh.sites[site].config();
    asked(mesh, site, &format!("doctor --config {}", config.display()))
}

/// The bytes of a node's log from `from` on.
pub(super) fn logged(log: &Path, from: usize) -> String {
    // A log that is not there has no lines.
    let bytes = fs::read(log).unwrap_or_default();
    let new = bytes.get(from..).unwrap_or_default();
    String::from_utf8_lossy(new).into_owned()
}

/// Length of a node's log.
pub(super) fn log_length(log: &Path) -> usize {
    let length = fs::metadata(log).map_or(0, |metadata| metadata.len());
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// A page of a node's listener, asked within its network.
pub(super) fn page(mesh: &Mesh, site: usize, target: &str) -> anyhow::Result<String> {
    let namespace = Path::new("/run/netns").join(mesh.namespaces.of(site));
    let request = format!("GET {target} HTTP/1.1\r\nHost: {PAGE}\r\nConnection: close\r\n\r\n");
    let read = std::thread::spawn(move || -> anyhow::Result<String> {
        // Of this thread alone.
        let file = File::open(namespace)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        let mut stream = TcpStream::connect(PAGE)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    });
    let text = read.join().ok().context("the thread ended")??;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => bail!("{target}: {text}"),
    }
}
