//! A node whose owner hides what users do from each other: what each of them is told over both sockets, and over the
//! page.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_client::protocol::{
    Accounts, HandleColumn, NameBlockBuf, Names, Request, View, Want, Who, decode_reply,
    encode_request, split_frame,
};
use fairmesh_needs::Need;
use fairmesh_tests::{Node, Site};

use crate::PROGRAM;

/// Users whom every Debian has, by number.
const ROOT: u32 = 0;
pub(crate) const DAEMON: u32 = 1;
const BIN: u32 = 2;
pub(crate) const NOBODY: u32 = 65_534;

/// What daemon has used, in core-milliseconds: a number that is nobody else's.
const OF_DAEMON: &str = "7654321";

const CONFIG: &str = "[site]\nname = \"lab\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
    [sockets]\nlookup = \"lookup.sock\"\ncontrol = \"control.sock\"\n\
    [page]\nlisten = \"127.0.0.1:0\"\n\
    [[identity]]\naccount = \"p1\"\npath = \"/lab/p1/{user}\"\n\
    [[identity]]\naccount = \"p2\"\npath = \"/lab/p2/{user}\"\n";

const SHARES: &str = "[shares]\n\"/lab\" = 100\n\"/lab/p1\" = 1\n\"/lab/p1/daemon\" = 1\n\"/lab/p2\" = 1\n\
    \"/lab/p2/nobody\" = 1\n";

const PRIVACY: &str = "[privacy]\nhide = [\"usage\", \"jobs\", \"priority\"]\n\
    [privacy.coordinators]\n\"/lab/p1\" = [\"bin\"]\n";

/// Hands its input on to a socket, and prints the answer.
const ASK: &str = r#"
    use IO::Socket::UNIX;
    my $socket = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die;
    binmode STDIN; binmode STDOUT;
    print $socket join("", <STDIN>);
    $socket->flush; shutdown($socket, 1);
    print while <$socket>;
"#;

/// Hands bytes on to a socket as another user, and gives the answer.
fn ask_as(uid: u32, socket: &Path, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    Ok(asking(uid, socket, bytes)?.wait_with_output()?.stdout)
}

/// A process of another user that has handed bytes on to a socket, and waits for the answer.
pub(crate) fn asking(uid: u32, socket: &Path, bytes: &[u8]) -> anyhow::Result<Child> {
    let mut perl = Command::new("perl")
        .args(["-e", ASK])
        .arg(socket)
        .uid(uid)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    perl.stdin.take().context("piped")?.write_all(bytes)?;
    Ok(perl)
}

/// The status and the whole answer of a request by another user: its method, path and body.
pub(crate) fn http_as(
    uid: u32,
    socket: &Path,
    (method, path, body): (&str, &str, &str),
) -> anyhow::Result<(u16, String)> {
    let ask = format!(
        "{method} {path} HTTP/1.1\r\nhost: fairmesh\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = String::from_utf8(ask_as(uid, socket, ask.as_bytes())?)?;
    let status = answer.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, answer))
}

/// Whether one may play other users here; the test is listed where not.
pub(crate) fn plays_users() -> bool {
    let plays = Command::new("true").uid(NOBODY).status().is_ok();
    if !plays {
        fairmesh_needs::lacks(Need::Root, "this is not root");
    }
    plays
}

pub(crate) struct World {
    pub(crate) node: Node,
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    /// `None` where one may not play other users.
    pub(crate) fn start(privacy: &str) -> anyhow::Result<Option<Self>> {
        if !plays_users() {
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        // Everybody may reach the sockets, as in /run.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let site = Site::init(PROGRAM, folder.path(), "lab")?;
        std::fs::write(site.config(), format!("{CONFIG}{privacy}{SHARES}"))?;
        let node = site.start()?;
        let world = Self { node, folder };
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let end = u64::try_from(now)? - 3_600_000;
        let job = |user: &str, account: &str, ms: u64| {
            let start = end - ms;
            format!(
                "{{\"cluster\":\"c\",\"job\":\"{ms}\",\"user\":\"{user}\",\"account\":\"{account}\",\"start_ms\":{start},\
                 \"end_ms\":{end},\"cores\":1}}\n"
            )
        };
        let jobs = [
            job("daemon", "p1", OF_DAEMON.parse()?),
            job("nobody", "p2", 1_000),
            job("daemon", "none", 1_234_567),
        ];
        let (status, said) = world.http(ROOT, "POST", "/v1/records", &jobs.concat())?;
        ensure!(status == 200 && said.contains("\"counted\":3"), "{said}");
        Ok(Some(world))
    }

    fn ask(&self, uid: u32, socket: &str, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        ask_as(uid, &self.folder.path().join(socket), bytes)
    }

    fn http(
        &self,
        uid: u32,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<(u16, String)> {
        let socket = self.folder.path().join("control.sock");
        http_as(uid, &socket, (method, path, body))
    }

    /// The factors that a user is told, by name.
    fn factors<'a>(
        &self,
        uid: u32,
        users: &[(&'a str, &'a str)],
    ) -> anyhow::Result<Vec<Option<u32>>> {
        let who = |(user, account): &(&'a str, &'a str)| {
            Who::Names(Names {
                user: Some(user),
                account: Some(account),
                ..Names::default()
            })
        };
        let names: Vec<Who<'a>> = users.iter().map(who).collect();
        let names = NameBlockBuf::of(&names)?;
        self.looked_up(uid, Accounts::Names(names.as_block()))
            .map(|(factors, _)| factors)
    }

    /// Factors, and what they rest on.
    fn looked_up(
        &self,
        uid: u32,
        accounts: Accounts<'_>,
    ) -> anyhow::Result<(Vec<Option<u32>>, View)> {
        let mut frame = Vec::new();
        let request = Request {
            id: 1,
            want: Want::Factors,
            accounts,
        };
        encode_request(&mut frame, &request)?;
        let answer = self.ask(uid, "lookup.sock", &frame)?;
        let (body, _) = split_frame(&answer)?.context("a frame")?;
        let answer = decode_reply(body)?.outcome;
        let answer = answer.map_err(|(status, why)| anyhow::anyhow!("{status:?}: {why}"))?;
        Ok((answer.factors().collect(), answer.view))
    }

    fn page(&self, target: &str) -> anyhow::Result<String> {
        let log = std::fs::read_to_string(self.folder.path().join("log"))?;
        let (_, address) = log
            .split_once("the share page is served")
            .context("a page")?;
        let (_, address) = address.split_once("127.0.0.1:").context("an address")?;
        let port: String = address.chars().take_while(char::is_ascii_digit).collect();
        let mut stream = TcpStream::connect(("127.0.0.1", port.parse()?))?;
        write!(
            stream,
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// All that is read of somebody; what is asked by name, of `daemon`.
const READS: [&str; 14] = [
    "/v1/shares",
    "/v1/usage",
    "/v1/usage?vo=local",
    "/v1/unmapped",
    "/v1/accounting?totals=true",
    "/v1/accounting?by=user",
    "/v1/accounting",
    "/v1/quota",
    "/v1/quota/history",
    "/v1/quota/summary",
    "/v1/forward",
    "/v1/metrics",
    "/v1/status",
    "/v1/peers",
];

/// What is refused, and to whom it is.
const OF_OTHERS: [&str; 5] = [
    "/v1/priority?user=daemon&account=p1",
    "/v1/priority?path=/lab/p1/daemon",
    "/v1/explain?user=daemon&account=p1",
    "/v1/explain?user=nobody&account=p2&versus=daemon&versus_account=p1",
    "/v1/accounting?totals=true&user=daemon",
];

#[test]
fn what_the_owner_hides_is_told_to_nobody_but_whose_it_is() -> anyhow::Result<()> {
    let Some(world) = World::start(PRIVACY)? else {
        return Ok(());
    };
    let tells = |uid: u32, path: &str| -> anyhow::Result<String> {
        let (status, said) = world.http(uid, "GET", path, "")?;
        ensure!(status == 200, "{uid} {path}: {said}");
        Ok(said)
    };
    for path in READS {
        let told = tells(NOBODY, path)?;
        for secret in ["daemon", OF_DAEMON, "1234567", "/lab/p1"] {
            ensure!(!told.contains(secret), "nobody {path}: {told}");
        }
    }
    for path in OF_OTHERS {
        let (status, said) = world.http(NOBODY, "GET", path, "")?;
        ensure!(status == 403 && !said.contains(OF_DAEMON), "{path}: {said}");
    }
    // What is hidden from whom is no secret: a bug report has to know.
    for (uid, hidden) in [(NOBODY, "[\"usage\",\"jobs\",\"priority\"]"), (ROOT, "[]")] {
        let told = tells(uid, "/v1/status")?;
        ensure!(
            told.contains(&format!("\"hidden\":{hidden}")),
            "{uid}: {told}"
        );
    }
    // Each sees his own, a coordinator all of his account, and root everything.
    let own = tells(NOBODY, "/v1/shares")?;
    ensure!(own.contains("\"/lab/p2/nobody\""), "{own}");
    ensure!(tells(NOBODY, "/v1/accounting")?.contains("\"user\":\"nobody\""));
    for path in [
        "/v1/shares",
        "/v1/usage?vo=local",
        "/v1/accounting",
        "/v1/accounting?by=user",
    ] {
        for uid in [DAEMON, BIN, ROOT] {
            let told = tells(uid, path)?;
            ensure!(told.contains("daemon"), "{uid} {path}: {told}");
            let sees_nobody = told.contains("nobody");
            ensure!(sees_nobody == (uid == ROOT), "{uid} {path}: {told}");
        }
    }
    for uid in [DAEMON, BIN, ROOT] {
        tells(uid, "/v1/explain?user=daemon&account=p1")?;
    }
    look_ups_are_each_his_own(&world)?;
    // The page does not know who reads it.
    for target in [
        "/",
        "/entry?path=/lab/p1/daemon",
        "/shares.csv",
        "/find?q=daemon",
    ] {
        let told = world.page(target)?;
        ensure!(told.starts_with("HTTP/1.1 403"), "{target}: {told}");
    }
    let metrics = world.page("/metrics")?;
    ensure!(
        metrics.starts_with("HTTP/1.1 200") && !metrics.contains("/lab"),
        "{metrics}"
    );
    // What the owner allows again is told at once.
    let site = Site::at(PROGRAM, world.folder.path())?;
    let open = PRIVACY.replace("\"usage\", \"jobs\", \"priority\"", "\"jobs\"");
    std::fs::write(site.config(), format!("{CONFIG}{open}{SHARES}"))?;
    world.node.reload()?;
    let began = std::time::Instant::now();
    while !tells(NOBODY, "/v1/shares")?.contains("daemon") {
        ensure!(began.elapsed().as_secs() < 60, "the reload changes nothing");
    }
    Ok(())
}

fn look_ups_are_each_his_own(world: &World) -> anyhow::Result<()> {
    let both = [("daemon", "p1"), ("nobody", "p2")];
    for (uid, expected) in [
        (NOBODY, [false, true]),
        (DAEMON, [true, false]),
        (BIN, [true, false]),
        (ROOT, [true, true]),
    ] {
        let told = world.factors(uid, &both)?;
        let told: Vec<bool> = told.iter().map(Option::is_some).collect();
        ensure!(told == expected, "{uid}: {told:?}");
    }
    // Guessed handles say no more than names do.
    let none = NameBlockBuf::of(&[])?;
    let (_, view) = world.looked_up(NOBODY, Accounts::Names(none.as_block()))?;
    ensure!((view.step, view.ranking) == (0, 0), "of others: {view:?}");
    let (_, of_all) = world.looked_up(ROOT, Accounts::Names(none.as_block()))?;
    ensure!(of_all.step > 0 && of_all.ranking > 0, "{of_all:?}");
    let generation = view.generation;
    let all: Vec<u8> = (0..10_u32).flat_map(u32::to_be_bytes).collect();
    let handles = HandleColumn::new(&all)?;
    let told = |uid| {
        world.looked_up(
            uid,
            Accounts::Handles {
                generation,
                handles,
            },
        )
    };
    let [some, every] = [told(NOBODY)?.0, told(ROOT)?.0];
    let count = |told: &[Option<u32>]| told.iter().flatten().count();
    ensure!(
        (count(&some), count(&every)) == (4, 10),
        "{some:?} {every:?}"
    );
    Ok(())
}

#[test]
fn a_refusal_does_not_tell_which_of_anothers_entries_comes_first() -> anyhow::Result<()> {
    let Some(world) = World::start(PRIVACY)? else {
        return Ok(());
    };
    let site = Site::at(PROGRAM, world.folder.path())?;
    let both = format!("{CONFIG}{PRIVACY}{SHARES}\"/lab/p2/daemon\" = 1\n");
    std::fs::write(site.config(), both)?;
    world.node.reload()?;
    // Of two entries root is told of the one that is served first.
    let await_first = |path: &str| -> anyhow::Result<()> {
        let began = std::time::Instant::now();
        let first = format!("\"path\":\"{path}\",\"rank\"");
        loop {
            let (_, said) = world.http(ROOT, "GET", "/v1/explain?user=daemon", "")?;
            if said.contains("/lab/p1/daemon") && said.find(&first) < said.find("\"others\"") {
                return Ok(());
            }
            ensure!(began.elapsed().as_secs() < 60, "not {path} first: {said}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let told = || -> anyhow::Result<Vec<String>> {
        let asked = [
            "/v1/priority?user=daemon",
            "/v1/explain?user=daemon",
            "/v1/explain?user=nobody&account=p2&versus=daemon",
        ];
        let told = asked.map(|path| {
            let (status, said) = world.http(NOBODY, "GET", path, "")?;
            let (_, body) = said.split_once("\r\n\r\n").context("a head")?;
            ensure!(!body.contains("/lab/p"), "{path}: {said}");
            Ok(format!("{status} {body}"))
        });
        told.into_iter().collect()
    };
    await_first("/lab/p2/daemon")?;
    let before = told()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let job = format!(
        "{{\"cluster\":\"c\",\"job\":\"more\",\"user\":\"daemon\",\"account\":\"p2\",\"start_ms\":{},\"end_ms\":{},\
         \"cores\":64}}",
        now - 86_400_000,
        now - 3_600_000
    );
    let (status, said) = world.http(ROOT, "POST", "/v1/records", &job)?;
    ensure!(status == 200 && said.contains("\"counted\":1"), "{said}");
    await_first("/lab/p1/daemon")?;
    ensure!(before == told()?, "{before:?} became {:?}", told()?);
    Ok(())
}

#[test]
fn a_dry_run_does_not_tell_which_jobs_there_are() -> anyhow::Result<()> {
    let Some(world) = World::start(PRIVACY)? else {
        return Ok(());
    };
    let end = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() / 1_000 - 3_600;
    let job = format!(
        "{{\"format\":\"slurm-sacct\",\"cluster\":\"c\",\"job\":\"{OF_DAEMON}\",\"instance\":0,\"user\":\"daemon\",\
         \"account\":\"p1\",\"state\":\"completed\",\"start\":{},\"end\":{},\"cpus\":1}}",
        (end - 60) * 1_000,
        end * 1_000
    );
    for (uid, known) in [(NOBODY, 0), (ROOT, 1)] {
        let (status, said) = world.http(uid, "POST", "/v1/accounting?dry_run=true", &job)?;
        let expected = format!("\"known\":{known}");
        ensure!(status == 200 && said.contains(&expected), "{uid}: {said}");
    }
    Ok(())
}

#[test]
fn others_read_nothing_of_the_data_folder_however_the_node_was_started() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, folder.path(), "lab")?;
    std::fs::write(site.config(), format!("{CONFIG}{SHARES}"))?;
    // Whoever makes it first.
    std::fs::create_dir_all(site.data())?;
    std::fs::set_permissions(site.data(), Permissions::from_mode(0o777))?;
    let _node = site.start()?;
    let mode = |path: &Path| -> anyhow::Result<u32> {
        Ok(std::fs::metadata(path)?.permissions().mode() & 0o777)
    };
    ensure!(mode(&site.data())? == 0o750);
    let mut folders = vec![site.data()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            ensure!(
                mode(&path)? & 0o007 == 0,
                "{} is for others",
                path.display()
            );
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}
