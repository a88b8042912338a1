//! Carrying a task out.
//!
//! Invariant: a task does exactly the actions of the world that it stands for, at once.
//! Deliberately not here: when (`run`).

use fairmesh_model::{RunningJob, ShareEntry, WallTime};
use fairmesh_policy::SitePolicy;

use super::Millis;
use super::run::Run;
use super::task::{LinkChange, NodeTask, Task};
use crate::vo::{START, Vo, path, site_id};
use crate::world::Action;

impl Task {
    /// Whether it is for several nodes that can have their turns.
    pub(super) fn takes_turns(&self) -> bool {
        matches!(self, Self::Nodes { nodes, .. } if nodes.len() > 1)
    }

    /// The same for each of the nodes.
    pub(super) fn turns(&self) -> Vec<Self> {
        match self {
            Self::Nodes { nodes, task } => {
                let one = |node: &usize| Self::Nodes {
                    nodes: vec![*node],
                    task: *task,
                };
                nodes.iter().map(one).collect()
            }
            other => vec![other.clone()],
        }
    }
}

impl Run<'_> {
    /// Does it now. An error is the scenario's fault: it asks for something that cannot be.
    pub(super) fn act(&mut self, task: &Task) -> Result<(), String> {
        match task {
            Task::Nodes { nodes, task } => nodes.iter().for_each(|node| self.act_on(*node, *task)),
            Task::Partition(sets) => self.apply(Action::Partition { sets: sets.clone() }),
            Task::Island(set) => self.apply(Action::Island { set: set.clone() }),
            Task::CutOneWay { from, to } => self.apply(Action::CutOneWay {
                from: from.clone(),
                to: to.clone(),
            }),
            Task::HealNetwork => self.apply(Action::HealNetwork),
            Task::Heal => self.apply(Action::Heal),
            Task::Link(change) => self.change_links(change),
            Task::Report { node, jobs } => self.feeds.ask_for(*node, jobs, &mut self.world),
            Task::Running { node, jobs, left } => {
                let end = WallTime(START.0 + self.world.now().0);
                let records = self.feeds.records_of(jobs, end);
                let running = |record: fairmesh_model::UsageRecord| RunningJob {
                    expected_end: record.end.after(*left),
                    record,
                };
                let jobs = records.into_iter().map(running).collect();
                self.apply(Action::Running { node: *node, jobs });
            }
            Task::Policy { node, vo, shares } => self.sign_policy(*node, *vo, shares)?,
            Task::Charter {
                node,
                vo,
                add,
                remove,
            } => self.sign_charter(*node, *vo, add, remove)?,
            Task::PauseLoad(nodes) => self.feeds.hold(nodes, true),
            Task::ResumeLoad(nodes) => {
                self.feeds.hold(nodes, false);
                self.feeds.flush(&mut self.world);
            }
            Task::Flood { node, messages } => *self.valve.borrow_mut() = Some((*node, *messages)),
            Task::EndFlood => *self.valve.borrow_mut() = None,
            Task::Tick(least) => self.world.set_tick(*least),
        }
        Ok(())
    }

    fn apply(&mut self, action: Action) {
        self.world.apply(action);
    }

    fn act_on(&mut self, node: usize, task: NodeTask) {
        let action = match task {
            NodeTask::Start => Action::Start { node },
            NodeTask::Stop => Action::Stop { node },
            NodeTask::Crash => Action::Crash { node },
            NodeTask::CrashWithin { effects } => Action::CrashWithin { node, effects },
            NodeTask::Restart => {
                self.apply(Action::Crash { node });
                Action::Start { node }
            }
            NodeTask::Bridge => Action::Bridge { node },
            NodeTask::ClockJump { by_ms } => Action::ClockJump { node, by_ms },
            NodeTask::ClockDrift { ppm } => Action::ClockDrift { node, ppm },
            NodeTask::ClockCorrect => Action::ClockCorrect { node },
            NodeTask::FlipBit => Action::FlipBit { node },
            NodeTask::FillDisk { room_bytes } => Action::FillDisk { node, room_bytes },
            NodeTask::MakeRoom => Action::MakeRoom { node },
            NodeTask::Wipe { keeps_side } => {
                self.condition.forgot(node, keeps_side);
                Action::Wipe { node, keeps_side }
            }
            NodeTask::Backup => Action::Backup { node },
            NodeTask::RestoreBackup { keeps_side } => {
                self.condition.forgot(node, keeps_side);
                Action::RestoreBackup { node, keeps_side }
            }
            NodeTask::Reconfigure { vo_share } => {
                let mut config = self.world.node(node).config.clone();
                let entries = config.policy.entries().map(|(path, entry)| {
                    let mut entry = entry.clone();
                    if entry.mount.is_some() {
                        entry.share = vo_share;
                    }
                    (path.clone(), entry)
                });
                config.policy = SitePolicy::new(entries.collect()).expect("only shares changed");
                let config = Box::new(config);
                Action::Reconfigure { node, config }
            }
        };
        self.apply(action);
        // Whoever is up again is told what it has not acknowledged yet.
        self.feeds.flush(&mut self.world);
    }

    fn change_links(&mut self, change: &LinkChange) {
        match change {
            LinkChange::Calm => self.world.calm_links(),
            LinkChange::Usual(link) => self.apply(Action::UsualLink { link: *link }),
            LinkChange::Between { from, to, link } => {
                let pairs = from
                    .iter()
                    .flat_map(|from| to.iter().map(move |to| (*from, *to)));
                for (from, to) in pairs.filter(|(from, to)| from != to) {
                    let link = *link;
                    self.apply(Action::Link { from, to, link });
                }
            }
        }
    }

    fn sign_policy(
        &mut self,
        node: usize,
        vo: usize,
        shares: &[(String, fairmesh_model::Share)],
    ) -> Result<(), String> {
        let issued = WallTime(START.0 + self.world.now().0);
        let bytes = self.vos[vo]
            .next_policy(|policy| {
                policy.issued = issued;
                for (at, share) in shares {
                    let delegate = None;
                    let share = *share;
                    policy
                        .shares
                        .insert(path(at), ShareEntry { share, delegate });
                }
            })
            .map_err(|error| error.to_string())?;
        self.world.publish(node, &bytes).map(drop)
    }

    fn sign_charter(
        &mut self,
        node: usize,
        vo: usize,
        add: &[usize],
        remove: &[usize],
    ) -> Result<(), String> {
        let issued = WallTime(START.0 + self.world.now().0);
        let cores = self.vos[vo]
            .spec
            .members
            .first()
            .map_or(1, |(_, cores)| *cores);
        let bytes = self.vos[vo]
            .next_charter(|charter| {
                charter.issued = issued;
                let is_gone = |site| remove.iter().any(|gone| site_id(*gone) == site);
                charter.sites.retain(|member| !is_gone(member.site));
                charter
                    .sites
                    .extend(add.iter().map(|site| Vo::member(*site, cores)));
            })
            .map_err(|error| error.to_string())?;
        self.world.publish(node, &bytes).map(drop)
    }

    /// A day or so is what nobody waits for in a story.
    pub(super) fn patience(&self) -> Millis {
        self.scenario.grid.timing.sync.times(20)
    }
}
