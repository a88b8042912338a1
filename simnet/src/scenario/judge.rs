//! Whether an expectation holds.
//!
//! Invariant: an answer says what is the case where it is not what was expected, and names the first
//! site at which it is not. Deliberately not here: waiting for agreement (`run`).

use fairmesh_model::VoId;
use fairmesh_site::Account;

use super::condition::known;
use super::expect::{Expect, Knowledge};
use super::run::Run;
use crate::vo::{path, site_id};

impl Run<'_> {
    /// `Ok` with a remark where it holds, `Err` with what is the case where it does not.
    pub(super) fn judge(&self, expect: &Expect) -> Result<String, String> {
        match expect {
            Expect::Agree { vo, .. } => self.judge_agreement(*vo),
            Expect::Differ { vo } => match self.judge_agreement(*vo) {
                Ok(_) => Err("they agree".to_owned()),
                Err(_) => Ok(String::new()),
            },
            Expect::Total(known) => self.judge_total(known),
            Expect::Less(known) => self.judge_less(known),
            Expect::Notice { nodes, code } => self.each(nodes, |node| {
                self.was_told(node, code)
                    .ok_or("it was not told".to_owned())
            }),
            Expect::NoNotice { nodes, code } => self.each(nodes, |node| {
                self.was_told(node, code).map_or(Ok(String::new()), Err)
            }),
            Expect::NobodyRefused => self.each(&self.everybody(), |node| {
                self.was_told(node, "refused")
                    .map_or(Ok(String::new()), Err)
            }),
            Expect::Up(nodes) => self.each(nodes, |node| {
                let stopped = self.world.node(node).stopped();
                stopped.map_or(Ok(String::new()), |why| Err(format!("{why:?}")))
            }),
            Expect::Down(nodes) => self.each(nodes, |node| {
                let stopped = self.world.node(node).stopped();
                let why = stopped.ok_or("it runs".to_owned())?;
                Ok(format!("{why:?}"))
            }),
            Expect::Peers { nodes, count } => self.each(nodes, |node| {
                exactly(self.world.peers_of(node).count(), *count, "peers")
            }),
            Expect::SetAside { nodes, count } => self.each(nodes, |node| {
                let set_aside = self.world.node(node).disk.set_aside();
                exactly(
                    usize::try_from(set_aside).unwrap_or(usize::MAX),
                    *count,
                    "stores",
                )
            }),
            other => self.judge_rare(other),
        }
    }

    fn judge_rare(&self, expect: &Expect) -> Result<String, String> {
        match expect {
            Expect::Coverage {
                nodes,
                vo,
                heard,
                younger_than,
            } => self.each(nodes, |node| {
                let site = self.world.site(node).ok_or("it is down")?;
                let since = self.world.now_at(node).wall.before(*younger_than);
                let coverage = site.coverage_of(self.vos[*vo].id);
                let fresh = coverage.heard.values().filter(|at| **at >= since).count();
                exactly(fresh, *heard, "members")
            }),
            Expect::Share {
                nodes,
                vo,
                path: at,
                share,
            } => self.each(nodes, |node| {
                let site = self.world.site(node).ok_or("it is down")?;
                let account = Account {
                    vo: Some(self.vos[*vo].id),
                    path: path(at),
                };
                let place = site.view().tree_path(&account).ok_or("no such place")?;
                let entry = site.compiled().get(&place).ok_or("no such entry")?;
                match entry.share == *share {
                    true => Ok(String::new()),
                    false => Err(format!("it has {} %", entry.share)),
                }
            }),
            Expect::Lives {
                nodes,
                vo,
                site,
                least,
                most,
            } => self.each(nodes, |node| {
                let holder = self.world.site(node).ok_or("it is down")?;
                let vectors = holder.vectors();
                let streams = vectors.get(&self.vos[*vo].id).ok_or("it holds nothing")?;
                let id = site_id(*site);
                let lives = streams.keys().filter(|stream| stream.site == id).count();
                match (*least..=*most).contains(&lives) {
                    true => Ok(format!("{lives}")),
                    false => Err(format!("{lives} lives")),
                }
            }),
            Expect::Rejected { nodes, least } => self.each(nodes, |node| {
                at_least(self.world.node(node).verdicts.rejected, *least)
            }),
            Expect::Fault { kind, least } => at_least(self.world.faults().of(*kind), *least),
            Expect::Rows { nodes, most } => self.each(nodes, |node| {
                let rows = self.world.node(node).disk.rows().len();
                match rows <= *most {
                    true => Ok(format!("{rows}")),
                    false => Err(format!("{rows} rows")),
                }
            }),
            _ => unreachable!("`judge` has decided the others"),
        }
    }

    fn judge_agreement(&self, vo: Option<usize>) -> Result<String, String> {
        let wanted = vo.map(|vo| self.vos[vo].id);
        let of = |vo: &VoId| wanted.is_none_or(|wanted| wanted == *vo);
        match self
            .world
            .vos()
            .into_iter()
            .filter(of)
            .find(|vo| !self.world.agree(*vo))
        {
            Some(vo) => Err(format!("they do not on VO {}", self.name_of(vo))),
            None => Ok(String::new()),
        }
    }

    fn judge_total(&self, of: &Knowledge) -> Result<String, String> {
        self.each_known(of, |known, acknowledged| match known == acknowledged {
            true => Ok(format!("{} core-h", known / 3_600_000)),
            false => Err(format!("{known} core-ms of {acknowledged}")),
        })
    }

    fn judge_less(&self, of: &Knowledge) -> Result<String, String> {
        self.each_known(of, |known, acknowledged| match known < acknowledged {
            true => Ok(format!("{} %", known * 100 / acknowledged)),
            false => Err(format!("{known} core-ms of {acknowledged}")),
        })
    }

    fn each_known(
        &self,
        of: &Knowledge,
        holds: impl Fn(u64, u64) -> Result<String, String>,
    ) -> Result<String, String> {
        let wanted = of.vo.map(|vo| self.vos[vo].id);
        let mut remark = String::new();
        for vo in &self.vos {
            if wanted.is_some_and(|wanted| wanted != vo.id) {
                continue;
            }
            let expected = self.feeds.acknowledged.get(&vo.id).copied().unwrap_or(0);
            let mounts = |node: &&usize| {
                let mounted = &self.world.node(**node).config.vos;
                mounted.values().any(|of| *of == vo.id) && self.world.node(**node).is_up()
            };
            for node in of.nodes.iter().filter(mounts) {
                let known = known(&self.world, *node, vo.id);
                remark = holds(known, expected)
                    .map_err(|why| format!("site {node} knows {why} of VO {}", vo.spec.name))?;
            }
        }
        Ok(remark)
    }

    /// The remark of the first node, if it holds at all of them.
    fn each(
        &self,
        nodes: &[usize],
        holds: impl Fn(usize) -> Result<String, String>,
    ) -> Result<String, String> {
        let mut first = None;
        for node in nodes {
            let remark = holds(*node).map_err(|why| format!("site {node}: {why}"))?;
            first.get_or_insert(remark);
        }
        Ok(first.unwrap_or_default())
    }

    fn was_told(&self, node: usize, code: &str) -> Option<String> {
        let mut notices = self.world.node(node).notices.iter();
        let told = notices.find(|notice| notice.code() == code);
        told.map(ToString::to_string)
    }

    fn everybody(&self) -> Vec<usize> {
        (0..self.world.nodes().len()).collect()
    }

    fn name_of(&self, vo: VoId) -> String {
        let known = self.vos.iter().find(|known| known.id == vo);
        known.map_or_else(|| vo.short().to_string(), |vo| vo.spec.name.clone())
    }
}

fn exactly(found: usize, expected: usize, what: &str) -> Result<String, String> {
    match found == expected {
        true => Ok(String::new()),
        false => Err(format!("{found} {what}")),
    }
}

fn at_least(found: u64, least: u64) -> Result<String, String> {
    match found >= least {
        true => Ok(format!("{found}")),
        false => Err(format!("{found} times")),
    }
}
