//! What a node holds of one VO.
//!
//! Invariant: everything in a replica was verified against the VO's own charter: usage is signed by
//! a site that the charter lists and is within that site's declared capacity; nothing from others
//! is stored or relayed. Two replicas that were offered the same things, in any order, are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::documents::SEAL_BYTES_MAX;
use fairmesh_model::{
    AccountPath, ChargingRule, Charter, Checkpoint, ContentHash, CoreMillis, Document,
    DocumentError, Factor, InFlightSheet, Millis, Role, Seal, SealRef, Seq, SharePolicy, Signed,
    SiteDescription, SiteId, StreamId, UsageBatch, Verified, VoId, WallTime, cbor, mutant, mutated,
};
use fairmesh_policy::{Adopted, Descriptions, HighestSeen, PolicyError, VoPolicies};
use fairmesh_usage::{
    Applied, Bound, CellChange, CheckpointOffer, ForkProof, InFlight, Pruned, Refused, Sealed,
    VoUsage,
};
use serde_bytes::ByteBuf;

mod answer;

/// Why something was refused. Nothing changed, unless the variant says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The VO is not one of ours, or its charter is not here yet. Nobody's fault.
    #[error("this site holds no charter of that VO")]
    NotOurs,
    /// The document is for another VO than the one it came under. The sender's fault.
    #[error("the document belongs to VO {0}")]
    WrongVo(VoId),
    /// Form or signatures. The sender's fault.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Not in force, or not yet. The message says whose fault it is.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The charter does not list the site. May be our charter that is old.
    #[error("site {0} is not a member")]
    NotMember(SiteId),
    /// It counts in a future further away than our clock tolerance. That site's clock or ours.
    #[error("site {site} counts at {at}, in our future: one of the two clocks is wrong")]
    Future {
        /// The site.
        site: SiteId,
        /// The time that it claims.
        at: WallTime,
    },
    /// Two batches that do not contradict each other were called a fork. The sender's fault.
    #[error("the two batches of site {0} do not contradict each other")]
    NoFork(SiteId),
    /// The counters contradict the charter or the stream.
    #[error(transparent)]
    Usage(#[from] Refused),
}

impl Refusal {
    /// Whether no honest node would have sent it: reason to think less of who did.
    pub fn is_lie(&self) -> bool {
        matches!(self, Self::Document(_) | Self::WrongVo(_) | Self::NoFork(_))
    }
}

/// What became of something that was offered.
#[derive(Debug, Clone)]
pub enum Absorbed {
    /// It was held already.
    Known,
    /// Batches before it are missing: ask whoever sent it.
    Gap,
    /// A document is held from now on.
    Document {
        /// Hash of its payload.
        hash: ContentHash,
        /// What it is, for people.
        what: String,
        /// Whether it is the VO's first charter here.
        founded: bool,
    },
    /// A batch was applied.
    Usage {
        /// Its stream.
        stream: StreamId,
        /// Its position.
        seq: Seq,
        /// When it was signed, by that site's clock.
        at: WallTime,
        /// What it changed.
        changes: Vec<CellChange>,
    },
    /// A checkpoint waits for these seals.
    Wanted(Vec<ContentHash>),
    /// A seal is here, and its checkpoint waits for more.
    Sealed,
    /// Checkpoints are complete and applied.
    Checkpoints {
        /// The checkpoints.
        adopted: Vec<Arc<Verified<Checkpoint>>>,
        /// The seals that they name, as exact bytes.
        seals: Vec<(ContentHash, Arc<[u8]>)>,
        /// What they changed.
        changes: Vec<CellChange>,
    },
    /// A newer in-flight sheet was taken.
    Sheet {
        /// Whose.
        site: SiteId,
        /// Changes of expected charge by account, core-milliseconds.
        changes: Vec<(AccountPath, i128)>,
    },
    /// What a site says about its machines and queues was taken.
    Description {
        /// Whose.
        site: SiteId,
    },
    /// A stream is proved to be forked.
    Forked {
        /// The stream.
        stream: StreamId,
        /// The proof, as a row of the store.
        proof: Vec<u8>,
        /// What its fall back to the prefix changed.
        changes: Vec<CellChange>,
    },
}

/// What a node holds of one VO.
#[derive(Debug)]
pub struct Replica {
    vo: VoId,
    /// The site that holds it. What it has counted itself it keeps, member or not.
    own: SiteId,
    policies: VoPolicies,
    /// Whom the charter in force lists, for look-ups.
    members: BTreeSet<SiteId>,
    usage: Option<VoUsage>,
    sheets: InFlight,
    descriptions: Descriptions,
    forks: BTreeMap<StreamId, Fork>,
    /// The most cores that any charter has declared for a site. A smaller capacity holds for what
    /// comes, not for what was counted: a node that starts again must come to the same sums.
    cores: BTreeMap<SiteId, u32>,
    heard: BTreeMap<SiteId, WallTime>,
}

/// The deepest fork of a stream that is known.
#[derive(Debug)]
struct Fork {
    /// The last position that is believed.
    cap: Seq,
    pair: (ByteBuf, ByteBuf),
}

impl Replica {
    /// Knows a VO by its id only.
    pub fn new(vo: VoId, own: SiteId) -> Self {
        Self {
            vo,
            own,
            policies: VoPolicies::new(vo),
            members: BTreeSet::new(),
            usage: None,
            sheets: InFlight::new(vo),
            descriptions: Descriptions::default(),
            forks: BTreeMap::new(),
            cores: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    /// Knows a VO by its id, and which versions of its documents were seen before.
    pub fn with_memory(vo: VoId, own: SiteId, seen: &HighestSeen) -> Self {
        let (policies, _) = VoPolicies::restore(vo, seen, []);
        Self {
            policies,
            ..Self::new(vo, own)
        }
    }

    /// The charter in force.
    pub fn charter(&self) -> Option<&Charter> {
        self.policies.charter().map(Verified::body)
    }

    /// Whether a charter is here.
    pub fn is_founded(&self) -> bool {
        self.policies.charter().is_some()
    }

    /// Whether `peer` may see this VO: members only.
    pub fn serves(&self, peer: SiteId) -> bool {
        self.members.contains(&peer)
    }

    /// Whether usage of `site` is held: that of members, and our own.
    fn counts(&self, site: SiteId) -> bool {
        let is_member = self.serves(site) || mutated!(StrangersCount);
        self.is_founded() && (site == self.own || is_member)
    }

    /// The VO's documents.
    pub fn policies(&self) -> &VoPolicies {
        &self.policies
    }

    /// The VO's counters, once there is a charter.
    pub fn usage(&self) -> Option<&VoUsage> {
        self.usage.as_ref()
    }

    /// The VO's counters, for what the site does to its own stream.
    pub fn usage_mut(&mut self) -> Option<&mut VoUsage> {
        self.usage.as_mut()
    }

    /// When each site last signed something that is held, by its own clock.
    pub fn heard(&self) -> &BTreeMap<SiteId, WallTime> {
        &self.heard
    }

    /// In-flight sheets that count now.
    pub fn sheets(&self) -> impl Iterator<Item = (SiteId, &[(AccountPath, CoreMillis)])> {
        self.sheets.counted()
    }

    /// What sites say about their machines and queues.
    pub fn descriptions(&self) -> &Descriptions {
        &self.descriptions
    }

    /// Counts the sheets signed at `since` or later. Returns the changes of expected charge by site.
    pub fn count_sheets_since(
        &mut self,
        since: WallTime,
    ) -> Vec<(SiteId, Vec<(AccountPath, i128)>)> {
        self.sheets.count_since(since)
    }

    /// Whether the document would be one of this VO, and of which kind.
    pub fn kind_of(&self, bytes: &[u8]) -> Option<&'static str> {
        let charter = Signed::<Charter>::parse(bytes)
            .ok()
            .filter(|signed| signed.vo() == self.vo);
        let policy = Signed::<SharePolicy>::parse(bytes)
            .ok()
            .filter(|signed| signed.vo() == self.vo);
        charter
            .map(|_| Charter::TYPE)
            .or(policy.map(|_| SharePolicy::TYPE))
    }

    /// Takes a charter.
    pub fn absorb_charter(&mut self, bytes: &[u8]) -> Result<Absorbed, Refusal> {
        let founded = !self.is_founded();
        let signed = Signed::<Charter>::parse(bytes)?;
        let hash = signed.hash();
        let what = format!("charter {}", signed.claimed().version);
        let declared: Vec<(SiteId, u32)> = signed
            .claimed()
            .sites
            .iter()
            .map(|member| (member.site, member.cores))
            .collect();
        if self.policies.adopt_charter(signed)? == Adopted::Known {
            return Ok(Absorbed::Known);
        }
        for (site, cores) in declared {
            let most = self.cores.entry(site).or_default();
            *most = (*most).max(cores);
        }
        if self.usage.is_none() {
            let window = self.charter().expect("a charter was adopted").window;
            self.usage = Some(VoUsage::new(self.vo, window));
        }
        let sites = self
            .charter()
            .into_iter()
            .flat_map(|charter| &charter.sites);
        self.members = sites.map(|member| member.site).collect();
        self.drop_strangers();
        Ok(Absorbed::Document {
            hash,
            what,
            founded,
        })
    }

    /// Lets go of the usage of sites that the charter does not list (any more): the usage of a VO is
    /// that of its members, and a newcomer could not get theirs. A site that is listed again brings
    /// its usage with it.
    fn drop_strangers(&mut self) {
        let Some(usage) = &mut self.usage else { return };
        let streams = usage.streams().map(|held| held.stream.site);
        let sheets = self.sheets.sheets().map(|sheet| sheet.body().site);
        let described = self.descriptions.iter().map(|said| said.body().site);
        let heard: BTreeSet<SiteId> = streams.chain(sheets).chain(described).collect();
        for site in heard {
            if !self.members.contains(&site) && site != self.own && !mutated!(RemovedStillCount) {
                usage.drop_site(site);
                self.sheets.drop_site(site);
                self.descriptions.drop_site(site);
                self.heard.remove(&site);
            }
        }
    }

    /// The streams that were let go of since the last call, with the rows of the store to delete:
    /// those of lives that are over, and of sites that are no members any more.
    pub fn take_dropped(&mut self) -> Vec<(StreamId, Pruned)> {
        let Some(usage) = &mut self.usage else {
            return Vec::new();
        };
        let dropped = usage.take_dropped();
        for (stream, _) in &dropped {
            self.forks.remove(stream);
        }
        dropped
    }

    /// Whether the stream belongs to a life that its site has declared over.
    pub fn is_retired(&self, stream: StreamId) -> bool {
        self.usage
            .as_ref()
            .is_some_and(|usage| usage.is_retired(stream))
    }

    /// Takes a share policy.
    pub fn absorb_policy(&mut self, bytes: &[u8]) -> Result<Absorbed, Refusal> {
        let signed = Signed::<SharePolicy>::parse(bytes)?;
        let hash = signed.hash();
        let what = format!(
            "share policy {} of {}",
            signed.claimed().version,
            signed.claimed().path
        );
        match self.policies.adopt_policy(signed)? {
            Adopted::Known => Ok(Absorbed::Known),
            _ => Ok(Absorbed::Document {
                hash,
                what,
                founded: false,
            }),
        }
    }

    /// Takes a batch.
    pub fn absorb_batch(
        &mut self,
        bytes: &[u8],
        now: WallTime,
        tolerance: Millis,
    ) -> Result<Absorbed, Refusal> {
        let signed = Signed::<UsageBatch>::parse(bytes)?;
        let (stream, seq, at) = (
            signed.claimed().stream(),
            signed.claimed().seq,
            signed.claimed().at,
        );
        let latest = now.after(tolerance);
        let window = self.charter().ok_or(Refusal::NotOurs)?.window;
        let verified = Arc::new(self.verify_member(signed, stream.site)?);
        // Only what the site itself has signed says something about its clock.
        let cells = verified.body().cells.cells();
        let starts = cells.iter().map(|cell| cell.span.start(window));
        if let Some(start) = starts
            .max()
            .filter(|start| *start > latest && !mutated!(FutureBelieved))
        {
            return Err(Refusal::Future {
                site: stream.site,
                at: start,
            });
        }
        let bound = self.bound(stream.site);
        let usage = self.usage.as_mut().ok_or(Refusal::NotOurs)?;
        match usage.apply_batch(verified, bound)? {
            Applied::Known => Ok(Absorbed::Known),
            Applied::Gap { .. } => Ok(Absorbed::Gap),
            Applied::Fork(proof) => self.take_fork(&proof),
            Applied::Fresh(changes) => {
                self.hear(stream.site, at);
                Ok(Absorbed::Usage {
                    stream,
                    seq,
                    at,
                    changes,
                })
            }
        }
    }

    /// Takes two batches that contradict each other.
    pub fn absorb_fork(&mut self, a: &[u8], b: &[u8]) -> Result<Absorbed, Refusal> {
        let parse = |bytes: &[u8]| Signed::<UsageBatch>::parse(bytes);
        let (a, b) = (parse(a)?, parse(b)?);
        let site = a.claimed().site;
        let a = Arc::new(self.verify_member(a, site)?);
        let b = Arc::new(self.verify_member(b, site)?);
        let proof = ForkProof::new(a, b).ok_or(Refusal::NoFork(site))?;
        self.take_fork(&proof)
    }

    fn take_fork(&mut self, proof: &ForkProof) -> Result<Absorbed, Refusal> {
        let stream = proof.stream();
        if self.is_retired(stream) {
            return Ok(Absorbed::Known);
        }
        let known = self.forks.get(&stream);
        if known.is_some_and(|known| known.cap <= proof.cap()) {
            return Ok(Absorbed::Known);
        }
        let usage = self.usage.as_mut().ok_or(Refusal::NotOurs)?;
        let changes = usage.apply_fork(proof);
        let pair = (
            ByteBuf::from(proof.a().bytes().to_vec()),
            ByteBuf::from(proof.b().bytes().to_vec()),
        );
        let row = cbor::to_vec(&pair);
        let cap = proof.cap();
        self.forks.insert(stream, Fork { cap, pair });
        Ok(Absorbed::Forked {
            stream,
            proof: row,
            changes,
        })
    }

    fn verify_member<T: Document>(
        &self,
        signed: Signed<T>,
        site: SiteId,
    ) -> Result<Verified<T>, Refusal> {
        if signed.vo() != self.vo {
            return Err(Refusal::WrongVo(signed.vo()));
        }
        if !self.counts(site) {
            return Err(Refusal::NotMember(site));
        }
        Ok(signed.verify(&[&Role::single(site)])?)
    }

    /// Takes a checkpoint: all of a stream up to a batch, as hashes.
    pub fn absorb_checkpoint(&mut self, bytes: &[u8]) -> Result<Absorbed, Refusal> {
        let signed = Signed::<Checkpoint>::parse(bytes)?;
        let site = signed.claimed().site;
        let verified = Arc::new(self.verify_member(signed, site)?);
        let bound = self.bound(site);
        let usage = self.usage.as_mut().ok_or(Refusal::NotOurs)?;
        Ok(match usage.offer_checkpoint(verified.clone(), bound)? {
            CheckpointOffer::Behind => Absorbed::Known,
            CheckpointOffer::Wants(seals) => {
                Absorbed::Wanted(seals.into_iter().map(|seal| seal.hash).collect())
            }
            CheckpointOffer::Adopted(changes) => self.checkpoints_adopted(vec![verified], changes),
        })
    }

    /// Whether the checkpoint covers batches that are not all here.
    pub fn is_behind(&self, bytes: &[u8]) -> bool {
        let Ok(signed) = Signed::<Checkpoint>::parse(bytes) else {
            return false;
        };
        let (stream, seq) = (signed.claimed().stream(), signed.claimed().seq);
        let head = self.usage.as_ref().and_then(|usage| usage.head(stream));
        head.is_none_or(|(have, _)| have < seq)
    }

    /// Takes a seal that a checkpoint waits for.
    pub fn absorb_seal(&mut self, bytes: &[u8]) -> Result<Absorbed, Refusal> {
        let usage = self.usage.as_mut().ok_or(Refusal::NotOurs)?;
        let seal: Seal = cbor::from_slice(bytes, SEAL_BYTES_MAX).map_err(Refused::Seal)?;
        let reference = SealRef {
            span: seal.span,
            hash: ContentHash::of(bytes),
        };
        let Sealed { adopted, changes } = match usage.take_seal(reference, bytes) {
            // Two peers may bring the same one.
            Err(Refused::UnwantedSeal(_)) => return Ok(Absorbed::Known),
            taken => taken?,
        };
        Ok(if adopted.is_empty() {
            Absorbed::Sealed
        } else {
            self.checkpoints_adopted(adopted, changes)
        })
    }

    fn checkpoints_adopted(
        &mut self,
        adopted: Vec<Arc<Verified<Checkpoint>>>,
        changes: Vec<CellChange>,
    ) -> Absorbed {
        adopted
            .iter()
            .for_each(|checkpoint| self.hear(checkpoint.body().site, checkpoint.body().at));
        let usage = self.usage.as_ref().expect("they were adopted there");
        let references = adopted
            .iter()
            .flat_map(|checkpoint| &checkpoint.body().seals);
        let seals = references
            .filter_map(|seal| Some((seal.hash, usage.seal(&seal.hash)?.clone())))
            .collect();
        Absorbed::Checkpoints {
            adopted,
            seals,
            changes,
        }
    }

    /// Takes an in-flight sheet.
    pub fn absorb_sheet(&mut self, bytes: &[u8]) -> Result<Absorbed, Refusal> {
        let signed = Signed::<InFlightSheet>::parse(bytes)?;
        let (site, at) = (signed.claimed().site, signed.claimed().at);
        let verified = Arc::new(self.verify_member(signed, site)?);
        self.hear(site, at);
        Ok(match self.sheets.offer_sheet(verified) {
            Some(changes) => Absorbed::Sheet { site, changes },
            None => Absorbed::Known,
        })
    }

    /// Takes what a site says about its machines and queues.
    pub fn absorb_description(&mut self, bytes: &[u8]) -> Result<Absorbed, Refusal> {
        let signed = Signed::<SiteDescription>::parse(bytes)?;
        let site = signed.claimed().site;
        let verified = self.verify_member(signed, site)?;
        Ok(match self.descriptions.offer(verified) {
            true => Absorbed::Description { site },
            false => Absorbed::Known,
        })
    }

    /// The most that the charter lets a site claim.
    fn bound(&self, site: SiteId) -> Bound {
        let Some(charter) = self.charter().filter(|_| self.counts(site)) else {
            return Bound::new(0, 0);
        };
        let cores = self.cores.get(&site).copied().unwrap_or(0);
        Bound::new(cores, charge_cores(&charter.charging, cores))
    }

    fn hear(&mut self, site: SiteId, at: WallTime) {
        let heard = self.heard.entry(site).or_default();
        *heard = (*heard).max(mutant!(HeardYounger, at, at.after(Millis(1_000))));
    }
}

/// Cores that a site of `cores` may charge: more than it has where the VO's weights say so.
fn charge_cores(rule: &ChargingRule, cores: u32) -> u32 {
    match rule {
        ChargingRule::CpuTime => cores,
        // A core may bring a GPU and any memory with it; only a bound on the whole is wanted here.
        ChargingRule::Weights {
            cpu, gpu, mem_gib, ..
        } => {
            let per_core =
                u64::from(*cpu) + u64::from(*gpu) + u64::from(*mem_gib) * MEM_GIB_PER_CORE_MAX;
            u32::try_from(u64::from(cores) * per_core.max(1_000) / 1_000).unwrap_or(u32::MAX)
        }
        // One job may take all CPUs of a machine, another all its memory, and so on; each is
        // charged the whole machine at most.
        ChargingRule::Penalty {
            gpu,
            disk,
            factor_max,
        } => {
            let jobs = 2 + u128::from(*gpu) + u128::from(*disk);
            let dearest = jobs * u128::from(factor_max.millionths().max(Factor::UNITS));
            let charged = u128::from(cores) * dearest / u128::from(Factor::UNITS);
            u32::try_from(charged).unwrap_or(u32::MAX)
        }
    }
}

/// Memory of a core that a charge is believed for: the largest machines on the market have 64 GiB.
const MEM_GIB_PER_CORE_MAX: u64 = 64;
