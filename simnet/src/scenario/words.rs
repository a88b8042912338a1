//! The words of steps: from `do` and `expect` to what they mean.
//!
//! Invariant: every task and every expectation has one word, and takes only the arguments that it
//! needs. Deliberately not here: what is done (`act`), whether it held (`judge`), and
//! lines for people (`show`).

use fairmesh_model::{AccountPath, Millis};

use super::What;
use super::args::Args;
use super::error::ScenarioError;
use super::expect::{Expect, Knowledge};
use super::length::Length;
use super::raw::RawLink;
use super::task::{Jobs, LinkChange, NodeTask, Task};
use crate::network::LinkSpec;
use crate::world::FaultKind;

/// What may stand behind `do`.
const TASKS: &str = "partition, island, cut_one_way, heal_network, heal, link, calm_links, start, \
    stop, crash, crash_within, restart, bridge, clock_jump, clock_drift, clock_correct, flip_bit, \
    fill_disk, make_room, wipe, backup, restore_backup, reconfigure, report, running, policy, \
    charter, pause_load, resume_load, flood, end_flood, tick";

/// What may stand behind `expect`.
const EXPECTS: &str = "agree, differ, total, less, notice, no_notice, coverage, nobody_refused, up, \
    down, peers, set_aside, share, lives, rejected, fault, rows";

/// Kinds of faults by their words.
const FAULTS: [(&str, FaultKind); 20] = [
    ("loss", FaultKind::Loss),
    ("duplication", FaultKind::Duplication),
    ("reordering", FaultKind::Reordering),
    ("replay", FaultKind::Replay),
    ("clogged", FaultKind::Clogged),
    ("partition", FaultKind::Partition),
    ("island", FaultKind::Island),
    ("one-way cut", FaultKind::OneWayCut),
    ("bridge", FaultKind::Bridge),
    ("link changed", FaultKind::LinkChanged),
    ("crash", FaultKind::Crash),
    ("lost write", FaultKind::LostWrite),
    ("kept write", FaultKind::KeptWrite),
    ("bit flip", FaultKind::BitFlip),
    ("store set aside", FaultKind::SetAside),
    ("disk full", FaultKind::DiskFull),
    ("wipe", FaultKind::Wipe),
    ("backup restored", FaultKind::BackupRestored),
    ("clock jump", FaultKind::ClockJump),
    ("clock drift", FaultKind::ClockDrift),
];

/// The word for a kind of fault.
pub fn fault_word(kind: FaultKind) -> &'static str {
    let known = FAULTS.iter().find(|(_, of)| *of == kind);
    known.expect("all kinds are listed").0
}

/// What a step says.
pub(super) fn read(args: &Args<'_>) -> Result<What, ScenarioError> {
    let task: Option<String> = args.maybe("do")?;
    let expect: Option<String> = args.maybe("expect")?;
    let what = match (task, expect) {
        (Some(word), None) => read_task(args, &word).map(What::Do)?,
        (None, Some(word)) => read_expect(args, &word).map(What::Expect)?,
        _ => return Err(args.error("do", "a step has either a `do` or an `expect`".to_owned())),
    };
    args.done("this step")?;
    Ok(what)
}

fn read_task(args: &Args<'_>, word: &str) -> Result<Task, ScenarioError> {
    if let Some(task) = read_node_task(args, word)? {
        let nodes = args.some_nodes()?;
        return Ok(Task::Nodes { nodes, task });
    }
    Ok(match word {
        "partition" => Task::Partition(args.sets("sets")?),
        "island" => Task::Island(args.some_nodes()?),
        "cut_one_way" => Task::CutOneWay {
            from: args.list("from")?,
            to: args.list("to")?,
        },
        "heal_network" => Task::HealNetwork,
        "heal" => Task::Heal,
        "link" => Task::Link(read_link(args)?),
        "calm_links" => Task::Link(LinkChange::Calm),
        "report" => Task::Report {
            node: args.node()?,
            jobs: read_jobs(args)?,
        },
        "running" => Task::Running {
            node: args.node()?,
            jobs: read_jobs(args)?,
            left: args.length("left")?,
        },
        "policy" => Task::Policy {
            node: args.node()?,
            vo: args.vo()?,
            shares: args.shares("shares")?,
        },
        "charter" => Task::Charter {
            node: args.node()?,
            vo: args.vo()?,
            add: args.list_or_none("add")?,
            remove: args.list_or_none("remove")?,
        },
        "pause_load" => Task::PauseLoad(args.nodes()?),
        "resume_load" => Task::ResumeLoad(args.nodes()?),
        "flood" => Task::Flood {
            node: args.node()?,
            messages: args.need("messages")?,
        },
        "end_flood" => Task::EndFlood,
        "tick" => Task::Tick(args.length("least")?),
        _ => return Err(args.error("do", format!("there is no task `{word}`: {TASKS}"))),
    })
}

fn read_node_task(args: &Args<'_>, word: &str) -> Result<Option<NodeTask>, ScenarioError> {
    Ok(Some(match word {
        "start" => NodeTask::Start,
        "stop" => NodeTask::Stop,
        "crash" => NodeTask::Crash,
        "crash_within" => NodeTask::CrashWithin {
            effects: args.need("effects")?,
        },
        "restart" => NodeTask::Restart,
        "bridge" => NodeTask::Bridge,
        "clock_jump" => NodeTask::ClockJump {
            by_ms: args.need::<Length>("by")?.0,
        },
        "clock_drift" => NodeTask::ClockDrift {
            ppm: args.need("ppm")?,
        },
        "clock_correct" => NodeTask::ClockCorrect,
        "flip_bit" => NodeTask::FlipBit,
        "fill_disk" => NodeTask::FillDisk {
            room_bytes: args.need("room_bytes")?,
        },
        "make_room" => NodeTask::MakeRoom,
        "wipe" => NodeTask::Wipe {
            keeps_side: args.maybe("keeps_side")?.unwrap_or(false),
        },
        "backup" => NodeTask::Backup,
        "restore_backup" => NodeTask::RestoreBackup {
            keeps_side: args.maybe("keeps_side")?.unwrap_or(false),
        },
        "reconfigure" => NodeTask::Reconfigure {
            vo_share: args.share("vo_share")?,
        },
        _ => return Ok(None),
    }))
}

fn read_link(args: &Args<'_>) -> Result<LinkChange, ScenarioError> {
    let link: RawLink = args.need("link")?;
    let link: LinkSpec = link.spec().map_err(|problem| args.error("link", problem))?;
    let (from, to) = (args.list_or_none("from")?, args.list_or_none("to")?);
    match (from.is_empty(), to.is_empty()) {
        (true, true) => Ok(LinkChange::Usual(link)),
        (false, false) => Ok(LinkChange::Between { from, to, link }),
        _ => Err(args.error("from", "give `from` and `to`, or neither".to_owned())),
    }
}

fn read_jobs(args: &Args<'_>) -> Result<Jobs, ScenarioError> {
    let account: Option<String> = args.maybe("account")?;
    let account = account.unwrap_or_else(|| args.vos[0].name.clone());
    if account != "local" && !args.vos.iter().any(|vo| vo.name == account) {
        let problem = "it is the name of a VO, or local".to_owned();
        return Err(args.error("account", problem));
    }
    Ok(Jobs {
        account,
        group: args.maybe("group")?.unwrap_or_else(|| "g0".to_owned()),
        user: args.maybe("user")?.unwrap_or_else(|| "u0".to_owned()),
        cores: args.maybe("cores")?.unwrap_or(1),
        run: args.length_or("run", Millis(3_600_000))?,
        count: args.maybe("jobs")?.unwrap_or(1),
    })
}

fn read_expect(args: &Args<'_>, word: &str) -> Result<Expect, ScenarioError> {
    let knowledge = || -> Result<Knowledge, ScenarioError> {
        Ok(Knowledge {
            nodes: args.nodes()?,
            vo: args.maybe_vo()?,
        })
    };
    Ok(match word {
        "agree" => Expect::Agree {
            vo: args.maybe_vo()?,
            within: args.length_or("within", Millis(0))?,
        },
        "differ" => Expect::Differ {
            vo: args.maybe_vo()?,
        },
        "total" => Expect::Total(knowledge()?),
        "less" => Expect::Less(knowledge()?),
        "notice" => Expect::Notice {
            nodes: args.nodes()?,
            code: args.need("code")?,
        },
        "no_notice" => Expect::NoNotice {
            nodes: args.nodes()?,
            code: args.need("code")?,
        },
        "coverage" => Expect::Coverage {
            nodes: args.nodes()?,
            vo: args.vo()?,
            heard: args.need("heard")?,
            younger_than: args.length("younger_than")?,
        },
        "nobody_refused" => Expect::NobodyRefused,
        "up" => Expect::Up(args.nodes()?),
        "down" => Expect::Down(args.some_nodes()?),
        "peers" => Expect::Peers {
            nodes: args.nodes()?,
            count: args.need("count")?,
        },
        "set_aside" => Expect::SetAside {
            nodes: args.nodes()?,
            count: args.need("count")?,
        },
        _ => return read_rare_expect(args, word),
    })
}

fn read_rare_expect(args: &Args<'_>, word: &str) -> Result<Expect, ScenarioError> {
    Ok(match word {
        "share" => {
            let path: String = args.need("path")?;
            AccountPath::parse(&path).map_err(|error| args.error("path", error.to_string()))?;
            Expect::Share {
                nodes: args.nodes()?,
                vo: args.vo()?,
                path,
                share: args.share("percent")?,
            }
        }
        "lives" => Expect::Lives {
            nodes: args.nodes()?,
            vo: args.vo()?,
            site: args.need("site")?,
            least: args.maybe("least")?.unwrap_or(1),
            most: args.need("most")?,
        },
        "rejected" => Expect::Rejected {
            nodes: args.nodes()?,
            least: args.need("least")?,
        },
        "fault" => {
            let word: String = args.need("kind")?;
            let kind = FAULTS.iter().find(|(known, _)| *known == word);
            let known = || {
                let words: Vec<&str> = FAULTS.iter().map(|(word, _)| *word).collect();
                args.error("kind", format!("it is one of: {}", words.join(", ")))
            };
            Expect::Fault {
                kind: kind.ok_or_else(known)?.1,
                least: args.maybe("least")?.unwrap_or(1),
            }
        }
        "rows" => Expect::Rows {
            nodes: args.nodes()?,
            most: args.need("most")?,
        },
        _ => {
            let problem = format!("nothing is called `{word}`: {EXPECTS}");
            return Err(args.error("expect", problem));
        }
    })
}
