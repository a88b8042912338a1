//! A scenario file as it is written.
//!
//! Invariant: an unknown key is refused. Deliberately not here: what is valid (`read`), and the
//! arguments of steps, which depend on the step (`args`).

use serde::Deserialize;
use toml::Spanned;

use super::args::RawStep;
use super::length::Length;
use crate::network::LinkSpec;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScenario {
    pub(super) title: String,
    pub(super) shows: String,
    pub(super) duration: Spanned<Length>,
    pub(super) grid: Spanned<RawGrid>,
    #[serde(default)]
    pub(super) vo: Vec<Spanned<RawVo>>,
    #[serde(default)]
    pub(super) load: Vec<Spanned<RawLoad>>,
    #[serde(default)]
    pub(super) step: Vec<Spanned<RawStep>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGrid {
    pub(super) sites: usize,
    #[serde(default)]
    pub(super) late: Vec<usize>,
    pub(super) publish: Option<Length>,
    pub(super) heartbeat: Option<Length>,
    pub(super) sync: Option<Length>,
    pub(super) clock_tolerance: Option<Length>,
    pub(super) checkpoint_batches: Option<u64>,
    pub(super) tick: Option<Length>,
    #[serde(default)]
    pub(super) keeps_journal: bool,
    pub(super) link: Option<RawLink>,
    pub(super) degree: Option<usize>,
    pub(super) mesh_degree: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVo {
    pub(super) name: String,
    pub(super) members: Option<Vec<usize>>,
    pub(super) cores: Option<u32>,
    pub(super) groups: Option<Vec<u32>>,
    pub(super) users: Option<u32>,
    pub(super) window: Option<Length>,
    pub(super) mode: Option<RawMode>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawMode {
    Historical,
    Active,
    Predictive,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLoad {
    pub(super) sites: Option<Vec<usize>>,
    pub(super) account: Option<String>,
    pub(super) every: Length,
    pub(super) cores: Option<(u32, u32)>,
    pub(super) run: Option<(Length, Length)>,
    pub(super) from: Option<Length>,
    pub(super) until: Option<Length>,
    #[serde(default)]
    pub(super) by_own_clock: bool,
}

/// A link by its name, or as what differs from the calm one.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum RawLink {
    Named(String),
    Described(Described),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Described {
    latency: Option<Length>,
    jitter: Option<Length>,
    loss_permille: Option<u64>,
    duplicate_permille: Option<u64>,
    reorder_permille: Option<u64>,
    reorder_by: Option<Length>,
    replay_permille: Option<u64>,
    replay_after: Option<Length>,
    bandwidth_bytes_per_s: Option<u64>,
    queue_bytes: Option<u64>,
}

impl RawLink {
    pub(super) fn spec(&self) -> Result<LinkSpec, String> {
        match self {
            Self::Named(name) => match name.as_str() {
                "calm" => Ok(LinkSpec::CALM),
                "rough" => Ok(LinkSpec::ROUGH),
                _ => Err(format!(
                    "there is no link `{name}`: it is calm, rough or {{ latency = \"80ms\", … }}"
                )),
            },
            Self::Described(described) => described.spec(),
        }
    }
}

impl Described {
    fn spec(&self) -> Result<LinkSpec, String> {
        let calm = LinkSpec::CALM;
        let ms = |length: Option<Length>, default: u64| match length {
            None => Ok(default),
            Some(length) => match length.millis() {
                Some(millis) => Ok(millis.0),
                None => Err("a length is below zero".to_owned()),
            },
        };
        let permille = |number: Option<u64>| match number {
            Some(number) if number > 1_000 => Err("permille are 1000 at most".to_owned()),
            number => Ok(number.unwrap_or(0)),
        };
        Ok(LinkSpec {
            latency_ms: ms(self.latency, calm.latency_ms)?,
            jitter_ms: ms(self.jitter, calm.jitter_ms)?,
            loss_permille: permille(self.loss_permille)?,
            duplicate_permille: permille(self.duplicate_permille)?,
            reorder_permille: permille(self.reorder_permille)?,
            reorder_ms_max: ms(self.reorder_by, 5_000)?,
            replay_permille: permille(self.replay_permille)?,
            replay_ms_max: ms(self.replay_after, 3_600_000)?,
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s.unwrap_or(0),
            queue_bytes_max: self.queue_bytes.unwrap_or(65_536),
        })
    }
}
