//! The way to the driver, for everything else in the node. Cheap to clone.

use std::sync::Arc;

use fairmesh_model::{Now, RunningJob, SiteId, UsageRecord};
use fairmesh_site::{
    AdvertAnswer, AdvertCall, Estimate, ForwardCall, ForwardReply, QuotaCall, QuotaReply, Reply,
    Reported, Site, SiteConfig, View,
};
use libp2p::Multiaddr;
use tokio::sync::{mpsc, oneshot, watch};

use super::data::Stored;
use super::{Command, Correcting, Disk, KnownMark};
use crate::network::{NetworkCommand, NetworkHandle, NetworkStats};

/// The node has stopped, or its store has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node has stopped")]
pub struct Gone;

/// The way to the driver.
#[derive(Clone)]
pub struct NodeHandle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) network: NetworkHandle,
    pub(super) view: watch::Receiver<Arc<View>>,
    pub(super) disk: watch::Receiver<Disk>,
    pub(super) stored: Stored,
}

impl NodeHandle {
    /// Reports usage. What the answer says was counted is durable.
    pub async fn report(&self, records: Vec<UsageRecord>) -> Result<Reported, Gone> {
        let reply = self.call(|reply| Command::Report(records, reply)).await?;
        let Reply::Reported(reported) = reply else {
            unreachable!("a report is answered by a report")
        };
        Ok(reported)
    }

    /// What a report of these would count, each by itself; nothing is counted. Marks of jobs that the store has are read
    /// on a thread beside the driver.
    pub async fn estimate(&self, records: Vec<UsageRecord>) -> Result<Vec<Estimate>, Gone> {
        let (reply, replied) = oneshot::channel();
        let command = Command::Marks(records, reply);
        self.commands.send(command).await.map_err(|_| Gone)?;
        let known = replied.await.map_err(|_| Gone)?;
        let stored = self.stored.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mark = |(record, known): (UsageRecord, KnownMark)| {
                (known.unwrap_or_else(|| stored.mark_of(&record)), record)
            };
            known.into_iter().map(mark).collect::<Vec<_>>()
        });
        let marked = read.await.expect("a store that cannot be read says so");
        self.ask(move |site, now| {
            let estimates = marked
                .iter()
                .map(|(mark, record)| site.estimate(now, record, *mark));
            estimates.collect()
        })
        .await
    }

    /// Replaces the list of running jobs.
    pub async fn running(&self, jobs: Vec<RunningJob>) -> Result<Reported, Gone> {
        let reply = self.call(|reply| Command::Running(jobs, reply)).await?;
        let Reply::Reported(reported) = reply else {
            unreachable!("a list is answered by a report")
        };
        Ok(reported)
    }

    /// Takes jobs back that were reported in error. What the answer says was taken back is durable.
    pub async fn correct(
        &self,
        records: Vec<UsageRecord>,
        by: String,
        why: String,
    ) -> Result<Reported, Gone> {
        let correcting = Correcting { records, by, why };
        let reply = self
            .call(|reply| Command::Correct(correcting, reply))
            .await?;
        let Reply::Reported(reported) = reply else {
            unreachable!("a correction is answered by a report")
        };
        Ok(reported)
    }

    /// Asks about a job's quota, or tells of it. What the answer says is durable; a hold may wait a moment for
    /// rights of other members.
    pub async fn quota(&self, call: QuotaCall) -> Result<QuotaReply, Gone> {
        let reply = self.call(|reply| Command::Quota(call, reply)).await?;
        let Reply::Quota(reply) = reply else {
            unreachable!("a call about a quota is answered by one")
        };
        Ok(*reply)
    }

    /// Tells what the scheduler says of itself, or asks sites what they would say now. These may take a moment.
    pub async fn advert(&self, call: AdvertCall) -> Result<AdvertAnswer, Gone> {
        let reply = self.call(|reply| Command::Advert(call, reply)).await?;
        let Reply::Advert(answer) = reply else {
            unreachable!("a call about adverts is answered by one")
        };
        Ok(*answer)
    }

    /// Hands in a job for the mesh, or says what became of one here. What the answer says is durable.
    pub async fn forward(&self, call: ForwardCall) -> Result<ForwardReply, Gone> {
        let reply = self.call(|reply| Command::Forward(call, reply)).await?;
        let Reply::Forward(reply) = reply else {
            unreachable!("a call about jobs that are passed on is answered by one")
        };
        Ok(*reply)
    }

    /// Hands in a signed document, for all members of its VO, and says who does.
    pub async fn publish(
        &self,
        document: Vec<u8>,
        by: &str,
    ) -> Result<Result<String, String>, Gone> {
        let by = by.to_owned();
        let reply = self.call(|reply| Command::Publish(document, by, reply));
        let reply = reply.await?;
        let Reply::Published(result) = reply else {
            unreachable!("a document is answered by its fate")
        };
        Ok(result)
    }

    /// Asks the site something. The question runs on the driver's task: keep it short.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Site, Now) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (answer, answered) = oneshot::channel();
        let question = move |site: &Site, now: Now| {
            // Nobody waits any more: then the answer is not needed.
            let _ = answer.send(question(site, now));
        };
        self.commands
            .send(Command::Ask(Box::new(question)))
            .await
            .map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }

    /// Takes another configuration.
    pub async fn reconfigure(&self, config: SiteConfig) -> Result<(), Gone> {
        self.commands
            .send(Command::Reconfigure(Box::new(config)))
            .await
            .map_err(|_| Gone)
    }

    /// Takes other addresses of peers.
    pub async fn know_peers(&self, peers: Vec<(SiteId, Vec<Multiaddr>)>) -> Result<(), Gone> {
        self.network
            .send(NetworkCommand::Configured(peers))
            .await
            .map_err(|_| Gone)
    }

    /// Publishes what is pending and stops. Returns when the store is closed.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.commands.send(Command::Stop(done)).await.is_ok() {
            // An error means that the driver ended by itself, which is what was asked for.
            let _ = stopped.await;
        }
    }

    /// Cuts the node off from these sites; an empty set heals.
    pub async fn block(&self, sites: impl IntoIterator<Item = SiteId>) -> Result<(), Gone> {
        self.network
            .send(NetworkCommand::Block(sites.into_iter().collect()))
            .await
            .map_err(|_| Gone)
    }

    /// Counters of the network.
    pub fn network_stats(&self) -> Arc<NetworkStats> {
        self.network.stats()
    }

    /// What look-ups read now.
    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// What is known of the node's disk.
    pub fn disk(&self) -> Disk {
        self.disk.borrow().clone()
    }

    async fn call(
        &self,
        command: impl FnOnce(oneshot::Sender<Reply>) -> Command,
    ) -> Result<Reply, Gone> {
        let (reply, replied) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| Gone)?;
        replied.await.map_err(|_| Gone)
    }
}
