//! Where a job should run, asked of real nodes: what one site says of its free CPUs another one ranks by, a site
//! that is asked itself knows better, and one that is gone is left out.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Node, Site, Vo};
use serde_json::Value;

use crate::PROGRAM;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// A job of four CPUs that would like GPUs, and takes what there is.
const JOB: &str = "vo = \"physics\"\nuser = \"ann\"\naccount = \"physics\"\ncpus = 4\ntime = \"2h\"\n\
    [[require]]\nkind = \"tag\"\noptions = { ib = 1.0, eth = 0.25 }\n\
    [[require]]\nkind = \"os\"\noptions = { linux = 0.5 }\nweight = 0.5\n";

fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = File::options().append(true).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn machines(count: u32, tag: &str, spec: &str) -> String {
    format!(
        "[advert]\ninterval = \"1s\"\n[sla]\n\"/physics\" = {{ cpu = \"50%+, burst 75%\" }}\n\
         [[machine]]\nclass = \"node\"\ncount = {count}\ncpus = 16\nmemory = \"64GiB\"\nspec = {spec}\n\
         properties = [\"os=linux\", \"{tag}\"]\nhosts = [\"n*\"]\n"
    )
}

/// Says that `cores` run at a node, of the VO.
fn run(node: &Node, cores: u32) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let job = format!(
        "{{\"cluster\":\"c\",\"job\":\"1\",\"user\":\"ann\",\"account\":\"physics\",\"machine\":\"n1\",\
         \"start_ms\":{},\"end_ms\":{now},\"cores\":{cores},\"expected_end_ms\":{}}}\n",
        now - 1_000,
        now + 3_600_000
    );
    let body = if cores == 0 { String::new() } else { job };
    let answer = node.http("POST", "/v1/running", body.as_bytes())?;
    ensure!(
        answer.status == 200 && answer.body["refused"] == 0,
        "{answer:?}"
    );
    Ok(())
}

fn command(node: &Node, words: &[&str]) -> anyhow::Result<std::process::Output> {
    let mut command = Command::new(PROGRAM);
    command.args(words).env("FAIRMESH_SOCKET", node.socket());
    Ok(command.output()?)
}

fn place(node: &Node, words: &[&str]) -> anyhow::Result<Value> {
    let output = command(node, &[&["place"], words, &["--json"]].concat())?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

fn site<'a>(answer: &'a Value, list: &str, name: &str) -> &'a Value {
    let mut sites = answer[list].as_array().into_iter().flatten();
    sites
        .find(|site| site["name"] == name)
        .unwrap_or(&Value::Null)
}

/// Asks until the answer is as it should be.
fn await_place(
    node: &Node,
    words: &[&str],
    is_right: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let began = Instant::now();
    loop {
        let answer = place(node, words)?;
        if is_right(&answer) {
            return Ok(answer);
        }
        ensure!(began.elapsed() < PATIENCE, "{answer:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_node_says_where_a_job_should_run_and_asks_the_site_itself() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let [a, b, c] =
        ["a", "b", "c"].map(|name| Site::init(PROGRAM, &folder.path().join(name), name));
    let (a, b, c) = (a?, b?, c?);
    let vo = Vo::found(
        "physics",
        &[(a.id, "a"), (b.id, "b"), (c.id, "c")],
        &["ann"],
    )?;
    let vos = [("physics", vo.id())];
    a.configure("a", &[], &vos)?;
    append(&a.config(), &machines(4, "eth", "1"))?;
    let a_node = a.start()?;
    let peers = [(a.id, a_node.address.as_str())];
    b.configure("b", &peers, &vos)?;
    append(&b.config(), &machines(2, "ib", "2"))?;
    let b_node = b.start()?;
    let both = [peers[0], (b.id, b_node.address.as_str())];
    c.configure("c", &both, &vos)?;
    let c_node = c.start()?;
    for node in [&a_node, &b_node, &c_node] {
        vo.publish(node)?;
    }
    let job = folder.path().join("job.toml");
    std::fs::write(&job, JOB)?;
    let job = job.to_str().context("a plain name")?;

    run(&a_node, 0)?;
    run(&b_node, 8)?;
    run(&c_node, 8)?;
    let know_all = |answer: &Value| {
        let free = |name| site(answer, "sites", name)["free"].as_u64();
        (free("a"), free("b")) == (Some(64), Some(24))
    };
    // C says nothing of itself, and knows of the others.
    let answer = await_place(&c_node, &[job], know_all)?;
    assert_eq!(answer["schema"], "fairmesh.place/1");
    assert_eq!(answer["selector"], "utility");
    let best = &answer["sites"][0];
    assert_eq!(
        (&best["name"], &best["verdict"]),
        (&"b".into(), &"now".into())
    );
    // (1 · 1 + 0.5 · 0.5) / 2 with InfiniBand; (0.25 + 0.25) / 2 without.
    assert_eq!(
        (&best["utility"], &best["class"]),
        (&"0.625".into(), &"node".into())
    );
    assert_eq!(best["met"][0]["option"], "ib");
    assert_eq!(best["sla"]["limit"], 24);
    assert_eq!(best["sla"]["held"], 8);
    // 4 CPUs for two hours, whatever the speed: the VO charges CPU time.
    assert_eq!(best["charge_core_ms"], (4 * 2 * 3_600_000).to_string());
    assert_eq!(site(&answer, "sites", "a")["utility"], "0.25");
    assert_eq!(site(&answer, "refused", "c")["code"], "no-advert");
    assert_eq!(answer["standing"]["entry"], "/physics/ann");
    // A burst limit of 24 CPUs at B, of which 8 are held.
    let wide = folder.path().join("wide.toml");
    std::fs::write(&wide, "vo = \"physics\"\ncpus = 18\nnodes = 2\n")?;
    let answer = place(&c_node, &[wide.to_str().context("a plain name")?])?;
    assert_eq!(answer["sites"][0]["name"], "a");
    assert_eq!(site(&answer, "refused", "b")["code"], "burst");
    let answer = place(&c_node, &["--vo", "physics", "--cpus", "18"])?;
    assert_eq!(site(&answer, "refused", "a")["code"], "fits-nowhere");

    // A queue goes by what the node knows.
    let jobs = folder.path().join("jobs.jsonl");
    std::fs::write(
        &jobs,
        "{\"key\": \"j1\", \"account\": \"/ann\", \"cpus\": 20}\n{\"key\": \"j2\", \"account\": \"/ann\", \"cpus\": 16}\n",
    )?;
    let went = folder.path().join("went");
    let submit = format!("echo $FAIRMESH_SITE >> {}", went.display());
    let jobs = jobs.to_str().context("a plain name")?;
    let words = [
        "queue",
        "run",
        jobs,
        "--vo",
        "physics",
        "--poll-ms",
        "50",
        "--submit",
        &submit,
    ];
    let queue = command(&c_node, &words)?;
    ensure!(
        queue.status.success(),
        "{}",
        String::from_utf8_lossy(&queue.stderr)
    );
    let went = std::fs::read_to_string(&went)?;
    assert!(
        went.lines().all(|site| site == "a" || site == "b") && went.lines().count() == 2,
        "{went}"
    );

    // A site whose feed has told it more than its last head knows better.
    let told = br#"{"free": 0, "wait_s": 600, "waiting": [{"user": "ann", "account": "physics", "cpus": 12}]}"#;
    let answer = b_node.http("POST", "/v1/occupancy", told)?;
    ensure!(
        answer.status == 200 && answer.body["is_told"] == true,
        "{answer:?}"
    );
    let waits = |answer: &Value| site(answer, "sites", "b")["verdict"] == "wait";
    let answer = await_place(&c_node, &[job, "--confirm"], waits)?;
    let best = &answer["sites"][0];
    assert_eq!(
        (&best["name"], &best["confirmed"]),
        (&"a".into(), &true.into()),
        "{answer:#}"
    );
    let b_site = site(&answer, "sites", "b");
    assert_eq!(
        (&b_site["verdict"], &b_site["wait_s"]),
        (&"wait".into(), &600.into())
    );

    // A site that is gone cannot say so itself, and comes behind the one that does.
    run(&b_node, 0)?;
    let told = b_node.http("POST", "/v1/occupancy", b"{}")?;
    ensure!(told.status == 200, "{told:?}");
    await_place(&c_node, &[job], |answer| answer["sites"][0]["name"] == "b")?;
    b_node.kill()?;
    let answer = await_place(&c_node, &[job, "--confirm"], |answer| {
        answer["sites"][0]["name"] == "a" && answer["sites"][0]["confirmed"] == true
    })?;
    let words = site(&answer, "sites", "b")["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(words.contains("not confirmed"), "{answer:#}");

    let table = command(&c_node, &["place", job])?;
    let table = String::from_utf8(table.stdout)?;
    assert!(
        table.contains("4 CPUs for physics, the best site first (engine sound, selector utility)"),
        "{table}"
    );
    assert!(
        table.contains("The job counts at /physics/ann, factor "),
        "{table}"
    );
    let nobody = command(&c_node, &["place", "--vo", "chemistry", "--cpus", "1"])?;
    let words = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert_eq!(nobody.status.code(), Some(1), "{words}");
    assert!(words.contains("takes part in no VO `chemistry`"), "{words}");
    Ok(())
}
