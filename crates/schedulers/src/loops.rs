//! Rounds, one after the other, until a request to stop.
//!
//! A failure is logged once, and again after a while; recovery is logged, too. The loop reports to the node when it
//! starts, after each round, once an interval during a long round, and when it stops on request. The node can therefore
//! distinguish a loop that is dead from one that hangs, fails or was stopped.
//!
//! Invariant: a loop ends soon after it is told to, whatever hangs: the round that it is at has `STOP_MAX` to come
//! to its end, and is dropped then as a crash would drop it. Deliberately not here: signals, and what the node makes of
//! the reports.

use std::time::{Duration, Instant};

use fairmesh_client::ClientError;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::millis;
use fairmesh_api::client::{AskError, Control};
use fairmesh_api::loops::{LoopsReport, RoundsReport, Trouble};
use fairmesh_api::record_log::LogState;

/// What a round may still take when somebody wants the loops to stop.
const STOP_MAX: Duration = Duration::from_secs(2);

/// How long the node may take to hear what was done: no round waits for longer.
const HEARING_MAX: Duration = Duration::from_secs(5);

/// Least time between two reports during a round, however short the interval.
const LIFE_SIGN_MIN: Duration = Duration::from_secs(1);

/// After so long, that something is away is said once more.
const REMIND: Duration = Duration::from_secs(600);

/// Of a list of complaints, those that are said one by one.
const LINES_MAX: usize = 10;

/// A loop with a batch system, as rounds.
pub trait Rounds: Send + 'static {
    /// What it is called: `slurm sync`.
    fn name(&self) -> String;

    /// The pause between two rounds.
    fn interval(&self) -> Duration;

    /// One round; says what it did.
    fn round(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Where it counts how its rounds ended.
    fn rounds(&mut self) -> &mut RoundsReport;

    /// Whom to tell what was done, where, and what.
    fn told(&self) -> (&Control, String, LoopsReport);

    /// What becomes of what a round came not to.
    fn comfort(&self, is_node_away: bool) -> String;
}

/// The running loops with batch systems.
#[derive(Debug)]
pub struct LoopSet {
    stop: watch::Sender<bool>,
    loops: Vec<JoinHandle<()>>,
}

impl Default for LoopSet {
    fn default() -> Self {
        Self {
            stop: watch::Sender::new(false),
            loops: Vec::new(),
        }
    }
}

impl LoopSet {
    /// Starts one more loop, on a blocking thread: its reads and writes of files delay nothing else.
    pub fn start(&mut self, rounds: impl Rounds) {
        let (run, here) = (run(rounds, self.stop.subscribe()), Handle::current());
        let run = tokio::task::spawn_blocking(move || here.block_on(run));
        self.loops.push(run);
    }

    /// Signals all loops to end, and waits for them.
    pub async fn end(self) {
        self.stop.send_replace(true);
        for one in self.loops {
            if let Err(error) = one.await {
                tracing::error!(%error, "a loop with a batch system ended badly");
            }
        }
    }
}

/// A round lacked only the source of ended jobs; running jobs were reported.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SourceAway(pub String);

async fn run(mut rounds: impl Rounds, mut stop: watch::Receiver<bool>) {
    let (name, interval) = (rounds.name(), rounds.interval());
    rounds.rounds().interval_ms = millis(interval);
    let mut trouble: Option<(Instant, String)> = None;
    tell(&mut rounds).await;
    while let Some((done, took)) = one_round(&mut rounds, stop.clone()).await {
        note(rounds.rounds(), &done, took);
        match done {
            Ok(()) => {
                if let Some((since, _)) = trouble.take() {
                    let away_s = since.elapsed().as_secs();
                    tracing::info!(away_s, "{name}: all is well again");
                }
            }
            Err(error) => {
                let said = format!("{error:#}");
                let is_news = |(at, was): &(Instant, String)| *was != said || at.elapsed() > REMIND;
                if trouble.as_ref().is_none_or(is_news) {
                    let comfort = rounds.comfort(is_node_away(&error));
                    tracing::warn!("{name}: {said}; {comfort}");
                    trouble = Some((Instant::now(), said));
                }
            }
        }
        if *stop.borrow() {
            break;
        }
        tell(&mut rounds).await;
        // The next round shows whether the first failure is one: it comes sooner.
        let trouble = rounds.rounds().trouble.as_ref();
        let has_just_failed = trouble.is_some_and(|trouble| trouble.rounds == 1);
        let pause = if has_just_failed {
            interval / 2
        } else {
            interval
        };
        tokio::select! {
            _ = stop.wait_for(|told| *told) => break,
            () = sleep(pause) => {}
        }
    }
    rounds.rounds().is_stopped = true;
    // A node that hangs does not hold up the end.
    let _ = timeout(STOP_MAX, tell(&mut rounds)).await;
}

/// One round with its duration, during which the loop reports once an interval that it is alive, so two reports are
/// never more than an interval apart; none where the round did not end in time after a request to stop.
async fn one_round(
    rounds: &mut impl Rounds,
    mut stop: watch::Receiver<bool>,
) -> Option<(anyhow::Result<()>, Duration)> {
    let (began, interval) = (Instant::now(), rounds.interval());
    let (control, path, report) = rounds.told();
    let control = control.clone();
    let impatience = async {
        // If the sender is gone, the loops are to end, too.
        let _ = stop.wait_for(|told| *told).await;
        sleep(STOP_MAX).await;
    };
    let done = tokio::select! {
        biased;
        done = alive((&control, &path, &report), interval, rounds.round()) => done,
        () = impatience => return None,
    };
    Some((done, began.elapsed()))
}

/// A round during which the node hears once an interval that the loop is alive: where, by what path, and what it
/// reports.
pub async fn alive<T>(
    (control, path, report): (&Control, &str, &LoopsReport),
    interval: Duration,
    round: impl Future<Output = T>,
) -> T {
    let signs_of_life = async {
        loop {
            send(control, path, report).await;
            sleep(interval.max(LIFE_SIGN_MIN)).await;
        }
    };
    tokio::select! {
        biased;
        done = round => done,
        () = signs_of_life => unreachable!("it never ends"),
    }
}

fn is_node_away(error: &anyhow::Error) -> bool {
    error.is::<AskError>() || error.is::<ClientError>()
}

/// Notes how a round ended.
pub fn note(counted: &mut RoundsReport, done: &anyhow::Result<()>, took: Duration) {
    let Err(error) = done else {
        counted.done += 1;
        counted.took_ms = millis(took);
        counted.trouble = None;
        return;
    };
    let is_node_away = is_node_away(error);
    counted.without_node += u64::from(is_node_away);
    counted.without_scheduler += u64::from(!is_node_away);
    let before = counted.trouble.take().map_or(0, |trouble| trouble.rounds);
    counted.trouble = Some(Trouble {
        rounds: before + 1,
        is_of_source: error.is::<SourceAway>(),
        why: format!("{error:#}"),
    });
}

async fn tell(rounds: &mut impl Rounds) {
    let (control, path, report) = rounds.told();
    send(control, &path, &report).await;
}

/// Sends a report; gives the state of the node's record log. That the node does not receive it changes nothing:
/// counters continue, and the next report has them.
pub async fn send(control: &Control, path: &str, report: &LoopsReport) -> LogState {
    let body = serde_json::to_vec(report).unwrap_or_default();
    let heard = control.post(path, body);
    let heard = timeout(HEARING_MAX, heard).await;
    // The loop itself has said already if the node is away.
    tracing::debug!(?heard, "the node was told what the loop has done");
    heard.ok().and_then(Result::ok).unwrap_or_default()
}

/// Says what is odd, one line for each of the first, and how many more there are.
pub(crate) fn complain(name: &str, what: &str, lines: &[String]) {
    for line in lines.iter().take(LINES_MAX) {
        tracing::warn!("{name}: {what}: {line}");
    }
    if lines.len() > LINES_MAX {
        tracing::warn!(more = lines.len() - LINES_MAX, "{name}: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop whose round never ends.
    struct Hangs(Control, RoundsReport, watch::Sender<bool>);

    impl Rounds for Hangs {
        fn name(&self) -> String {
            "a loop".to_owned()
        }

        fn interval(&self) -> Duration {
            Duration::ZERO
        }

        async fn round(&mut self) -> anyhow::Result<()> {
            self.2.send_replace(true);
            std::future::pending().await
        }

        fn rounds(&mut self) -> &mut RoundsReport {
            &mut self.1
        }

        fn told(&self) -> (&Control, String, LoopsReport) {
            (&self.0, String::new(), LoopsReport::default())
        }

        fn comfort(&self, _is_node_away: bool) -> String {
            String::new()
        }
    }

    #[tokio::test]
    async fn a_loop_whose_round_hangs_ends_when_it_is_told_to() -> anyhow::Result<()> {
        let begun = watch::Sender::new(false);
        let mut begins = begun.subscribe();
        let control = Control::new("/nowhere/control.sock".into());
        let mut loops = LoopSet::default();
        loops.start(Hangs(control, RoundsReport::default(), begun));
        begins.wait_for(|begun| *begun).await?;
        timeout(Duration::from_secs(60), loops.end()).await?;
        Ok(())
    }

    #[test]
    fn failed_rounds_are_counted_until_one_is_good() {
        let (mut counted, took) = (RoundsReport::default(), Duration::from_secs(3));
        let away = || Err(SourceAway("slurmdbd does not answer".to_owned()).into());
        note(&mut counted, &Err(anyhow::anyhow!("squeue failed")), took);
        note(&mut counted, &away(), took);
        let trouble = counted.trouble.clone().expect("two failed");
        assert_eq!((trouble.rounds, trouble.is_of_source), (2, true));
        assert_eq!(trouble.why, "slurmdbd does not answer");
        assert_eq!((counted.without_scheduler, counted.took_ms), (2, 0));
        note(&mut counted, &Ok(()), took);
        assert_eq!(
            (counted.trouble, counted.done, counted.took_ms),
            (None, 1, 3_000)
        );
    }
}
