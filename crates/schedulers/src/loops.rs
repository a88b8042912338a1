//! Rounds, again and again, until somebody wants them to stop.
//!
//! What is wrong is said once, and again after a while; so is that it is right again. After each round the node is
//! told what the loop has done, and shows it with its own metrics.
//!
//! Invariant: a loop ends soon after it is told to, whatever hangs: the round that it is at has `STOP_MAX` to come
//! to its end, and is dropped then as a crash would drop it. Deliberately not here: signals.

use std::time::{Duration, Instant};

use fairmesh_client::ClientError;
use serde::de::IgnoredAny;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::control::{AskError, Control};
use crate::report::{LoopsReport, RoundsReport};

/// What a round may still take when somebody wants the loops to stop.
const STOP_MAX: Duration = Duration::from_secs(2);

/// How long the node may take to hear what was done: no round waits for longer.
const HEARING_MAX: Duration = Duration::from_secs(5);

/// After so long, that something is away is said once more.
const REMIND: Duration = Duration::from_secs(600);

/// Of a list of complaints, those that are said one by one.
const LINES_MAX: usize = 10;

/// A loop.
pub trait Rounds: Send + 'static {
    /// What it is called: `slurm sync`.
    fn name(&self) -> String;

    /// Between two rounds.
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

/// Loops that run.
#[derive(Debug)]
pub struct Beside {
    stop: watch::Sender<bool>,
    loops: Vec<JoinHandle<()>>,
}

impl Default for Beside {
    /// None.
    fn default() -> Self {
        Self {
            stop: watch::Sender::new(false),
            loops: Vec::new(),
        }
    }
}

impl Beside {
    /// Starts a loop beside the others, where nobody waits for the files that it reads and writes.
    pub fn start(&mut self, rounds: impl Rounds) {
        let (run, here) = (run(rounds, self.stop.subscribe()), Handle::current());
        let run = tokio::task::spawn_blocking(move || here.block_on(run));
        self.loops.push(run);
    }

    /// Ends the loops.
    pub async fn end(self) {
        self.stop.send_replace(true);
        for one in self.loops {
            if let Err(error) = one.await {
                tracing::error!(%error, "a loop with a batch system ended badly");
            }
        }
    }
}

async fn run(mut rounds: impl Rounds, mut stop: watch::Receiver<bool>) {
    let name = rounds.name();
    let mut trouble: Option<(Instant, String)> = None;
    loop {
        let mut told = stop.clone();
        let impatience = async {
            // Whoever could tell is gone, which tells as much.
            let _ = told.wait_for(|told| *told).await;
            sleep(STOP_MAX).await;
        };
        let done = tokio::select! {
            biased;
            done = rounds.round() => done,
            () = impatience => return,
        };
        match done {
            Ok(()) => {
                rounds.rounds().done += 1;
                if let Some((since, _)) = trouble.take() {
                    let away_s = since.elapsed().as_secs();
                    tracing::info!(away_s, "{name}: all is well again");
                }
            }
            Err(error) => {
                let is_node_away = error.is::<AskError>() || error.is::<ClientError>();
                let counted = rounds.rounds();
                counted.without_node += u64::from(is_node_away);
                counted.without_scheduler += u64::from(!is_node_away);
                let said = format!("{error:#}");
                let is_news = |(at, was): &(Instant, String)| *was != said || at.elapsed() > REMIND;
                if trouble.as_ref().is_none_or(is_news) {
                    let comfort = rounds.comfort(is_node_away);
                    tracing::warn!("{name}: {said}; {comfort}");
                    trouble = Some((Instant::now(), said));
                }
            }
        }
        let (control, path, report) = rounds.told();
        tell(control, &path, &report).await;
        tokio::select! {
            _ = stop.wait_for(|told| *told) => return,
            () = sleep(rounds.interval()) => {}
        }
    }
}

/// Tells the node. That it does not listen changes nothing; counters go on, and are told next time.
async fn tell(control: &Control, path: &str, report: &LoopsReport) {
    let body = serde_json::to_vec(report).unwrap_or_default();
    let heard = control.post::<IgnoredAny>(path, body);
    let heard = timeout(HEARING_MAX, heard).await;
    // The loop itself has said already if the node is away.
    tracing::debug!(?heard, "the node was told what the loop has done");
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
        let mut beside = Beside::default();
        beside.start(Hangs(control, RoundsReport::default(), begun));
        begins.wait_for(|begun| *begun).await?;
        timeout(Duration::from_secs(60), beside.end()).await?;
        Ok(())
    }
}
