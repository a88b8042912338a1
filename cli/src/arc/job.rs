//! A job as A-REX's control folder describes it, in the words in which the node is asked about it.
//!
//! `job.ID.grami` says what the job asks for, `job.ID.local` whose it is; A-REX has written both before it calls. From
//! ARC 7 on they are `grami` and `local` in a folder of the job, whose name is its id in pieces of three.
//!
//! Invariant: no text that a user wrote is taken for a word of A-REX: A-REX takes the line ends out of what users
//! write, and a word that stands there twice is an error all the same. Nothing is run by a shell, as A-REX's own
//! scripts do with these files.
//! Deliberately not here: jobs that have ended, and job descriptions (A-REX has read them).

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::HoldArgs;
use crate::callout::wall_s;

/// What A-REX has written of a job.
pub(super) struct Files {
    grami: String,
    local: String,
}

pub(super) fn read(args: &HoldArgs) -> anyhow::Result<Files> {
    ensure!(
        !args.job.is_empty() && args.job.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "`{}` is no id of a job",
        args.job.escape_debug()
    );
    let pieces = args.job.as_bytes().chunks(3).map(String::from_utf8_lossy);
    let mut folder = args.control.join("jobs");
    pieces.for_each(|piece| folder.push(&*piece));
    let read = |kind: &str| {
        let file = match folder.is_dir() {
            true => folder.join(kind),
            false => args.control.join(format!("job.{}.{kind}", args.job)),
        };
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        // What a user wrote need not be UTF-8, and is no way around.
        anyhow::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Files {
        grami: read("grami")?,
        local: read("local")?,
    })
}

/// What a node is asked about it.
pub(super) fn asking(files: &Files, args: &HoldArgs) -> anyhow::Result<Value> {
    let number = |name: &str| {
        let name = format!("joboption_{name}");
        let value = word(&files.grami, &name)?;
        let number = value.map(|value| value.parse::<u64>()).transpose();
        number.with_context(|| format!("{name} is no number"))
    };
    let cores = number("count")?.unwrap_or(1).max(1);
    // Of all cores together; A-REX's own scripts make a time limit of it, too.
    let cpu_time = number("cputime")?.map(|of_all| of_all.div_ceil(cores));
    let wall = number("walltime")?.or(cpu_time).or(args.time);
    let memory = number("memory")?.unwrap_or(0);
    let mut call = json!({
        "cluster": args.cluster,
        "job": args.job,
        "user": args.user,
        "cores": cores,
        "mem_mib": memory.saturating_mul(cores),
        "wall_s": wall_s(wall),
    });
    for (ours, theirs) in [
        ("subject", "subject"),
        ("account", "projectname"),
        ("queue", "queue"),
    ] {
        if let Some(value) = word(&files.local, theirs)? {
            call[ours] = json!(value);
        }
    }
    Ok(call)
}

/// The value of a word, without its quotes; none where it is empty or missing.
fn word(text: &str, name: &str) -> anyhow::Result<Option<String>> {
    let values = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let values: Vec<&str> = values.collect();
    ensure!(
        values.len() <= 1,
        "{name} stands there {} times",
        values.len()
    );
    let quoted = |value: &str| Some(value.strip_prefix('\'')?.strip_suffix('\'')?.to_owned());
    let value = values.first().map(|value| match quoted(value) {
        Some(inside) => inside.replace("'\\''", "'"),
        None => (*value).to_owned(),
    });
    Ok(value.filter(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::NodeArgs;
    use crate::callout::UNLIMITED_S;
    use fairmesh_node::config::slurm::OnSilence;

    const LOCAL: &str = "globalid=abc\nqueue=fork\nargs=/bin/sh -c sleep\\ 3;\\ queue=x \n\
                         subject=/DC=org/O=Grid=1/CN=ann\njobname=test\n";

    fn args() -> HoldArgs {
        HoldArgs {
            job: "abc".to_owned(),
            control: "/none".into(),
            user: "griduser".to_owned(),
            cluster: "ce1".to_owned(),
            time: None,
            on_silence: OnSilence::Run,
            node: NodeArgs::default(),
        }
    }

    fn files(grami: &str, local: &str) -> Files {
        Files {
            grami: grami.to_owned(),
            local: local.to_owned(),
        }
    }

    fn asked(grami: &str, local: &str) -> anyhow::Result<Value> {
        asking(&files(grami, local), &args())
    }

    #[test]
    fn what_a_job_asks_for_is_read_from_the_files_of_a_rex() {
        let grami = "joboption_arg_0='/bin/sh'\njoboption_cputime=\njoboption_walltime=600\n\
                     joboption_memory=2000\njoboption_count=4\njoboption_jobname='it'\\''s'\n";
        let call = asked(grami, LOCAL).expect("whole");
        let whole = json!({
            "cluster": "ce1", "job": "abc", "user": "griduser", "cores": 4, "mem_mib": 8000, "wall_s": 600,
            "subject": "/DC=org/O=Grid=1/CN=ann", "queue": "fork"
        });
        assert_eq!(call, whole);
        let name = word(grami, "joboption_jobname").expect("once");
        assert_eq!(name.as_deref(), Some("it's"));
        let with_project = format!("{LOCAL}projectname=P-A1\n");
        assert_eq!(
            asked(grami, &with_project).expect("whole")["account"],
            "P-A1"
        );
    }

    #[test]
    fn a_job_without_a_wall_clock_time_is_limited_by_its_cpu_time_or_by_the_site() {
        let wall = |grami: &str, time| {
            let call = asking(&files(grami, LOCAL), &HoldArgs { time, ..args() });
            call.expect("whole")["wall_s"].as_u64()
        };
        let cpu = "joboption_cputime=1201\njoboption_walltime=\njoboption_count=2\n";
        assert_eq!(wall(cpu, Some(60)), Some(601));
        assert_eq!(wall("joboption_count=2\n", Some(60)), Some(60));
        assert_eq!(wall("joboption_count=2\n", None), Some(UNLIMITED_S));
        let of_ages = "joboption_walltime=345600000\njoboption_count=1\n";
        assert_eq!(wall(of_ages, None), Some(10 * UNLIMITED_S), "ten years");
    }

    #[test]
    fn a_byte_that_is_no_text_hides_nothing_of_a_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let grami = b"joboption_arg_1='\xff'\njoboption_count=1\njoboption_walltime=60\n";
        fs::write(folder.path().join("job.abc.grami"), grami).expect("written");
        fs::write(folder.path().join("job.abc.local"), LOCAL).expect("written");
        let args = HoldArgs {
            control: folder.path().to_owned(),
            ..args()
        };
        let files = read(&args).expect("it is read");
        assert_eq!(asking(&files, &args).expect("whole")["wall_s"], 60);
    }

    #[test]
    fn what_stands_there_twice_is_not_believed() {
        let twice = "joboption_walltime=1\njoboption_count=1\njoboption_walltime=600\n";
        let why = asked(twice, LOCAL).expect_err("refused").to_string();
        assert!(
            why.contains("joboption_walltime stands there 2 times"),
            "{why}"
        );
        let other = format!("{LOCAL}subject=/CN=bob\n");
        assert!(asked("joboption_count=1\n", &other).is_err());
        assert!(asked("joboption_count=many\n", LOCAL).is_err());
        let outside = HoldArgs {
            job: "../x".to_owned(),
            ..args()
        };
        assert!(read(&outside).is_err());
    }
}
