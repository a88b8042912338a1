//! Whether an expectation holds.
//!
//! Invariant: an answer says what is the case where it is not what was expected, and names the first
//! site at which it is not. Deliberately not here: waiting for agreement (`run`).

use fairmesh_site::Account;

use super::condition::known;
use super::expect::Expect;
use super::run::Run;
use crate::vo::{Vo, path, site_id};

impl Run<'_> {
    /// `Ok` with a remark where it holds, `Err` with what is the case where it does not.
    pub(super) fn judge(&self, expect: &Expect) -> Result<String, String> {
        match expect {
            Expect::Agree { vo, .. } => self.judge_agreement(vo.as_deref()),
            Expect::Differ { vo } => match self.judge_agreement(vo.as_deref()) {
                Ok(_) => Err("they agree".to_owned()),
                Err(_) => Ok(String::new()),
            },
            Expect::Total { nodes, vo } => self.each_known(nodes, vo, |known, acknowledged| {
                match known == acknowledged {
                    true => Ok(format!("{} core-h", known / 3_600_000)),
                    false => Err(format!("{known} core-ms of {acknowledged}")),
                }
            }),
            Expect::Less { nodes, vo } => self.each_known(nodes, vo, |known, acknowledged| {
                match known < acknowledged {
                    true => Ok(format!("{} %", known * 100 / acknowledged)),
                    false => Err(format!("{known} core-ms of {acknowledged}")),
                }
            }),
            Expect::NobodyRefused {} => self.each(&None, |node| {
                self.was_told(node, "refused")
                    .map_or(Ok(String::new()), Err)
            }),
            Expect::Down { nodes } => self.each(&Some(nodes.clone()), |node| {
                let stopped = self.world.node(node).stopped();
                let why = stopped.ok_or("it runs".to_owned())?;
                Ok(format!("{why:?}"))
            }),
            Expect::Fault { kind, least } => {
                at_least(self.world.faults().of(&kind.0), *least as u64)
            }
            of_nodes => self.judge_nodes(of_nodes),
        }
    }

    fn judge_nodes(&self, expect: &Expect) -> Result<String, String> {
        match expect {
            Expect::Notice { nodes, code } => self.each(nodes, |node| {
                self.was_told(node, code)
                    .ok_or("it was not told".to_owned())
            }),
            Expect::NoNotice { nodes, code } => self.each(nodes, |node| {
                self.was_told(node, code).map_or(Ok(String::new()), Err)
            }),
            Expect::Up { nodes } => self.each(nodes, |node| {
                let stopped = self.world.node(node).stopped();
                stopped.map_or(Ok(String::new()), |why| Err(format!("{why:?}")))
            }),
            Expect::Peers { nodes, count } => self.each(nodes, |node| {
                exactly(&self.world.peers_of(node).count(), count, "peers")
            }),
            Expect::SetAside { nodes, count } => self.each(nodes, |node| {
                exactly(&self.world.node(node).disk.set_aside(), count, "stores")
            }),
            Expect::Rejected { nodes, least } => self.each(nodes, |node| {
                at_least(self.world.node(node).verdicts.rejected, *least)
            }),
            Expect::Rows { nodes, most } => self.each(nodes, |node| {
                let rows = self.world.node(node).disk.rows().len();
                match rows <= *most {
                    true => Ok(format!("{rows}")),
                    false => Err(format!("{rows} rows")),
                }
            }),
            of_a_vo => self.judge_vo(of_a_vo),
        }
    }

    fn judge_vo(&self, expect: &Expect) -> Result<String, String> {
        match expect {
            Expect::Coverage {
                nodes,
                vo,
                received,
                younger_than,
            } => self.each(nodes, |node| {
                let site = self.world.site(node).ok_or("it is down")?;
                let since = self.world.now_at(node).wall.before(*younger_than);
                let coverage = site.coverage_of(self.one(vo)?.id);
                let fresh = coverage
                    .signed_at
                    .values()
                    .filter(|at| **at >= since)
                    .count();
                exactly(&fresh, received, "members")
            }),
            Expect::Share {
                nodes,
                vo,
                path: at,
                percent,
            } => self.each(nodes, |node| {
                let site = self.world.site(node).ok_or("it is down")?;
                let account = Account {
                    vo: Some(self.one(vo)?.id),
                    path: path(at),
                };
                let place = site.view().tree_path(&account).ok_or("no such place")?;
                let entry = site.compiled().get(&place).ok_or("no such entry")?;
                match entry.share == percent.0.into() {
                    true => Ok(String::new()),
                    false => Err(format!("it has {}", entry.share)),
                }
            }),
            Expect::Incarnations {
                nodes,
                vo,
                site,
                least,
                most,
            } => self.each(nodes, |node| {
                let holder = self.world.site(node).ok_or("it is down")?;
                let vectors = holder.vectors();
                let streams = vectors.get(&self.one(vo)?.id).ok_or("it holds nothing")?;
                let id = site_id(*site);
                let held = streams.keys().filter(|stream| stream.site == id).count();
                match (*least..=*most).contains(&held) {
                    true => Ok(format!("{held}")),
                    false => Err(format!("{held} incarnations")),
                }
            }),
            _ => unreachable!("the others are decided"),
        }
    }

    /// The VO of this name, or the only one.
    fn one<'a>(&'a self, name: &'a Option<String>) -> Result<&'a Vo, String> {
        let mut vos = self.wanted(name.as_deref());
        match (vos.next(), vos.next()) {
            (Some(vo), None) => Ok(vo),
            _ => Err("there are several VOs: name one".to_owned()),
        }
    }

    /// The VO of this name, or all.
    fn wanted<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a Vo> {
        let vos = self.world.founded_vos().iter();
        vos.filter(move |vo| name.is_none_or(|name| name == vo.spec.name))
    }

    fn judge_agreement(&self, vo: Option<&str>) -> Result<String, String> {
        match self.wanted(vo).find(|vo| !self.world.agree(vo.id)) {
            Some(vo) => Err(format!("they do not on VO {}", vo.spec.name)),
            None => Ok(String::new()),
        }
    }

    fn each_known(
        &self,
        nodes: &Option<Vec<usize>>,
        vo: &Option<String>,
        holds: impl Fn(u64, u64) -> Result<String, String>,
    ) -> Result<String, String> {
        let mut remark = String::new();
        for vo in self.wanted(vo.as_deref()) {
            let expected = self.feeds.acknowledged.get(&vo.id).copied().unwrap_or(0);
            let mounts = |node: &usize| {
                let mounted = &self.world.node(*node).config.vos;
                mounted.values().any(|of| *of == vo.id) && self.world.node(*node).is_up()
            };
            for node in self.nodes(nodes).filter(mounts) {
                let known = known(&self.world, node, vo.id);
                remark = holds(known, expected)
                    .map_err(|why| format!("site {node} knows {why} of VO {}", vo.spec.name))?;
            }
        }
        Ok(remark)
    }

    /// The remark of the first node, if it holds at all of them.
    fn each(
        &self,
        nodes: &Option<Vec<usize>>,
        holds: impl Fn(usize) -> Result<String, String>,
    ) -> Result<String, String> {
        let mut first = None;
        for node in self.nodes(nodes) {
            let remark = holds(node).map_err(|why| format!("site {node}: {why}"))?;
            first.get_or_insert(remark);
        }
        Ok(first.unwrap_or_default())
    }

    /// Those that are named, or all.
    fn nodes(&self, named: &Option<Vec<usize>>) -> impl Iterator<Item = usize> {
        let all = || (0..self.world.nodes().len()).collect();
        named.clone().unwrap_or_else(all).into_iter()
    }

    fn was_told(&self, node: usize, code: &str) -> Option<String> {
        let mut notices = self.world.node(node).notices.iter();
        let told = notices.find(|notice| notice.code() == code);
        told.map(ToString::to_string)
    }
}

fn exactly<T: PartialEq + std::fmt::Display>(
    found: &T,
    expected: &T,
    what: &str,
) -> Result<String, String> {
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
