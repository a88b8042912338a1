//! The way to the driver, for everything else in the node. Cheap to clone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairmesh_model::{JobKey, Now, RunningJob, SiteId, UsageRecord, WallTime};
use fairmesh_round::Round;
use fairmesh_site::{
    AdvertAnswer, AdvertCall, Estimate, ForwardCall, ForwardReply, JobMark, QuotaCall, QuotaReply,
    Refund, Remap, Reply, Reported, Site, SiteConfig, View, job_key,
};
use libp2p::Multiaddr;
use tokio::sync::{mpsc, oneshot, watch};

use super::data::Stored;
use super::{Call, Clock, Command, Disk};
use crate::network::{NetworkCommand, NetworkHandle, NetworkStats};

/// How long a question about many things is on the driver's task at once.
const SLICE: Duration = Duration::from_millis(3);

/// Records that are looked at in such a slice, where each takes some microseconds.
const SLICE_RECORDS: usize = 250;

/// The node has stopped, or its store has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node has stopped")]
pub struct Gone;

/// The way to the driver.
#[derive(Clone)]
pub struct NodeHandle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) network: NetworkHandle,
    pub(super) view: watch::Receiver<Arc<View>>,
    pub(super) disk: watch::Receiver<Disk>,
    pub(super) believed: watch::Receiver<WallTime>,
    pub(super) stored: Stored,
}

impl NodeHandle {
    /// Reports usage. What the answer says was counted is durable.
    pub async fn report(&self, records: Vec<UsageRecord>) -> Result<Reported, Gone> {
        self.reported(Call::Report(records)).await
    }

    /// What a report of these would count, each by itself; nothing is counted.
    pub async fn estimate(&self, records: Vec<UsageRecord>) -> Result<Vec<Estimate>, Gone> {
        let marked = self.marked(records).await?;
        self.estimate_marked(marked).await
    }

    /// Records, each with the mark of its job. Those that the store has are read on a thread beside the driver.
    pub(crate) async fn marked(
        &self,
        records: Vec<UsageRecord>,
    ) -> Result<Vec<(Option<JobMark>, UsageRecord)>, Gone> {
        let known = self.ask_round(move |_, round, _| {
            let known = |record: UsageRecord| (round.mark_here(&job_key(&record.key)), record);
            records.into_iter().map(known).collect::<Vec<_>>()
        });
        let known = known.await?;
        let stored = self.stored.clone();
        let read = tokio::task::spawn_blocking(move || {
            let marked = known.into_iter().map(|(known, record)| {
                let mark = known.unwrap_or_else(|| stored.mark_of(&record));
                (mark, record)
            });
            marked.collect::<Vec<_>>()
        });
        Ok(read.await.expect("a store that cannot be read says so"))
    }

    /// The jobs of which nothing counts because they were taken back. One that was reported as something else since
    /// then counts again.
    pub(crate) async fn taken_back(&self) -> Result<HashSet<JobKey>, Gone> {
        let refunds = self.ask(|site, _| {
            let refund = |refund: &Refund| (refund.job.clone(), refund.record.as_deref().cloned());
            site.refunds().map(refund).collect::<Vec<_>>()
        });
        let (mut jobs, mut records) = (HashSet::new(), Vec::new());
        for (job, record) in refunds.await? {
            match record {
                Some(record) => records.push(record),
                // Corrections of earlier releases do not say what was taken back, and nothing of these counts again.
                None => drop(jobs.insert(job)),
            }
        }
        let marked = self.marked(records).await?.into_iter();
        let void = marked.filter(|(mark, _)| mark.is_none_or(|mark| mark.corrected));
        jobs.extend(void.map(|(_, record)| record.key));
        Ok(jobs)
    }

    /// Of records of jobs that were taken back, by their positions: whether they count the job again.
    pub(crate) async fn counts_again(
        &self,
        records: &[UsageRecord],
    ) -> Result<BTreeMap<usize, bool>, Gone> {
        // Most sites have taken nothing back.
        if self.ask(|site, _| site.refunds().next().is_none()).await? {
            return Ok(BTreeMap::new());
        }
        let taken_back = self.ask_of_each(records.to_vec(), |site, _, records| {
            let known = records.map(|record| Some(record).filter(|of| site.has_refunds(&of.key)));
            known.collect()
        });
        let taken_back = taken_back.await?.into_iter().enumerate();
        let taken_back = taken_back.filter_map(|(index, record)| Some((index, record?)));
        let (indexes, records): (Vec<usize>, Vec<UsageRecord>) = taken_back.unzip();
        let marked = self.marked(records).await?;
        let again = self.ask_of_each(marked, |site, _, marked| {
            let again = marked.map(|(mark, record)| {
                let again = site.counts_again(&record, mark);
                (record.key, again)
            });
            again.collect()
        });
        // Of several in a batch the first one counts.
        let mut counted = HashSet::new();
        let again = again.await?.into_iter();
        let again = again.map(|(key, again)| again && counted.insert(key));
        Ok(indexes.into_iter().zip(again).collect())
    }

    /// Why records would be refused for good, by their positions; gives the records back.
    pub(crate) async fn refusals(
        &self,
        records: Vec<UsageRecord>,
    ) -> Result<(Vec<UsageRecord>, BTreeMap<usize, String>), Gone> {
        let (records, mut reasons) = (Arc::new(records), BTreeMap::new());
        for from in (0..records.len()).step_by(SLICE_RECORDS) {
            let asked = Arc::clone(&records);
            let some = self.ask(move |site, now| {
                let until = asked.len().min(from + SLICE_RECORDS);
                site.refusals(now, &asked[from..until])
            });
            let some = some.await?.into_iter();
            reasons.extend(some.map(|(at, why)| (from + at, why)));
        }
        Ok((Arc::unwrap_or_clone(records), reasons))
    }

    /// What these would count if no job were known here: it tells nobody which are.
    pub async fn estimate_unknown(&self, records: Vec<UsageRecord>) -> Result<Vec<Estimate>, Gone> {
        let unknown = records.into_iter().map(|record| (None, record));
        self.estimate_marked(unknown.collect()).await
    }

    async fn estimate_marked(
        &self,
        marked: Vec<(Option<JobMark>, UsageRecord)>,
    ) -> Result<Vec<Estimate>, Gone> {
        self.ask_of_each(marked, |site, now, marked| {
            let estimates = marked.map(|(mark, record)| site.estimate(now, &record, mark));
            estimates.collect()
        })
        .await
    }

    /// What jobs would be charged at another site, each by itself.
    pub async fn estimate_at(
        &self,
        records: Vec<UsageRecord>,
        at: SiteId,
    ) -> Result<Vec<Estimate>, Gone> {
        self.ask_of_each(records, move |site, now, records| {
            site.estimate_at(now, records, at)
        })
        .await
    }

    /// Replaces the list of running jobs.
    pub async fn running(&self, jobs: Vec<RunningJob>) -> Result<Reported, Gone> {
        self.reported(Call::Running(jobs)).await
    }

    /// Takes jobs back that were reported in error. What the answer says was taken back is durable.
    pub async fn correct(
        &self,
        records: Vec<UsageRecord>,
        by: String,
        why: String,
    ) -> Result<Reported, Gone> {
        self.reported(Call::Correct { records, by, why }).await
    }

    /// Moves usage to other accounts. What the answer says has moved is durable.
    pub(crate) async fn remap(&self, change: Remap) -> Result<Reported, Gone> {
        self.reported(Call::Remap(Box::new(change))).await
    }

    /// Asks about a job's quota, or tells of it. What the answer says is durable; a hold may wait some seconds for
    /// rights of other members.
    pub async fn quota(&self, call: QuotaCall) -> Result<QuotaReply, Gone> {
        let (reply, ()) = self.quota_with(call, |_, _| ()).await?;
        Ok(reply)
    }

    /// The same, with what `ask` returns at the moment of the answer, in one trip to the node's task.
    pub async fn quota_with<T: Send + 'static>(
        &self,
        call: QuotaCall,
        ask: impl FnOnce(&Site, Now) -> T + Send + 'static,
    ) -> Result<(QuotaReply, T), Gone> {
        let answered = self.call_with(Call::Quota(call), ask).await?;
        match answered {
            (Reply::Quota(reply), asked) => Ok((*reply, asked)),
            _ => unreachable!("a call about a quota is answered by one"),
        }
    }

    /// The time by this machine's clock.
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// Tells what the scheduler says of itself, or asks sites what they would say now. These may take a moment.
    pub async fn advert(&self, call: AdvertCall) -> Result<AdvertAnswer, Gone> {
        match self.call(Call::Advert(call)).await? {
            Reply::Advert(answer) => Ok(*answer),
            _ => unreachable!("a call about adverts is answered by one"),
        }
    }

    /// Hands in a job for the mesh, or says what became of one here. What the answer says is durable.
    pub async fn forward(&self, call: ForwardCall) -> Result<ForwardReply, Gone> {
        match self.call(Call::Forward(call)).await? {
            Reply::Forward(reply) => Ok(*reply),
            _ => unreachable!("a call about jobs that are passed on is answered by one"),
        }
    }

    /// Hands in a signed document, for all members of its VO, and says who does.
    pub async fn publish(&self, bytes: Vec<u8>, by: &str) -> Result<Result<String, String>, Gone> {
        let by = by.to_owned();
        match self.call(Call::Publish { bytes, by }).await? {
            Reply::Published(result) => Ok(result),
            _ => unreachable!("a document is answered by its fate"),
        }
    }

    /// Asks the site something. The question runs on the driver's task: keep it short.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Site, Now) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        self.ask_round(|site, _, now| question(site, now)).await
    }

    /// Asks something of each of these, in questions of [`SLICE`]: what `question` is given ends when the time is
    /// over, and the rest comes in the next one.
    pub(crate) async fn ask_of_each<A: Send + 'static, T: Send + 'static>(
        &self,
        of: Vec<A>,
        question: impl Fn(&Site, Now, &mut dyn Iterator<Item = A>) -> Vec<T> + Clone + Send + 'static,
    ) -> Result<Vec<T>, Gone> {
        let (mut answers, mut rest) = (Vec::new(), of.into_iter());
        while !rest.as_slice().is_empty() {
            let question = question.clone();
            let slice = self.ask(move |site, now| {
                let begun = Instant::now();
                let mut some = std::iter::from_fn(|| match begun.elapsed() < SLICE {
                    true => rest.next(),
                    false => None,
                });
                (question(site, now, &mut some), rest)
            });
            let (more, left) = slice.await?;
            answers.extend(more);
            rest = left;
        }
        Ok(answers)
    }

    /// Replaces the owner's configuration; the site applies it before the call returns.
    pub async fn reconfigure(&self, config: SiteConfig) -> Result<(), Gone> {
        self.send(Command::Reconfigure(Box::new(config))).await
    }

    /// Takes other addresses of peers.
    pub async fn know_peers(&self, peers: Vec<(SiteId, Vec<Multiaddr>)>) -> Result<(), Gone> {
        let command = NetworkCommand::Configured(peers);
        self.network.send(command).await.map_err(|_| Gone)
    }

    /// Publishes what is pending and stops. Returns when the store is closed.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.send(Command::Stop(done)).await.is_ok() {
            // An error means that the driver ended by itself, which is what was asked for.
            let _ = stopped.await;
        }
    }

    /// Cuts the node off from these sites; an empty set heals.
    pub async fn block(&self, sites: impl IntoIterator<Item = SiteId>) -> Result<(), Gone> {
        let command = NetworkCommand::Block(sites.into_iter().collect());
        self.network.send(command).await.map_err(|_| Gone)
    }

    /// Counters of the network.
    pub fn network_stats(&self) -> Arc<NetworkStats> {
        self.network.stats()
    }

    /// What look-ups read now.
    pub fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// The last moment at which the site believed its clock and let go of what was too old; 0 before the first, which
    /// is an hour behind the start at the earliest.
    pub fn believed(&self) -> watch::Receiver<WallTime> {
        self.believed.clone()
    }

    /// What is known of the node's disk.
    pub fn disk(&self) -> Disk {
        self.disk.borrow().clone()
    }

    async fn ask_round<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Site, &Round, Now) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        self.answer(|answer| {
            Command::Ask(Box::new(move |site, round, now| {
                // Nobody waits any more: then the answer is not needed.
                let _ = answer.send(question(site, round, now));
            }))
        })
        .await
    }

    async fn reported(&self, call: Call) -> Result<Reported, Gone> {
        match self.call(call).await? {
            Reply::Reported(reported) => Ok(reported),
            _ => unreachable!("reports, lists and corrections are answered by a report"),
        }
    }

    async fn call(&self, call: Call) -> Result<Reply, Gone> {
        let (reply, ()) = self.call_with(call, |_, _| ()).await?;
        Ok(reply)
    }

    async fn call_with<T: Send + 'static>(
        &self,
        call: Call,
        ask: impl FnOnce(&Site, Now) -> T + Send + 'static,
    ) -> Result<(Reply, T), Gone> {
        self.answer(|answer| {
            let on_reply = move |reply, site: &Site, now| {
                // A caller that has gone away needs no answer; what it reported is kept.
                let _ = answer.send((reply, ask(site, now)));
            };
            Command::Call(call, Box::new(on_reply))
        })
        .await
    }

    async fn answer<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Gone> {
        let (answer, answered) = oneshot::channel();
        self.send(command(answer)).await?;
        answered.await.map_err(|_| Gone)
    }

    async fn send(&self, command: Command) -> Result<(), Gone> {
        self.commands.send(command).await.map_err(|_| Gone)
    }
}
