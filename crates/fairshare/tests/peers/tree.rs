//! Trees of lines and usage, the orders that they are served in, and how a test writes an order down.

use fairmesh_fairshare::projection::{
    BitsProjection, FairTreeProjection, PaperProjection, PaperRoundedProjection,
    PercentalProjection, Projection, RankProjection,
};
use fairmesh_fairshare::{
    DeviationVector, EntryId, EntrySpec, Order, Reach, Snapshot, TreeReader, TreeSpec, TreeWriter,
    WeightTable,
};
use fairmesh_model::{
    AccountPath, Distance, HistoryRule, Scope, Share, ShareRule, Span, Window, WindowLength,
};

pub(crate) const MIX: Distance = Distance::Mix {
    k: match Share::from_percent(50) {
        Some(half) => half,
        None => Share::ZERO,
    },
};

pub(crate) const DISTANCES: [Distance; 3] = [Distance::Absolute, Distance::Relative, MIX];

/// A way to make priorities of a snapshot.
pub(crate) type Prepare = fn(&Snapshot) -> Box<dyn Projection>;

pub(crate) const RANK: Prepare = |snapshot| Box::new(RankProjection::prepare(snapshot));
pub(crate) const FAIRTREE: Prepare = |snapshot| Box::new(FairTreeProjection::prepare(snapshot));
pub(crate) const BITS: Prepare = |_| Box::new(BitsProjection);
pub(crate) const PERCENTAL: Prepare = |_| Box::new(PercentalProjection);
pub(crate) const PAPER: Prepare = |_| Box::new(PaperProjection);
pub(crate) const PAPER_ROUNDED: Prepare = |_| Box::new(PaperRoundedProjection);

/// Those that a site with weights can serve by.
pub(crate) const BY_WEIGHTS: [Prepare; 4] = [RANK, BITS, FAIRTREE, PERCENTAL];

/// A share tree of one site whose usage never decays.
pub(crate) struct Tree {
    writer: TreeWriter,
    reader: TreeReader,
}

impl Tree {
    /// A tree of `lines`: paths with whole weights.
    pub(crate) fn new(lines: &[(&str, u64)], distance: Distance) -> Self {
        Self::read_by(ShareRule::Weights, lines, distance)
    }

    /// The same where `rule` says what the numbers mean.
    pub(crate) fn read_by(rule: ShareRule, lines: &[(&str, u64)], distance: Distance) -> Self {
        let history = HistoryRule::None { horizon: 9 };
        let mut spec = TreeSpec::new(vec![WeightTable::new(history, WindowLength::HOUR)], 0);
        spec.rule = rule;
        let entry = |(text, weight): &(&str, u64)| EntrySpec {
            path: path(text),
            weight: *weight,
            at_most: Share::WHOLE,
            scope: Scope::Local,
            distance,
            history: 0,
            since: None,
        };
        spec.entries = lines.iter().map(entry).collect();
        let writer = spec.build(&[Window(0)]).expect("a valid tree");
        let reader = writer.reader();
        Self { writer, reader }
    }

    /// The same tree with this usage, in core-ms, of accounts with a line or without.
    pub(crate) fn with(mut self, used: &[(&str, u64)]) -> Self {
        for (account, amount) in used {
            self.charge(account, *amount);
        }
        self
    }

    pub(crate) fn charge(&mut self, account: &str, amount: u64) {
        let entry = self.writer.place(&path(account));
        let now = Span::Window(Window(0));
        self.writer.apply(entry, now, amount, Reach::Own);
    }

    /// The entry of this path, which has a line or usage.
    pub(crate) fn entry(&self, text: &str) -> EntryId {
        self.reader.entry(&path(text)).expect("an entry")
    }

    /// The entry that an account is served as: `*` if it has neither a line nor usage.
    pub(crate) fn served_as(&self, account: &str) -> EntryId {
        self.reader.resolve(&path(account)).entry
    }

    pub(crate) fn vector(&self, entry: EntryId) -> DeviationVector {
        self.reader.vector(entry)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.writer.snapshot()
    }

    pub(crate) fn order(&self, prepare: Prepare) -> Order {
        let snapshot = self.snapshot();
        let projection = prepare(&snapshot);
        Order::of(snapshot, projection)
    }

    /// The rank of each account: 1 is served first.
    pub(crate) fn ranks(&self, prepare: Prepare, accounts: &[&str]) -> Vec<u32> {
        let order = self.order(prepare);
        let rank = |account: &&str| order.ranking().rank(self.served_as(account));
        accounts.iter().map(rank).collect()
    }

    /// The accounts as they are served, by the last names of their paths: `a > b = c`.
    pub(crate) fn served(&self, prepare: Prepare, accounts: &[&str]) -> String {
        let ranks = self.ranks(prepare, accounts);
        let name = |account: &str| account.rsplit('/').next().map(str::to_owned);
        let mut served: Vec<_> = ranks
            .into_iter()
            .zip(accounts.iter().filter_map(|account| name(account)))
            .collect();
        served.sort();
        let mut text = String::new();
        let mut before = 0;
        for (rank, name) in served {
            text += match before {
                0 => "",
                before if before == rank => " = ",
                _ => " > ",
            };
            text += &name;
            before = rank;
        }
        text
    }
}

fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).expect("a path")
}
