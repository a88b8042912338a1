//! Members that lie: what a site can say that is not so, and what must hold all the same.
//!
//! A liar is a member with its own key and a node that runs the real code. It lies through what it
//! feeds to that node (`check::lie`), through what it does to the messages that leave it (`script`),
//! or with forged statements of the protocol (`wire`, which knows its format).
//!
//! Invariant: whatever liars do, honest sites stay identical, count each other exactly, keep their
//! bounds of memory and disk, and let a liar move no more than its declared capacity. Each lie is a row
//! of one table. Liars go on for a while after the heal; those about clocks and questions never stop, and
//! who contradicts itself tells of no head any more.

use std::fmt;

use fairmesh_cluster::{Seed, Stream};
use serde::{Deserialize, Serialize};

mod caught;
mod rights;
mod script;
mod wire;

pub use rights::Forgers;
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
    /// What honest sites must tell their operators of the liar.
    pub named: Named,
    pub(crate) how: How,
}

/// Whether a liar is named, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// By a notice of this code that says this, beside its name.
    For(&'static str, &'static str),
    /// It is not, and why.
    Not(&'static str),
    /// There is nothing to name: its own node, which runs the real code, counts none of it.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Its own node is told.
    Told(Told),
    /// Its messages are changed.
    Sent(Sent),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forged {
    Contradiction,
    Ahead,
    Running,
    Incarnations,
    EmptyCells,
    OverClaim,
    FutureUsage,
    OldUsage,
    TakenBack,
    FalseProof,
    OtherSite,
    Stranger,
    Documents,
    ManyParts,
    WithheldParts,
    Largest,
    AskAgain,
    Bomb,
}

impl Forged {
    /// Whether it goes into answers, because it does not fit into a push.
    pub(crate) const fn is_served(self) -> bool {
        matches!(self, Self::ManyParts | Self::WithheldParts | Self::Largest)
    }

    /// Whether it is in what a push changes of the head before: who does not hold that one cannot read it.
    const fn is_change(self) -> bool {
        use Forged::{Bomb, EmptyCells, FutureUsage, OldUsage, OverClaim, TakenBack};
        matches!(
            self,
            Bomb | EmptyCells | OverClaim | FutureUsage | OldUsage | TakenBack
        )
    }
}

/// All lies.
pub const LIES: [Lie; 31] = [
    told(
        Told::OverReport,
        "over-report",
        "reports, over weeks, many times the jobs that its machines can run",
        Named::For("over-capacity", ""),
    ),
    told(
        Told::OverRunning,
        "over-running",
        "lists many times the running jobs that its machines can run, for years",
        EXPECTED,
    ),
    told(
        Told::OldJobs,
        "old-jobs",
        "reports jobs of 1970",
        Named::Nothing,
    ),
    told(
        Told::ManyAccounts,
        "many-accounts",
        "reports jobs of countless accounts",
        Named::Not("a site may have any accounts; what its heads hold is bounded"),
    ),
    told(
        Told::Relabelled,
        "relabelled",
        "reports its jobs for users of other groups",
        Named::Not("whose a job was only its own site knows"),
    ),
    told(
        Told::Restarts,
        "restarts",
        "starts its node again and again",
        A_START,
    ),
    told(
        Told::ClockAhead,
        "clock-ahead",
        "goes by a clock that is fifty years ahead",
        Named::For("clock-off", "ahead of ours"),
    ),
    told(
        Told::ClockBehind,
        "clock-behind",
        "goes by a clock that is fifty years behind",
        Named::For("clock-off", "behind ours"),
    ),
    told(
        Told::Prices,
        "prices",
        "says again and again that its queues are a thousand, and what they cost",
        Named::Not("an owner may change what his machines cost"),
    ),
    sent(
        Sent::Garbage,
        "garbage",
        "breaks every second message",
        A_LINK,
    ),
    sent(
        Sent::Replays,
        "replays",
        "pushes again what it has pushed before",
        A_LINK,
    ),
    sent(
        Sent::Withheld,
        "withheld",
        "pushes nothing, and answers half of what it is asked",
        A_LINK,
    ),
    sent(
        Sent::Unasked,
        "unasked",
        "sends its requests as answers to questions that nobody has asked",
        Named::Not("what was not asked for is dropped unread"),
    ),
    forged(
        Forged::Contradiction,
        "contradiction",
        "signs two heads with one number, of the same content and of other content, and then none",
        Named::For("site-forked", ""),
    ),
    forged(
        Forged::Ahead,
        "ahead",
        "signs heads that are years ahead",
        Named::For("clock-off", "ahead of ours"),
    ),
    forged(
        Forged::Running,
        "forged-running",
        "signs that its running jobs will use all that can be written",
        EXPECTED,
    ),
    forged(
        Forged::Incarnations,
        "incarnations",
        "signs heads of countless incarnations, of which none covers another",
        A_START,
    ),
    forged(
        Forged::EmptyCells,
        "empty-cells",
        "signs empty counters of countless accounts",
        Named::For("refused", "a cell of nothing"),
    ),
    forged(
        Forged::OverClaim,
        "over-claim",
        "signs that it has run, in each hour, all that can be written",
        Named::For("over-capacity", ""),
    ),
    forged(
        Forged::FutureUsage,
        "future-usage",
        "signs usage of windows that are years ahead",
        Named::For("refused", "in a time that has not come"),
    ),
    forged(
        Forged::OldUsage,
        "old-usage",
        "signs usage of 1970",
        Named::For("over-capacity", ""),
    ),
    forged(
        Forged::TakenBack,
        "taken-back",
        "takes back what it has published",
        Named::For("usage-taken-back", ""),
    ),
    forged(
        Forged::FalseProof,
        "false-proof",
        "passes on two honest heads as a proof that their site contradicts itself",
        Named::For("refused", "do not contradict each other"),
    ),
    forged(
        Forged::OtherSite,
        "other-site",
        "signs heads of another site",
        Named::For("refused", "valid signatures"),
    ),
    forged(
        Forged::Stranger,
        "stranger",
        "passes on heads of countless sites that are no members",
        Named::For("refused", "is not a member"),
    ),
    forged(
        Forged::Documents,
        "documents",
        "pushes documents as long as they may be, which no authority signed",
        Named::For("refused", ""),
    ),
    forged(
        Forged::ManyParts,
        "many-parts",
        "signs heads of more parts than one may have",
        Named::For("refused", "parts are more than"),
    ),
    forged(
        Forged::WithheldParts,
        "withheld-parts",
        "signs head after head of megabytes that it gives to nobody",
        A_LINK,
    ),
    forged(
        Forged::Largest,
        "largest",
        "signs heads that fill an answer, of parts that nobody can read",
        Named::Not("a later version may have kinds of parts that are not known here"),
    ),
    forged(
        Forged::AskAgain,
        "ask-again",
        "answers every pull with the wish to be asked again",
        Named::Not("who was started anew has forgotten what it was told, too"),
    ),
    forged(
        Forged::Bomb,
        "bomb",
        "pushes kilobytes that unpack to megabytes, and signs what they unpack to",
        Named::Not("a head may be larger than a push: it is pulled then"),
    ),
];

/// What running jobs will use is an estimate.
const EXPECTED: Named = Named::Not("what is expected is clamped, and claims no usage");

/// A node that is started has done nothing wrong.
const A_START: Named = Named::Not("a start is an incarnation, and a site may be cloned");

/// What links do, too.
const A_LINK: Named = Named::Not("a bad link does the same");

const fn told(how: Told, name: &'static str, does: &'static str, named: Named) -> Lie {
    Lie::of(How::Told(how), name, does, named)
}

const fn sent(how: Sent, name: &'static str, does: &'static str, named: Named) -> Lie {
    Lie::of(How::Sent(how), name, does, named)
}

const fn forged(how: Forged, name: &'static str, does: &'static str, named: Named) -> Lie {
    Lie::of(How::Forged(how), name, does, named)
}

impl Lie {
    const fn of(how: How, name: &'static str, does: &'static str, named: Named) -> Self {
        Self {
            name,
            does,
            named,
            how,
        }
    }

    /// Whether the liar's node runs the real code on a right clock and says what it thinks, so that it
    /// sees its VOs as honest sites do.
    pub(crate) fn sees_rightly(&self) -> bool {
        use Told::{ManyAccounts, OldJobs, OverReport, OverRunning, Prices, Relabelled};
        matches!(
            self.how,
            How::Told(OverReport | OverRunning | OldJobs | ManyAccounts | Relabelled | Prices)
        )
    }
}

/// The lie of that name.
pub fn named(name: &str) -> Option<&'static Lie> {
    LIES.iter().find(|lie| lie.name == name)
}

/// Which lies are drawn.
#[derive(Debug, Clone, Copy)]
pub enum Choice {
    /// Those that this core withstands, in a third of all seeds: all that there are.
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
        Choice::Withstood | Choice::All => true,
        Choice::One(one) => lie.name == one.name,
    };
    let lies: Vec<&'static Lie> = LIES.iter().filter(is_drawn).collect();
    lies[random.index(lies.len())]
}
