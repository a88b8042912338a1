//! The share page of a real node, asked over TCP as browsers, Prometheus and strangers do.

mod axe;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_tests::{Node, Site, Vo, records};

use crate::PROGRAM;

/// How long the page may take to show what was reported.
const PATIENCE: Duration = Duration::from_secs(30);

/// A name that is markup where nobody escapes it.
const HOSTILE: &str = "<b>bob&\"";

/// Connections that one address may hold.
const OF_ONE_MAX: usize = 48;

struct World {
    node: Node,
    page: String,
    _folder: tempfile::TempDir,
}

/// What came back.
struct Page {
    status: u16,
    head: String,
    body: String,
}

impl World {
    fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
        let vo = Vo::found("physics", &[(site.id, "a")], &["ann", HOSTILE])?;
        site.configure("a", &[], &[("physics", vo.id())])?;
        let config = std::fs::read_to_string(site.config())?;
        let page = "[page]\nlisten = \"127.0.0.1:0\"\nhosts = [\"grid.example\"]\n";
        std::fs::write(
            site.config(),
            config.replacen("[timing]", &format!("{page}[timing]"), 1),
        )?;
        let node = site.start()?;
        vo.publish(&node)?;
        let log = std::fs::read_to_string(folder.path().join("a/log"))?;
        let (_, address) = log
            .split_once("the share page is served")
            .context("a page")?;
        let (_, address) = address.split_once("127.0.0.1:").context("an address")?;
        let port: String = address.chars().take_while(char::is_ascii_digit).collect();
        Ok(Self {
            node,
            page: format!("127.0.0.1:{port}"),
            _folder: folder,
        })
    }

    fn get(&self, target: &str) -> anyhow::Result<Page> {
        self.ask("GET", target, &self.page)
    }

    fn ask(&self, method: &str, target: &str, host: &str) -> anyhow::Result<Page> {
        let mut stream = TcpStream::connect(&self.page)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("a head")?;
        Ok(Page {
            status: head.split(' ').nth(1).context("a status")?.parse()?,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        })
    }

    /// Waits until a page shows `part`. There is no such page before the tree has its entry: a policy that was
    /// just published is put into it in the background.
    fn await_part(&self, target: &str, part: &str) -> anyhow::Result<String> {
        let began = Instant::now();
        loop {
            let page = self.get(target)?;
            ensure!(
                [200, 404].contains(&page.status),
                "{}: {}",
                page.status,
                page.body
            );
            if page.status == 200 && page.body.contains(part) {
                return Ok(page.body);
            }
            if began.elapsed() > PATIENCE {
                bail!("no `{part}` on {target}: {}", page.body);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_page_shows_who_has_had_what_and_why() -> anyhow::Result<()> {
    let world = World::start()?;
    let reported = world
        .node
        .http("POST", "/v1/records", &records("physics", "ann", 1, 7_200))?;
    ensure!(reported.status == 200, "{reported:?}");
    // Two core-hours.
    world.await_part("/usage.csv?path=/physics/ann", ",7200000\n")?;
    let front = world.await_part("/", "<svg class=\"icicle\"")?;
    for part in [
        "Shares at a",
        "/entry?path=/physics/ann",
        "this site",
        "share policy",
        "in 364 days",
        "physics",
    ] {
        ensure!(front.contains(part), "no `{part}`: {front}");
    }
    let style = world.get("/page.css")?;
    ensure!(style.head.contains("text/css"), "{}", style.head);
    ensure!(front.len() + style.body.len() < 300_000, "{}", front.len());

    let ann = world.await_part("/entry?path=/physics/ann", "/physics/ann has used")?;
    let why = "/physics/ann: should have 50 % of /physics, has 100.00 % on all sites";
    ensure!(ann.contains(why), "{ann}");
    let link = "/entry?path=/physics/%3Cb%3Ebob%26%22";
    let versus = format!(
        "/entry?path=/physics/ann&versus={}",
        &link["/entry?path=".len()..]
    );
    ensure!(
        ann.contains(&versus.replace('&', "&amp;")),
        "no {versus}: {ann}"
    );
    let compared = world.await_part(&versus, "is served first. It is decided at level 2:")?;
    ensure!(compared.contains("For parity, "), "{compared}");

    let bob = world.get(link)?;
    ensure!(
        bob.status == 200 && !bob.body.contains("<b>bob"),
        "{}",
        bob.body
    );
    ensure!(
        bob.body.contains("<h1>&lt;b&gt;bob&amp;&quot;</h1>"),
        "{}",
        bob.body
    );
    let found = world.get("/find?q=BOB")?;
    ensure!(
        found.body.contains("1 found") && !found.body.contains("<b>bob"),
        "{}",
        found.body
    );

    let shares = world.get("/shares.csv")?.body;
    let row = shares.lines().find(|line| line.contains("/physics/ann,"));
    let row = row.with_context(|| format!("no row: {shares}"))?;
    ensure!(row.contains(",100,"), "all of it is hers: {row}");
    let history = world.get("/history.csv?path=/physics/ann")?.body;
    ensure!(history.contains(",7200000,7200000"), "{history}");
    ensure!(world.get("/sites.csv")?.body.contains("\na,"), "this site");
    ensure!(
        world
            .get("/documents.csv")?
            .body
            .contains("physics,charter,/,1,")
    );
    Ok(())
}

#[test]
fn a_page_gives_metrics_without_a_users_name() -> anyhow::Result<()> {
    let world = World::start()?;
    let metrics = world.await_part("/metrics", "fairmesh_share_used_ratio{entry=\"/physics\"}")?;
    for part in [
        "fairmesh_build_info{version=\"",
        "fairmesh_share_target_ratio{entry=\"/physics\"} 1",
        "fairmesh_documents_expire_timestamp_seconds{vo=\"physics\"} ",
        "fairmesh_notices{code=\"alone\",severity=\"none\"} 0",
        "fairmesh_store_bytes ",
        "fairmesh_disk_free_bytes ",
    ] {
        ensure!(metrics.contains(part), "no `{part}`: {metrics}");
    }
    ensure!(
        metrics.ends_with("# EOF\n") && !metrics.contains("ann"),
        "{metrics}"
    );
    let over_the_socket = world.node.http("GET", "/v1/metrics", b"")?.text;
    ensure!(
        over_the_socket.contains("fairmesh_build_info"),
        "they are the same"
    );
    Ok(())
}

#[test]
fn a_page_can_only_be_read_by_who_means_it() -> anyhow::Result<()> {
    let world = World::start()?;
    let page = world.get("/")?;
    for header in [
        "content-security-policy: default-src 'none';",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        ensure!(page.head.contains(header), "{}", page.head);
    }
    ensure!(
        !page.body.contains("<script") && !page.body.contains(" style="),
        "no inline code"
    );
    let address = world.page.clone();
    for (method, target, host, status) in [
        ("HEAD", "/", &*address, 200),
        ("GET", "/", "grid.example", 200),
        ("GET", "/", "evil.example", 421),
        ("GET", "/metrics", "evil.example", 421),
        ("POST", "/", &*address, 405),
        ("DELETE", "/entry", &*address, 405),
        ("GET", "/v1/status", &*address, 404),
        ("GET", "/entry?path=/physics/nobody", &*address, 404),
        ("GET", "/entry?path=physics", &*address, 400),
        ("GET", "/entry?pth=/physics", &*address, 400),
        ("GET", "/entry?path=/physics/%E2%80%AE", &*address, 400),
    ] {
        let answer = world.ask(method, target, host)?;
        ensure!(
            answer.status == status,
            "{method} {target} {host}: {}",
            answer.status
        );
        ensure!(
            method != "HEAD" || answer.body.is_empty(),
            "{}",
            answer.body
        );
        ensure!(
            answer.head.contains("content-security-policy"),
            "{}",
            answer.head
        );
    }
    Ok(())
}

#[test]
fn slow_readers_of_the_page_hold_nothing_up() -> anyhow::Result<()> {
    let world = World::start()?;
    let slow: Vec<TcpStream> = (0..OF_ONE_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(&world.page)?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: loc")?;
            Ok(stream)
        })
        .collect::<anyhow::Result<_>>()?;
    let began = Instant::now();
    // One more of that address is let go at once, and the sockets answer as ever.
    ensure!(world.get("/").is_err(), "there was a place");
    ensure!(world.node.http("GET", "/v1/status", b"")?.status == 200);
    ensure!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    drop(slow);
    while world.get("/").is_err() {
        ensure!(
            began.elapsed() < PATIENCE,
            "their places are not given back"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
