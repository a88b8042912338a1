//! The time of a demonstration: what time, keys and signals bring while the load runs.
//!
//! Invariant: it ends with all nodes up and the mesh whole, unless a signal ended it.

use std::collections::VecDeque;
use std::future::pending;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::broker::Broker;
use super::load::{Clusters, FLOOD};
use super::measure::{
    Propagation, await_held, distinct, join_of_vectors, share_lines, states, usage,
};
use super::screen::Progress;
use super::{SETTLE_MAX, Show};

/// Between two looks at time and keys.
const PASS: Duration = Duration::from_millis(50);

/// Between two pictures.
const PICTURE: Duration = Duration::from_secs(1);

/// How long a trace may be fed beyond its time: the clock's pace leaves a tail for the last reports, and on a busy
/// machine they may need longer.
const BEYOND_MAX: Duration = Duration::from_secs(300);

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Cut the mesh in two, or heal it.
    Cut,
    /// Stop the last site's node, or start it again.
    Node,
    /// A user floods all sites.
    Flood,
    /// A coordinator publishes other shares.
    Policy,
    /// End now.
    Quit,
    /// The terminal has another size.
    Redraw,
}

/// What a heal was like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heal {
    pub(super) to_identical_ms: u64,
    pub(super) views_while_cut: usize,
}

/// Signals that end a program.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("SIGINT")?,
        })
    }

    /// The next one: to end now, or (as the key does) in order.
    pub(super) async fn any(&mut self) -> ControlFlow<(), Key> {
        tokio::select! {
            _ = self.terminate.recv() => ControlFlow::Break(()),
            _ = self.interrupt.recv() => ControlFlow::Continue(Key::Quit),
        }
    }
}

impl Show<'_> {
    /// Lets the load run, does what is pressed, and draws; broken off by a signal that ends the program.
    pub(super) async fn play(
        &mut self,
        clusters: &Clusters,
        propagation: &mut Propagation,
    ) -> anyhow::Result<ControlFlow<()>> {
        self.keys = self.screen.go_live(self.foot());
        let played = self.play_on(clusters, propagation).await;
        self.screen.leave();
        if matches!(played, Ok(ControlFlow::Continue(()))) {
            self.mend().await?;
        }
        played
    }

    async fn play_on(
        &mut self,
        clusters: &Clusters,
        propagation: &mut Propagation,
    ) -> anyhow::Result<ControlFlow<()>> {
        let began = Instant::now();
        let cut = self.args.partition.iter();
        let cuts = cut.flat_map(|cut| [(cut.from, true), (cut.to, false)]);
        let mut due: VecDeque<(Duration, bool)> = cuts.collect();
        let mut drawn: Option<Instant> = None;
        while began.elapsed() < self.args.length && (self.args.broker || !clusters.are_done()) {
            self.measure(propagation);
            if let Some(&(at, cut)) = due.front()
                && at <= began.elapsed()
            {
                due.pop_front();
                self.cut(cut, began.elapsed()).await?;
            }
            self.step(began.elapsed()).await?;
            if drawn.is_none_or(|drawn| drawn.elapsed() >= PICTURE) {
                drawn = Some(Instant::now());
                self.draw(clusters, began.elapsed()).await?;
            }
            let pressed = tokio::select! {
                () = sleep(PASS) => continue,
                key = pressed(&mut self.keys) => ControlFlow::Continue(key),
                signal = self.signals.any() => signal,
            };
            match pressed {
                ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
                ControlFlow::Continue(Key::Quit) => return Ok(ControlFlow::Continue(())),
                ControlFlow::Continue(key) => self.press(key, clusters, began.elapsed()).await?,
            }
            drawn = None;
        }
        self.feed_to_the_end(clusters, propagation).await?;
        Ok(ControlFlow::Continue(()))
    }

    /// Heals the mesh and starts the node that is stopped: what its cluster used meanwhile is still to be reported.
    async fn mend(&mut self) -> anyhow::Result<()> {
        for index in 0..self.grid.nodes.len() {
            if !self.grid.is_up(index) {
                self.grid.toggle(index).await?;
            }
        }
        self.cut(false, self.args.length).await
    }

    /// The last reports of a trace.
    async fn feed_to_the_end(
        &mut self,
        clusters: &Clusters,
        propagation: &mut Propagation,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.plan.end.is_some() && !clusters.are_done() {
            anyhow::ensure!(
                began.elapsed() < BEYOND_MAX,
                "the trace could not be fed in five minutes beyond its time"
            );
            self.measure(propagation);
            sleep(PASS).await;
        }
        Ok(())
    }

    fn measure(&mut self, propagation: &mut Propagation) {
        let nodes = self.grid.nodes.len();
        let is_whole = !self.is_cut && self.grid.up().count() == nodes;
        propagation.take(&mut self.grid.observations, nodes, !is_whole);
    }

    /// What the other demonstrations do at this moment.
    async fn step(&mut self, elapsed: Duration) -> anyhow::Result<()> {
        let length = self.args.length;
        if let Some(quota) = &mut self.quota {
            let third = length / 3;
            let is_away = self.is_cut
                || self.args.partition.is_none() && (third..third * 2).contains(&elapsed);
            quota.step(&self.grid, is_away).await?;
        }
        if let Some(broker) = &mut self.broker {
            let percent = elapsed.as_millis() * 100 / length.as_millis().max(1);
            let percent = u32::try_from(percent).unwrap_or(u32::MAX);
            if let Some(news) = broker.step(&self.grid, percent).await? {
                self.screen.say(&news);
            }
        }
        Ok(())
    }

    /// Whether the load is the paper's alone, in which everything can be pressed.
    fn is_plain(&self) -> bool {
        !self.args.quota && !self.args.broker && self.args.trace.is_none()
    }

    /// What stands below the picture.
    fn foot(&self) -> Vec<String> {
        let node = self.grid.nodes.last().map_or("", |node| &node.name);
        let keys = match (self.is_plain(), self.args.broker) {
            (true, _) => {
                format!("c cut or heal   n stop or start {node}   f flood   p other shares   q end")
            }
            (_, false) => "c cut or heal   q end".to_owned(),
            (_, true) => "q end".to_owned(),
        };
        let socket = self.grid.socket(0, "control");
        vec![
            format!("Page http://{}/", self.grid.page),
            format!("Ask  fairmesh top --socket {}", socket.display()),
            keys,
        ]
    }

    async fn press(
        &mut self,
        key: Key,
        clusters: &Clusters,
        elapsed: Duration,
    ) -> anyhow::Result<()> {
        match key {
            Key::Cut if !self.args.broker => return self.cut(!self.is_cut, elapsed).await,
            Key::Node if self.is_plain() => return self.stop_or_start(elapsed).await,
            Key::Policy if self.is_plain() => {
                self.plan.turn_shares();
                self.grid.publish_shares(&self.plan, 0).await?;
                let text = format!("{} has other shares for its projects.", self.grid.vo_name);
                self.say(elapsed, &text);
            }
            Key::Flood if self.is_plain() => {
                clusters.flood();
                let who = self.plan.flooder();
                let who = who.map(|who| format!("/{}{}", self.plan.vos[who.vo].name, who.path));
                let who = who.unwrap_or_default();
                self.say(
                    elapsed,
                    &format!("{who} submits {FLOOD} jobs to each site."),
                );
            }
            _ => {}
        }
        Ok(())
    }

    async fn stop_or_start(&mut self, elapsed: Duration) -> anyhow::Result<()> {
        let last = self.grid.nodes.len() - 1;
        self.grid.toggle(last).await?;
        let name = &self.grid.nodes[last].name;
        let text = match self.grid.is_up(last) {
            true => format!("{name}'s node is back, and hears what its cluster used meanwhile."),
            false => {
                format!("{name}'s node is stopped; its cluster goes on by the factors it has.")
            }
        };
        self.say(elapsed, &text);
        Ok(())
    }

    /// Cuts the mesh in two, or heals it, if it is not so already.
    async fn cut(&mut self, cut: bool, elapsed: Duration) -> anyhow::Result<()> {
        if cut == self.is_cut {
            return Ok(());
        }
        if cut {
            self.grid.partition(true).await?;
            self.is_cut = true;
            self.say(elapsed, "the mesh is cut in two.");
            return Ok(());
        }
        let views_while_cut = distinct(&states(&self.grid).await?);
        let all = join_of_vectors(&self.grid).await?;
        self.grid.partition(false).await?;
        self.is_cut = false;
        let took = await_held(&self.grid, &all, SETTLE_MAX)
            .await?
            .context("the views did not become identical after the heal")?;
        let to_identical_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.heal = Some(Heal {
            to_identical_ms,
            views_while_cut,
        });
        let text = format!(
            "the mesh has healed: {views_while_cut} views became one in {to_identical_ms} ms."
        );
        self.say(elapsed, &text);
        Ok(())
    }

    fn say(&mut self, elapsed: Duration, text: &str) {
        self.screen.say(&format!("{} s: {text}", elapsed.as_secs()));
    }

    async fn draw(&mut self, clusters: &Clusters, elapsed: Duration) -> anyhow::Result<()> {
        let states = states(&self.grid).await?;
        let shares = share_lines(&self.plan, &usage(&self.grid, &self.plan).await?);
        let progress = Progress {
            elapsed,
            length: self.args.length,
            jobs: self.broker.as_ref().map_or(clusters.jobs(), Broker::ended),
            states: &states,
            shares: &shares,
            cut: self.is_cut,
        };
        self.screen.draw(&self.grid, &progress)?;
        Ok(())
    }
}

/// What is pressed next; never anything without a terminal.
async fn pressed(keys: &mut Option<mpsc::Receiver<Key>>) -> Key {
    let key = match keys {
        Some(keys) => keys.recv().await,
        None => None,
    };
    match key {
        Some(key) => key,
        None => pending().await,
    }
}
