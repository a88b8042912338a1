//! Queues of real processes, killed at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::run::Runner;
use super::*;
use crate::attempt::{KILLED, Life};

/// Two sites of four CPUs; all jobs go to `a` first.
const GRID: &str = r#"{"sites": [
    {"name": "a", "total": 4, "vos": {"vo": {"epoch_used": 0, "epoch_share": 100, "burst_used": 0, "burst_limit": 4}}},
    {"name": "b", "total": 4, "vos": {"vo": {"epoch_used": 0, "epoch_share": 100, "burst_used": 1, "burst_limit": 4}}}
]}"#;

const JOBS: &str = "{\"key\": \"j1\"}\n{\"key\": \"j2\", \"account\": \"/g\"}\n{\"key\": \"j3\", \"account\": \"/g\"}\n";

/// A folder with jobs and sites, and the arguments of a run in it.
struct Place {
    folder: tempfile::TempDir,
    args: RunArgs,
}

impl Place {
    /// `submit` and `ask` find the folder in `$HERE`.
    fn new(submit: &str, ask: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).expect("writes");
            file
        };
        let here = |command: &str| format!("HERE='{}'; {command}", folder.path().display());
        let args = RunArgs {
            by_site: false,
            jobs: write("jobs.jsonl", JOBS),
            grid: Some(write("grid.json", GRID)),
            node: NodeArgs::default(),
            vo: "vo".to_owned(),
            sla: Some(write(
                "sla.toml",
                "[sla]\n\"/\" = { at_most = \"2cpus\" }\n\"/g\" = { at_most = \"1cpus\" }\n",
            )),
            submit: here(submit),
            ask: ask.map(here),
            withdraw: None,
            ask_max: 60,
            engine: Engine::Sound,
            selector: Selector::LeastUsed,
            seed: 0,
            silence: None,
            poll_ms: 1,
        };
        Self { folder, args }
    }

    /// One life of a manager; whether it lived to the end of all jobs.
    fn live(&self, left: Option<u32>) -> bool {
        let life = Life { left };
        let all = || -> anyhow::Result<()> {
            let mut runner = Runner::start(&self.args, life)?;
            while !runner.round()? {}
            Ok(())
        };
        match all() {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.to_string(), KILLED, "{error:#}");
                false
            }
        }
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// What each job has come to, by key.
    fn states(&self) -> BTreeMap<String, String> {
        let args = StatusArgs {
            jobs: self.args.jobs.clone(),
            output: OutputArgs {
                parsable: true,
                noheader: true,
                ..OutputArgs::default()
            },
        };
        let mut out = Vec::new();
        status::status(&args, &mut out).expect("a queue");
        let text = String::from_utf8(out).expect("UTF-8");
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('|').collect();
            (cells[0].to_owned(), cells[3..].join(" "))
        };
        text.lines().map(row).collect()
    }
}

/// Runs a queue with kills at every step of its first life, and more in the lives that follow.
fn killed_everywhere(submit: &str, ask: Option<&str>, check: impl Fn(&Place, u32)) {
    for step in 0.. {
        let place = Place::new(submit, ask);
        let whole = place.live(Some(step));
        let again = whole
            || [step / 2, step / 3]
                .into_iter()
                .any(|step| place.live(Some(step)))
            || place.live(None);
        assert!(again);
        check(&place, step);
        if whole {
            assert!(step > 15, "{step} steps are not all");
            return;
        }
    }
}

#[test]
fn jobs_that_are_run_by_the_command_run_once_wherever_the_manager_is_killed() {
    // The first attempt of j2 fails, behind its mark that it was made.
    let submit = r#"echo "$FAIRMESH_NAME" >> "$HERE/log"; [ "$FAIRMESH_NAME" != j2.1 ]"#;
    killed_everywhere(submit, None, |place, step| {
        let mut log = place.lines("log");
        log.sort_unstable();
        assert_eq!(
            log,
            ["j1.1", "j2.1", "j2.2", "j3.1"],
            "killed at step {step}"
        );
        let states = place.states();
        let expected = [("j1", "ended 1 "), ("j2", "ended 2 "), ("j3", "ended 1 ")];
        let as_expected = |(job, state): (&str, &str)| states[job].starts_with(state);
        assert!(
            expected.into_iter().all(as_expected),
            "killed at step {step}: {states:?}"
        );
    });
}

/// Submits to a batch system that keeps a file for each job, which each question brings a step on.
const SUBMIT: &str = r#"echo "$FAIRMESH_NAME" >> "$HERE/log"; echo waiting > "$HERE/$FAIRMESH_NAME"; echo "id-$FAIRMESH_NAME""#;
const ASK: &str = r#"file="$HERE/$FAIRMESH_NAME"; [ -e "$file" ] || { echo nowhere; exit; }
    state=$(cat "$file"); echo "$state"
    case $state in waiting) echo running > "$file";; running) echo ended > "$file";; esac"#;

#[test]
fn jobs_that_are_submitted_are_submitted_once_wherever_the_manager_is_killed() {
    killed_everywhere(SUBMIT, Some(ASK), |place, step| {
        let log = place.lines("log");
        let names: BTreeSet<&String> = log.iter().collect();
        assert_eq!(
            (log.len(), names.len()),
            (3, 3),
            "killed at step {step}: {log:?}"
        );
        assert!(
            place
                .states()
                .values()
                .all(|state| state.starts_with("ended 1"))
        );
    });
}

#[test]
fn jobs_are_submitted_once_also_where_a_power_cut_takes_the_files_of_attempts() {
    for step in 0.. {
        let place = Place::new(SUBMIT, Some(ASK));
        let whole = place.live(Some(step));
        let attempts = folder(&place.args.jobs).join("attempts");
        let files = std::fs::read_dir(&attempts).expect("a folder");
        let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        for run in files
            .iter()
            .filter(|file| file.extension() == Some("run".as_ref()))
        {
            // Until its command has ended.
            let run = std::fs::File::open(run).expect("opens");
            run.lock().expect("locks");
        }
        std::fs::remove_dir_all(&attempts).expect("removes");
        assert!(place.live(None));
        let mut log = place.lines("log");
        log.sort_unstable();
        assert_eq!(log, ["j1.1", "j2.1", "j3.1"], "cut at step {step}");
        if whole {
            return;
        }
    }
}

#[test]
fn limits_are_kept_and_what_fails_for_ever_is_given_up() {
    // Each command counts who runs beside it, and waits for a moment in which the others are seen.
    let submit = r#"mkdir "$HERE/running-$FAIRMESH_NAME"; ls -d "$HERE"/running-* | wc -l >> "$HERE/beside"
        for i in 1 2 3 4 5 6 7 8 9; do ls -d "$HERE"/running-* | wc -l >> "$HERE/beside"; done
        rmdir "$HERE/running-$FAIRMESH_NAME"; [ "$FAIRMESH_JOB" != j3 ]"#;
    let place = Place::new(submit, None);
    let grid = GRID.replace("\"a\"", "\"c\"").replace("\"b\"", "\"d\"");
    let sites = |text: &str| {
        text.trim_start_matches("{\"sites\": [")
            .trim_end_matches("]}")
            .to_owned()
    };
    let all = format!(
        "{{\"sites\": [{}, {}, {}]}}",
        sites(GRID),
        sites(&grid),
        sites(
            GRID.replace("\"a\"", "\"e\"")
                .replace("\"b\"", "\"f\"")
                .as_str()
        )
    );
    std::fs::write(place.args.grid.as_ref().expect("a file"), all).expect("writes");
    let mut out = Vec::new();
    assert_eq!(
        run::run(&place.args, &mut out).expect("runs"),
        Exit::Failure
    );
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.ends_with("0 jobs wait, 0 are at sites, 2 have ended, 1 were given up\nj3: given up after 5 attempts: its command has ended with 1\n"), "{text}");
    let beside = place.lines("beside");
    assert!(
        beside
            .iter()
            .all(|count| ["1", "2"].contains(&count.trim())),
        "{beside:?}"
    );
}

#[test]
fn an_answer_that_does_not_come_is_no_answer_and_keeps_nobody_waiting() {
    let hangs = crate::attempt::answer("sleep 1000", &[], 1).expect("runs");
    assert_eq!(hangs, None);
    let in_time = crate::attempt::answer("echo running", &[], 60).expect("runs");
    assert_eq!(in_time.as_deref(), Some("running"));
    // Somebody else goes on with its output, or there is no end of that.
    let began = std::time::Instant::now();
    for command in [
        "sleep 30 2> /dev/null & echo running",
        "echo running; yes | head -c 1000000",
    ] {
        let left = crate::attempt::answer(command, &[], 5).expect("runs");
        assert_eq!(left.as_deref(), Some("running"), "{command}");
    }
    assert!(began.elapsed().as_secs() < 20);
}

#[test]
fn a_queue_says_what_is_wrong_with_its_files() {
    let place = Place::new("true", None);
    let missing = StatusArgs {
        jobs: Path::new("none.jsonl").to_owned(),
        output: OutputArgs::default(),
    };
    let error = status::status(&missing, &mut Vec::new())
        .expect_err("no queue")
        .to_string();
    assert!(error.contains("there is no queue of these jobs"), "{error}");
    assert!(place.live(None));
    std::fs::write(&place.args.jobs, "{\"key\": \"j1\"}\n").expect("writes");
    let error = Runner::start(&place.args, Life::default())
        .err()
        .expect("jobs are gone")
        .to_string();
    assert!(
        error.contains("job `j2` is in the queue, and not in the file any more"),
        "{error}"
    );
    std::fs::write(&place.args.jobs, JOBS.replace("/g", "/h")).expect("writes");
    let error = Runner::start(&place.args, Life::default())
        .err()
        .expect("another job");
    assert!(
        format!("{error:#}")
            .contains("job `j2` is in the queue already, and asks for something else"),
        "{error:#}"
    );
}

#[test]
fn what_jobs_run_is_nobody_elses_to_read_or_to_lock() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new("true", None);
    assert!(place.live(None));
    let queue = folder(&place.args.jobs);
    let files = [
        ("", 0o700),
        ("attempts", 0o700),
        ("attempts/j1.1.run", 0o600),
        ("journal", 0o600),
    ];
    for (name, wanted) in files {
        let metadata = queue.join(name).metadata().expect("it is there");
        assert_eq!(metadata.permissions().mode() & 0o777, wanted, "{name}");
    }
}
