//! Carrying effects out: what must be durable first and at once, then the rest in order.

use std::time::Instant;

use fairmesh_round::{Op, Step};
use fairmesh_site::{BatchId, Effect, Severity};

use super::{Driver, Observation};
use crate::network::NetworkCommand;
use crate::store::StoreError;

impl Driver {
    /// Ends the round: what must be durable first and at once, then the rest in order.
    pub(super) async fn carry_out(&mut self) -> Result<(), StoreError> {
        let site = &self.site;
        let steps = self.round.finish(|| site.rows_held_alone());
        let (mut ops, mut effects) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Disk(op) => ops.push(op),
                Step::Do(effect) => effects.push(effect),
            }
        }
        if !ops.is_empty() {
            let batches = self.batches_of(&ops);
            tokio::task::block_in_place(|| self.data.carry_out(ops))?;
            self.observe(batches);
        }
        for effect in effects {
            self.carry_out_one(effect).await;
        }
        self.pushes.clear();
        self.channels.clear();
        Ok(())
    }

    /// The batches that will be durable, where anybody wants to know.
    fn batches_of(&self, ops: &[Op]) -> Vec<BatchId> {
        let applied = ops.iter().filter_map(|op| match op {
            Op::Apply { writes, .. } => Some(writes),
            _ => None,
        });
        let applied = applied.filter(|_| self.observer.is_some()).flatten();
        applied.filter_map(BatchId::of).collect()
    }

    async fn carry_out_one(&mut self, effect: Effect) {
        match effect {
            Effect::Persist(_) => unreachable!("has become operations"),
            Effect::Push { vo, bytes } => {
                self.send(NetworkCommand::Publish { topic: vo, bytes })
                    .await
            }
            Effect::Judge { token, verdict } => {
                let Some((message_id, from)) = self.pushes.remove(&token) else {
                    return;
                };
                self.send(NetworkCommand::Judge {
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
                if let Some(caller) = self.replies.remove(&ticket) {
                    // A caller that has gone away needs no answer; what it reported is kept.
                    let _ = caller.send(reply);
                }
            }
            Effect::Allow { sites, addresses } => {
                self.send(NetworkCommand::Allow(sites)).await;
                self.send(NetworkCommand::Peers(addresses)).await;
            }
            Effect::Subscribe { vo, members } => {
                self.send(NetworkCommand::Subscribe { topic: vo, members })
                    .await
            }
            Effect::Unsubscribe { vo } => self.send(NetworkCommand::Unsubscribe(vo)).await,
            Effect::View(view) => {
                self.view.send_replace(view);
            }
            Effect::Notice(notice) => match notice.severity() {
                Severity::Info => tracing::info!(code = notice.code(), "{notice}"),
                Severity::Warning => tracing::warn!(code = notice.code(), "{notice}"),
                Severity::Error => tracing::error!(code = notice.code(), "{notice}"),
            },
        }
    }

    fn observe(&self, batches: Vec<BatchId>) {
        let Some(observer) = &self.observer else {
            return;
        };
        for batch in batches {
            // Whoever measured has stopped: then there is nothing to measure.
            let _ = observer.send(Observation {
                node: self.site.id(),
                batch,
                at: Instant::now(),
            });
        }
    }

    async fn send(&self, command: NetworkCommand) {
        if self.network.send(command).await.is_err() {
            tracing::error!("the network task has ended");
        }
    }
}
