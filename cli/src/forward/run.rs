//! The loop: which jobs are here, which of them the batch system has, again.
//!
//! The node remembers which jobs are to be handed over; the files of an attempt (as those of `queue run`) remember
//! whether its command has begun and ended. A kill between any two steps leaves either the one or the other to go by.
//!
//! Invariant: a command is run again only where it never began, or where the batch system says that it has not the job.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fairmesh_api::client::{AskError, Control};
use fairmesh_api::{Answer, ForwardSettledBody, HereBody, HereJobBody, SettledAsk, WithdrawnBody};
use fairmesh_broker::queue::Status;
use fairmesh_model::clean;

use super::RunArgs;
use crate::attempt::{
    Asking, Attempt, AttemptState, Life, answer as answer_of, make_private, private_file, status,
};
use crate::output::Exit;

/// Commands that run at once: bounds what a burst of jobs costs the host.
const COMMANDS_MAX: usize = 16;

/// Digits of a job's name that stand in the batch system's: no two jobs share them.
const NAME_DIGITS: usize = 24;

/// Why a job is not begun any more.
const TAKEN_BACK: &str = "its user has taken it back, or it has waited for more than a day";

/// Hands jobs over until it is killed.
pub(super) async fn run(args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    make_private(&args.folder)?;
    let _lock = lock(args)?;
    let control = args.node.control();
    let mut children: Vec<Child> = Vec::new();
    let mut troubles = Troubles::default();
    loop {
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let parameters = [];
        match control
            .get::<Answer<HereBody>>("/v1/forward/here", &parameters)
            .await
        {
            Ok((answer, _)) => {
                for job in &answer.body.jobs {
                    troubles.note(hand_over(args, &control, job, &mut children, out).await?);
                }
                for job in &answer.body.withdrawn {
                    troubles.note(withdraw(args, &control, job, out).await?);
                }
            }
            // A node that is stopped is started again; one that refuses the question itself will do so again.
            Err(refused @ AskError::Refused { status: ..500, .. }) => return Err(refused.into()),
            Err(away) => troubles.note(Some(away)),
        }
        troubles.end_round();
        tokio::time::sleep(Duration::from_millis(args.poll_ms)).await;
    }
}

/// What the node refuses for the moment, such as while it waits for room: each is said once, until a round without it.
#[derive(Default)]
struct Troubles {
    before: BTreeSet<String>,
    now: BTreeSet<String>,
}

impl Troubles {
    /// Says why the node has not heard something, unless it is only away.
    fn note(&mut self, why: Option<AskError>) {
        let Some(AskError::Refused { .. }) = &why else {
            return;
        };
        let why = why.map(|why| clean(&why.to_string())).unwrap_or_default();
        if !self.before.contains(&why) && !self.now.contains(&why) {
            note!("fairmesh: {why}; trying again");
        }
        self.now.insert(why);
    }

    fn end_round(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
}

/// Two that hand over the same jobs would submit them twice.
fn lock(args: &RunArgs) -> anyhow::Result<File> {
    let path = args.folder.join("lock");
    let file = private_file(&path)?;
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

/// One step with a job; why the node has not heard of it, if it has not.
async fn hand_over(
    args: &RunArgs,
    control: &Control,
    job: &HereJobBody,
    children: &mut Vec<Child>,
    out: &mut dyn Write,
) -> anyhow::Result<Option<AskError>> {
    let name = attempt_name(&job.job, job.visit)?;
    let files = Attempt::new(&args.folder, &name);
    let env = env(job, &name);
    let stepped = tokio::task::block_in_place(|| step(args, job, &files, env, children));
    let Some(settled) = stepped? else {
        return Ok(None);
    };
    let away = tell(control, &settled).await?;
    if away.is_none() {
        // The node has it on its disk, and lists the job no more.
        files.remove()?;
        let words = words(&settled, job.withdrawn);
        say((&job.key, &job.user, &name), &words, out)?;
    }
    Ok(away)
}

/// Tells the node what came of a job; why it has not heard that, if it has not. The job stays in its list until it has,
/// and is told again.
async fn tell(control: &Control, settled: &SettledAsk) -> anyhow::Result<Option<AskError>> {
    let body = serde_json::to_vec(settled)?;
    let told = control.post::<Answer<ForwardSettledBody>>("/v1/forward/here", body);
    Ok(told.await.err())
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

/// The batch system has a job that its user takes back; why the node has not heard what came of it, if it has not.
async fn withdraw(
    args: &RunArgs,
    control: &Control,
    job: &WithdrawnBody,
    out: &mut dyn Write,
) -> anyhow::Result<Option<AskError>> {
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
    let away = tell(control, &settled).await?;
    if away.is_none() {
        let words = match withdrew {
            true => "taken back by its user, and withdrawn",
            false => "taken back by its user; it stays with the batch system",
        };
        say((&job.key, &job.user, &name), words, out)?;
    }
    Ok(away)
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
    match files.state()? {
        AttemptState::Ended(0, id) => return settled(submitted(id)),
        AttemptState::Starting | AttemptState::Running => return Ok(None),
        AttemptState::NotStarted if children.len() >= COMMANDS_MAX => return Ok(None),
        AttemptState::NotStarted => {
            // A machine that lost power may have forgotten that it was submitted.
            let known = ask.map_or(Ok(Some(Status::Nowhere)), |ask| ask.ask(String::new()))?;
            return match known {
                None => Ok(None),
                Some(Status::Nowhere) if job.withdrawn => settled(SettledAsk {
                    refused: Some(TAKEN_BACK.to_owned()),
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
        AttemptState::Killed if ask.is_none() => {
            return settled(SettledAsk {
                in_doubt: Some(
                    "the submit command was killed, and may have submitted it".to_owned(),
                ),
                ..SettledAsk::default()
            });
        }
        AttemptState::Killed | AttemptState::Ended(..) => {}
    }
    match ask.map(|ask| ask.ask(String::new())).transpose()? {
        Some(None) => return Ok(None),
        Some(Some(Status::Nowhere)) | None => {}
        // Also of one that has failed there: it was there, and may have run.
        Some(Some(_)) => return settled(submitted(String::new())),
    }
    match status(files, true, None)? {
        Some(Status::Failed(why)) => settled(SettledAsk {
            refused: Some(why),
            ..SettledAsk::default()
        }),
        _ => Ok(None),
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
        (_, Some(_), _) if is_withdrawn => format!("not submitted: {TAKEN_BACK}"),
        (_, Some(why), _) => format!("not submitted, and sent elsewhere: {}", clean(why)),
        _ => format!(
            "given up: {}",
            in_doubt.as_deref().map(clean).unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::{UnixListener, UnixStream};

    use tokio::sync::oneshot;

    use super::*;
    use crate::ask::NodeArgs;

    /// The method and the body of a request, which is read whole.
    fn asked(stream: &mut UnixStream) -> (String, String) {
        let mut text = String::new();
        let mut bytes = [0; 4_096];
        loop {
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or(("", ""));
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                value.trim().parse::<usize>().ok().filter(|_| is_length)
            });
            if !head.is_empty() && body.len() >= length.unwrap_or(0) {
                let method = text.split(' ').next().unwrap_or_default();
                return (method.to_owned(), body.to_owned());
            }
            let count = stream.read(&mut bytes).expect("a request");
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    /// A node that waits for room at first: it answers in turn, and says what it was asked, and what it was told last.
    fn node(socket: &std::path::Path) -> oneshot::Receiver<Vec<String>> {
        let listener = UnixListener::bind(socket).expect("bound");
        let rests_on = r#""schema":"","as_of":"","as_of_ms":0,"coverage":{"sites_known":0,"sites_total":0,"oldest":null,"capacity_known":""},"views":[]"#;
        let job = format!(
            r#"{{"job":"{}","visit":1,"class":"","vo":"","origin":"","origin_name":"","key":"k","user":"ann","path":"/","cpus":1,"nodes":1,"gpus":0,"mem_mib":0,"disk_mib":0,"wall_s":1,"queue":null,"properties":[],"run":""}}"#,
            "ab".repeat(32)
        );
        let jobs = format!(r#"{{{rests_on},"jobs":[{job}]}}"#);
        let heard = format!("{{{rests_on}}}");
        let waits = r#"{"error":"the node waits for room"}"#.to_owned();
        let (says, said) = oneshot::channel();
        std::thread::spawn(move || {
            let (mut asks, mut told) = (Vec::new(), 0);
            while told < 2 {
                let (mut stream, _) = listener.accept().expect("a call");
                let (method, said) = asked(&mut stream);
                let (status, body) = match (method.as_str(), asks.len()) {
                    (_, 0) => (503, &waits),
                    ("GET", _) => (200, &jobs),
                    _ if told == 0 => (422, &waits),
                    _ => (200, &heard),
                };
                told += u32::from(method == "POST");
                asks.push(format!("{method} {status} {said}"));
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).expect("answered");
            }
            says.send(asks).expect("somebody waits");
        });
        said
    }

    /// What a node is asked and told where these two commands hand its job over, as long as it is told twice.
    async fn told(
        submit: &str,
        ask: Option<&str>,
    ) -> anyhow::Result<(tempfile::TempDir, Vec<String>)> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("control.sock");
        let node = node(&socket);
        let here = |command: &str| format!("HERE='{}'; {command}", folder.path().display());
        let args = RunArgs {
            submit: here(submit),
            ask: ask.map(here),
            withdraw: None,
            ask_max: 5,
            folder: folder.path().join("here"),
            poll_ms: 10,
            node: NodeArgs {
                socket: Some(socket),
            },
        };
        let mut out = Vec::new();
        let all = async {
            // It ends only where it cannot go on.
            let ended = run(&args, &mut out).await;
            anyhow::bail!("{:?}", ended.err())
        };
        let asks = tokio::select! {
            biased;
            asks = node => asks?,
            ended = tokio::time::timeout(Duration::from_secs(60), all) => ended??,
        };
        Ok((folder, asks))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_job_that_the_batch_system_had_is_not_sent_elsewhere() -> anyhow::Result<()> {
        let submit = r#"touch "$HERE/ran"; exit 1"#;
        let ask = r#"test -e "$HERE/ran" && echo failed || echo nowhere"#;
        let (_folder, asks) = told(submit, Some(ask)).await?;
        let mut told = asks.iter().filter(|ask| ask.starts_with("POST"));
        assert!(told.all(|ask| ask.contains("submitted\":\"")), "{asks:?}");
        // Of one that it never had it is sure.
        let (_folder, asks) = self::told("exit 1", Some("echo nowhere")).await?;
        let mut told = asks.iter().filter(|ask| ask.starts_with("POST"));
        assert!(told.all(|ask| ask.contains("refused\":\"")), "{asks:?}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_that_refuses_for_a_moment_is_told_again() -> anyhow::Result<()> {
        let submit = r#"test "$(stat -c %a "$FAIRMESH_FILES.run")" = 600 && echo 4711"#;
        let (folder, asks) = told(submit, None).await?;
        let told = asks.iter().map(String::as_str);
        let told: Vec<&str> = told.filter(|ask| ask.starts_with("POST")).collect();
        assert!(asks[0].starts_with("GET 503"), "{asks:?}");
        let heard: Vec<&str> = told.iter().map(|ask| &ask[..8]).collect();
        assert_eq!(heard, ["POST 422", "POST 200"]);
        // What the job runs is nobody else's to read, or to lock.
        assert!(told.iter().all(|ask| ask.contains("4711")), "{told:?}");
        for (name, wanted) in [("", 0o700), ("lock", 0o600)] {
            let metadata = folder.path().join("here").join(name).metadata()?;
            let mode = metadata.permissions().mode();
            assert_eq!(mode & 0o777, wanted, "{name}");
        }
        Ok(())
    }
}
