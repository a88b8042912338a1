//! The all-knowing scheduler: one usage table, seen by all sites at once.
//!
//! It is what gossip is measured against: the same priority engine, the same scopes (a VO's share is
//! of the site and *active*, what lies below is of the Grid) and the same usage mode. There are two of them. With
//! the *same feeds* the table gets what the sites' nodes get, at the same moments, and everybody sees
//! it at once: what differs from a gossiping Grid is gossip and nothing else. With *no feeds* every
//! pass sees what was used anywhere until this very moment: what differs from that is gossip and the
//! age of what feeds say, which a Grid with one server in its middle would have, too.
//!
//! Invariant: nothing is estimated and nothing is late; what running jobs count for is what the mode
//! says, with the requested times, as schedulers know them.
//!
//! Deliberately not here: any network. FSGrid paper, section 5, has no such thing; the ratio to it is
//! the number that its authors did not have.

use std::collections::BTreeMap;

use fairmesh_cluster::{AccountKey, Cluster, Finished, paper};
use fairmesh_fairshare::{
    EntryId, EntrySpec, History, InFlight, Scope, TreeReader, TreeSpec, TreeWriter, WeightTable,
};
use fairmesh_model::{AccountPath, Distance, Share, UsageMode, WallTime};

use crate::grid::{HISTORY, UsageSource, UsageTable, WINDOW, rank};
use crate::vo::{START, path};

/// The scheduler's tree. Its sums are set before each pass; no history makes them weigh alike, so
/// they are given as usage in flight, which weighs one.
pub struct Central {
    mode: UsageMode,
    writer: TreeWriter,
    reader: TreeReader,
    /// What feeds said last, if there are feeds.
    said: Option<UsageTable>,
    said_at: WallTime,
    has_feeds: bool,
}

impl Central {
    /// A scheduler that knows nothing yet, because nothing has been used. With feeds, it learns of
    /// what is used whenever feeds are asked to tell.
    pub fn new(mode: UsageMode, has_feeds: bool) -> Self {
        let history = History {
            weights: WeightTable::new(HISTORY, WINDOW),
            distance: Distance::Absolute,
        };
        let mut spec = TreeSpec::new(vec![history], 0);
        spec.entries = paper::POLICY.iter().map(entry_spec).collect();
        let references = [WINDOW.window_at(START)];
        let writer = spec.build(&references).expect("the paper's tree is one");
        let reader = writer.reader();
        Self {
            mode,
            writer,
            reader,
            said: None,
            said_at: START,
            has_feeds,
        }
    }

    /// What a leaf's jobs count for, as a pass at `site` knows it now.
    fn known(&self, site: usize, now: WallTime, used: &UsageTable, leaf: usize) -> InFlight {
        // A site's own level is active whatever the mode.
        let of = |used: &UsageTable, at| InFlight {
            local: used.counted(site, leaf, UsageMode::Active, at),
            global: used.counted_everywhere(leaf, self.mode, at),
        };
        if !self.has_feeds {
            return of(used, now);
        }
        let said = self.said.as_ref();
        said.map_or(InFlight::default(), |said| of(said, self.said_at))
    }

    fn entry(&self, account: &AccountKey) -> EntryId {
        let entry = self.reader.entry(&tree_path(account));
        entry.expect("all accounts are the paper's")
    }
}

impl UsageSource for Central {
    fn advance(&mut self, _now: WallTime) {}

    fn finished(&mut self, _site: usize, _job: &Finished) {}

    fn refresh(&mut self, now: WallTime, used: &UsageTable, _clusters: &[Cluster]) {
        if self.has_feeds {
            self.said = Some(used.clone());
            self.said_at = now;
        }
    }

    fn order(
        &mut self,
        site: usize,
        now: WallTime,
        used: &UsageTable,
        accounts: &[AccountKey],
    ) -> BTreeMap<AccountKey, u64> {
        for (account, leaf) in used.accounts() {
            let in_flight = self.known(site, now, used, leaf);
            let entry = self.entry(account);
            self.writer.set_in_flight(entry, in_flight);
        }
        let accounts = accounts.iter().map(|of| (of.clone(), self.entry(of)));
        rank(&self.reader, accounts)
    }
}

fn entry_spec(entry: &paper::PolicyEntry) -> EntrySpec {
    EntrySpec {
        path: tree_path(&entry.account()),
        share: entry.share(),
        at_most: Share::WHOLE,
        scope: match entry.path {
            "/" => Scope::Local,
            _ => Scope::Global,
        },
        history: 0,
    }
}

/// Where an account is in a tree that mounts each VO under its name.
fn tree_path(account: &AccountKey) -> AccountPath {
    let mount = path(&format!("/{}", paper::VOS[account.vo]));
    mount.join(&account.path).expect("short paths")
}
