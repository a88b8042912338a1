//! A VO's snapshot through real nodes: a timer's command signs it, answers say how old it is and what is held back,
//! a newcomer that is shown an old chain says so, and nothing else changes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_model::{
    AccountPath, Charter, Millis, Named, Role, Signed, SigningKey, Snapshot, WallTime,
};
use fairmesh_tests::{Node, Site, Vo};

use crate::PROGRAM;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `fairmesh LINE` at a node: what it says, on both outputs, and whether it exits with 0.
fn says(node: &Node, line: &str) -> anyhow::Result<(String, bool)> {
    let output = Command::new(PROGRAM)
        .args(line.split_whitespace())
        .env("FAIRMESH_SOCKET", node.socket())
        .output()?;
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ok((said, output.status.success()))
}

/// Runs it until it says `words`, or no more.
fn await_words(node: &Node, line: &str, words: &str, wanted: bool) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let (said, _) = says(node, line)?;
        if said.contains(words) == wanted {
            return Ok(said);
        }
        ensure!(began.elapsed() < PATIENCE, "{line}: not `{words}`: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The command of the unit that the timer starts, with the key in the folder of its credentials.
fn command_of_the_unit(credentials: &Path) -> anyhow::Result<String> {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/fairmesh-snapshot.service");
    let text = std::fs::read_to_string(unit)?;
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let command = of("ExecStart=/usr/bin/fairmesh ").context("a command")?;
    let credential = of("LoadCredential=").context("a credential")?;
    let (name, _) = credential.split_once(':').context("a name")?;
    ensure!(command.contains(&format!("%d/{name}")), "{command}");
    Ok(command.replace("%d", credentials.to_str().context("UTF-8")?))
}

/// Makes the online key, and gives its role.
fn online_role(file: &Path) -> anyhow::Result<Role> {
    let made = Command::new(PROGRAM)
        .args(["policy", "keygen"])
        .arg(file)
        .output()?;
    ensure!(made.status.success(), "{made:?}");
    Ok(Role::single(fairmesh::init::load_key(file)?.key_id()))
}

/// The snapshot that a node holds.
fn held(node: &Node) -> anyhow::Result<Vec<u8>> {
    let answer = node.http("GET", "/v1/documents", b"")?;
    let documents = answer.body["documents"].as_array().context("documents")?;
    let snapshot = documents.iter().find(|of| of["kind"] == "snapshot");
    let bytes = snapshot.context("no snapshot")?["bytes"]
        .as_str()
        .context("bytes")?;
    let digits = bytes.as_bytes().chunks(2);
    let byte = |pair| anyhow::Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    digits.map(byte).collect()
}

#[test]
fn a_snapshot_shows_freezes_what_is_held_back_and_a_newcomer_that_is_shown_an_old_chain()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let key = folder.path().join("online.key");
    let role = online_role(&key)?;
    let a = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let c = Site::init(PROGRAM, &folder.path().join("c"), "c")?;
    let mut vo = Vo::found_with(
        "physics",
        &[(a.id, "a"), (c.id, "c")],
        &["ann"],
        |charter| {
            charter.snapshot = Some(role);
        },
    )?;
    let vos = [("physics", vo.id())];
    a.configure("a", &[], &vos)?;
    c.configure("c", &[], &vos)?;
    let (at_a, at_c) = (a.start()?, c.start()?);
    let sign = |node: &Node, valid: &str| {
        says(
            node,
            &format!("policy snapshot --key {} --valid {valid}", key.display()),
        )
    };

    // Until somebody vouches for them, documents may be old, and answers say so.
    let (said, signed) = sign(&at_a, "1h")?;
    ensure!(!signed && said.contains("below [snapshot]"), "{said}");
    vo.publish(&at_a)?;
    let told = await_words(&at_a, "share", "no snapshot has arrived", true)?;
    ensure!(
        told.contains("VO physics: no snapshot has arrived"),
        "{told}"
    );
    let (said, signed) = sign(&at_a, "1s")?;
    ensure!(
        signed && said.contains("VO physics: snapshot 1 names charter 1, share policies: 1"),
        "{said}"
    );
    let first = held(&at_a)?;

    // A newcomer whose connections somebody holds is shown the old chain, and its old snapshot.
    vo.publish(&at_c)?;
    ensure!(at_c.http("POST", "/v1/documents", &first)?.status == 200);
    let told = await_words(&at_c, "status", "since then nobody vouches", true)?;
    ensure!(
        told.contains("[policy-snapshot]") && !says(&at_c, "status")?.1,
        "{told}"
    );
    await_words(&at_c, "share", "/physics/ann", true)?;

    // The VO goes on: he shows its new snapshot without the policy that this names.
    vo.divide_anew(2, &["ann", "bob"])?;
    vo.publish(&at_a)?;
    let (said, signed) = says(&at_a, &command_of_the_unit(folder.path())?)?;
    ensure!(signed && said.contains("snapshot 2 names"), "{said}");
    ensure!(at_c.http("POST", "/v1/documents", &held(&at_a)?)?.status == 200);
    let told = await_words(&at_c, "status", "names share policy 2 of `/`", true)?;
    ensure!(
        told.contains("version 1 is here") && told.contains(", 1 missing"),
        "{told}"
    );
    let metrics = says(&at_c, "metrics")?.0;
    ensure!(
        metrics.contains("fairmesh_snapshot_missing_documents{vo=\"physics\"} 1"),
        "{metrics}"
    );
    ensure!(
        metrics.contains("fairmesh_snapshot_issued_timestamp_seconds{vo=\"physics\"} "),
        "{metrics}"
    );
    let (said, signed) = sign(&at_c, "1h")?;
    ensure!(
        !signed && said.contains("nothing is signed: the last snapshot names share policy 2"),
        "{said}"
    );
    let old = at_c.http("POST", "/v1/documents", &first)?;
    ensure!(
        old.status == 422 && old.body.to_string().contains("older than version 2"),
        "{old:?}"
    );

    // Once it hears an honest member, it has all that is named, and says who brought it.
    at_c.stop()?;
    c.configure("c", &[(a.id, &at_a.address)], &vos)?;
    let at_c = c.start()?;
    await_words(&at_c, "share", "/physics/bob", true)?;
    let told = await_words(&at_c, "status", "policy-snapshot", false)?;
    ensure!(told.contains(" ago") && !told.contains("missing"), "{told}");
    let brought = says(&at_c, "audit --documents -P")?.0;
    let rows: Vec<&str> = brought.lines().skip(1).collect();
    ensure!(rows.len() == 3, "{brought}");
    ensure!(
        rows[0].contains("|charter 1 (") && rows[0].contains("|uid "),
        "{brought}"
    );
    ensure!(
        rows[2].contains("|share policy 2 of `/` (") && rows[2].ends_with("|site a"),
        "{brought}"
    );
    at_a.stop()?;
    at_c.stop()?;
    Ok(())
}

/// A snapshot that names a share policy which nobody has.
fn beyond_what_is_there(vo: &Vo, key: &SigningKey) -> anyhow::Result<Vec<u8>> {
    let charter = Signed::<Charter>::parse(vo.charter())?;
    let issued = charter.claimed().issued;
    let named = |version| Named {
        version,
        hash: charter.hash(),
    };
    let body = Snapshot {
        vo: vo.vo(),
        version: 1,
        issued,
        expires: WallTime(issued.0 + Millis::from_secs(3_600).0),
        charter: named(1),
        policies: [(AccountPath::root(), named(2))].into(),
        allocations: Default::default(),
    };
    Ok(Signed::sign(body, &[key])?.bytes().to_vec())
}

/// The timer's command is one for all VOs of its key: what one of them lacks is no reason to leave the others.
#[test]
fn a_vo_that_lacks_a_document_keeps_no_other_from_its_snapshot() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("online.key");
    let role = online_role(&file)?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let found = |name: &str| {
        let role = role.clone();
        Vo::found_with(name, &[(site.id, "a")], &["ann"], |charter| {
            charter.snapshot = Some(role);
        })
    };
    let vos = [
        ("physics", found("physics")?),
        ("biology", found("biology")?),
    ];
    let aliases = [("physics", vos[0].1.id()), ("biology", vos[1].1.id())];
    site.configure("a", &[], &aliases)?;
    let node = site.start()?;
    for (_, vo) in &vos {
        vo.publish(&node)?;
    }
    // The first in the order in which they are signed.
    let (first, last) = match vos[0].1.vo() < vos[1].1.vo() {
        true => (&vos[0], &vos[1]),
        false => (&vos[1], &vos[0]),
    };
    let key = fairmesh::init::load_key(&file)?;
    let snapshot = beyond_what_is_there(&first.1, &key)?;
    let answer = node.http("POST", "/v1/documents", &snapshot)?;
    ensure!(answer.status == 200, "{answer:?}");

    let line = format!("policy snapshot --key {}", file.display());
    let (said, all_signed) = says(&node, &line)?;
    let lacking = format!("VO {}: nothing is signed: the last snapshot names", first.0);
    let signed = format!("VO {}: snapshot 1 names charter 1", last.0);
    ensure!(
        !all_signed && said.contains(&lacking) && said.contains(&signed),
        "{said}"
    );
    node.stop()?;
    Ok(())
}
