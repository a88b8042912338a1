//! The loop: which jobs are here, which of them the batch system has, again.
//!
//! The node remembers which jobs are to be handed over; the files of an attempt (as those of `queue run`) remember
//! whether its command has begun and ended. A kill between any two steps leaves either the one or the other to go by.
//!
//! Invariant: a command is run again only where it never began, or where the batch system says that it has not the job.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fairmesh_broker::queue::Status;

use super::RunArgs;
use crate::ask::{AskError, Control};
use crate::control::answer::{
    Answer, ForwardSettledBody, HereBody, HereJobBody, SettledAsk, WithdrawnBody,
};
use crate::control::clean;
use crate::output::Exit;
use crate::queue::Life;
use crate::queue::attempt::{Asking, Attempt, Came, answer as answer_of, status};

/// Commands that run at once: bounds what a burst of jobs costs the host.
const COMMANDS_MAX: usize = 16;

/// Digits of a job's name that stand in the batch system's: no two jobs share them.
const NAME_DIGITS: usize = 24;

/// Hands jobs over until it is killed.
pub(super) async fn run(args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot make {}", args.folder.display()))?;
    let _lock = lock(args)?;
    let control = args.node.control();
    let mut children: Vec<Child> = Vec::new();
    loop {
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let parameters = [];
        match control
            .get::<Answer<HereBody>>("/v1/forward/here", &parameters)
            .await
        {
            Ok((answer, _)) => {
                for job in &answer.body.jobs {
                    hand_over(args, &control, job, &mut children, out).await?;
                }
                for job in &answer.body.withdrawn {
                    withdraw(args, &control, job, out).await?;
                }
            }
            // A node that is stopped is started again.
            Err(AskError::Unreachable { .. } | AskError::Broken { .. }) => {}
            Err(refused) => return Err(refused.into()),
        }
        tokio::time::sleep(Duration::from_millis(args.poll_ms)).await;
    }
}

/// Two that hand over the same jobs would submit them twice.
fn lock(args: &RunArgs) -> anyhow::Result<File> {
    let path = args.folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "{}: another process hands jobs over here",
                args.folder.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// One step with a job.
async fn hand_over(
    args: &RunArgs,
    control: &Control,
    job: &HereJobBody,
    children: &mut Vec<Child>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let name = attempt_name(&job.job, job.visit)?;
    let files = Attempt::new(&args.folder, &name);
    let env = env(job, &name);
    let stepped = tokio::task::block_in_place(|| step(args, job, &files, env, children));
    let Some(settled) = stepped? else {
        return Ok(());
    };
    if tell(control, &settled).await? {
        // The node has it on its disk, and lists the job no more.
        files.remove()?;
        let words = words(&settled, job.withdrawn);
        say((&job.key, &job.user, &name), &words, out)?;
    }
    Ok(())
}

/// Tells the node what came of a job; whether it has heard that.
async fn tell(control: &Control, settled: &SettledAsk) -> anyhow::Result<bool> {
    let body = serde_json::to_vec(settled)?;
    let told = control.post::<Answer<ForwardSettledBody>>("/v1/forward/here", body);
    match told.await {
        Ok(_) => Ok(true),
        Err(AskError::Unreachable { .. } | AskError::Broken { .. }) => Ok(false),
        Err(refused) => Err(refused.into()),
    }
}

fn say(
    (key, user, name): (&str, &str, &str),
    words: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(out, "{} of {} ({name}): {words}", clean(key), clean(user))?;
    out.flush()?;
    Ok(())
}

/// The batch system has a job that its user takes back.
async fn withdraw(
    args: &RunArgs,
    control: &Control,
    job: &WithdrawnBody,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let name = attempt_name(&job.job, job.visit)?;
    let env = [
        ("FAIRMESH_NAME", name.clone()),
        ("FAIRMESH_JOB", job.job.clone()),
        ("FAIRMESH_KEY", job.key.clone()),
        ("FAIRMESH_USER", job.user.clone()),
        ("FAIRMESH_BATCH", job.batch.clone()),
    ];
    let command = args.withdraw.as_ref();
    let run = |command: &String| answer_of(command, &env, args.ask_max);
    let said = tokio::task::block_in_place(|| command.map(run).transpose())?;
    let withdrew = said.flatten().is_some();
    let settled = SettledAsk {
        job: job.job.clone(),
        withdrew: Some(withdrew),
        ..SettledAsk::default()
    };
    if tell(control, &settled).await? {
        let words = match withdrew {
            true => "taken back by its user, and withdrawn",
            false => "taken back by its user; it stays with the batch system",
        };
        say((&job.key, &job.user, &name), words, out)?;
    }
    Ok(())
}

/// What is to be told of a job, if anything; starts its command where that never began.
fn step(
    args: &RunArgs,
    job: &HereJobBody,
    files: &Attempt,
    env: Vec<(&'static str, String)>,
    children: &mut Vec<Child>,
) -> anyhow::Result<Option<SettledAsk>> {
    let settled = |ask: SettledAsk| {
        let job = job.job.clone();
        Ok(Some(SettledAsk { job, ..ask }))
    };
    let submitted = |id: String| SettledAsk {
        submitted: Some(id),
        ..SettledAsk::default()
    };
    let ask = args.ask.as_ref().map(|command| Asking {
        command,
        env: env.clone(),
        seconds_max: args.ask_max,
    });
    match files.came()? {
        Came::Ended(0, id) => return settled(submitted(id)),
        Came::Begins | Came::Runs => return Ok(None),
        Came::Nothing if children.len() >= COMMANDS_MAX => return Ok(None),
        Came::Nothing => {
            // A machine that lost power may have forgotten that it was submitted.
            let known = ask.map_or(Ok(Some(Status::Nowhere)), |ask| ask.ask(String::new()))?;
            return match known {
                None => Ok(None),
                Some(Status::Nowhere) if job.withdrawn => settled(SettledAsk {
                    refused: Some("its user has taken it back".to_owned()),
                    ..SettledAsk::default()
                }),
                Some(Status::Nowhere) => {
                    let line = serde_json::to_string(job)?;
                    children.push(files.start(&args.submit, &line, &env, &mut Life::default())?);
                    Ok(None)
                }
                Some(_) => settled(submitted(String::new())),
            };
        }
        Came::Killed if ask.is_none() => {
            return settled(SettledAsk {
                in_doubt: Some(
                    "the submit command was killed, and may have submitted it".to_owned(),
                ),
                ..SettledAsk::default()
            });
        }
        Came::Killed | Came::Ended(..) => {}
    }
    match status(files, true, ask)? {
        None => Ok(None),
        Some(Status::Failed(why)) => settled(SettledAsk {
            refused: Some(why),
            ..SettledAsk::default()
        }),
        Some(_) => settled(submitted(String::new())),
    }
}

/// The name of a submission, which never means another one. What the node says is not believed to be a file's name.
fn attempt_name(job: &str, visit: u8) -> anyhow::Result<String> {
    let digits = job
        .get(..NAME_DIGITS)
        .filter(|of| of.bytes().all(|of| of.is_ascii_hexdigit()));
    let digits = digits.context("the node's answer: a job without a name")?;
    Ok(format!("fm-{digits}.{visit}"))
}

fn env(job: &HereJobBody, name: &str) -> Vec<(&'static str, String)> {
    let origin = match job.origin_name.is_empty() {
        true => &job.origin,
        false => &job.origin_name,
    };
    vec![
        ("FAIRMESH_NAME", name.to_owned()),
        ("FAIRMESH_JOB", job.job.clone()),
        ("FAIRMESH_KEY", job.key.clone()),
        ("FAIRMESH_VO", job.vo.clone()),
        ("FAIRMESH_PATH", job.path.clone()),
        ("FAIRMESH_USER", job.user.clone()),
        ("FAIRMESH_ORIGIN", origin.clone()),
        ("FAIRMESH_CLASS", job.class.clone()),
        ("FAIRMESH_CPUS", job.cpus.to_string()),
        ("FAIRMESH_WALL_S", job.wall_s.to_string()),
    ]
}

fn words(settled: &SettledAsk, is_withdrawn: bool) -> String {
    let SettledAsk {
        submitted,
        refused,
        in_doubt,
        ..
    } = settled;
    match (submitted, refused, in_doubt) {
        (Some(id), ..) if id.is_empty() => "submitted".to_owned(),
        (Some(id), ..) => format!("submitted as {}", clean(id)),
        (_, Some(_), _) if is_withdrawn => "not submitted: its user has taken it back".to_owned(),
        (_, Some(why), _) => format!("not submitted, and sent elsewhere: {}", clean(why)),
        _ => format!(
            "given up: {}",
            in_doubt.as_deref().map(clean).unwrap_or_default()
        ),
    }
}
