//! The Python package beside a real node: every example of its README is run.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::{Site, Vo, records};

use crate::PROGRAM;

/// What each example prints, in their order, where ann has used all there is and bob nothing.
const PRINTED: [&[&str]; 4] = [
    &["ann 333333333 ", "bob 1000000000 "],
    &["1\n"],
    &["/physics should have", "/physics/ann should have 50"],
    &["/ann strict 3"],
];

const PATIENCE: Duration = Duration::from_secs(60);

fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```python\n").skip(1);
    let ends = blocks.filter_map(|block| block.split("```").next());
    ends.map(str::to_owned).collect()
}

#[test]
fn the_examples_of_the_python_package_do_what_they_say() -> anyhow::Result<()> {
    if !Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|it| it.status.success())
    {
        fairmesh_needs::lacks(Need::Python, "there is no python3");
        return Ok(());
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/client/python");
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["ann", "bob"])?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    // The examples' account is another than the VO's name.
    let config = std::fs::read_to_string(site.config())?;
    let config = config.replacen("account = \"physics\"", "account = \"cms\"", 1);
    std::fs::write(site.config(), config)?;
    let node = site.start()?;
    vo.publish(&node)?;
    let credit = vo.grant("/ann", 3_600_000 + 180_000, &[site.id], |_| {})?;
    ensure!(node.http("POST", "/v1/documents", &credit)?.status == 200);
    let report = node.http("POST", "/v1/records", &records("cms", "ann", 0, 1))?;
    ensure!(report.status == 200, "{report:?}");

    let examples = examples(&std::fs::read_to_string(package.join("README.md"))?);
    ensure!(examples.len() == PRINTED.len(), "{examples:?}");
    let run = |example: &str| python(&package, node.socket(), example);
    // Factors follow what is reported in the background.
    let began = Instant::now();
    while lacking(&run(&examples[0])?, PRINTED[0]).is_some() && began.elapsed() < PATIENCE {}
    for (example, printed) in examples.iter().zip(PRINTED) {
        let output = run(example)?;
        if let Some(words) = lacking(&output, printed) {
            bail!("no {words} in {output} of {example}");
        }
    }
    // What is refused says so, with its hint.
    let refused = "from fairmesh import Node, Refused\ntry:\n    Node().priority('nobody')\n\
                   except Refused as why:\n    print(why.status, why)\n";
    let refused = python(&package, node.socket(), refused)?;
    ensure!(refused.starts_with("404 "), "{refused}");
    Ok(())
}

/// The first of these words that an output lacks.
fn lacking<'a>(output: &str, printed: &[&'a str]) -> Option<&'a str> {
    let mut words = printed.iter().copied();
    words.find(|words| !output.contains(words))
}

fn python(package: &Path, socket: &Path, program: &str) -> anyhow::Result<String> {
    let output = Command::new("python3")
        .args(["-B", "-c", program])
        .env("PYTHONPATH", package)
        .env("FAIRMESH_SOCKET", socket)
        .output()?;
    ensure!(
        output.status.success(),
        "{program}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).context("UTF-8")
}
