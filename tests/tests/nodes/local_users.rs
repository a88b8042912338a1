//! Users of the machine who want a node's sockets for themselves, each by a name of his own: the node stays at
//! the service of its scheduler.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::Site;
use fairmesh_tests::greedy::{Greedy, USERS};

use crate::PROGRAM;

/// A site with two users.
pub(crate) const CONFIG: &str = "[site]\nname = \"lab\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
    [sockets]\nlookup = \"lookup.sock\"\ncontrol = \"control.sock\"\n\
    [[identity]]\npath = \"/lab/{user}\"\n[shares]\n\"/lab\" = 100\n\"/lab/ann\" = 1\n\"/lab/bob\" = 1\n";

#[test]
fn sixteen_greedy_users_do_not_keep_the_scheduler_out() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    // Everybody may reach the sockets, as in /run.
    if std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).is_err()
        || Command::new("true").uid(USERS.start).status().is_err()
    {
        fairmesh_needs::lacks(Need::Root, "this is not root");
        return Ok(());
    }
    let site = Site::init(PROGRAM, folder.path(), "lab")?;
    std::fs::write(site.config(), CONFIG)?;
    let _node = site.start()?;
    let [lookup, control] = ["lookup.sock", "control.sock"].map(|name| folder.path().join(name));
    let ask = "GET /v1/usage HTTP/1.1\r\nhost: fairmesh\r\n\r\n";
    let post = "POST /v1/records HTTP/1.1\r\nhost: fairmesh\r\ncontent-length: 0\r\n\r\n";
    let mut greedy = Vec::new();
    for uid in USERS {
        greedy.push(Greedy::start(uid, &lookup, "")?);
        greedy.push(Greedy::start(
            uid,
            &control,
            if uid % 2 == 0 { ask } else { post },
        )?);
    }
    for _ in 0..3 {
        let output = prio(&control)?;
        let text = String::from_utf8(output.stdout)?;
        ensure!(text.starts_with("ann lab "), "{text}{:?}", output.stderr);
        let mut status = Command::new(PROGRAM);
        let status = status.args(["status", "--socket"]).arg(&control).output()?;
        ensure!(status.status.success(), "{status:?}");
    }
    // Hundreds of posts a second are refused, and a log is read by people.
    let log = std::fs::read_to_string(folder.path().join("log"))?;
    let told = log.matches("only writers may do this").count();
    ensure!((1..10).contains(&told), "{told} lines:\n{log}");
    Ok(())
}

/// A look-up, as the schedulers' are.
pub(crate) fn prio(control: &Path) -> anyhow::Result<Output> {
    let mut prio = Command::new(PROGRAM)
        .args(["prio", "--stdin", "--socket"])
        .arg(control)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    prio.stdin
        .take()
        .context("piped")?
        .write_all(b"ann lab\n")?;
    Ok(prio.wait_with_output()?)
}

/// Sends one request and prints the answer.
const ASK_ONCE: &str = r#"
    use IO::Socket::UNIX;
    my ($path, $ask) = @ARGV;
    my $socket = IO::Socket::UNIX->new(Peer => $path) or die;
    print $socket $ask;
    print while <$socket>;
"#;

#[test]
fn a_user_hands_in_jobs_in_his_own_name_only() -> anyhow::Result<()> {
    // Whom every system knows.
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir()?;
    if std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).is_err()
        || Command::new("true").uid(NOBODY).status().is_err()
    {
        fairmesh_needs::lacks(Need::Root, "this is not root");
        return Ok(());
    }
    let site = Site::init(PROGRAM, folder.path(), "lab")?;
    let text = "[site]\nname = \"lab\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
                [sockets]\nlookup = \"lookup.sock\"\ncontrol = \"control.sock\"\n\
                [[identity]]\nsubject = \"*\"\npath = \"/lab/{subject}\"\n\
                [[identity]]\naccount = \"*\"\npath = \"/lab/{account}\"\n\
                [[identity]]\npath = \"/lab/{user}\"\n[shares]\n\"/lab\" = 100\n";
    std::fs::write(site.config(), text)?;
    let _node = site.start()?;
    let control = folder.path().join("control.sock");
    let asked = |method: &str, path: &str, body: &str| -> anyhow::Result<String> {
        let ask = format!(
            "{method} {path} HTTP/1.1\r\nhost: fairmesh\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut perl = Command::new("perl");
        perl.args(["-e", ASK_ONCE])
            .arg(&control)
            .arg(ask)
            .uid(NOBODY);
        Ok(String::from_utf8(perl.output()?.stdout)?)
    };
    let job = |user: &str| {
        let body = format!("{{\"key\": \"k\", \"job\": {{\"user\": \"{user}\", \"cpus\": 1}}}}");
        asked("POST", "/v1/forward", &body)
    };
    let others = job("ann")?;
    assert!(
        others.starts_with("HTTP/1.1 403") && others.contains("nobody may not hand in jobs of ann"),
        "{others}"
    );
    // He is believed to be himself; that he belongs to no VO is another matter.
    let own = job("nobody")?;
    assert!(
        own.starts_with("HTTP/1.1 422") && own.contains("who pays"),
        "{own}"
    );
    // Nor does he say who pays: whose a subject or a group is nobody knows here, and that account is ann's.
    for (words, why) in [
        ("subject", "not known here"),
        ("group", "not known here"),
        ("account", "somebody else"),
    ] {
        let body = format!("{{\"key\": \"k\", \"job\": {{\"{words}\": \"ann\", \"cpus\": 1}}}}");
        let said = asked("POST", "/v1/forward", &body)?;
        assert!(
            said.starts_with("HTTP/1.1 403") && said.contains(why),
            "{said}"
        );
    }
    for (method, path) in [("GET", "/v1/forward/here"), ("POST", "/v1/forward/here")] {
        let answer = asked(method, path, "{}")?;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    Ok(())
}
