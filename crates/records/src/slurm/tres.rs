//! Slurm's lists of trackable resources: `billing=8,cpu=8,gres/gpu:a100=2,mem=62.50G,node=1`.
//!
//! Invariant: GPUs are counted once, though Slurm lists them with and without their type.

use crate::error::Reason;
use crate::record::BatchRecord;
use crate::value;

/// What a TRES string says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tres {
    /// CPUs.
    pub cpus: Option<u64>,
    /// Nodes.
    pub nodes: Option<u64>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
    /// GPUs of all types.
    pub gpus: Option<u64>,
    /// What Slurm itself bills.
    pub billing: Option<u64>,
    /// Energy used, joules.
    pub energy_j: Option<u64>,
}

impl Tres {
    /// Reads a TRES string; resources of other names are passed over. An amount of memory, of nodes, of energy or of what Slurm bills
    /// that is none is left out of `record`: Slurm writes its largest number for one that it does not know.
    pub(crate) fn parse(field: &str, text: &str, record: &mut BatchRecord) -> Result<Self, Reason> {
        let mut tres = Self::default();
        let mut typed_gpus: Option<u64> = None;
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let wrong = || Reason::field(field, item, "name=amount");
            let (name, amount) = item.split_once('=').ok_or_else(wrong)?;
            let count = || value::count(amount).ok_or_else(wrong).map(Some);
            match name {
                "cpu" => tres.cpus = count()?,
                "node" => tres.nodes = record.if_read(count()),
                "billing" => tres.billing = record.if_read(count()),
                "energy" => tres.energy_j = record.if_read(count()),
                "mem" => {
                    let bytes = value::bytes(amount, 1 << 20).ok_or_else(wrong);
                    tres.memory_mib = record.if_read(bytes.map(|bytes| Some(bytes >> 20)));
                }
                "gres/gpu" => tres.gpus = count()?,
                _ if name.starts_with("gres/gpu:") => {
                    let more = count()?.unwrap_or(0);
                    typed_gpus = Some(typed_gpus.unwrap_or(0).saturating_add(more));
                }
                _ => {}
            }
        }
        tres.gpus = tres.gpus.or(typed_gpus);
        Ok(tres)
    }

    /// What was asked for, which decides something only where what was held is not stated.
    pub(crate) fn asked(
        field: &str,
        text: &str,
        record: &mut BatchRecord,
        decides: bool,
    ) -> Result<Self, Reason> {
        match Self::parse(field, text, record) {
            Err(reason) if !decides => {
                record.if_read::<()>(Err(reason));
                Ok(Self::default())
            }
            asked => asked,
        }
    }
}

/// The GPUs of a list of generic resources as older Slurms print it:
/// `hbm:0,gpu:P100:2(IDX:0,3),bandwidth:4G`, also `gres:gpu:2`.
pub(crate) fn gres_gpus(text: &str) -> Option<u64> {
    let mut total = None;
    let mut depth = 0_u32;
    // The commas within `(IDX:0,3)` part nothing.
    let items = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    for item in items {
        let item = item.split('(').next().unwrap_or_default();
        let item = item
            .strip_prefix("gres")
            .map_or(item, |rest| rest.strip_prefix([':', '/']).unwrap_or(item));
        let mut parts = item.split([':', '=']);
        if parts.next() != Some("gpu") {
            continue;
        }
        // `gpu` alone is one, and so is `gpu:a100`.
        let count = parts.next_back().map_or(Some(1), |last| {
            let named = last.starts_with(|c: char| c.is_ascii_alphabetic());
            if named { Some(1) } else { value::count(last) }
        })?;
        total = Some(total.unwrap_or(0_u64).saturating_add(count));
    }
    total
}
