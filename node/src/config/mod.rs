//! The node's configuration: a TOML file becomes a valid [`Config`] once, or an error that names
//! file, line, column and key.
//!
//! Invariant: a `Config` holds no contradiction that the file alone can show: every VO that a rule
//! or the share tree names has an id, every path template makes paths, every length of time is
//! above zero. Below the node only valid values are known.
//!
//! Deliberately not here: whether users exist, keys can be read or addresses be bound; that is for
//! the moment of use (and for `check-config`, which asks).

pub mod charging;
pub mod condor;
pub mod gridengine;
pub mod history;
pub mod lsf;
pub mod pbs;
pub mod quantity;
mod quota;
pub mod schedulers;
pub mod site;
pub mod slurm;
pub mod text;

mod advert;
mod forward;
mod identity;
mod lint;
mod lint_shares;
mod names;
mod people;
mod privacy;
mod raw;
mod records;
mod reload;
mod sections;
mod shares;
mod sums;
mod tables;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fairmesh_model::{HistoryRule, SiteId, VoId, WindowLength};
use fairmesh_policy::SitePolicy;
use fairmesh_records::ChargeRule;
use fairmesh_site::{AdvertRules, Charging, ForwardRules, IdentityMap, OwnerQuota};
use libp2p::Multiaddr;

pub use fairmesh_site::Timing;
pub use reload::Reload;
pub use sums::OtherSums;
pub use text::{FileError, Source};

use crate::config::condor::CondorTable;
use crate::config::gridengine::GridEngineTable;
use crate::config::lsf::LsfTable;
use crate::config::pbs::PbsTable;
use crate::config::schedulers::Place;
use crate::config::slurm::SlurmTable;
use crate::privacy::Privacy;
use crate::projection::ProjectionName;
use crate::record_log::Keep;
use crate::sockets::SlotLimits;
use crate::users::Writer;

/// Where a node listens unless told otherwise.
pub const LISTEN_DEFAULT: &str = "/ip4/0.0.0.0/tcp/7600";

/// The port in [`LISTEN_DEFAULT`].
pub const PORT_DEFAULT: u16 = 7600;

/// A checked configuration: the layers below may rely on every value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    /// What people call the site.
    pub name: String,
    /// Where the node keeps its state.
    pub data_dir: PathBuf,
    /// The site's secret key.
    pub key_file: PathBuf,
    /// The addresses that the mesh listens on.
    pub listen: Vec<Multiaddr>,
    /// Peers to dial, and to believe to be peers before any charter says so.
    pub peers: Vec<Peer>,
    /// The two Unix sockets.
    pub sockets: Sockets,
    /// What is hidden from users of whom it is not.
    pub privacy: Privacy,
    /// Who sees all the same, beside those who may write.
    pub readers: Vec<Writer>,
    /// The share page, if the owner wants it served.
    pub page: Option<PageSettings>,
    /// VO ids by the owner's alias.
    pub vos: BTreeMap<String, VoId>,
    /// The owner's share tree.
    pub policy: SitePolicy,
    /// The file that the share tree was read from, if it has its own.
    pub policy_file: Option<PathBuf>,
    /// Who is who: people first, then the first rule that holds.
    pub identity: IdentityMap,
    /// The file that the people were read from, if there is one.
    pub people_file: Option<PathBuf>,
    /// How usage at this site is weighed at local levels of the tree.
    pub history: HistoryRule,
    /// Windows of local usage.
    pub window: WindowLength,
    /// What jobs cost here.
    pub charging: Charging,
    /// Which jobs are charged, and for how long.
    pub charge_rule: ChargeRule,
    /// Keys about charging that change no charge.
    pub without_effect: Vec<FileError>,
    /// The order in which entries are served.
    pub projection: ProjectionName,
    /// What VOs are told of free CPUs, if anything.
    pub advert: Option<AdvertRules>,
    /// Which jobs are passed on to and from other members, if any.
    pub forward: Option<ForwardRules>,
    /// What the owner says of VOs' quotas.
    pub quotas: BTreeMap<VoId, OwnerQuota>,
    /// The intervals of the site's periodic work.
    pub timing: Timing,
    /// How much of the jobs' own records is kept; `None` for nothing.
    pub records: Option<Keep>,
    /// How the node and Slurm work together, if they do.
    pub slurm: Option<SlurmTable>,
    /// How it works together with a Grid Engine, if there is one.
    pub gridengine: Option<GridEngineTable>,
    /// How it works together with an HTCondor, if there is one.
    pub condor: Option<CondorTable>,
    /// How it works together with a PBS, if there is one.
    pub pbs: Option<PbsTable>,
    /// How it works together with an LSF, if there is one.
    pub lsf: Option<LsfTable>,
}

/// A peer whose address the operator wrote down.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The id of the peer, which is its public key.
    pub site: SiteId,
    /// The address at which the peer is dialled.
    pub address: Multiaddr,
}

/// The share page and the metrics, on a TCP listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSettings {
    /// The address of the share page.
    pub listen: SocketAddr,
    /// Names that it is asked for by, beside addresses and `localhost`.
    pub hosts: Vec<String>,
}

/// The two Unix sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sockets {
    /// For schedulers: read-only, batched.
    pub lookup: PathBuf,
    /// For people, feeds and tools.
    pub control: PathBuf,
    /// Permission bits of `lookup`.
    pub lookup_mode: u32,
    /// Who may write on `control`; everybody else reads.
    pub writers: Vec<Writer>,
    /// Most connections of `lookup`.
    pub lookup_slots: SlotLimits,
    /// Most connections of `control`.
    pub control_slots: SlotLimits,
}

/// A table that may be absent, checked where it is given.
fn given<R, T, E>(raw: Option<&R>, check: impl FnOnce(&R) -> Result<T, E>) -> Result<Option<T>, E> {
    raw.map(check).transpose()
}

impl Config {
    /// Reads and checks a file, and the share tree and the people that it names.
    ///
    /// # Errors
    /// A [`FileError`] or a `TreeFileError` about the first thing wrong, or that a file cannot be
    /// read.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let read = |path: &Path| {
            let bytes = std::fs::read(path);
            let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
            text::from_utf8(bytes, path)
        };
        let text = read(path)?;
        Self::parse(&text, path, &read)
    }

    /// Checks the text of a file at `path`; `read` gives the text of the other files that it names.
    pub fn parse(
        text: &str,
        path: &Path,
        read: &dyn Fn(&Path) -> anyhow::Result<String>,
    ) -> anyhow::Result<Self> {
        let file = path.display().to_string();
        let source = Source { file: &file, text };
        let raw: raw::RawConfig = source.parse()?;
        let base = path.parent().unwrap_or(Path::new(""));
        let data_dir = raw.site.data_dir.as_deref();
        let data_dir = base.join(data_dir.unwrap_or("data"));
        let vos = sections::vos(source, &raw.vos)?;
        let window = sections::window(source, &raw.history)?;
        let charge_rule = charging::charge_rule(source, &raw.charging)?;
        let charging = charging::charging(source, &raw.charging, &raw.machine)?;
        let (identity, people_file) = {
            let rules = (raw.identity.as_slice(), raw.people.as_ref());
            identity::checked(source, raw.site.name.get_ref(), rules, base, &vos, read)?
        };
        let (policy, policy_file) = shares::read(source, &raw, base, &vos, read)?;
        let (privacy, readers) = privacy::checked(source, &raw.privacy)?;
        let place = Place {
            source,
            base,
            data_dir: &data_dir,
            charge_rule: &charge_rule,
        };
        Ok(Self {
            file: path.to_owned(),
            name: sections::site_name(source, &raw.site.name)?,
            key_file: base.join(raw.site.key_file.as_deref().unwrap_or("site.key")),
            listen: sections::listen(source, raw.network.listen.as_deref())?,
            peers: sections::peers(source, &raw.network.peers)?,
            sockets: sections::sockets(source, &raw.sockets, base, &data_dir)?,
            privacy,
            readers,
            page: sections::page(source, raw.page.as_ref())?,
            identity,
            people_file,
            history: raw.history.rule(source, window)?,
            without_effect: charging::without_effect(
                source,
                (&raw.charging, &raw.machine),
                &charging,
                !vos.is_empty(),
            ),
            charging,
            advert: advert::checked(source, (raw.advert.as_ref(), raw.sla.as_ref()), &vos)?,
            forward: forward::checked(source, raw.forward.as_ref(), raw.advert.is_some(), &vos)?,
            quotas: quota::checked(source, &raw.quota, &vos)?,
            timing: sections::timing(source, &raw.timing)?,
            records: records::checked(source, &raw.records)?,
            slurm: given(raw.slurm.as_ref(), |raw| slurm::checked(place, raw))?,
            gridengine: given(raw.gridengine.as_ref(), |raw| {
                gridengine::checked(place, raw)
            })?,
            condor: given(raw.condor.as_ref(), |raw| condor::checked(place, raw))?,
            pbs: given(raw.pbs.as_ref(), |raw| pbs::checked(place, raw))?,
            lsf: given(raw.lsf.as_ref(), |raw| lsf::checked(place, raw))?,
            charge_rule,
            projection: raw.order.projection,
            data_dir,
            vos,
            policy,
            policy_file,
            window,
        })
    }
}

#[cfg(test)]
mod tests;
