//! Steps as lines for people.
//!
//! Invariant: a line says what a step does to whom; it never names a seed or a machine.
//! Deliberately not here: the form of the file (`words`).

use std::fmt;

use fairmesh_model::Millis;

use super::expect::Expect;
use super::length::length;
use super::task::{Jobs, LinkChange, NodeTask, Task};
use super::words::fault_word;

/// Sites as people read them: `site 3`, `sites 1 2 3`.
struct Sites<'a>(&'a [usize]);

impl fmt::Display for Sites<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(usize::to_string).collect();
        let many = if words.len() == 1 { "" } else { "s" };
        write!(f, "site{many} {}", words.join(" "))
    }
}

impl fmt::Display for NodeTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Stop => f.write_str("stop"),
            Self::Crash => f.write_str("crash"),
            Self::CrashWithin { effects } => write!(f, "crash within {effects} effects"),
            Self::Restart => f.write_str("crash and start again"),
            Self::Bridge => f.write_str("a bridge over all cuts"),
            Self::ClockJump { by_ms } => {
                let sign = if *by_ms < 0 { "-" } else { "" };
                write!(
                    f,
                    "clock jumps by {sign}{}",
                    length(Millis(by_ms.unsigned_abs()))
                )
            }
            Self::ClockDrift { ppm } => write!(f, "clock drifts by {ppm} ppm"),
            Self::ClockCorrect => f.write_str("clock set right"),
            Self::FlipBit => f.write_str("a bit flips on disk"),
            Self::FillDisk { room_bytes } => write!(f, "disk has {room_bytes} bytes left"),
            Self::MakeRoom => f.write_str("disk has room again"),
            Self::Wipe { keeps_side: true } => f.write_str("store wiped, side file kept"),
            Self::Wipe { keeps_side: false } => f.write_str("disk wiped"),
            Self::Backup => f.write_str("backup taken"),
            Self::RestoreBackup { keeps_side: true } => {
                f.write_str("backup restored, side file kept")
            }
            Self::RestoreBackup { keeps_side: false } => f.write_str("backup restored"),
            Self::Reconfigure { vo_share } => write!(f, "owner gives VOs {vo_share} %"),
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes { nodes, task } => write!(f, "{}: {task}", Sites(nodes)),
            Self::Partition(sets) => {
                let sides: Vec<String> = sets.iter().map(|set| Sites(set).to_string()).collect();
                write!(f, "network cut: {} | rest", sides.join(" | "))
            }
            Self::Island(nodes) => write!(f, "{}: cut off from all others", Sites(nodes)),
            Self::CutOneWay { from, to } => {
                write!(f, "{} no longer reach {}", Sites(from), Sites(to))
            }
            Self::HealNetwork => f.write_str("network heals"),
            Self::Heal => f.write_str("everything is put right"),
            Self::Link(LinkChange::Usual(_)) => f.write_str("links change"),
            Self::Link(LinkChange::Between { from, to, .. }) => {
                write!(f, "links from {} to {} change", Sites(from), Sites(to))
            }
            Self::Link(LinkChange::Calm) => f.write_str("links are calm"),
            Self::Report { node, jobs } => write!(f, "site {node} reports {jobs}"),
            Self::Running { node, jobs, left } => {
                write!(f, "site {node} runs {jobs} for {} more", length(*left))
            }
            Self::Policy { node, shares, .. } => {
                let shares: Vec<String> = shares
                    .iter()
                    .map(|(path, share)| format!("{path} = {share} %"))
                    .collect();
                write!(f, "new policy at site {node}: {}", shares.join(", "))
            }
            Self::Charter {
                node, add, remove, ..
            } => {
                write!(f, "new charter at site {node}:")?;
                if !remove.is_empty() {
                    write!(f, " without {}", Sites(remove))?;
                }
                if !add.is_empty() {
                    write!(f, " with {}", Sites(add))?;
                }
                Ok(())
            }
            Self::PauseLoad(nodes) => write!(f, "{}: feeds pause", Sites(nodes)),
            Self::ResumeLoad(nodes) => write!(f, "{}: feeds go on", Sites(nodes)),
            Self::Flood { node, messages } => {
                write!(
                    f,
                    "site {node} sends {messages} messages of nonsense at every tick"
                )
            }
            Self::EndFlood => f.write_str("the flood ends"),
            Self::Tick(least) => write!(f, "ticks come every {} at most", length(*least)),
        }
    }
}

impl fmt::Display for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = if self.count == 1 { "" } else { "s" };
        write!(
            f,
            "{} job{many} of {} /{}/{}",
            self.count, self.account, self.group, self.user
        )
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agree { within, .. } if *within == Millis(0) => f.write_str("all agree"),
            Self::Agree { within, .. } => write!(f, "all agree within {}", length(*within)),
            Self::Differ { .. } => f.write_str("sites differ"),
            Self::Total(_) => f.write_str("all that was acknowledged is known, to the unit"),
            Self::Less(known) => write!(f, "{}: not all is known", Sites(&known.nodes)),
            Self::Notice { nodes, code } => write!(f, "{}: told `{code}`", Sites(nodes)),
            Self::NoNotice { nodes, code } => write!(f, "{}: not told `{code}`", Sites(nodes)),
            Self::Coverage {
                nodes,
                heard,
                younger_than,
                ..
            } => write!(
                f,
                "{}: heard of {heard} members in the last {}",
                Sites(nodes),
                length(*younger_than)
            ),
            Self::NobodyRefused => f.write_str("nobody was refused"),
            Self::Up(nodes) => write!(f, "{}: running", Sites(nodes)),
            Self::Down(nodes) => write!(f, "{}: down", Sites(nodes)),
            Self::Peers { nodes, count } => write!(f, "{}: {count} peers", Sites(nodes)),
            Self::SetAside { nodes, count } => {
                write!(f, "{}: {count} stores set aside", Sites(nodes))
            }
            Self::Share { path, share, .. } => write!(f, "{path} has {share} %"),
            Self::Lives {
                site, least, most, ..
            } => write!(f, "site {site} has had {least} to {most} lives"),
            Self::Rejected { nodes, least } => {
                write!(f, "{}: rejected {least} pushes or more", Sites(nodes))
            }
            Self::Fault { kind, least } => {
                write!(
                    f,
                    "`{}` has happened {least} times or more",
                    fault_word(*kind)
                )
            }
            Self::Rows { nodes, most } => write!(f, "{}: at most {most} rows", Sites(nodes)),
        }
    }
}
