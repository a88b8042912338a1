//! Questions that [schemathesis](https://schemathesis.readthedocs.io) makes of `docs/schemas/openapi.json`, put to a real
//! node: whatever is asked, right or wrong, it answers as described.
//!
//! It speaks HTTP over TCP only, so a port of this machine is carried to the socket. A description that promises what no
//! answer has shows that faults are seen at all.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;
use serde_json::Value;

const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// The same questions in every run: all that the description draws a line at, and some drawn by chance.
const ASKED: [&str; 10] = [
    "--seed=1",
    "--phases=coverage,fuzzing",
    "--max-examples=50",
    "--continue-on-failure",
    "--no-shrink",
    "--request-timeout=60",
    "--checks",
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
    "--warnings=off",
    // A busy machine that is slow to make them is no fault of theirs.
    "--suppress-health-check=all",
];

#[test]
fn whatever_is_asked_is_answered_as_described() -> anyhow::Result<()> {
    let schemathesis = match fetched() {
        Ok(program) => program,
        Err(error) => {
            fairmesh_needs::lacks(Need::Schemathesis, &format!("{error:#}"));
            return Ok(());
        }
    };
    let folder = tempfile::tempdir()?;
    let asked = super::asked(folder.path())?;
    let address = carried(asked.node.socket())?;
    let ask = |api: &Value, more: &[&str]| -> anyhow::Result<(Output, Value)> {
        let [api_file, report] = ["api.json", "report.json"].map(|name| folder.path().join(name));
        std::fs::write(&api_file, api.to_string())?;
        let mut command = Command::new(&schemathesis);
        command.current_dir(folder.path()).arg("run").arg(&api_file);
        command.args(["--url", &format!("http://{address}")]);
        // Else it says the address, as a browser would.
        command.args(["--header", "Host: fairmesh"]);
        command.args(ASKED).args(more);
        let output = command.arg("--report-json-path").arg(&report).output()?;
        let report = std::fs::read_to_string(report).with_context(|| format!("{output:?}"))?;
        Ok((output, serde_json::from_str(&report)?))
    };
    let mut api = super::description()?;
    let (output, report) = ask(&api, &[])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{printed}");
    let paths = api["paths"].as_object().context("no paths")?;
    let kinds: usize = paths
        .values()
        .filter_map(Value::as_object)
        .map(|of| of.len())
        .sum();
    ensure!(report["operations"]["tested"] == kinds, "{printed}");
    let asked = report["test_cases"]["generated"].as_u64();
    ensure!(asked.is_some_and(|asked| asked > 500), "{printed}");

    let refusal = "/paths/~1v1~1priority/get/responses/default/content/application~1json/schema";
    let refusal = api.pointer_mut(refusal).context("refusals are described")?;
    *refusal = serde_json::json!({"required": ["none"]});
    let (output, _) = ask(&api, &["--include-path=/v1/priority"])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.code() == Some(1), "{printed}");
    ensure!(printed.contains("is a required property"), "{printed}");
    Ok(())
}

/// A port of this machine whose connections are carried to the socket, each by threads of its own.
fn carried(socket: &Path) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr();
    let socket = socket.to_owned();
    thread::spawn(move || {
        for caller in listener.incoming() {
            let pair = caller.and_then(|caller| Ok((caller, UnixStream::connect(&socket)?)));
            let Ok((caller, node)) = pair else { return };
            carry(caller, node).unwrap_or_default();
        }
    });
    address
}

/// Copies both ways until either side has ended.
fn carry(mut caller: TcpStream, mut node: UnixStream) -> io::Result<()> {
    let (mut asks, mut hears) = (caller.try_clone()?, node.try_clone()?);
    thread::spawn(move || {
        let copied = io::copy(&mut asks, &mut hears);
        (copied, hears.shutdown(std::net::Shutdown::Write))
    });
    thread::spawn(move || {
        let copied = io::copy(&mut node, &mut caller);
        (copied, caller.shutdown(std::net::Shutdown::Both))
    });
    Ok(())
}

/// The program: the one that is named, else as pip has it, which is asked once for a folder of builds.
fn fetched() -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os("FAIRMESH_SCHEMATHESIS") {
        return Ok(given.into());
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(SCHEMATHESIS);
    let [program, pip] = ["bin/schemathesis", "bin/pip"].map(|name| folder.join(name));
    if program.exists() {
        return Ok(program);
    }
    let run = |command: &mut Command| -> anyhow::Result<()> {
        let output = command.output().with_context(|| format!("{command:?}"))?;
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.lines().last().unwrap_or_default();
        ensure!(output.status.success(), "{command:?}: {last}");
        Ok(())
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    run(Command::new(pip).args(["install", "--quiet", SCHEMATHESIS]))?;
    Ok(program)
}
