//! What can happen to a Grid: the one vocabulary of swarms, stories, replays and counts.
//!
//! An action is written as one table of TOML: `do` is its word, and its arguments stand beside it.
//! Nodes go by their numbers and VOs by their names. What lasts for a while is two actions, the
//! second of which puts the first right ([`Action::undone`]).
//!
//! Invariant: what is written is read back as the same action, and everything that an action does is
//! in it or comes from the world's own streams.
//!
//! Deliberately not here: doing it (`apply`), and what happens when (scenarios and swarms).

use std::collections::BTreeMap;

use fairmesh_model::{Date, Distance, Millis, Scope, Share, UsageRecord, WallTime, Weight};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::length::Length;
use crate::network::LinkSpec;
use crate::vo::job;

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[strum(serialize_all = "snake_case")]
#[allow(missing_docs)]
pub enum Action {
    /// The network is cut; each set is a side, and whoever is in none is on one side together.
    Partition {
        sets: Vec<Vec<usize>>,
    },
    /// These are cut off from all others.
    Island {
        nodes: Vec<usize>,
    },
    /// These see all sides of any cut.
    Bridge {
        nodes: Vec<usize>,
    },
    /// What `from` send does not reach `to`.
    CutOneWay {
        from: Vec<usize>,
        to: Vec<usize>,
    },
    /// No cuts any more.
    HealNetwork {},
    /// Links between these, or those that nobody described, become this.
    Link {
        link: LinkSpec,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        from: Vec<usize>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        to: Vec<usize>,
    },
    /// Links between these are the usual ones again; all are what the Grid began with if none is named.
    CalmLinks {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        from: Vec<usize>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        to: Vec<usize>,
    },
    Start {
        nodes: Vec<usize>,
    },
    /// The process ends as it is asked to.
    Stop {
        nodes: Vec<usize>,
    },
    /// It ends without a word.
    Crash {
        nodes: Vec<usize>,
    },
    /// It does so after so many more effects of whatever it does.
    CrashWithin {
        nodes: Vec<usize>,
        effects: usize,
    },
    /// It does so, and is started again.
    Restart {
        nodes: Vec<usize>,
    },
    ClockJump {
        nodes: Vec<usize>,
        by: Length,
    },
    /// Parts in a million; too slow, if negative.
    ClockDrift {
        nodes: Vec<usize>,
        ppm: i64,
    },
    ClockCorrect {
        nodes: Vec<usize>,
    },
    /// In some row of the store.
    FlipBit {
        /// Which.
        nodes: Vec<usize>,
        /// Whether it is one of each mark of a job that has ended: a bad sector. The node goes on until it
        /// is started next, and cannot read them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        marks: bool,
    },
    FillDisk {
        nodes: Vec<usize>,
        room_bytes: u64,
    },
    MakeRoom {
        nodes: Vec<usize>,
    },
    /// The store is lost, and the side file unless it is kept.
    Wipe {
        nodes: Vec<usize>,
        #[serde(default)]
        keeps_side: bool,
    },
    Backup {
        nodes: Vec<usize>,
    },
    /// The oldest backup is put in the place of the store, and of the side file unless it is kept.
    RestoreBackup {
        nodes: Vec<usize>,
        #[serde(default)]
        keeps_side: bool,
    },
    /// The owner changes what is named; `long_queue_percent` is the price of the queue `long`, and 0
    /// takes it off the list. `machine_classes` is how many classes of machines the owner declares.
    Reconfigure {
        nodes: Vec<usize>,
        #[serde(
            default,
            with = "crate::length",
            skip_serializing_if = "Option::is_none"
        )]
        publish: Option<Millis>,
        #[serde(
            default,
            with = "crate::length",
            skip_serializing_if = "Option::is_none"
        )]
        heartbeat: Option<Millis>,
        #[serde(
            default,
            with = "crate::length",
            skip_serializing_if = "Option::is_none"
        )]
        sync: Option<Millis>,
        #[serde(skip_serializing_if = "Option::is_none")]
        vo_share: Option<Percent>,
        #[serde(skip_serializing_if = "Option::is_none")]
        long_queue_percent: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine_classes: Option<usize>,
    },
    /// The owner leaves a VO.
    Unmount {
        nodes: Vec<usize>,
        #[serde(default = "usual_vo")]
        vo: String,
    },
    /// The owner comes back to it.
    Mount {
        nodes: Vec<usize>,
        #[serde(default = "usual_vo")]
        vo: String,
    },
    /// A VO signs a policy with these lines changed, and hands it in at one node. What cannot be done any more
    /// is left out.
    Policy {
        node: usize,
        #[serde(default = "usual_vo")]
        vo: String,
        /// New weights, of new entries too.
        shares: BTreeMap<String, Parts>,
        /// By whose usage the entries right below the root are compared from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Scope>,
        /// Lines that go, with all below them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        removed: Vec<String>,
        /// Entries that get another path, or are merged with another entry; their usage goes with them.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        renamed: BTreeMap<String, String>,
        /// The first days of which usage counts, instead of all that were there before.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        since: BTreeMap<String, Day>,
    },
    /// A VO signs a charter that compares siblings differently, and lists its readers or none. `thresholds` are the
    /// numbers of keys that must sign its next charters, and its next policies.
    Charter {
        node: usize,
        #[serde(default = "usual_vo")]
        vo: String,
        distance: Distance,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unread: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thresholds: Option<(u32, u32)>,
    },
    /// A VO signs a charter without these sites.
    Remove {
        node: usize,
        #[serde(default = "usual_vo")]
        vo: String,
        sites: Vec<usize>,
    },
    /// A VO signs a charter with these sites.
    Admit {
        node: usize,
        #[serde(default = "usual_vo")]
        vo: String,
        sites: Vec<usize>,
    },
    /// Somebody hands in so many bytes of nonsense as a document.
    Garbage {
        nodes: Vec<usize>,
        bytes: usize,
    },
    /// Jobs have ended and are reported.
    Report {
        node: usize,
        #[serde(default)]
        jobs: Jobs,
    },
    /// Jobs run, and are expected to go on for so long; replaces what ran before.
    Running {
        node: usize,
        #[serde(default)]
        jobs: Jobs,
        #[serde(with = "crate::length")]
        left: Millis,
    },
    /// The feeds of these nodes, or of all, hold back what they have.
    PauseLoad {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<usize>,
    },
    /// They report again, what they held back too.
    ResumeLoad {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<usize>,
    },
    /// One node sends so many messages of nonsense at every tick.
    Flood {
        node: usize,
        messages: usize,
    },
    EndFlood {},
    /// Ticks of one node come no more often than this.
    Tick {
        #[serde(with = "crate::length")]
        least: Millis,
    },
    /// Cuts, links, clocks, full disks and floods are put right, and who is down is started.
    Heal {},
}

/// The VO of a Grid that has one.
fn usual_vo() -> String {
    "grid".to_owned()
}

impl Action {
    /// What it is written and counted as.
    pub fn word(&self) -> &'static str {
        self.into()
    }

    /// Word and arguments, for people.
    pub fn line(&self) -> String {
        line(self.word(), &self.arguments())
    }

    fn arguments(&self) -> toml::Table {
        let tagged = toml::Value::try_from(self).expect("words and numbers");
        let arguments = tagged.get(self.word()).and_then(toml::Value::as_table);
        arguments.cloned().unwrap_or_default()
    }

    /// The nodes that it happens to, one after the other.
    pub fn nodes(&self) -> &[usize] {
        match self {
            Self::Bridge { nodes }
            | Self::Start { nodes }
            | Self::Stop { nodes }
            | Self::Crash { nodes }
            | Self::CrashWithin { nodes, .. }
            | Self::Restart { nodes }
            | Self::ClockJump { nodes, .. }
            | Self::ClockDrift { nodes, .. }
            | Self::ClockCorrect { nodes }
            | Self::FlipBit { nodes, .. }
            | Self::FillDisk { nodes, .. }
            | Self::MakeRoom { nodes }
            | Self::Wipe { nodes, .. }
            | Self::Backup { nodes }
            | Self::RestoreBackup { nodes, .. }
            | Self::Reconfigure { nodes, .. }
            | Self::Unmount { nodes, .. }
            | Self::Mount { nodes, .. }
            | Self::Garbage { nodes, .. }
            | Self::PauseLoad { nodes }
            | Self::ResumeLoad { nodes } => nodes,
            Self::Policy { node, .. }
            | Self::Charter { node, .. }
            | Self::Remove { node, .. }
            | Self::Admit { node, .. }
            | Self::Report { node, .. }
            | Self::Running { node, .. }
            | Self::Flood { node, .. } => std::slice::from_ref(node),
            _ => &[],
        }
    }

    /// The name of the VO that it concerns.
    pub fn vo(&self) -> Option<&str> {
        match self {
            Self::Unmount { vo, .. }
            | Self::Mount { vo, .. }
            | Self::Policy { vo, .. }
            | Self::Charter { vo, .. }
            | Self::Remove { vo, .. }
            | Self::Admit { vo, .. } => Some(vo),
            Self::Report { jobs, .. } | Self::Running { jobs, .. } => {
                Some(jobs.account.as_str()).filter(|account| *account != "local")
            }
            _ => None,
        }
    }

    /// What puts it right again, where anything does.
    pub fn undone(&self) -> Option<Self> {
        let nodes = self.nodes().to_vec();
        Some(match self {
            Self::Partition { .. }
            | Self::Island { .. }
            | Self::Bridge { .. }
            | Self::CutOneWay { .. } => Self::HealNetwork {},
            Self::Link { from, to, .. } => Self::CalmLinks {
                from: from.clone(),
                to: to.clone(),
            },
            Self::Stop { .. }
            | Self::Crash { .. }
            | Self::CrashWithin { .. }
            | Self::Wipe { .. }
            | Self::RestoreBackup { .. } => Self::Start { nodes },
            Self::ClockJump { .. } | Self::ClockDrift { .. } => Self::ClockCorrect { nodes },
            Self::FillDisk { .. } => Self::MakeRoom { nodes },
            Self::Unmount { vo, .. } => Self::Mount {
                nodes,
                vo: vo.clone(),
            },
            Self::Remove { node, vo, sites } => Self::Admit {
                node: *node,
                vo: vo.clone(),
                sites: sites.clone(),
            },
            Self::PauseLoad { .. } => Self::ResumeLoad { nodes },
            Self::Flood { .. } => Self::EndFlood {},
            _ => return None,
        })
    }
}

/// A word and its arguments as they stand in a file, in one line.
pub(crate) fn line(word: &str, arguments: &toml::Table) -> String {
    let arguments = arguments.iter();
    let arguments = arguments.map(|(key, value)| format!(", {key} = {value}"));
    arguments.fold(word.to_owned(), |line, argument| line + &argument)
}

/// An action and its time. As TOML it is one table: `at`, `do`, and the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "toml::Table", into = "toml::Table")]
pub struct Planned {
    /// When.
    pub at: Millis,
    /// What.
    pub action: Action,
}

impl TryFrom<toml::Table> for Planned {
    type Error = String;

    fn try_from(mut fields: toml::Table) -> Result<Self, String> {
        let (at, word) = match (fields.remove("at"), fields.remove("do")) {
            (Some(toml::Value::String(at)), Some(toml::Value::String(word))) => (at, word),
            _ => return Err("an action has an `at` and a `do`".to_owned()),
        };
        let at = at.parse::<Length>()?.millis().ok_or("`at` is below zero")?;
        let tagged = toml::Table::from_iter([(word, toml::Value::Table(fields))]);
        let action = toml::Value::Table(tagged).try_into();
        let action = action.map_err(|error: toml::de::Error| error.to_string())?;
        Ok(Self { at, action })
    }
}

impl From<Planned> for toml::Table {
    fn from(Planned { at, action }: Planned) -> Self {
        let mut fields = Self::new();
        fields.insert("at".to_owned(), String::from(Length::from(at)).into());
        fields.insert("do".to_owned(), action.word().into());
        fields.extend(action.arguments());
        fields
    }
}

/// A share, written as a percentage: a number or a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "String")]
pub struct Percent(pub Share);

impl TryFrom<toml::Value> for Percent {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let number = || value.to_string();
        let text = value.as_str().map_or_else(number, str::to_owned);
        let share = Share::parse_percent(&text).map_err(|error| error.to_string())?;
        Ok(Self(share))
    }
}

impl From<Percent> for String {
    fn from(Percent(share): Percent) -> Self {
        share.to_string()
    }
}

/// What an entry weighs among its siblings, written as a number or a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "String")]
pub struct Parts(pub Weight);

impl TryFrom<toml::Value> for Parts {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let number = || value.to_string();
        let text = value.as_str().map_or_else(number, str::to_owned);
        let weight = Weight::parse(&text).map_err(|error| error.to_string())?;
        Ok(Self(weight))
    }
}

impl From<Parts> for String {
    fn from(Parts(weight): Parts) -> Self {
        weight.to_string()
    }
}

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Day(pub Date);

impl TryFrom<String> for Day {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let date = text.parse().map_err(|error| format!("`{text}`: {error}"))?;
        Ok(Self(date))
    }
}

impl From<Day> for String {
    fn from(Day(date): Day) -> Self {
        date.to_string()
    }
}

/// Jobs that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    /// A VO's name, or `local`.
    pub account: String,
    /// The group that they run for.
    pub group: String,
    /// The user.
    pub user: String,
    /// Cores of each.
    pub cores: u32,
    /// How long each has run.
    #[serde(with = "crate::length")]
    pub run: Millis,
    /// How many.
    pub count: usize,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            account: usual_vo(),
            group: "g0".to_owned(),
            user: "u0".to_owned(),
            cores: 1,
            run: Millis(3_600_000),
            count: 1,
        }
    }
}

impl Jobs {
    /// Their records, where they have run up to `end`; the first is called by that number.
    pub(crate) fn records(&self, first: u64, end: WallTime) -> Vec<UsageRecord> {
        let who = (self.group.as_str(), self.user.as_str());
        let ran = (end.before(self.run), end);
        let name = |index: usize| format!("asked {}", first + index as u64);
        (0..self.count)
            .map(|index| job(name(index), &self.account, who, ran, self.cores))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let nodes = vec![1, 2];
        let written = |at: u64, action: Action| {
            let planned = Planned {
                at: Millis(at),
                action,
            };
            let text = toml::to_string(&planned).expect("words and numbers");
            assert_eq!(toml::from_str(&text), Ok(planned));
            text
        };
        assert_eq!(
            written(90_000, Action::Crash { nodes }),
            "at = \"1m 30s\"\ndo = \"crash\"\nnodes = [1, 2]\n"
        );
        assert_eq!(written(0, Action::Heal {}), "at = \"0s\"\ndo = \"heal\"\n");
        let third = Parts(Share::from_ratio(1, 3).into());
        let text = written(
            1,
            Action::Policy {
                node: 0,
                vo: "vo-0".to_owned(),
                shares: BTreeMap::from([("/g0".to_owned(), third)]),
                usage: Some(Scope::Local),
                removed: vec!["/g1/u0".to_owned()],
                renamed: BTreeMap::from([("/g2".to_owned(), "/g3".to_owned())]),
                since: BTreeMap::from([("/g0".to_owned(), Day(Date(20_000)))]),
            },
        );
        assert!(text.contains("\"/g0\" = \"2024-10-04\""), "{text}");
        assert!(text.contains("\"33.3333333\""), "{text}");
        written(
            1,
            Action::Link {
                link: LinkSpec::ROUGH,
                from: vec![0],
                to: vec![1],
            },
        );
        let jobs = Jobs::default();
        let left = Millis(5);
        written(
            1,
            Action::Running {
                node: 3,
                jobs,
                left,
            },
        );
    }
}
