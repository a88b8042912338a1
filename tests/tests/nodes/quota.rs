//! Credit on a real node: an authority grants it and takes it back by commands, and the site's owner has the last
//! word about his own cluster, in both directions.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fairmesh_tests::{Node, Site, Vo};

use crate::PROGRAM;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands in a folder, at a node.
struct Shell<'a> {
    folder: &'a Path,
    node: &'a Node,
}

impl Shell<'_> {
    /// What a command says, and whether it went well.
    fn run(&self, words: &str) -> anyhow::Result<(bool, String)> {
        let output = Command::new(PROGRAM)
            .args(words.split_whitespace())
            .current_dir(self.folder)
            .env("FAIRMESH_SOCKET", self.node.socket())
            .output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((output.status.success(), said))
    }

    fn says(&self, words: &str, is_good: bool, expected: &str) -> anyhow::Result<()> {
        let (good, said) = self.run(words)?;
        ensure!(
            good == is_good && said.contains(expected),
            "{words}: {said}"
        );
        Ok(())
    }

    fn hold(&self, job: &str, cores: u32, is_good: bool, expected: &str) -> anyhow::Result<()> {
        let call = format!(
            "quota hold {job} --cluster c --user ann --account physics --cores {cores} --time 1h"
        );
        self.says(&call, is_good, expected)
    }

    /// Waits until `quota show` says so.
    fn shows(&self, expected: &str) -> anyhow::Result<()> {
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

    // What is held stays; the rest is gone.
    shell.says("quota revoke /ann --key authority.key", true, "")?;
    shell.hold("6", 1, false, "ann: 0.0 core-hours left here")?;
    shell.hold("1", 1, true, "granted: 1.00 core-hours held of /ann")
}
