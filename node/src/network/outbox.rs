//! Events on their way to the consumer, which may be slower than the mesh.
//!
//! Invariant: handing over never waits. When the consumer lags, gossip is dropped first and counted,
//! then requests of peers are turned away; answers to our own requests and changes of connection are
//! kept, and they are few: answers are bounded by what we asked for, and a `Disconnected` that the
//! consumer has not seen cancels the `Connected` after it.

use std::collections::VecDeque;

use fairmesh_model::SiteId;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::network::NetworkEvent;
use crate::network::config::{BACKLOG_MAX, EVENTS_MAX};

/// The sending half of the event channel, with what did not fit into it.
pub(crate) struct Outbox {
    sender: Sender<NetworkEvent>,
    backlog: VecDeque<NetworkEvent>,
}

impl Outbox {
    pub(crate) fn new(sender: Sender<NetworkEvent>) -> Self {
        Self {
            sender,
            backlog: VecDeque::new(),
        }
    }

    /// Whether there is room for gossip: half of the channel is kept for what matters more.
    pub(crate) fn has_room_for_gossip(&self) -> bool {
        self.backlog.is_empty() && self.sender.capacity() > EVENTS_MAX / 2
    }

    /// Whether there is room for requests of peers.
    pub(crate) fn has_room_for_requests(&self) -> bool {
        self.backlog.len() < BACKLOG_MAX
    }

    /// Hands an event over, in order, now or as soon as there is room.
    pub(crate) fn push(&mut self, event: NetworkEvent) {
        let waiting = match self.backlog.is_empty() {
            true => match self.sender.try_send(event) {
                // The loop learns of a closed channel from `flush`.
                Ok(()) | Err(TrySendError::Closed(_)) => return,
                Err(TrySendError::Full(event)) => event,
            },
            false => event,
        };
        if !self.cancels_out(&waiting) {
            self.backlog.push_back(waiting);
        }
    }

    /// Sends one event that had to wait; without any, waits until the consumer is gone. Returns
    /// whether the consumer is still there. Dropping the future loses nothing.
    pub(crate) async fn flush(&mut self) -> bool {
        if self.backlog.is_empty() {
            self.sender.closed().await;
            return false;
        }
        let Ok(permit) = self.sender.reserve().await else {
            return false;
        };
        if let Some(event) = self.backlog.pop_front() {
            permit.send(event);
        }
        true
    }

    /// Takes back a waiting change of connection that `event` undoes.
    fn cancels_out(&mut self, event: &NetworkEvent) -> bool {
        let last = connection_change_of(event).and_then(|site| {
            let waiting = self.backlog.iter();
            waiting
                .map(connection_change_of)
                .rposition(|of| of == Some(site))
        });
        last.map(|position| self.backlog.remove(position)).is_some()
    }
}

fn connection_change_of(event: &NetworkEvent) -> Option<SiteId> {
    match event {
        NetworkEvent::Connected(site) | NetworkEvent::Disconnected(site) => Some(*site),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::VoId;
    use tokio::sync::mpsc;

    use super::*;

    fn site(byte: u8) -> SiteId {
        SiteId::from_bytes([byte; 32])
    }

    fn answer(id: u64) -> NetworkEvent {
        NetworkEvent::Response {
            from: site(1),
            id,
            result: Ok(vec![]),
        }
    }

    #[tokio::test]
    async fn answers_wait_in_order_and_none_is_lost() {
        let (sender, mut receiver) = mpsc::channel(4);
        let mut outbox = Outbox::new(sender);
        (0..100).for_each(|id| outbox.push(answer(id)));
        assert!(!outbox.has_room_for_gossip());
        for id in 0..100 {
            assert_eq!(receiver.recv().await, Some(answer(id)));
            if id < 96 {
                assert!(outbox.flush().await);
            }
        }
    }

    #[tokio::test]
    async fn a_flapping_peer_does_not_fill_the_backlog() {
        let (sender, _receiver) = mpsc::channel(1);
        let mut outbox = Outbox::new(sender);
        outbox.push(NetworkEvent::Connected(site(1)));
        outbox.push(NetworkEvent::Connected(site(2)));
        for _ in 0..1000 {
            outbox.push(NetworkEvent::Disconnected(site(2)));
            outbox.push(NetworkEvent::Connected(site(2)));
        }
        assert_eq!(outbox.backlog, [NetworkEvent::Connected(site(2))]);
    }

    #[tokio::test]
    async fn gossip_yields_while_half_of_the_channel_is_free_for_answers() {
        let (sender, _receiver) = mpsc::channel(EVENTS_MAX);
        let mut outbox = Outbox::new(sender);
        let mut taken = 0;
        while outbox.has_room_for_gossip() {
            taken += 1;
            outbox.push(NetworkEvent::Gossip {
                topic: VoId::from_bytes([0; 32]),
                from: site(1),
                message_id: crate::network::MessageName::of("", b""),
                bytes: vec![],
            });
        }
        assert_eq!(taken, EVENTS_MAX / 2);
    }

    #[tokio::test]
    async fn a_consumer_that_is_gone_is_noticed() {
        let (sender, receiver) = mpsc::channel(1);
        let mut outbox = Outbox::new(sender);
        drop(receiver);
        outbox.push(answer(1));
        assert!(!outbox.flush().await);
    }
}
