//! What `fairmesh pbs setup` says.
//!
//! Deliberately not here: the loops (`fairmesh_schedulers::pbs`), and the commands, which are those of every such system
//! (`schedulers::command`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

use fairmesh_api::finding::Code;
use fairmesh_node::config::Config;
use fairmesh_node::config::pbs::PbsTable;
use fairmesh_schedulers::Scheduler as _;
use fairmesh_schedulers::pbs::{HOOK, Pbs, PbsSettings};

use crate::schedulers::command::System;

/// Where `qmgr` takes the hook from: a folder that nobody else can write into.
const HOOK_FILE: &str = "/etc/fairmesh/pbs-hook.py";

impl System for Pbs {
    type Settings = PbsSettings;
    const TITLE: &'static str = "PBS";
    const CODES: [Code; 5] = [
        Code::PbsAway,
        Code::PbsSetup,
        Code::PbsUnmapped,
        Code::PbsRange,
        Code::PbsCapacity,
    ];

    fn table(config: &Config) -> Option<&PbsTable> {
        config.pbs.as_ref()
    }

    fn of(settings: PbsSettings) -> Self {
        Self::new(settings)
    }

    async fn setup(&self, out: &mut dyn Write) -> anyhow::Result<Vec<(String, String)>> {
        writeln!(out, "==> {HOOK_FILE} <==\n{HOOK}\n==> qmgr <==")?;
        for line in self.settings.wanted(HOOK_FILE) {
            writeln!(out, "{line}")?;
        }
        let resource = &self.settings.resource;
        let mut seen = BTreeMap::new();
        for (kind, of) in [
            ("resource", resource.as_str()),
            ("server", "job_sort_formula"),
            ("sched", "job_sort_formula"),
            ("hook", "fairmesh"),
        ] {
            // What cannot be asked for is not there; whether the server is, the queue says.
            let attributes = self.configured(&format!("{kind} {of}")).await;
            let attributes = attributes.unwrap_or_default().into_iter();
            seen.extend(attributes.map(|(key, value)| (format!("{kind} {key}"), value)));
        }
        let mut lacks = lacks(resource, &seen);
        if let Err(error) = self.queue(false).await {
            let mend = "start pbs_server, or name pbs.bin_dir".to_owned();
            lacks.push((format!("{error:#}"), mend));
        }
        let accounting = self.settings.accounting();
        if let Err(error) = fs::read_dir(&accounting) {
            let problem = format!("{} cannot be read ({error})", accounting.display());
            lacks.push((problem, "name pbs.home".to_owned()));
        }
        Ok(lacks)
    }
}

/// What a PBS lacks, by the attributes that `qmgr` shows of this resource, a formula and a hook.
fn lacks(resource: &str, seen: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let of = |key: &str| seen.get(key).map_or("", |value| value.trim_matches('"'));
    let has = |key: &str, what: &str| of(key).contains(what);
    // That of the server, up to 2020, or that of the scheduler.
    let formula = match of("server job_sort_formula") {
        "" => of("sched job_sort_formula"),
        formula => formula,
    };
    let is_hooked = has("hook enabled", "rue") && has("hook event", "queuejob");
    let problems = [
        (
            of("resource type") == "long",
            format!("the resource {resource} is not there, or not of the type long"),
            format!("qmgr -c 'create resource {resource} type = long, flag = r'"),
        ),
        (
            has("resource flag", "r") || has("resource flag", "i"),
            format!("users may set the resource {resource}"),
            format!("qmgr -c 'set resource {resource} flag = r'"),
        ),
        (
            formula == resource,
            format!("job_sort_formula is `{formula}`"),
            format!("qmgr -c 'set server job_sort_formula = {resource}'"),
        ),
        (
            is_hooked && has("hook event", "modifyjob"),
            "no hook keeps users from writing lines into the accounting log".to_owned(),
            "import the hook that `fairmesh pbs setup` prints".to_owned(),
        ),
    ];
    let wrong = problems.into_iter().filter(|(is_well, ..)| !is_well);
    wrong.map(|(_, problem, mend)| (problem, mend)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lack_of_a_pbs_is_found() {
        let good = [
            ("resource type", "long"),
            ("resource flag", "r"),
            ("sched job_sort_formula", "fairmesh"),
            ("hook enabled", "true"),
            ("hook event", "queuejob,modifyjob"),
        ];
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            lacks("fairmesh", &pairs.collect())
        };
        assert_eq!(of(&good), []);
        for without in 0..good.len() {
            let mut rest = good.to_vec();
            rest.remove(without);
            assert_eq!(of(&rest).len(), 1, "without {:?}", good[without]);
        }
        let other = [
            &good[..2],
            &[("server job_sort_formula", "ncpus")],
            &good[3..],
        ]
        .concat();
        assert_eq!(of(&other)[0].0, "job_sort_formula is `ncpus`");
    }
}
