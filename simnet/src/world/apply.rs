//! Doing what an action says.
//!
//! Invariant: an action does exactly what the methods of its name do, so a plan and a story have the
//! same trace. Documents are signed whether or not their node is up to take them.
//!
//! Deliberately not here: feeds of load. A world has none; who drives it takes `pause_load` and
//! `resume_load` for himself, and asks again what a node did not acknowledge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{
    Charter, DocumentError, Factor, MemberSite, Millis, PriceList, RunningJob, WallTime,
};
use fairmesh_policy::SitePolicy;
use fairmesh_site::SiteConfig;

use super::{Action, Percent, World, policy};
use crate::vo::{START, Vo, machines_of, mounting, site_id};

impl World {
    /// Does it now. An error is a document that could not be signed, or was not taken. Whether a node
    /// was up to answer a report is seen in its replies and its state.
    pub fn apply(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Partition { sets } => self.partition(sets),
            Action::Island { nodes } => self.island(nodes),
            Action::CutOneWay { from, to } => self.cut_one_way(from, to),
            Action::HealNetwork {} => self.heal_network(),
            Action::Link { link, from, to } if from.is_empty() && to.is_empty() => {
                self.set_usual_link(*link);
            }
            Action::Link { link, from, to } => {
                for (from, to) in pairs(from, to) {
                    self.set_link(from, to, *link);
                }
            }
            Action::CalmLinks { from, to } if from.is_empty() && to.is_empty() => {
                self.calm_links();
            }
            Action::CalmLinks { from, to } => {
                for (from, to) in pairs(from, to) {
                    self.network.links.clear(from, to);
                }
            }
            Action::Flood { node, messages } => {
                self.faults.count(action.word());
                self.flood.open = Some((*node, *messages));
            }
            Action::EndFlood {} => self.flood.open = None,
            Action::Tick { least } => self.set_tick(*least),
            Action::Heal {} => self.heal(),
            Action::PauseLoad { .. } | Action::ResumeLoad { .. } => {}
            Action::Policy { .. }
            | Action::Charter { .. }
            | Action::Remove { .. }
            | Action::Admit { .. } => return self.sign(action),
            of_nodes => {
                for node in action.nodes() {
                    self.apply_at(*node, of_nodes)?;
                }
            }
        }
        Ok(())
    }

    fn apply_at(&mut self, node: usize, action: &Action) -> Result<(), String> {
        match action {
            Action::Bridge { .. } => self.bridge(node),
            // A node whose disk is full stays down, as `SimNode::stopped` says.
            Action::Start { .. } => self.start(node).unwrap_or(()),
            Action::Stop { .. } => self.stop_gracefully(node),
            Action::Crash { .. } => self.crash(node),
            Action::CrashWithin { effects, .. } => self.crash_within(node, *effects),
            Action::Restart { .. } => self.restart(node).unwrap_or(()),
            Action::ClockJump { by, .. } => self.clock_jump(node, by.0),
            Action::ClockDrift { ppm, .. } => self.clock_drift(node, *ppm),
            Action::ClockCorrect { .. } => self.clock_correct(node),
            Action::FlipBit { marks: true, .. } => self.flip_marks(node),
            Action::FlipBit { .. } => self.flip_bit(node),
            Action::FillDisk { room_bytes, .. } => self.fill_disk(node, *room_bytes),
            Action::MakeRoom { .. } => self.make_room(node),
            Action::Wipe { keeps_side, .. } => self.wipe(node, *keeps_side),
            Action::Backup { .. } => self.backup(node),
            Action::RestoreBackup { keeps_side, .. } => self.restore_backup(node, *keeps_side),
            Action::Garbage { bytes, .. } => {
                self.faults.count(action.word());
                let bytes = self.flood.random_bytes(*bytes as u64);
                // It is refused; that is the point.
                let _ = self.publish(node, &bytes);
                let vo = &self.vos[bytes.len() % self.vos.len()];
                let knows_newest = self.has_newest_charter(node, vo);
                let usurped = vo.usurped(knows_newest).expect("they are well-formed");
                for bytes in usurped {
                    let _ = self.publish(node, &bytes);
                }
            }
            Action::Report { jobs, .. } => {
                let records = jobs.records(self.number(), self.true_wall());
                let _ = self.send_report(node, records);
            }
            Action::Running { jobs, left, .. } => {
                let records = jobs.records(self.number(), self.true_wall());
                let running = |record: fairmesh_model::UsageRecord| RunningJob {
                    expected_end: record.end.after(*left),
                    record,
                };
                let jobs = records.into_iter().map(running).collect();
                let _ = self.send_running(node, jobs);
            }
            of_owners => {
                let config = self.changed(node, of_owners)?;
                self.faults.count(action.word());
                self.reconfigure(node, config);
            }
        }
        Ok(())
    }

    /// What right wall clocks show.
    pub fn true_wall(&self) -> WallTime {
        WallTime(START.0 + self.now_ms)
    }

    /// The configuration of a node after its owner's decision.
    fn changed(&self, node: usize, action: &Action) -> Result<SiteConfig, String> {
        let mut config = self.nodes[node].config.clone();
        match action {
            Action::Reconfigure {
                publish,
                heartbeat,
                sync,
                vo_share,
                long_queue_percent,
                machine_classes,
                ..
            } => {
                let timing = &mut config.timing;
                timing.publish = publish.unwrap_or(timing.publish);
                timing.heartbeat = heartbeat.unwrap_or(timing.heartbeat);
                timing.sync = sync.unwrap_or(timing.sync);
                if let Some(Percent(share)) = vo_share {
                    let entries = config.policy.entries().map(|(path, entry)| {
                        let mut entry = entry.clone();
                        if entry.mount.is_some() {
                            entry.share = (*share).into();
                        }
                        (path.clone(), entry)
                    });
                    config.policy =
                        SitePolicy::new(entries.collect()).expect("only shares changed");
                }
                if let Some(classes) = *machine_classes {
                    let (machines, hosts) = machines_of(node, classes);
                    config.charging.hosts = hosts;
                    config.charging.prices = Arc::new(PriceList {
                        machines: machines.machines,
                        ..PriceList::clone(&config.charging.prices)
                    });
                }
                if let Some(percent) = *long_queue_percent {
                    let cost = Factor::from_millionths(percent.saturating_mul(10_000));
                    let long = (percent > 0).then(|| ("long".to_owned(), cost));
                    config.charging.prices = Arc::new(PriceList {
                        // What is urgent costs the same again: in a long queue both factors count.
                        qos: (long.iter().map(|(_, cost)| ("urgent".to_owned(), *cost))).collect(),
                        queues: long.into_iter().collect(),
                        ..PriceList::clone(&config.charging.prices)
                    });
                }
            }
            Action::Mount { vo, .. } | Action::Unmount { vo, .. } => {
                let of = self.vos[self.vo_named(vo)?].id;
                let is_there = matches!(action, Action::Mount { .. });
                let was_there = |id| self.nodes[node].config.vos.values().any(|vo| *vo == id);
                let stays = |vo: &&Vo| match vo.id == of {
                    true => is_there,
                    false => was_there(vo.id),
                };
                let mounted: Vec<&Vo> = self.vos.iter().filter(stays).collect();
                // Shares are again those that the owner began with.
                config = SiteConfig {
                    timing: config.timing,
                    charging: config.charging,
                    ..mounting(&mounted, &self.owner)
                };
            }
            other => unreachable!("`{}` is done elsewhere", other.word()),
        }
        Ok(config)
    }

    fn sign(&mut self, action: &Action) -> Result<(), String> {
        let vo = self.vo_named(action.vo().expect("documents are of a VO"))?;
        let issued = self.true_wall();
        let spec = self.vos[vo].spec.clone();
        let first: BTreeMap<usize, u32> = spec.members.iter().copied().collect();
        let mut charter = |change: &dyn Fn(&mut Charter)| {
            self.vos[vo].next_charter(|charter| {
                charter.expires = expires(charter.expires, issued, spec.valid);
                charter.issued = issued;
                change(charter);
            })
        };
        let signed = match action {
            Action::Charter {
                distance,
                unread,
                thresholds,
                ..
            } => charter(&|charter| {
                charter.distance = *distance;
                if let Some((charters, policies)) = *thresholds {
                    charter.authority.threshold = charters;
                    charter.policy.threshold = policies;
                }
                charter.readers = match unread {
                    true => BTreeSet::new(),
                    false => spec.readers.clone(),
                };
            }),
            Action::Remove { sites, .. } => charter(&|charter| {
                let is_gone = |site| sites.iter().any(|gone| site_id(*gone) == site);
                charter.sites.retain(|member| !is_gone(member.site));
            }),
            Action::Admit { sites, .. } => charter(&|charter| {
                // A member that lies is not declared more than it was.
                let cores = |site| first.get(site).or(first.values().next()).copied();
                let admitted = sites.iter();
                let admitted = admitted.map(|site| MemberSite {
                    gpus: spec.gpus,
                    mem_gib: spec.mem_gib,
                    ..Vo::member(*site, cores(site).unwrap_or(1))
                });
                charter.sites.extend(admitted);
            }),
            Action::Policy { .. } => self.vos[vo].next_policy(|policy| {
                policy.expires = expires(policy.expires, issued, spec.valid);
                policy.issued = issued;
                policy::change(policy, action);
            }),
            other => unreachable!("`{}` signs nothing", other.word()),
        };
        let bytes = signed.map_err(|error: DocumentError| error.to_string())?;
        self.faults.count(action.word());
        let without = match action {
            Action::Remove { sites, .. } => sites.clone(),
            _ => Vec::new(),
        };
        let node = action.nodes()[0];
        let handed_in = self.hand_in(node, vo, bytes, without);
        let snapshot = self.vos[vo].next_snapshot(issued);
        if let Some(bytes) = snapshot.map_err(|error| error.to_string())? {
            // The online key lies at another site, which may be told of what is named later than of the snapshot.
            let members: Vec<usize> = first.into_keys().collect();
            let other = members.iter().find(|member| **member > node);
            let other = *other.or(members.first()).unwrap_or(&node);
            let _ = self.hand_in(other, vo, bytes, Vec::new());
        }
        handed_in
    }

    fn vo_named(&self, name: &str) -> Result<usize, String> {
        let found = self.vos.iter().position(|vo| vo.spec.name == name);
        found.ok_or_else(|| format!("there is no VO `{name}`"))
    }
}

/// Both ends of the links from some to others.
fn pairs<'a>(from: &'a [usize], to: &'a [usize]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let all = from
        .iter()
        .flat_map(|from| to.iter().map(move |to| (*from, *to)));
    all.filter(|(from, to)| from != to)
}

/// Until when the next document is valid. One that has expired is followed by one that is valid as long as it was.
fn expires(before: WallTime, issued: WallTime, valid: Millis) -> WallTime {
    if before > issued {
        before
    } else {
        issued.after(valid)
    }
}
