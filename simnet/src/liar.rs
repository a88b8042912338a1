//! Members that lie: what a site can say that is not so, and what must hold all the same.
//!
//! A liar is a member with its own key and a node that runs the real code. It lies through what it
//! feeds to that node (`check::lie`), through what it does to the messages that leave it (`script`),
//! or with forged statements of the protocol (`wire`, the one file that knows its format).
//!
//! Invariant: whatever liars do, honest sites stay identical, count each other exactly, keep their
//! bounds of memory and disk, and let a liar move no more than its declared capacity. Each lie is a row
//! of one table. Those that this core does not withstand say why, and are drawn only when asked for.

use std::fmt;

use fairmesh_cluster::{Seed, Stream};
use serde::{Deserialize, Serialize};

mod script;
mod wire;

pub(crate) use script::Liars;

/// Cores that charters declare for a liar: few enough that a lie about them shows.
pub(crate) const LIAR_CORES: u32 = 1_000;

/// A lie of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Liar {
    /// Who.
    pub site: usize,
    /// The name of what it does.
    pub lie: String,
}

/// A row of the table.
#[derive(Debug)]
pub struct Lie {
    /// Its name.
    pub name: &'static str,
    /// What the liar does.
    pub does: &'static str,
    /// Whether honest sites must name the liar to their operators.
    pub is_named: bool,
    /// Why this core does not withstand it; `None` where it does.
    pub weakness: Option<&'static str>,
    pub(crate) how: How,
}

/// By what means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Its own node is told.
    Told(Told),
    /// Its messages are changed.
    Sent(Sent),
    /// Statements are forged.
    Forged(Forged),
}

/// What the liar's own node is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    OverReport,
    OverRunning,
    OldJobs,
    ManyAccounts,
    Relabelled,
    Restarts,
    ClockAhead,
    ClockBehind,
    Prices,
}

/// What becomes of messages that leave the liar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Garbage,
    Replays,
    Withheld,
    Unasked,
}

/// What is forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forged {
    Contradiction,
    Ahead,
    Running,
    Incarnations,
    EmptyCells,
    TakenBack,
    OtherSite,
    Stranger,
    Documents,
    AskAgain,
}

/// All lies.
pub const LIES: [Lie; 23] = [
    told(
        Told::OverReport,
        "over-report",
        "reports jobs of all cores that can be written, over weeks",
    ),
    told(
        Told::OverRunning,
        "over-running",
        "lists running jobs of all cores that can be written, for years",
    )
    .weak("lists of running jobs have no bound of amount or date"),
    told(Told::OldJobs, "old-jobs", "reports jobs of 1970"),
    told(
        Told::ManyAccounts,
        "many-accounts",
        "reports jobs of countless accounts",
    ),
    told(
        Told::Relabelled,
        "relabelled",
        "reports its jobs for users of other groups",
    ),
    told(
        Told::Restarts,
        "restarts",
        "starts its node again and again",
    ),
    told(
        Told::ClockAhead,
        "clock-ahead",
        "goes by a clock that is fifty years ahead",
    )
    .weak("two members whose clocks are ahead make each other believe them, and everybody forget"),
    told(
        Told::ClockBehind,
        "clock-behind",
        "goes by a clock that is fifty years behind",
    ),
    told(
        Told::Prices,
        "prices",
        "says again and again that its queues are a thousand, and what they cost",
    ),
    sent(Sent::Garbage, "garbage", "breaks every second message"),
    sent(
        Sent::Replays,
        "replays",
        "pushes again what it has pushed before",
    ),
    sent(
        Sent::Withheld,
        "withheld",
        "pushes nothing, and answers half of what it is asked",
    ),
    sent(
        Sent::Unasked,
        "unasked",
        "sends its requests as answers to questions that nobody has asked",
    ),
    forged(
        Forged::Contradiction,
        "contradiction",
        "signs two statements with one number",
        true,
    ),
    forged(
        Forged::Ahead,
        "ahead",
        "signs statements that are years ahead",
        true,
    )
    .weak(
        "heartbeats are believed whatever moment they name: two such members make everybody forget",
    ),
    forged(
        Forged::Running,
        "forged-running",
        "signs that its running jobs will use all that can be written",
        true,
    )
    .weak("lists of running jobs have no bound, and count though the VO does not look ahead"),
    forged(
        Forged::Incarnations,
        "incarnations",
        "signs statements of countless incarnations",
        false,
    )
    .weak("up to 1,024 streams of each member are kept, and all are told of in every exchange"),
    forged(
        Forged::EmptyCells,
        "empty-cells",
        "signs empty counters of countless accounts",
        true,
    )
    .weak("empty counters pass every check, and are kept and compared like others"),
    forged(
        Forged::TakenBack,
        "taken-back",
        "takes back what it has published",
        true,
    )
    .weak(
        "a member may declare its streams over at any time: what they counted goes without a word",
    ),
    forged(
        Forged::OtherSite,
        "other-site",
        "signs statements of another site",
        true,
    ),
    forged(
        Forged::Stranger,
        "stranger",
        "passes on statements of a site that is no member",
        true,
    ),
    forged(
        Forged::Documents,
        "documents",
        "pushes documents as long as they may be, which no authority signed",
        true,
    ),
    forged(
        Forged::AskAgain,
        "ask-again",
        "answers every pull with the wish to be asked again",
        false,
    ),
];

const fn told(how: Told, name: &'static str, does: &'static str) -> Lie {
    Lie {
        name,
        does,
        is_named: false,
        weakness: None,
        how: How::Told(how),
    }
}

const fn sent(how: Sent, name: &'static str, does: &'static str) -> Lie {
    Lie {
        name,
        does,
        is_named: false,
        weakness: None,
        how: How::Sent(how),
    }
}

const fn forged(how: Forged, name: &'static str, does: &'static str, is_named: bool) -> Lie {
    Lie {
        name,
        does,
        is_named,
        weakness: None,
        how: How::Forged(how),
    }
}

impl Lie {
    /// A lie that this core does not withstand, and why.
    const fn weak(mut self, why: &'static str) -> Self {
        self.weakness = Some(why);
        self
    }
}

/// The lie of that name.
pub fn named(name: &str) -> Option<&'static Lie> {
    LIES.iter().find(|lie| lie.name == name)
}

/// Which lies are drawn.
#[derive(Debug, Clone, Copy)]
pub enum Choice {
    /// Those that this core withstands, in a third of all seeds.
    Withstood,
    /// Any, in all seeds.
    All,
    /// This one, in all seeds.
    One(&'static Lie),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Withstood => "withstood",
            Self::All => "all",
            Self::One(lie) => lie.name,
        })
    }
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "withstood" => Ok(Self::Withstood),
            "all" => Ok(Self::All),
            name => named(name).map(Self::One).ok_or_else(|| {
                let names: Vec<_> = LIES.iter().map(|lie| lie.name).collect();
                format!("`all`, `withstood`, or one of {}", names.join(", "))
            }),
        }
    }
}

/// Draws who lies, and how: up to a third of the sites.
pub(crate) fn draw(seed: Seed, sites: usize, choice: Choice) -> Vec<Liar> {
    let mut random = seed.stream("swarm liars");
    let is_drawn = random.below(3) == 0 || !matches!(choice, Choice::Withstood);
    if sites < 3 || !is_drawn {
        return Vec::new();
    }
    let count = 1 + random.index(sites / 3);
    let first = random.index(sites);
    let liar = |index: usize| Liar {
        site: (first + index) % sites,
        lie: pick(&mut random, choice).name.to_owned(),
    };
    (0..count).map(liar).collect()
}

fn pick(random: &mut Stream, choice: Choice) -> &'static Lie {
    let is_drawn = |lie: &&Lie| match choice {
        Choice::Withstood => lie.weakness.is_none(),
        Choice::All => true,
        Choice::One(one) => lie.name == one.name,
    };
    let lies: Vec<&'static Lie> = LIES.iter().filter(is_drawn).collect();
    lies[random.index(lies.len())]
}
