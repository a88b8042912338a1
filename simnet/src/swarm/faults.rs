//! What goes wrong when: a list of actions and their times, drawn before the run begins.
//!
//! Invariant: the list depends on the seed and the options alone, and what one kind of fault draws
//! shifts nothing of another. It can be written down and shortened: a run of what is left is the same
//! in everything else.
//!
//! Deliberately not here: doing it (`check::act`).

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{Distance, Millis};

use super::options::lines::next_policy;
use super::{Options, VoOptions};
use crate::length::Length;
use crate::network::LinkSpec;
use crate::world::{Action, Planned};

/// Everything that goes wrong in a run of `ms`: what the options list, or what the seed draws.
pub(crate) fn plan_faults(seed: Seed, options: &Options, ms: u64) -> Vec<Planned> {
    if let Some(listed) = &options.step {
        return listed.clone();
    }
    let f = options.faults;
    let kinds: [(&str, u64, Draw); 26] = [
        ("partitions", f.partitions, |d| d.partition()),
        ("islands", f.islands, |d| d.island()),
        ("bridges", f.bridges, |d| d.bridge()),
        ("one-way cuts", f.one_way_cuts, |d| d.one_way()),
        ("clogged links", f.clogged_links, |d| d.clogged()),
        ("crashes", f.crashes, |d| d.crash()),
        ("crashes within", f.crashes_within, |d| d.crash_within()),
        ("stops", f.graceful_stops, |d| d.stop()),
        ("wipes", f.wipes, |d| d.wipe(true)),
        ("wipes with side", f.wipes_with_side, |d| d.wipe(false)),
        ("backups", f.backups_restored, |d| d.backup()),
        ("replaced stores", f.stores_replaced, |d| d.replace_store()),
        ("bit flips", f.bit_flips, |d| d.bit_flip()),
        ("bad marks", f.bad_marks, |d| d.bad_marks()),
        ("full disks", f.full_disks, |d| d.full_disk()),
        ("clock jumps", f.clock_jumps, |d| d.clock_jump()),
        ("clock years", f.clock_years, |d| d.clock_year()),
        ("drifts", f.clock_drifts, |d| d.drift()),
        ("garbage", f.garbage_documents, |d| d.garbage()),
        ("policies", f.policies, |d| d.policy()),
        ("charters", f.charters, |d| d.charter()),
        ("removals", f.removals, |d| d.removal()),
        ("departures", f.departures, |d| d.departure()),
        ("reconfigurations", f.reconfigurations, |d| d.reconfigure()),
        ("descriptions", f.descriptions, |d| d.redescribe()),
        ("unread", f.unread, |d| d.unread()),
    ];
    let mut planned = Vec::new();
    for (name, count, draw) in kinds {
        let mut drawn = Drawn {
            random: seed.stream(&format!("swarm {name}")),
            options,
            ms,
            at: 0,
            planned,
        };
        for _ in 0..count {
            drawn.at = drawn.random.below(ms);
            draw(&mut drawn);
        }
        planned = drawn.planned;
    }
    if options.quotas.is_some_and(|quotas| quotas.alone) {
        planned.extend(lose_founders(seed, options, ms));
    }
    planned
}

/// In each VO the member that the first charter lists alone loses its store once.
fn lose_founders(seed: Seed, options: &Options, ms: u64) -> Vec<Planned> {
    let mut drawn = Drawn {
        random: seed.stream("swarm founders"),
        options,
        ms,
        at: 0,
        planned: Vec::new(),
    };
    for vo in &options.vos {
        drawn.at = drawn.random.between(ms / 4, ms - 1);
        let (nodes, keeps_side) = (vo.members[..1].to_vec(), false);
        let down = drawn.a_while();
        drawn.lasting(Action::Wipe { nodes, keeps_side }, down);
    }
    drawn.planned
}

type Draw = fn(&mut Drawn<'_>);

/// A stream of one kind of fault, and where it goes.
struct Drawn<'a> {
    random: Stream,
    options: &'a Options,
    ms: u64,
    /// When the next one happens.
    at: u64,
    planned: Vec<Planned>,
}

impl Drawn<'_> {
    fn once(&mut self, action: Action) {
        let at = Millis(self.at);
        self.planned.push(Planned { at, action });
    }

    /// Does it, and puts it right again a while later.
    fn lasting(&mut self, action: Action, ms: u64) {
        let undone = action.undone().expect("only what can be put right lasts");
        self.once(action);
        self.at += ms;
        self.once(undone);
    }

    fn node(&mut self) -> usize {
        self.random.index(self.options.sites)
    }

    fn nodes(&mut self) -> Vec<usize> {
        vec![self.node()]
    }

    fn member(&mut self) -> (usize, usize) {
        let vo = self.random.index(self.options.vos.len());
        let members = &self.options.vos[vo].members;
        (vo, members[self.random.index(members.len())])
    }

    fn set(&mut self) -> Vec<usize> {
        let all = 0..self.options.sites;
        all.filter(|_| self.random.below(2) == 0).collect()
    }

    /// From seconds to an hour, short ones as often as long ones.
    fn a_while(&mut self) -> u64 {
        let most = [5_000, 60_000, 600_000, 3_600_000][self.random.index(4)];
        let most = most * self.options.stretch;
        self.random.between(500, most)
    }

    fn partition(&mut self) {
        let (sets, ms) = (vec![self.set()], self.a_while() * 2);
        self.lasting(Action::Partition { sets }, ms);
    }

    fn island(&mut self) {
        let (nodes, ms) = (self.nodes(), self.a_while() * 4);
        self.lasting(Action::Island { nodes }, ms);
    }

    fn bridge(&mut self) {
        let (nodes, sets) = (self.nodes(), vec![self.set()]);
        let ms = self.a_while() * 2;
        self.once(Action::Partition { sets });
        self.lasting(Action::Bridge { nodes }, ms);
    }

    fn one_way(&mut self) {
        let (from, to, ms) = (self.set(), self.set(), self.a_while());
        self.lasting(Action::CutOneWay { from, to }, ms);
    }

    fn clogged(&mut self) {
        let (from, to, ms) = (self.nodes(), self.nodes(), self.a_while());
        let link = LinkSpec {
            bandwidth_bytes_per_s: 2_000,
            queue_bytes_max: 8_000,
            ..self.options.link.spec()
        };
        self.lasting(Action::Link { link, from, to }, ms);
    }

    fn crash(&mut self) {
        let (nodes, ms) = (self.nodes(), self.a_while());
        self.lasting(Action::Crash { nodes }, ms);
    }

    fn crash_within(&mut self) {
        let effects = self.random.index(6);
        let (nodes, ms) = (self.nodes(), self.a_while() + 60_000);
        self.lasting(Action::CrashWithin { nodes, effects }, ms);
    }

    fn stop(&mut self) {
        let (nodes, ms) = (self.nodes(), self.a_while());
        self.lasting(Action::Stop { nodes }, ms);
    }

    fn wipe(&mut self, keeps_side: bool) {
        let (nodes, ms) = (self.nodes(), self.a_while());
        self.lasting(Action::Wipe { nodes, keeps_side }, ms);
    }

    fn backup(&mut self) {
        let nodes = self.nodes();
        let back = self.random.between(self.at, self.ms - 1);
        let keeps_side = self.random.below(2) == 1;
        let ms = self.a_while();
        self.once(Action::Backup {
            nodes: nodes.clone(),
        });
        self.at = back;
        self.lasting(Action::RestoreBackup { nodes, keeps_side }, ms);
    }

    /// The data folder is lost and begun anew, and then an older store is put back beside the new files.
    fn replace_store(&mut self) {
        let nodes = self.nodes();
        let mut times = [0, 1].map(|_| self.random.between(self.at, self.ms - 1));
        times.sort_unstable();
        self.once(Action::Backup {
            nodes: nodes.clone(),
        });
        let lost = [(times[0], false), (times[1], true)];
        for (at, is_put_back) in lost {
            let nodes = nodes.clone();
            self.at = at;
            let action = if is_put_back {
                Action::RestoreBackup {
                    nodes,
                    keeps_side: true,
                }
            } else {
                Action::Wipe {
                    nodes,
                    keeps_side: false,
                }
            };
            self.lasting(action, 1_000);
        }
    }

    /// Found when a job is reported again, and at the start after the crash.
    fn bad_marks(&mut self) {
        let (nodes, ms) = (self.nodes(), self.a_while());
        self.once(Action::FlipBit {
            nodes: nodes.clone(),
            marks: true,
        });
        self.at += ms;
        self.lasting(Action::Crash { nodes }, 1_000);
    }

    /// Found at the start after a crash.
    fn bit_flip(&mut self) {
        let (nodes, ms) = (self.nodes(), self.a_while());
        self.once(Action::FlipBit {
            nodes: nodes.clone(),
            marks: false,
        });
        self.lasting(Action::Crash { nodes }, ms);
    }

    fn full_disk(&mut self) {
        let room_bytes = self.random.below(20_000);
        let (nodes, ms) = (self.nodes(), self.a_while());
        self.lasting(Action::FillDisk { nodes, room_bytes }, ms);
    }

    fn clock_jump(&mut self) {
        let most = [10_000, 240_000, 3_600_000, 86_400_000][self.random.index(4)];
        let by = i64::try_from(self.random.below(most)).expect("a day fits");
        let by = Length(if self.random.below(2) == 0 { by } else { -by });
        let (nodes, ms) = (self.nodes(), self.a_while() * 2);
        self.lasting(Action::ClockJump { nodes, by }, ms);
    }

    fn clock_year(&mut self) {
        let by = Length(365 * 86_400_000);
        let (nodes, ms) = (self.nodes(), self.a_while() * 2);
        self.lasting(Action::ClockJump { nodes, by }, ms);
    }

    fn drift(&mut self) {
        let ppm = i64::try_from(self.random.below(2_001)).expect("small") - 1_000;
        let (nodes, ms) = (self.nodes(), self.a_while() * 4);
        self.lasting(Action::ClockDrift { nodes, ppm }, ms);
    }

    fn garbage(&mut self) {
        let bytes = self.random.index(3_000);
        let nodes = self.nodes();
        self.once(Action::Garbage { nodes, bytes });
    }

    fn policy(&mut self) {
        let (vo, node) = self.member();
        let of = &self.options.vos[vo];
        let action = next_policy(of, VoOptions::name(vo), node, &mut self.random);
        self.once(action);
    }

    fn charter(&mut self) {
        let (vo, node) = self.member();
        let changes = self.options.vos[vo].thresholds;
        let thresholds = changes.then(|| {
            let of_authority = [self.random.between(2, 3), self.random.between(2, 3)];
            let [charters, policies] = of_authority.map(|of| u32::try_from(of).expect("small"));
            (charters, policies)
        });
        let distance = [Distance::Absolute, Distance::Relative][self.random.index(2)];
        let unread = self.random.index(3) == 0;
        self.sign(vo, node, (distance, unread, thresholds));
    }

    fn sign(
        &mut self,
        vo: usize,
        node: usize,
        (distance, unread, thresholds): (Distance, bool, Option<(u32, u32)>),
    ) {
        let vo = VoOptions::name(vo);
        self.once(Action::Charter {
            node,
            vo,
            distance,
            unread,
            thresholds,
        });
    }

    /// A VO that mounts another's policy is taken off its list, the policy changes, and the reader comes back.
    fn unread(&mut self) {
        let vos = &self.options.vos;
        let is_read = |vo: &usize| vos[*vo].may_be_read && vos[*vo - 1].mounts_next;
        let read: Vec<usize> = (1..vos.len()).filter(is_read).collect();
        if read.is_empty() {
            return;
        }
        let vo = read[self.random.index(read.len())];
        let of = &self.options.vos[vo];
        let node = of.members[self.random.index(of.members.len())];
        self.sign(vo, node, (Distance::Absolute, true, None));
        self.at += self.a_while();
        let changed = next_policy(of, VoOptions::name(vo), node, &mut self.random);
        self.once(changed);
        self.at += self.a_while();
        self.sign(vo, node, (Distance::Absolute, false, None));
    }

    fn removal(&mut self) {
        let (vo, site) = self.member();
        let (vo, sites, ms) = (VoOptions::name(vo), vec![site], self.a_while());
        let node = (site + 1) % self.options.sites;
        self.lasting(Action::Remove { node, vo, sites }, ms);
    }

    fn departure(&mut self) {
        let (vo, site) = self.member();
        let (vo, nodes, ms) = (VoOptions::name(vo), vec![site], self.a_while());
        self.lasting(Action::Unmount { nodes, vo }, ms);
    }

    fn reconfigure(&mut self) {
        let (publish_s, sync_s) = (self.random.between(10, 120), self.random.between(5, 60));
        let stretch = self.options.stretch;
        let (publish_s, sync_s) = (publish_s * stretch, sync_s * stretch);
        let nodes = self.nodes();
        let long = 50 * u32::try_from(self.random.below(4)).expect("small");
        self.once(Action::Reconfigure {
            nodes,
            publish: Some(Millis::from_secs(publish_s)),
            heartbeat: Some(Millis::from_secs(publish_s * 3)),
            sync: Some(Millis::from_secs(sync_s)),
            vo_share: None,
            long_queue_percent: Some(long),
            machine_classes: None,
        });
    }

    /// A site has other machines and prices from now on, or neither, and then describes nothing.
    fn redescribe(&mut self) {
        let long = [0, 0, 150][self.random.index(3)];
        let classes = [0, 0, 1, 2, 3][self.random.index(5)];
        let nodes = self.nodes();
        self.once(Action::Reconfigure {
            nodes,
            publish: None,
            heartbeat: None,
            sync: None,
            vo_share: None,
            long_queue_percent: Some(long),
            machine_classes: Some(classes),
        });
    }
}
