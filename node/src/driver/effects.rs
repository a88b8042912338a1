//! Carrying effects out: what must be durable first and at once, then the rest in order.

use std::collections::VecDeque;
use std::time::Instant;

use fairmesh_model::{Seq, Severity};
use fairmesh_round::{Op, Step};
use fairmesh_site::{Effect, HeadId};

use super::room::Arrivals;
use super::{Driver, Observation};
use crate::network::NetworkCommand;
use crate::store::{DataDir, StoreError};

/// Pushed messages that may wait for a verdict behind their round: heads whose content is on its way, one of each site in
/// each VO. Of one that is let go nothing is passed on, and anti-entropy brings it.
const PUSHES_MAX: usize = 4_096;

impl Driver {
    /// Ends the round: what must be durable first and at once, then the rest in order.
    pub(super) async fn carry_out(
        &mut self,
        arrivals: &mut Arrivals<'_>,
    ) -> Result<(), StoreError> {
        let site = &self.site;
        let steps = self.round.finish(|| site.rows_held_alone());
        let (mut ops, mut effects) = (std::mem::take(&mut self.late), Vec::new());
        for step in steps {
            match step {
                Step::Disk(op) => ops.push_back(op),
                Step::Do(effect) => effects.push(effect),
            }
        }
        if !ops.is_empty() {
            let heads = self.heads_of(&ops);
            self.write(ops, arrivals).await?;
            self.observe(heads);
        }
        self.disk.look(&self.data);
        for effect in effects {
            self.carry_out_one(effect).await;
        }
        while self.pushes.len() > PUSHES_MAX {
            self.pushes.pop_first();
        }
        self.channels.clear();
        Ok(())
    }

    /// The heads that will be durable, where anybody wants to know.
    fn heads_of(&self, ops: &VecDeque<Op>) -> Vec<(HeadId, Seq)> {
        let applied = ops.iter().filter_map(|op| match op {
            Op::Apply { writes, .. } => Some(writes),
            _ => None,
        });
        let applied = applied.filter(|_| self.observer.is_some()).flatten();
        applied.filter_map(HeadId::numbered).collect()
    }

    async fn carry_out_one(&mut self, effect: Effect) {
        match effect {
            Effect::Persist(_) => unreachable!("has become operations"),
            Effect::ForgetMarks { before, at } => {
                self.believed.send_replace(at);
                let forget = |data: &DataDir| data.store().map(|store| store.forget_marks(before));
                self.data.read(forget);
            }
            Effect::Push { vo, bytes } => {
                self.send(NetworkCommand::Publish { topic: vo, bytes })
                    .await
            }
            Effect::ReportValidation { token, verdict } => {
                let Some((message_id, from)) = self.pushes.remove(&token) else {
                    return;
                };
                self.send(NetworkCommand::ReportValidation {
                    message_id,
                    from,
                    verdict,
                })
                .await;
            }
            Effect::Ask { to, id, bytes } => {
                self.send(NetworkCommand::Request { to, id, bytes }).await
            }
            Effect::Answer { channel, bytes } => {
                let Some(to) = self.channels.remove(&channel) else {
                    return;
                };
                self.send(NetworkCommand::Respond { to, channel, bytes })
                    .await;
            }
            Effect::Reply { ticket, reply } => {
                if let Some(on_reply) = self.replies.remove(&ticket) {
                    on_reply(reply, &self.site, self.clock.now());
                }
            }
            Effect::Allow {
                sites,
                former,
                addresses,
            } => {
                self.send(NetworkCommand::Former(former)).await;
                self.send(NetworkCommand::Allow(sites)).await;
                self.send(NetworkCommand::Peers(addresses)).await;
            }
            Effect::Subscribe { vo, members } => {
                self.send(NetworkCommand::Subscribe { topic: vo, members })
                    .await
            }
            Effect::Unsubscribe { vo } => self.send(NetworkCommand::Unsubscribe(vo)).await,
            Effect::Work(work) => {
                self.works.spawn_blocking(move || work.run());
            }
            Effect::View(view) => {
                self.view.send_replace(view);
            }
            Effect::Notice(notice) => {
                let held_back = Some(self.site.held_back(&notice)).filter(|count| *count > 0);
                let code = notice.code();
                match notice.severity() {
                    Severity::Info => tracing::info!(code, held_back, "{notice}"),
                    Severity::Warning => tracing::warn!(code, held_back, "{notice}"),
                    Severity::Error => tracing::error!(code, held_back, "{notice}"),
                }
            }
        }
    }

    fn observe(&self, heads: Vec<(HeadId, Seq)>) {
        let Some(observer) = &self.observer else {
            return;
        };
        for head in heads {
            // Whoever measured has stopped: then there is nothing to measure.
            let _ = observer.send(Observation {
                node: self.site.id(),
                head,
                at: Instant::now(),
            });
        }
    }

    /// Not by `&self`, which would have to be `Sync`, and with it what waits for room.
    pub(super) async fn send(&mut self, command: NetworkCommand) {
        if self.network.send(command).await.is_err() {
            tracing::error!("the network task has ended");
        }
    }
}
