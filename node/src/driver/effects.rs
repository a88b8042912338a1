//! Carrying effects out: what must be durable first and at once, then the rest in order.

use std::collections::BTreeMap;
use std::time::Instant;

use fairmesh_site::{BatchId, Effect, Severity, Table, Write};

use super::{Driver, Observation};
use crate::network::NetworkCommand;
use crate::store::StoreError;

impl Driver {
    /// Makes all changes of a round durable in one write, and then does the rest. Making a change
    /// durable earlier than its place in the order says is always safe.
    pub(super) async fn carry_out(&mut self, effects: Vec<Effect>) -> Result<(), StoreError> {
        // A counter that many records of a round have raised is written once, as it stands.
        let mut rows: BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>> = BTreeMap::new();
        let mut rest = Vec::new();
        for effect in effects {
            match effect {
                Effect::Persist(change) => {
                    rows.extend(
                        change
                            .into_iter()
                            .map(|write| ((write.table, write.key), write.value)),
                    );
                }
                other => rest.push(other),
            }
        }
        if !rows.is_empty() {
            let writes: Vec<Write> = rows
                .into_iter()
                .map(|((table, key), value)| Write { table, key, value })
                .collect();
            let batches: Vec<BatchId> = self
                .observer
                .iter()
                .flat_map(|_| writes.iter().filter_map(BatchId::of))
                .collect();
            let store = &mut self.store;
            tokio::task::block_in_place(|| store.write(writes))?;
            self.observe(batches);
        }
        self.keep_journal_short()?;
        self.marks.clear();
        for effect in rest {
            self.carry_out_one(effect).await;
        }
        self.pushes.clear();
        self.channels.clear();
        Ok(())
    }

    /// Lets go of what peers hold by now, when the journal has grown long.
    fn keep_journal_short(&mut self) -> Result<(), StoreError> {
        if !self.store.is_journal_full() {
            return Ok(());
        }
        let (site, store) = (&self.site, &mut self.store);
        tokio::task::block_in_place(|| store.rotate_journal(&site.rows_held_alone()))
    }

    async fn carry_out_one(&mut self, effect: Effect) {
        match effect {
            Effect::Persist(_) => unreachable!("written before"),
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
