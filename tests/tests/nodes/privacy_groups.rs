//! A node whose owner hides what users do from each other, in a VO with credit: what one is told of a group that he is not
//! in, but under whose name he may ask, and of jobs of his own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Site, Vo};
use serde_json::Value;

use crate::PROGRAM;
use crate::privacy::{NOBODY, http_as, plays_users};
use crate::quota::Shell;

const RULES: &str = "[[identity]]\naccount = \"mine\"\nvo = \"physics\"\npath = \"/mine/{user}\"\n\
    [[identity]]\naccount = \"other\"\nvo = \"physics\"\npath = \"/other/{user}\"\n\
    [sockets]\ncontrol = \"control.sock\"\n\
    [privacy]\nhide = [\"usage\", \"jobs\", \"priority\"]\n[shares]\n";

#[test]
fn who_asks_under_the_name_of_a_group_is_told_nothing_of_it() -> anyhow::Result<()> {
    if !plays_users() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    for folder in [folder.path(), site.folder()] {
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    }
    let vo = Vo::found(
        "physics",
        &[(site.id, "a")],
        &["other", "mine", "mine/nobody"],
    )?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    let config = fs::read_to_string(site.config())?;
    fs::write(site.config(), config.replacen("[shares]\n", RULES, 1))?;
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
    for group in ["other", "mine"] {
        let draft = format!(
            "policy new allocation --charter charter.cbor --path /{group} --amount 7 --slices 1 --days 30 -o {group}.toml"
        );
        shell.says(&draft, true, "")?;
        let grant = format!("quota grant {group}.toml --key authority.key");
        shell.says(&grant, true, "")?;
    }
    let ask = |path: &str, body: &str| -> anyhow::Result<(u16, String, Value)> {
        let (status, said) = http_as(NOBODY, node.socket(), ("POST", path, body))?;
        let (_, body) = said.split_once("\r\n\r\n").context("a head")?;
        let body = serde_json::from_str(body)?;
        Ok((status, said, body))
    };
    let place = |account: &str| {
        let body = format!("{{\"user\":\"nobody\",\"account\":\"{account}\",\"cpus\":1}}");
        ask("/v1/place", &body)
    };
    let began = Instant::now();
    loop {
        let (_, said, body) = place("mine")?;
        if body["standing"]["entry"] == "/physics/mine/nobody" {
            break;
        }
        ensure!(began.elapsed() < Duration::from_secs(60), "{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (status, said, body) = place("other")?;
    ensure!(status == 200 && body["standing"].is_null(), "{said}");

    let check = |account: &str, job: &str| {
        let body = format!(
            "{{\"cluster\":\"c\",\"job\":\"{job}\",\"user\":\"nobody\",\"account\":\"{account}\",\"cores\":100,\
             \"wall_s\":3600}}"
        );
        ask("/v1/quota/check", &body)
    };
    let (status, said, _) = check("other", "new")?;
    ensure!(status == 403 && !said.contains("/other"), "{said}");
    // What another's job holds of the credit that is his, too, is that job's.
    let hold = "quota hold 1 --cluster c --user bin --account mine --cores 3 --time 1h";
    shell.says(hold, true, "granted: 3.00 core-hours held of /mine")?;
    let (_, said, of_known) = check("mine", "1")?;
    let (_, _, of_new) = check("mine", "new")?;
    ensure!(of_new["needs_core_ms"] == "360000000", "{of_new}");
    for field in ["verdict", "needs_core_ms", "short_core_ms", "message"] {
        ensure!(of_known[field] == of_new[field], "{said} {of_new}");
    }
    Ok(())
}
