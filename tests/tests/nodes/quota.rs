//! Credit on a real node: an authority grants it and takes it back by commands, and the site's owner has the last
//! word about his own cluster, in both directions.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use fairmesh_tests::{Node, Site, Vo};

use crate::PROGRAM;
use crate::privacy::{DAEMON, NOBODY, http_as, plays_users};

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands in a folder, at a node.
pub(crate) struct Shell<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) node: &'a Node,
}

impl Shell<'_> {
    /// What a command says, and whether it went well.
    pub(crate) fn run(&self, words: &str) -> anyhow::Result<(bool, String)> {
        let output = Command::new(PROGRAM)
            .args(words.split_whitespace())
            .current_dir(self.folder)
            .env("FAIRMESH_SOCKET", self.node.socket())
            .output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((output.status.success(), said))
    }

    pub(crate) fn says(&self, words: &str, is_good: bool, expected: &str) -> anyhow::Result<()> {
        let (good, said) = self.run(words)?;
        ensure!(
            good == is_good && said.contains(expected),
            "{words}: {said}"
        );
        Ok(())
    }

    pub(crate) fn hold(
        &self,
        job: &str,
        cores: u32,
        is_good: bool,
        expected: &str,
    ) -> anyhow::Result<()> {
        let call = format!(
            "quota hold {job} --cluster c --user ann --account physics --cores {cores} --time 1h"
        );
        self.says(&call, is_good, expected)
    }

    /// Waits until `quota show` says so.
    pub(crate) fn shows(&self, expected: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let (_, said) = self.run("quota show /ann")?;
            if said.contains(expected) {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "no `{expected}`: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn owner_says(site: &Site, node: &Node, before: &str, words: &str) -> anyhow::Result<()> {
    let mut file = File::create(site.config())?;
    file.write_all(format!("{before}\n{words}").as_bytes())?;
    node.reload()
}

#[test]
fn an_authority_grants_and_takes_back_and_the_owner_has_the_last_word() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["ann"])?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    let file = fs::read_to_string(site.config())?;
    let node = site.start()?;
    vo.publish(&node)?;
    let shell = Shell {
        folder: folder.path(),
        node: &node,
    };
    fs::write(folder.path().join("charter.cbor"), vo.charter())?;
    let key = folder.path().join("authority.key");
    fs::write(&key, "a5".repeat(32))?;
    fs::set_permissions(&key, Permissions::from_mode(0o600))?;

    let draft = "policy new allocation --charter charter.cbor --path /ann --amount 2 --slices 1 --days 30 -o q.toml";
    shell.says(draft, true, "")?;
    shell.says("quota plan q.toml --charter charter.cbor", true, "")?;
    shell.says("quota grant q.toml --key authority.key", true, "")?;
    shell.shows("strict")?;
    shell.hold("1", 1, true, "granted: 1.00 core-hours held of /ann")?;
    shell.hold(
        "2",
        2,
        false,
        "ann: 1.0 core-hours left here, 1.0 in the VO",
    )?;
    let unknown = "quota hold 9 --cluster c --user eve --account nobody --cores 1 --time 1h";
    shell.says(unknown, false, "no identity rule says who it belongs to")?;

    // Laxer than the VO, and nobody asked.
    owner_says(
        &site,
        &node,
        &file,
        "[quota.physics]\nmode = \"advisory\"\n",
    )?;
    shell.shows("advisory (owner)")?;
    shell.hold("2", 2, true, "over_quota: 1.00 core-hours held of /ann")?;
    shell.says("quota release 2 --cluster c", true, "")?;
    owner_says(&site, &node, &file, "[quota.physics]\nmode = \"off\"\n")?;
    shell.shows("off (owner)")?;
    shell.hold("3", 50, true, "exempt")?;
    // Stricter, and says that it was him.
    let strict = "[quota.physics]\nmode = \"strict\"\nexempt = { users = [\"op*\"] }\n";
    owner_says(&site, &node, &file, strict)?;
    shell.shows("strict (owner)")?;
    shell.hold("4", 2, false, "(so the owner of this site decides)")?;
    let operator = "quota hold 5 --cluster c --user op1 --account physics --cores 9 --time 1h";
    shell.says(operator, true, "exempt")?;

    // Who did what: the authority, the owner, and a job that nobody had asked about.
    let end = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let begin = end - 3_600_000;
    let record = format!(
        "{{\"cluster\":\"c\",\"job\":\"7\",\"user\":\"ann\",\"account\":\"physics\",\"start_ms\":{begin},\"end_ms\":{end},\"cores\":4}}"
    );
    ensure!(node.http("POST", "/v1/records", record.as_bytes())?.status == 200);
    let (_, said) = shell.run("quota history /ann -P -n")?;
    for words in [
        "|/ann|1|2.00|",
        "exempt|owner|",
        "over_quota|nobody asked|1|1.00|3.00",
    ] {
        ensure!(said.contains(words), "no {words}: {said}");
    }
    ensure!(!said.contains("|granted|"), "{said}");
    shell.says("quota history /ann -P --all", true, "|granted|")?;
    shell.says("quota summary -P -n", true, "|physics|/ann|/ann|a|1|4.00")?;
    shell.says("quota summary --month 2020-01 -P -n", true, "")?;
    shell.says("quota summary --month 2020-13", false, "is no month")?;

    // What is held stays; the rest is gone.
    shell.says("quota revoke /ann --key authority.key", true, "")?;
    shell.hold("6", 1, false, "ann: 0.0 core-hours left here")?;
    shell.hold("1", 1, true, "granted: 1.00 core-hours held of /ann")
}

/// A site's node with one project's credit of two core-hours, and a folder with the keys.
struct Granted {
    folder: tempfile::TempDir,
    site: Site,
    file: String,
    node: Node,
}

fn granted(terms: &str) -> anyhow::Result<Granted> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["ann", "bob"])?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    let file = fs::read_to_string(site.config())?;
    let node = site.start()?;
    vo.publish(&node)?;
    fs::write(folder.path().join("charter.cbor"), vo.charter())?;
    let key = folder.path().join("authority.key");
    fs::write(&key, "a5".repeat(32))?;
    fs::set_permissions(&key, Permissions::from_mode(0o600))?;
    let shell = Shell {
        folder: folder.path(),
        node: &node,
    };
    let draft = "policy new allocation --charter charter.cbor --path / --amount 4 --slices 1 --days 30 -o q.toml";
    shell.says(draft, true, "")?;
    let draft = folder.path().join("q.toml");
    let text = fs::read_to_string(&draft)?;
    for term in terms.lines() {
        let (name, _) = term.split_once(' ').unwrap_or((term, ""));
        ensure!(text.contains(&format!("{name} = ")), "no {name}: {text}");
    }
    let is_other = |line: &&str| {
        let is = |term: &str| line.trim_start_matches("# ").starts_with(term);
        !terms
            .lines()
            .filter_map(|term| term.split(" =").next())
            .any(is)
    };
    let rest: Vec<&str> = text.lines().filter(is_other).collect();
    let text = rest
        .join("\n")
        .replacen("[allocation]", &format!("[allocation]\n{terms}"), 1);
    fs::write(&draft, text)?;
    shell.says("quota grant q.toml --key authority.key", true, "")?;
    Ok(Granted {
        folder,
        site,
        file,
        node,
    })
}

#[test]
fn a_resized_job_is_charged_part_by_part_out_of_what_it_held() -> anyhow::Result<()> {
    let Granted { folder, node, .. } = granted("")?;
    let shell = Shell {
        folder: folder.path(),
        node: &node,
    };
    let end = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let end = end / 1_000 * 1_000;
    // Three cores for half an hour, then one for as long.
    let changed = end - 1_800_000;
    let part = |instance: u128, (start, end): (u128, u128), cores: u32, next: &str| {
        format!(
            "{{\"cluster\":\"c\",\"job\":\"1\",\"instance\":{instance},\"user\":\"ann\",\"account\":\"physics\",\
             \"start_ms\":{start},\"end_ms\":{end},\"cores\":{cores}{next}}}"
        )
    };
    shell.hold("1", 3, true, "granted: 3.00 core-hours held of /")?;
    let later = changed / 1_000;
    let next = format!(",\"next_instance\":{later}");
    let first = part(0, (changed - 1_800_000, changed), 3, &next);
    let last = part(later, (changed, end), 1, "");
    for (record, counts) in [
        (first, "|4.00|1.50|1.50|1.00|"),
        (last, "|4.00|2.00|0.00|2.00|"),
    ] {
        for _ in 0..2 {
            ensure!(node.http("POST", "/v1/records", record.as_bytes())?.status == 200);
            let (_, said) = shell.run("quota show / -P -n")?;
            ensure!(said.contains(counts), "no {counts}: {said}");
        }
    }
    let (_, said) = shell.run("quota history / -P -n --all")?;
    ensure!(!said.contains("nobody asked"), "{said}");
    Ok(())
}

#[test]
fn an_auditor_reads_every_job_and_spends_nothing() -> anyhow::Result<()> {
    if !plays_users() {
        return Ok(());
    }
    let Granted {
        folder,
        site,
        file,
        node,
    } = granted("")?;
    // Everybody may reach the socket, as in /run.
    for folder in [folder.path(), site.folder()] {
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    }
    let more = "[sockets]\ncontrol = \"control.sock\"\n\
        [privacy]\nhide = [\"usage\", \"jobs\"]\nreaders = [\"daemon\"]\n";
    fs::write(site.config(), format!("{file}{more}"))?;
    node.kill()?;
    let node = site.start()?;
    let shell = Shell {
        folder: folder.path(),
        node: &node,
    };
    shell.hold("1", 1, true, "granted: 1.00 core-hours held of /")?;
    let hold = "{\"cluster\":\"c\",\"job\":\"2\",\"user\":\"ann\",\"account\":\"physics\",\"cores\":1,\"wall_s\":60}";
    for (uid, is_auditor) in [(DAEMON, true), (NOBODY, false)] {
        let all = ("GET", "/v1/quota/history?all=true", "");
        let (status, said) = http_as(uid, node.socket(), all)?;
        let sees = said.contains("\"user\":\"/ann\"");
        ensure!(status == 200 && sees == is_auditor, "{uid}: {said}");
        for (path, body) in [("hold", hold), ("release", hold), ("drain", "{}")] {
            let path = format!("/v1/quota/{path}");
            let (status, said) = http_as(uid, node.socket(), ("POST", &path, body))?;
            ensure!(status == 403, "{uid} {path}: {said}");
        }
    }
    Ok(())
}

#[test]
fn an_owner_has_a_price_gives_idle_machines_away_and_puts_those_with_nothing_behind()
-> anyhow::Result<()> {
    let granted = granted("fee = 0.5\nprice_max = 1.5\nidle_charge = 0.5\n")?;
    let Granted {
        folder,
        site,
        file,
        node,
    } = &granted;
    let shell = Shell {
        folder: folder.path(),
        node,
    };
    // More than the VO lets him ask.
    let always = "price = { calendar = [{ from = \"00:00\", until = \"00:00\", price = 3 }] }";
    owner_says(
        site,
        node,
        file,
        &format!("[quota.physics]\n{always}\nidle = {{}}\nbands = true\n"),
    )?;
    let config = site.config();
    let check = format!("check-config --config {}", config.display());
    shell.says(
        &check,
        false,
        "counts as 2 unless an allocation's `price_max` allows more",
    )?;
    let began = Instant::now();
    let job = "--user ann --account physics --cores 1 --time 1h";
    loop {
        let (_, said) = shell.run("quota show")?;
        if said.contains(" 1.5 ") {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "no price: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
    shell.says(&format!("quota quote {job}"), true, "1.50")?;
    shell.says(&format!("quota quote {job} --importance 200"), true, "2.25")?;
    shell.hold(
        "1",
        1,
        true,
        "granted: 1.50 core-hours held of / at price 1.5",
    )?;
    let important = format!("quota hold 2 --cluster c {job} --importance 200");
    shell.says(
        &important,
        true,
        "granted: 2.25 core-hours held of / at price 2.25",
    )?;

    // A quarter of a core-hour is left, which no job of an hour can have.
    let prio = |user: &str| -> anyhow::Result<f64> {
        let path = format!("/v1/priority?user={user}&account=physics");
        let answer = node.http("GET", &path, b"")?;
        let factor = &answer.body["factor"];
        let factor = factor.as_f64().or_else(|| factor.as_str()?.parse().ok());
        factor.ok_or_else(|| anyhow::anyhow!("{answer:?}"))
    };
    ensure!(prio("ann")? > 0.5, "within its quota");
    shell.hold("3", 1, false, "/: 0.2 core-hours left here")?;
    let waits = |who: &str| format!("{{\"total\": 20, \"free\": 10, \"waiting\": [{who}]}}");
    let local = "{\"user\": \"zoe\", \"cpus\": 1}";
    let told = |who: &str| node.http("POST", "/v1/occupancy", waits(who).as_bytes());
    ensure!(told(local)?.status == 200);
    shell.hold("3", 1, false, "/: 0.2 core-hours left here")?;
    ensure!(told("")?.status == 200);
    shell.hold("3", 1, true, "idle: 0.00 core-hours held of / at price 1.5")?;
    // Half of its price is charged, as an overdraft.
    shell.says(
        "quota commit 3 --cluster c --core-hours 1",
        true,
        "0.75 of overdraft",
    )?;
    // The next slice would pay; here what is left does, and then nothing is left.
    let began = Instant::now();
    while prio("bob")? > 0.5 {
        ensure!(began.elapsed() < PATIENCE, "still in front");
        std::thread::sleep(Duration::from_millis(50));
    }
    owner_says(site, node, file, "[quota.physics]\nbands = false\n")?;
    let began = Instant::now();
    while prio("bob")? < 0.5 {
        ensure!(began.elapsed() < PATIENCE, "still behind");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
