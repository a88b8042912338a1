//! Two sites and a VO (docs/guides/two-sites.md), typed by a test: two real nodes, a VO of two officers, usage, answers,
//! a reload; and nonsense on both sockets of a node that goes on answering.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_client::client::Client;
use fairmesh_client::{Names, Who};
use fairmesh_tests::{Node, Site, records};
use serde_json::Value;

use crate::PROGRAM;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a command printed, and how it ended.
struct Ran {
    out: String,
    told: String,
    code: Option<i32>,
}

/// A folder in which commands are typed.
struct Desk {
    folder: tempfile::TempDir,
    socket: PathBuf,
}

impl Desk {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            folder: tempfile::tempdir()?,
            socket: PathBuf::from("/nowhere"),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `fairmesh LINE`, words separated by blanks, with `input` on standard input.
    fn ask(&self, line: &str, input: &str) -> anyhow::Result<Ran> {
        let mut child = Command::new(PROGRAM)
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .env("FAIRMESH_SOCKET", &self.socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child
            .stdin
            .take()
            .context("piped")?
            .write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        Ok(Ran {
            out: String::from_utf8(output.stdout)?,
            told: String::from_utf8(output.stderr)?,
            code: output.status.code(),
        })
    }

    /// Runs what must succeed; gives what it printed.
    fn run(&self, line: &str) -> anyhow::Result<String> {
        let ran = self.ask(line, "")?;
        ensure!(ran.code == Some(0), "{line}: {}{}", ran.out, ran.told);
        Ok(ran.out)
    }

    fn json(&self, line: &str, schema: &str) -> anyhow::Result<Value> {
        let ran = self.ask(&format!("{line} --json"), "")?;
        let value: Value = serde_json::from_str(&ran.out)
            .with_context(|| format!("{line}: {}{}", ran.out, ran.told))?;
        ensure!(value["schema"] == schema, "{line}: {value}");
        Ok(value)
    }

    /// Founds a VO whose charter needs both officers; gives its id.
    fn found(&self) -> anyhow::Result<String> {
        let key = |name: &str| self.run(&format!("policy keygen {name}.key"));
        let (a, b, c) = (key("a")?, key("b")?, key("c")?);
        let (a, b, c) = (a.trim(), b.trim(), c.trim());
        self.run(&format!(
            "policy new charter --name physics --authority {a} --authority {b} --threshold 2 \
             --policy {c} --site hpc1/member.toml --site hpc2/member.toml -o charter.toml"
        ))?;
        self.run("policy sign charter.toml --key a.key")?;
        let lacking = self.ask("policy verify charter.cbor", "")?;
        ensure!(lacking.code == Some(1), "{}", lacking.out);
        self.run("policy sign charter.cbor --key b.key")?;
        self.run("policy new shares --charter charter.cbor -o shares.toml")?;
        self.append(
            "shares.toml",
            "\"/cms\" = 100\n\"/cms/ann\" = 50\n\"/cms/bob\" = 50\n\"/atlas\" = 100\n\"/atlas/ann\" = 100\n",
        )?;
        self.run("policy sign shares.toml --key c.key")?;
        self.run("policy verify charter.cbor shares.cbor")?;
        Ok(self.run("policy show charter.cbor --id")?.trim().to_owned())
    }

    fn append(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let mut file = std::fs::File::options()
            .append(true)
            .open(self.path(file))?;
        Ok(file.write_all(text.as_bytes())?)
    }

    fn configure(&self, site: &str, vo: &str, peers: &str) -> anyhow::Result<()> {
        let text = format!(
            "[site]\nname = \"{site}\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
             peers = [{peers}]\n[vos]\nphysics = \"{vo}\"\n\
             [[identity]]\naccount = \"*\"\nvo = \"physics\"\npath = \"/{{account}}/{{user}}\"\n\
             [shares]\n\"/physics\" = {{ share = 80, mount = \"physics\" }}\n\"/local\" = 20\n\
             [timing]\npublish = \"100ms\"\nsync = \"300ms\"\n"
        );
        std::fs::write(self.path(&format!("{site}/fairmesh.toml")), text)?;
        self.run(&format!("check-config --config {site}/fairmesh.toml"))?;
        Ok(())
    }

    /// Runs a command until what it prints contains `expected`.
    fn await_words(&self, line: &str, expected: &str) -> anyhow::Result<String> {
        let began = Instant::now();
        loop {
            let ran = self.ask(line, "")?;
            if ran.out.contains(expected) {
                return Ok(ran.out);
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{line}: no `{expected}` in: {}{}",
                ran.out,
                ran.told
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Two nodes of one VO, founded by hand; the desk asks the first.
fn two_sites() -> anyhow::Result<(Desk, Node, Node)> {
    let mut desk = Desk::new()?;
    let site = |name: &str| Site::init(PROGRAM, &desk.path(name), name);
    let (first, second) = (site("hpc1")?, site("hpc2")?);
    let vo = desk.found()?;
    desk.configure("hpc1", &vo, "")?;
    let first_node = first.start()?;
    let peer = format!("\"{}@{}\"", first.id, first_node.address);
    desk.configure("hpc2", &vo, &peer)?;
    let second_node = second.start()?;
    first_node.socket().clone_into(&mut desk.socket);
    for document in ["charter.cbor", "shares.cbor"] {
        desk.run(&format!("policy publish {document}"))?;
    }
    Ok((desk, first_node, second_node))
}

fn report(desk: &Desk, file: &str, lines: &[u8]) -> anyhow::Result<Value> {
    std::fs::write(desk.path(file), lines)?;
    desk.json(&format!("report {file}"), "fairmesh.report/1")
}

#[test]
fn five_minutes_to_a_two_site_mesh() -> anyhow::Result<()> {
    let (desk, _first, second) = two_sites()?;
    desk.await_words("peers -P -n", "|in-sync|")?;
    let first_time = report(&desk, "jobs.jsonl", &records("cms", "ann", 0, 3))?;
    assert_eq!(
        (&first_time["counted"], &first_time["known"]),
        (&3.into(), &0.into())
    );
    let again = desk.json("report jobs.jsonl", "fairmesh.report/1")?;
    assert_eq!((&again["counted"], &again["known"]), (&0.into(), &3.into()));
    let stray = String::from_utf8(records("x", "mallory", 9, 1))?.replace("\"account\":\"x\",", "");
    report(&desk, "stray.jsonl", stray.as_bytes())?;
    assert!(desk.run("usage --unmapped")?.contains("mallory"));

    second.await_usage("physics", "cms/ann", 3_000)?;
    let shares = desk.json("share", "fairmesh.shares/1")?;
    let paths = shares["entries"].as_array().context("entries")?.iter();
    let paths: Vec<_> = paths.filter_map(|entry| entry["path"].as_str()).collect();
    assert!(paths.contains(&"/physics/cms/ann"), "{paths:?}");
    assert!(desk.run("share")?.starts_with("as of "));
    assert_eq!(desk.run("share -P -n -u bob -o user,levelfs")?, "bob|inf\n");
    let prio = desk.json("prio ann -A cms", "fairmesh.priority/1")?;
    assert_eq!(prio["entry"], "/physics/cms/ann");
    let explained = desk.json(
        "explain ann -A cms --vs bob --vs-account cms",
        "fairmesh.explain/1",
    )?;
    assert_eq!(explained["comparison"]["standing"], "after");
    let words = desk.run("explain ann -A cms --vs bob --vs-account cms")?;
    assert!(
        words.contains("/physics/cms/bob is served first"),
        "{words}"
    );
    // A user is found without his account; who has several is explained at each.
    let words = desk.run("explain bob --vs /physics/cms/ann")?;
    assert!(
        words.contains("Jobs of bob count at /physics/cms/bob, rank "),
        "{words}"
    );
    let both = desk.json("explain ann", "fairmesh.explain/1")?;
    assert_eq!(both["path"], "/physics/atlas/ann");
    assert_eq!(both["others"][0]["path"], "/physics/cms/ann");
    let refused = desk.ask("prio ann", "")?.told;
    assert!(
        refused.contains("`/physics/atlas/ann`, `/physics/cms/ann`"),
        "{refused}"
    );
    assert!(desk.run("usage --by-site")?.contains("hpc1"));
    assert_eq!(desk.json("status", "fairmesh.status/1")?["healthy"], true);

    let many = desk.ask("prio --stdin", "ann cms\nbob cms\nnobody\n")?;
    let factors: Vec<_> = many
        .out
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    assert!(
        factors[0] < factors[1] && factors[2] == "unknown",
        "{}",
        many.out
    );
    assert_eq!(many.code, Some(1));
    let many = desk.ask("prio --stdin --json", "ann\tcms\nAnn Lee\tcms\n")?;
    let many: Value = serde_json::from_str(&many.out)?;
    assert_eq!(many["schema"], "fairmesh.priorities/1");
    assert_eq!(many["priorities"][0]["factor"], prio["factor"]);
    assert_eq!(many["priorities"][1]["user"], "Ann Lee");
    let unclear = desk.ask("prio --stdin", "ann cms\nAnn Lee cms\n")?;
    assert_eq!(unclear.code, Some(2));
    assert!(unclear.told.contains("line 2"), "{}", unclear.told);
    Ok(())
}

#[test]
fn whoever_errs_is_told_where_and_what_to_do() -> anyhow::Result<()> {
    let (mut desk, _first, _second) = two_sites()?;
    let misspelt = String::from_utf8(records("cms", "ann", 0, 1))?.replace("account", "acount");
    let lines = [records("cms", "ann", 1, 1), misspelt.into_bytes()].concat();
    std::fs::write(desk.path("jobs.jsonl"), lines)?;
    let tried = desk.ask("report --dry-run jobs.jsonl", "")?;
    assert!(
        tried.told.contains("unknown field `acount`"),
        "{}",
        tried.told
    );
    assert!(tried.out.contains("1 job: "), "{}", tried.out);
    let reported = desk.ask("report jobs.jsonl --json", "")?;
    let body: Value = serde_json::from_str(&reported.out)?;
    assert_eq!((&body["counted"], &body["refused"]), (&1.into(), &1.into()));

    let nobody = desk.ask("share -u nobody,bob -A cms -P -n -o user", "")?;
    assert_eq!((nobody.code, nobody.out.as_str()), (Some(1), "bob\n"));
    assert!(
        nobody
            .told
            .contains("the user `nobody` is not in the share tree"),
        "{}",
        nobody.told
    );
    let bob = desk.json("share -u bob", "fairmesh.shares/1")?;
    let [entry] = &bob["entries"].as_array().context("entries")?[..] else {
        anyhow::bail!("{bob}")
    };
    assert_eq!(
        (&entry["user"], &entry["level_fs"]),
        (&"bob".into(), &"inf".into())
    );
    // A user cannot edit the node's configuration.
    let unmapped = desk.ask("explain nobody", "")?.told;
    assert!(
        unmapped.contains("-A ACCOUNT") && !unmapped.contains("[[identity]]"),
        "{unmapped}"
    );
    assert!(desk.ask("status", "")?.out.contains("in 364 days"));
    desk.socket.push("gone");
    for (line, input) in [("share", ""), ("prio --stdin", "ann cms\n")] {
        let away = desk.ask(line, input)?;
        assert_eq!(away.code, Some(2));
        assert!(
            away.told.contains("no node answers at "),
            "{line}: {}",
            away.told
        );
    }
    Ok(())
}

#[test]
fn exit_codes_tell_no_from_nobody() -> anyhow::Result<()> {
    let (mut desk, first, second) = two_sites()?;
    let code = |desk: &Desk, line: &str| anyhow::Ok(desk.ask(line, "")?.code);
    assert_eq!(code(&desk, "explain nobody")?, Some(1));
    assert_eq!(code(&desk, "usage --vo nix")?, Some(1));
    assert_eq!(code(&desk, "share -o nix")?, Some(2));
    desk.run("policy new shares --from shares.cbor -o stolen.toml")?;
    desk.run("policy sign stolen.toml --key a.key")?;
    assert_eq!(code(&desk, "policy publish stolen.cbor")?, Some(1));
    // A charter with another key for the shares would take them from everybody.
    desk.run("policy new charter --from charter.cbor -o next.toml")?;
    let draft = std::fs::read_to_string(desk.path("next.toml"))?;
    let (_, role) = draft.split_once("[policy]").context("a role")?;
    let old = role.split('"').nth(1).context("a key")?;
    let new = desk.run("policy keygen new.key")?;
    std::fs::write(desk.path("next.toml"), draft.replace(old, new.trim()))?;
    desk.run("policy sign next.toml --key a.key --key b.key")?;
    let asked = desk.ask("policy publish next.cbor", "")?;
    assert_eq!(asked.code, Some(1));
    assert!(
        asked.out.contains("falls: share policy 1 of `/`"),
        "{}{}",
        asked.out,
        asked.told
    );
    desk.run("explain ann")?;
    desk.await_words("peers -P -n", "|in-sync|")?;
    second.kill()?;
    desk.await_words("status", "no other site is reachable")?;
    assert_eq!(code(&desk, "status")?, Some(1));
    assert_eq!(code(&desk, "netcheck")?, Some(1));
    assert!(first.stop()?.success());
    desk.socket.push("gone");
    assert_eq!(code(&desk, "status")?, Some(2));
    Ok(())
}

/// A node whose words go to a file, as under systemd; killed when dropped.
struct Logged(Child);

impl Logged {
    fn start(desk: &Desk, config: &str, log: &Path) -> anyhow::Result<Self> {
        let log = std::fs::File::create(log)?;
        let child = Command::new(PROGRAM)
            .args(["run", "--config", config])
            .current_dir(desk.folder.path())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self(child))
    }

    fn reload(&self) -> anyhow::Result<()> {
        let pid = self.0.id().to_string();
        Command::new("kill").args(["-HUP", &pid]).status()?;
        Ok(())
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // It may have ended already, which is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn await_log(log: &Path, expected: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(log)?;
        if text.contains(expected) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "no `{expected}` in: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_reload_is_applied_or_rejected_as_a_whole() -> anyhow::Result<()> {
    let (desk, first, _second) = two_sites()?;
    assert!(first.stop()?.success());
    let log = desk.path("words");
    let node = Logged::start(&desk, "hpc1/fairmesh.toml", &log)?;
    await_log(&log, "listens on")?;
    let config = desk.path("hpc1/fairmesh.toml");
    let text = std::fs::read_to_string(&config)?;
    let changed = text.replace("\"/local\" = 20", "\"/local\" = 10");
    std::fs::write(
        &config,
        changed.replace("name = \"hpc1\"", "name = \"one\""),
    )?;
    node.reload()?;
    await_log(&log, "reload: applied: shares")?;
    await_log(&log, "reload: needs a restart: site.name")?;
    desk.await_words("share -P -n -A /local -o rawshares", "10")?;
    std::fs::write(
        &config,
        text.replace("\"/local\" = 20", "\"/local\" = -170"),
    )?;
    node.reload()?;
    await_log(&log, "reload: rejected")?;
    assert_eq!(desk.run("share -P -n -A /local -o rawshares")?, "10\n");
    Ok(())
}

/// Sends bytes, says nothing more, and reads what comes, for a moment.
fn send(socket: &Path, bytes: &[u8], hang_up: bool) -> anyhow::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    // The node may close while we are still writing: that is its right.
    let _ = stream.write_all(bytes);
    if hang_up {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        answer.extend_from_slice(&piece[..read]);
    }
    Ok(answer)
}

#[test]
fn nonsense_on_the_sockets_stops_nothing() -> anyhow::Result<()> {
    let (desk, first, _second) = two_sites()?;
    let control = first.socket().to_owned();
    let lookup = control.with_file_name("lookup.sock");
    let mut noise = vec![0_u8; 65_536];
    let mut state = 0x9e37_79b9_u32;
    noise.iter_mut().for_each(|byte| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = state.to_be_bytes()[0];
    });
    let half = b"\x00\x00\x00\x1e\xa4\x01\x01".to_vec();
    let cases = [
        noise.clone(),
        b"\xff\xff\xff\xff".to_vec(),
        b"\x00\x00\x00\x00".to_vec(),
        b"\x00\x00\x00\x02\xa1\x01".to_vec(),
        half.clone(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ];
    for (case, bytes) in cases.iter().enumerate() {
        let answer = send(&lookup, bytes, true)?;
        // The last frame that is whole is answered, with an error; half a frame never is.
        assert_eq!(answer.is_empty(), *bytes == half, "case {case}: {answer:?}");
        assert!(answer.len() < 1_024, "case {case}");
    }
    assert!(send(&lookup, &half, false)?.is_empty());

    for bytes in [noise, b"GARBAGE\r\n\r\n".to_vec()] {
        let answer = String::from_utf8_lossy(&send(&control, &bytes, true)?).into_owned();
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let cut = b"POST /v1/records HTTP/1.1\r\nhost: fairmesh\r\ncontent-length: 99\r\n\r\n{\"clu";
    send(&control, cut, true)?;
    let long = first.http("POST", "/v1/records", &vec![b'x'; 10 << 20])?;
    assert_eq!(
        (long.status, &long.body["refused"]),
        (200, &1.into()),
        "{long:?}"
    );
    let large = first.http("POST", "/v1/documents", &vec![0; 5 << 20]);
    assert!(large.is_err() || large.is_ok_and(|answer| answer.status == 413));

    let mut client = Client::connect(lookup, Duration::from_secs(10))?;
    let ann = Names {
        user: Some("ann"),
        account: Some("cms"),
        ..Names::default()
    };
    let answer = client.lookup(&[Who::Names(ann)])?;
    assert!(answer.factors().all(|factor| factor.is_some()));
    desk.json("status", "fairmesh.status/1")?;
    Ok(())
}
