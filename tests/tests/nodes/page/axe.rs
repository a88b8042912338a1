//! Every kind of page in a real browser, judged by axe-core: wide, dark, and as wide as a phone.
//!
//! The pages forbid scripts, so what the node serves is copied into the frames of one file, each with its style sheet
//! and axe beside it, and the browser writes down what that file says in the end. A frame whose ink is too pale shows
//! that faults are seen at all.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::records;
use serde_json::Value;

use super::World;

const AXE: &str = "axe-core@4.14.1";

/// Debian's, the smaller first.
const BROWSERS: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// Width, and light or dark.
const WAYS: [(u32, &str); 3] = [(1280, "light"), (1280, "dark"), (390, "light")];

/// Below everything, as the browser takes it.
const PALE: &str = "main, main * { color: #dddddd !important; }";

const JUDGE: &str = r#"<script src="axe.min.js"></script><script>
addEventListener("load", () => axe.run(document, {resultTypes: ["violations"]}).then(judged => parent.postMessage({
  frame: Number(name), is_dark: matchMedia("(prefers-color-scheme: dark)").matches, width: innerWidth,
  found: judged.violations.flatMap(of => of.nodes.map(at => `${of.impact} ${of.id} at ${at.target}: ${at.failureSummary}`))
}, "*")));
</script>"#;

const LISTEN: &str = r#"<!DOCTYPE html><meta charset="utf-8"><pre id="said"></pre><script>
addEventListener("message", event =>
  document.getElementById("said").append("\n" + JSON.stringify(event.data).replace(/[<>&]/g, " ") + "\n"));
</script>"#;

#[test]
fn axe_finds_nothing_on_any_page_light_dark_or_on_a_phone() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let browser = match ready(folder.path())? {
        Ok(browser) => browser,
        Err(lack) => {
            fairmesh_needs::lacks(Need::Axe, &lack);
            return Ok(());
        }
    };
    let world = World::start()?;
    let jobs = records("physics", "ann", 1, 7_200);
    ensure!(world.node.http("POST", "/v1/records", &jobs)?.status == 200);
    world.await_part("/usage.csv?path=/physics/ann", ",7200000\n")?;
    let style = world.get("/page.css")?.body;
    let mut frames = Vec::new();
    for target in [
        "/",
        "/entry?path=/physics",
        "/entry?path=/physics/ann",
        "/entry?path=/physics/ann&versus=/physics/%3Cb%3Ebob%26%22",
        "/find?q=b",
        "/find?q=nobody",
        "/entry?path=/nowhere",
    ] {
        let page = world.get(target)?.body;
        frames.extend(WAYS.map(|way| (target, way, with_axe(&page, &style))));
    }
    let pale = with_axe(&world.get("/")?.body, &format!("{style}{PALE}"));
    frames.push(("too pale", WAYS[0], pale));

    let judged = judged(browser, folder.path(), &frames)?;
    ensure!(judged.len() == frames.len(), "{judged:?}");
    for of in judged {
        let frame = of["frame"].as_u64().context("a frame")?;
        let (target, (width, scheme), _) = &frames[usize::try_from(frame)?];
        let is_asked = of["width"] == *width && of["is_dark"] == (*scheme == "dark");
        ensure!(is_asked, "{target} {width} {scheme}: {of}");
        let is_pale = of["found"].to_string().contains("color-contrast");
        let is_clean = of["found"].as_array().is_some_and(Vec::is_empty);
        let is_good = if *target == "too pale" {
            is_pale
        } else {
            is_clean
        };
        ensure!(is_good, "{target} {width} {scheme}: {of:#}");
    }
    Ok(())
}

/// Puts axe into the folder, and says which browser there is; the inner error says what lacks if that cannot be done.
fn ready(folder: &Path) -> anyhow::Result<Result<&'static str, String>> {
    let is_there = |browser: &&str| Command::new(browser).arg("--version").output().is_ok();
    let Some(browser) = BROWSERS.into_iter().find(is_there) else {
        return Ok(Err("there is no chromium".to_owned()));
    };
    let script = match std::env::var_os("FAIRMESH_AXE") {
        Some(given) => PathBuf::from(given).join("axe.min.js"),
        None => match fetched() {
            Ok(script) => script,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        },
    };
    std::fs::copy(&script, folder.join("axe.min.js"))
        .with_context(|| script.display().to_string())?;
    Ok(Ok(browser))
}

/// axe-core as npm has it, which is asked once for a folder of builds.
fn fetched() -> anyhow::Result<PathBuf> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{AXE}.js"));
    if kept.exists() {
        return Ok(kept);
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let run = |program: &str, arguments: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new(program);
        let command = command.args(arguments).current_dir(folder.path());
        let output = command
            .output()
            .with_context(|| format!("there is no {program}"))?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program}: {words}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let soon = ["--fetch-retries=0", "--fetch-timeout=20000"];
    let pack = [&["pack", "--silent", AXE][..], &soon].concat();
    let packed = run("npm", &pack)?;
    run("tar", &["-xzf", packed.trim(), "package/axe.min.js"])?;
    std::fs::rename(folder.path().join("package/axe.min.js"), &kept)?;
    Ok(kept)
}

/// A page with its style sheet and axe in it.
fn with_axe(page: &str, style: &str) -> String {
    page.replacen("<head>", &format!("<head><style>{style}</style>{JUDGE}"), 1)
}

/// What axe says of each frame, in a browser.
fn judged(
    browser: &str,
    folder: &Path,
    frames: &[(&str, (u32, &str), String)],
) -> anyhow::Result<Vec<Value>> {
    let escaped = |page: &str| page.replace('&', "&amp;").replace('"', "&quot;");
    let framed = frames
        .iter()
        .enumerate()
        .map(|(frame, (_, (width, scheme), page))| {
            format!(
                "<iframe name=\"{frame}\" style=\"width: {width}px; height: 900px; border: 0; color-scheme: {scheme}\" srcdoc=\"{}\"></iframe>",
                escaped(page)
            )
        });
    let file = folder.join("all.html");
    std::fs::write(
        &file,
        format!("{LISTEN}{}", framed.collect::<Vec<_>>().join("\n")),
    )?;
    // Time there stands still while anything is to do, so the budget is none on a slow machine.
    let mut command = Command::new("timeout");
    command.args(["300", browser, "--headless", "--no-sandbox"]);
    command.args([
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ]);
    command.args([
        "--disable-background-networking",
        "--disable-component-update",
    ]);
    command.args(["--virtual-time-budget=100000", "--dump-dom"]);
    command.arg(format!(
        "--user-data-dir={}",
        folder.join("browser").display()
    ));
    let output = command.arg(format!("file://{}", file.display())).output()?;
    ensure!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout)?;
    let told = told.lines().filter(|line| line.starts_with('{'));
    told.map(|line| Ok(serde_json::from_str(line)?)).collect()
}
