//! What people and feeds ask of a node.
//!
//! Invariant: an answer is what the site said behind a durable change. Where there is none the node
//! was down or ended before it could answer, and the caller has to ask again, as real feeds do.
//!
//! Deliberately not here: feeds that ask again (load generators).

use fairmesh_model::{RunningJob, UsageRecord, VoId};
use fairmesh_round::Input;
use fairmesh_site::{Event, QuotaCall, QuotaReply, Reply, Reported, SiteConfig, Ticket};

use super::World;
use crate::network::Payload;

impl World {
    /// Reports usage as a feed does.
    pub fn report(&mut self, node: usize, records: Vec<UsageRecord>) -> Option<Reported> {
        let ticket = self.send_report(node, records)?;
        self.reported(node, ticket)
    }

    /// Lists the jobs that run now; replaces the list before.
    pub fn running(&mut self, node: usize, jobs: Vec<RunningJob>) -> Option<Reported> {
        let ticket = self.send_running(node, jobs)?;
        self.reported(node, ticket)
    }

    /// Takes jobs back that were reported in error.
    pub fn correct(&mut self, node: usize, records: Vec<UsageRecord>) -> Option<Reported> {
        let ticket = self.send_correction(node, records)?;
        self.reported(node, ticket)
    }

    /// Asks about a job's quota, or tells of it. `None` where the node was down or ended, or where the call waits
    /// for rights.
    pub fn quota(&mut self, node: usize, call: QuotaCall) -> Option<QuotaReply> {
        let ticket = self.send_quota(node, call)?;
        self.quota_reply(node, ticket)
    }

    /// Hands in a call about a quota; its answer may come later ([`World::quota_reply`]).
    pub fn send_quota(&mut self, node: usize, call: QuotaCall) -> Option<Ticket> {
        self.nodes[node].site()?;
        let ticket = self.number();
        self.handle(node, Input::Event(Event::Quota { ticket, call }));
        Some(ticket)
    }

    /// The answer to a call about a quota, if it has come.
    pub fn quota_reply(&mut self, node: usize, ticket: Ticket) -> Option<QuotaReply> {
        match self.nodes[node].take_reply(ticket)? {
            Reply::Quota(reply) => Some(*reply),
            Reply::Reported(_) | Reply::Published(_) | Reply::Advert(_) | Reply::Forward(_) => None,
        }
    }

    /// A push of a site whose own software picks whom it tells what reaches one of its neighbours.
    pub fn push_to(&mut self, from: usize, to: usize, vo: VoId, bytes: &[u8]) {
        let topic = self.network.meshes.topic(vo);
        self.receive_push(from, to, topic, Payload::new(bytes));
    }

    /// Hands in a signed document.
    pub fn publish(&mut self, node: usize, bytes: &[u8]) -> Result<String, String> {
        let gone = || "the node has stopped".to_owned();
        let ticket = self.send_document(node, bytes.to_vec()).ok_or_else(gone)?;
        match self.nodes[node].take_reply(ticket) {
            Some(Reply::Published(result)) => result,
            _ => Err(gone()),
        }
    }

    /// Gives a node another configuration, now and at its next start.
    pub fn reconfigure(&mut self, node: usize, config: SiteConfig) {
        self.nodes[node].config = config.clone();
        let event = Event::Reconfigured(Box::new(config));
        self.handle(node, Input::Event(event));
    }

    /// What a node has answered to planned calls, oldest first.
    pub fn take_replies(&mut self, node: usize) -> Vec<(Ticket, Reply)> {
        self.nodes[node].replies.drain(..).collect()
    }

    pub(super) fn send_report(&mut self, node: usize, records: Vec<UsageRecord>) -> Option<Ticket> {
        self.nodes[node].site()?;
        let ticket = self.number();
        // A feed that has waited for a busy node asks again, before it is answered.
        let asks_again = self.hold_ms > 0 && self.rounds.below(4) == 0;
        let again = asks_again.then(|| (self.number(), records.clone()));
        let inbox = &mut self.nodes[node].inbox;
        inbox.push((Input::Report { ticket, records }, None));
        if let Some((ticket, records)) = again {
            self.handle(node, Input::Report { ticket, records });
            self.nodes[node].take_reply(ticket);
        } else {
            self.flush(node);
        }
        Some(ticket)
    }

    pub(super) fn send_running(&mut self, node: usize, jobs: Vec<RunningJob>) -> Option<Ticket> {
        self.nodes[node].site()?;
        let ticket = self.number();
        self.handle(node, Input::Running { ticket, jobs });
        Some(ticket)
    }

    pub(super) fn send_correction(
        &mut self,
        node: usize,
        records: Vec<UsageRecord>,
    ) -> Option<Ticket> {
        self.nodes[node].site()?;
        let ticket = self.number();
        let input = Input::Correct {
            ticket,
            records,
            by: format!("operator of site {node}"),
            why: "reported in error".to_owned(),
        };
        self.handle(node, input);
        Some(ticket)
    }

    pub(super) fn send_document(&mut self, node: usize, bytes: Vec<u8>) -> Option<Ticket> {
        self.nodes[node].site()?;
        let ticket = self.number();
        let by = "an authority".to_owned();
        self.handle(node, Input::Event(Event::Publish { ticket, bytes, by }));
        Some(ticket)
    }

    fn reported(&mut self, node: usize, ticket: Ticket) -> Option<Reported> {
        match self.nodes[node].take_reply(ticket)? {
            Reply::Reported(reported) => Some(reported),
            Reply::Published(_) | Reply::Quota(_) | Reply::Advert(_) | Reply::Forward(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_cluster::Seed;
    use fairmesh_site::Table;

    use super::*;
    use crate::vo::{HOUR, OwnerSpec, START, Vo, VoSpec, job};
    use crate::world::WorldSpec;

    /// Found by seed 600522: the charter came back to a wiped site in one round with a report, whose price
    /// the books did not know.
    #[test]
    fn a_call_is_taken_by_what_came_before_it_in_its_round() {
        let vo = Vo::found(0, VoSpec::small("grid", 1)).expect("a valid VO");
        let vos = std::slice::from_ref(&vo);
        let mut world = World::new(Seed(1), WorldSpec::of_vos(1, vos, &OwnerSpec::default()));
        let bytes = vo.charter.bytes().to_vec();
        let charter = Event::Publish {
            ticket: 0,
            bytes,
            by: String::new(),
        };
        let inbox = &mut world.node_mut(0).inbox;
        inbox.push((Input::Event(charter), None));
        let documents = |world: &World| world.site(0).expect("it runs").documents(vo.id);
        assert!(documents(&world).is_empty());
        world.take_waiting(0);
        assert_eq!(documents(&world), [vo.charter.bytes().clone()]);
        let stored = |world: &World| world.node(0).disk.count_rows(Table::Documents);
        assert_eq!(stored(&world), 0, "its round is not over");
        let ran = (START.before(HOUR), START);
        let record = job("1", "grid", ("g0", "u0"), ran, 1);
        let reported = world.report(0, vec![record]).expect("it runs");
        assert_eq!((reported.counted, stored(&world)), (1, 1));
    }
}
