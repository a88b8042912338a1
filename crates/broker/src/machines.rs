//! A site's machines as a placement looks at them: laid out once, when the site says what it has, and read for each
//! job.
//!
//! For every amount that some class has, and every name, there is the set of the classes that have it: a bit a class.
//! So what a job asks for is looked up once a site, and not once a class.
//!
//! Invariant: classes keep the order of the list, and those that suit a job are those of `suitable`, with GPUs and
//! disk. What is laid out is as large as the list, but for a constant. Deliberately not here: which class is worth
//! most (`utility::search`).

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_fairshare::Job;
use fairmesh_model::{Factor, MachineClass, PriceList};

use crate::wish::{Class, Wish};

/// Classes in one set: the bits of a word.
const BLOCK: usize = 64;

/// Machines of one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machines {
    prices: Arc<PriceList>,
    blocks: Vec<Block>,
}

/// Classes that stand one behind the other in the list, [`BLOCK`] at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// By [`Amount`]: each amount that a class has, and the classes that have at least so much.
    amounts: [Vec<(u64, Classes)>; 5],
    /// The first letters of each name that a class has, in order. They stand by themselves, for they tell most names
    /// apart without a look at the text, which lies elsewhere in memory.
    letters: Vec<u64>,
    /// Each of these names, and the classes that have it.
    named: Vec<(Wish, Classes)>,
}

/// Something that a class has by name, with its first letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    letters: u64,
    wish: Wish,
}

impl From<Wish> for Name {
    fn from(wish: Wish) -> Self {
        let mut letters = [0; 8];
        if let Wish::Os(text) | Wish::Arch(text) | Wish::Tag(text) = &wish {
            let first = text.len().min(letters.len());
            letters[..first].copy_from_slice(&text.as_bytes()[..first]);
        }
        let letters = u64::from_be_bytes(letters);
        Self { letters, wish }
    }
}

/// What a class has so many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amount {
    Cpus,
    MemMib,
    DiskMib,
    Gpus,
    Spec,
}

/// A set of the classes of a block, by their places there.
pub(crate) type Classes = u64;

impl Block {
    fn new(classes: &[(&String, &MachineClass)]) -> Self {
        let amount = |of: fn(&MachineClass) -> u64| {
            let mut amounts: Vec<u64> = classes.iter().map(|(_, class)| of(class)).collect();
            amounts.sort_unstable();
            amounts.dedup();
            let having = |least: u64| {
                let bits = classes.iter().enumerate();
                bits.fold(0, |set, (bit, (_, class))| {
                    set | u64::from(of(class) >= least) << bit
                })
            };
            amounts
                .into_iter()
                .map(|least| (least, having(least)))
                .collect()
        };
        let mut named: BTreeMap<Name, Classes> = BTreeMap::new();
        for (bit, (name, class)) in classes.iter().enumerate() {
            let of = Class::of(name, class, 0);
            let tags = class.properties.iter().cloned().map(Wish::Tag);
            let (os, arch) = (Wish::Os(of.os.to_owned()), Wish::Arch(of.arch.to_owned()));
            for wish in tags.chain([os, arch]) {
                *named.entry(wish.into()).or_default() |= 1 << bit;
            }
        }
        let named = named.into_iter();
        let (letters, named) = named
            .map(|(name, classes)| (name.letters, (name.wish, classes)))
            .unzip();
        Self {
            // In the order of `Amount`.
            amounts: [
                amount(|class| class.cpus.into()),
                amount(|class| class.mem_mib),
                amount(|class| class.disk_mib),
                amount(|class| class.gpus.into()),
                amount(|class| class.spec.millionths().into()),
            ],
            letters,
            named,
        }
    }

    /// The classes that have at least so much.
    pub(crate) fn at_least(&self, amount: Amount, least: u64) -> Classes {
        let amounts = &self.amounts[amount as usize];
        let at = amounts.partition_point(|(has, _)| *has < least);
        amounts.get(at).map_or(0, |(_, classes)| *classes)
    }

    /// The classes that have something by name.
    pub(crate) fn having(&self, wanted: &Name) -> Classes {
        let from = self.letters.partition_point(|of| *of < wanted.letters);
        let alike = self.letters.iter().zip(&self.named).skip(from);
        let mut alike = alike.take_while(|(letters, _)| **letters == wanted.letters);
        let found = alike.find(|(_, (name, _))| *name == wanted.wish);
        found.map_or(0, |(_, (_, classes))| *classes)
    }

    /// The speed of the slowest of some classes; `None` where there are none.
    pub(crate) fn slowest(&self, classes: Classes) -> Option<Factor> {
        let speeds = self.amounts[Amount::Spec as usize].iter();
        let are_all = |(_, fast): &&(u64, Classes)| classes & !fast == 0;
        let slowest = speeds.take_while(are_all).last();
        let (speed, _) = slowest.filter(|_| classes != 0)?;
        u32::try_from(*speed).ok().map(Factor::from_millionths)
    }
}

impl Machines {
    /// The machines of a price list.
    pub fn new(prices: Arc<PriceList>) -> Self {
        let all: Vec<_> = prices.machines.iter().collect();
        let blocks = all.chunks(BLOCK).map(Block::new).collect();
        Self { prices, blocks }
    }

    /// A class by its place, with its name.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn class(&self, index: usize) -> (&str, &MachineClass) {
        let (name, class) = self.prices.machines.iter().nth(index).expect("a class");
        (name, class)
    }

    /// The speed of the slowest: what is sure, whichever is given. `None` where there are none.
    pub fn slowest(&self) -> Option<Factor> {
        let all = |block: &Block| block.slowest(block.at_least(Amount::Cpus, 0));
        self.blocks.iter().filter_map(all).min()
    }

    /// What is free of each class, in their order, where it is said by name; nothing where nothing is said.
    pub fn lay_out(&self, free: &BTreeMap<String, u64>) -> Arc<[u64]> {
        let of = |name| free.get(name).copied().unwrap_or(0);
        match free.is_empty() {
            true => Arc::default(),
            false => self.prices.machines.keys().map(of).collect(),
        }
    }

    /// The classes that have what one node of a job asks for: of each block, with the place of its first class.
    pub(crate) fn suitable<'a>(
        &'a self,
        job: &'a Job<'_>,
    ) -> impl Iterator<Item = (usize, &'a Block, Classes)> {
        let held = job.held;
        let each = |amount: u64| amount.div_ceil(u64::from(held.nodes.max(1)));
        let asked = [
            (Amount::Cpus, each(held.cores)),
            (Amount::MemMib, each(held.mem_mib)),
            (Amount::DiskMib, each(held.disk_mib)),
            (Amount::Gpus, each(held.gpus)),
        ];
        let names_any = job.queue.is_some() || !job.properties.is_empty();
        let mut classes = self.prices.machines.values();
        let blocks = self.blocks.iter().enumerate();
        blocks.map(move |(index, block)| {
            let have = asked
                .iter()
                .map(|(amount, least)| block.at_least(*amount, *least));
            let mut suit = have.fold(Classes::MAX, |all, have| all & have);
            if names_any {
                let taking = classes.by_ref().take(BLOCK).enumerate();
                let taking = taking.filter(|(_, class)| class.takes(job.queue, job.properties));
                suit &= taking.fold(0, |set, (bit, _)| set | 1 << bit);
            }
            (index * BLOCK, block, suit)
        })
    }
}
