//! What leaders pass on, on a real node: by commands, for one account below theirs, and once whatever is killed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Site, Vo};

use crate::PROGRAM;
use crate::quota::Shell;

#[test]
fn a_leader_passes_a_part_on_and_nobody_else_does() -> anyhow::Result<()> {
    let made = tempfile::tempdir()?;
    let folder = made.path();
    let site = Site::init(PROGRAM, &folder.join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["ann"])?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    let node = site.start()?;
    vo.publish(&node)?;
    let shell = Shell {
        folder,
        node: &node,
    };
    fs::write(folder.join("charter.cbor"), vo.charter())?;
    let key = folder.join("authority.key");
    fs::write(&key, "a5".repeat(32))?;
    fs::set_permissions(&key, Permissions::from_mode(0o600))?;

    let (_, said) = shell.run("policy keygen leader.key")?;
    let id = said.split_whitespace().find(|word| word.len() >= 64);
    let id = id.with_context(|| format!("no id of a key: {said}"))?;
    let draft = format!(
        "policy new allocation --charter charter.cbor --path / --amount 4 --slices 2 --expiring --days 30 \
         --leader {id} -o q.toml"
    );
    shell.says(&draft, true, "")?;
    shell.says("quota grant q.toml --key authority.key", true, "")?;
    let pass = "quota pass / --to /ann --amount";
    shell.says(
        &format!("{pass} 1 --key authority.key"),
        false,
        "signatures",
    )?;
    shell.says(
        &format!("{pass} 9 --key leader.key"),
        false,
        "more than what is granted",
    )?;
    shell.says(
        "quota pass / --to / --amount 1 --key leader.key",
        false,
        "does not lie below",
    )?;
    shell.says(&format!("{pass} 1 --key leader.key"), true, "allocation")?;
    shell.shows("PassedOn")?;
    let (_, said) = shell.run("quota show -P -n")?;
    let left = |of: &str, left: &str| {
        said.lines()
            .any(|line| line.contains(of) && line.contains(left))
    };
    ensure!(left("|/|", "|4.00|0.00|0.00|3.00|3.00|"), "{said}");
    ensure!(left("|/ann|", "|1.00|0.00|0.00|1.00|1.00|"), "{said}");

    shell.hold("1", 1, true, "granted: 1.00 core-hours held of /ann")?;
    shell.hold("2", 3, true, "granted: 3.00 core-hours held of /")?;
    shell.hold("3", 1, false, "ann: 0.0 core-hours left here")?;
    shell.says(
        "quota history / -P -n",
        true,
        "|passed_on|/ann|0.50|2.00|1.50",
    )?;

    // A node that is killed knows what it has passed on.
    node.kill()?;
    let node = site.start()?;
    let shell = Shell {
        folder,
        node: &node,
    };
    shell.shows("PassedOn")?;
    shell.hold("4", 1, false, "ann: 0.0 core-hours left here")?;
    shell.says("quota release 1 --cluster c", true, "")?;
    shell.hold("4", 1, true, "granted: 1.00 core-hours held of /ann")?;

    // A draft that is edited, and signed by hand.
    shell.says(
        "quota pass / --to /ann --percent 10 --member /ann --out p.toml",
        true,
        "",
    )?;
    let text = fs::read_to_string(folder.join("p.toml"))?;
    fs::write(folder.join("p.toml"), text.replace("strict", "advisory"))?;
    shell.says("quota grant p.toml --key leader.key", false, "not strict")?;

    // Other leaders have not signed what the first ones have passed on.
    let (_, said) = shell.run("policy keygen next.key")?;
    let next = said.split_whitespace().find(|word| word.len() >= 64);
    let next = next.with_context(|| format!("no id of a key: {said}"))?;
    shell.says("policy new allocation --from q.cbor -o q2.toml", true, "")?;
    let text = fs::read_to_string(folder.join("q2.toml"))?;
    fs::write(folder.join("q2.toml"), text.replace(&id[..64], &next[..64]))?;
    let grant = "quota grant q2.toml --key authority.key";
    shell.says(grant, false, "falls: allocation 1 of `/ann`")?;
    shell.says("quota grant q2.cbor --yes", true, "")?;
    shell.hold("5", 1, false, "core-hours left here")
}
