//! What `fairmesh gridengine setup` says.
//!
//! Deliberately not here: the loops (`fairmesh_schedulers::gridengine`), and the commands, which are those of every
//! such system (`schedulers::command`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use fairmesh_api::finding::Code;
use fairmesh_node::config::Config;
use fairmesh_node::config::gridengine::GridEngineTable;
use fairmesh_schedulers::gridengine::{GridEngine, GridEngineSettings, VERIFIER, WANTED};

use crate::schedulers::command::System;

/// Where qmaster runs the verifier from: a folder that nobody else can write into.
const VERIFIER_FILE: &str = "/etc/fairmesh-jsv";

impl System for GridEngine {
    type Settings = GridEngineSettings;
    const TITLE: &'static str = "Grid Engine";
    const CODES: [Code; 5] = [
        Code::GridengineAway,
        Code::GridengineSetup,
        Code::GridengineUnmapped,
        Code::GridengineRange,
        Code::GridengineCapacity,
    ];

    fn table(config: &Config) -> Option<&GridEngineTable> {
        config.gridengine.as_ref()
    }

    fn of(settings: GridEngineSettings) -> Self {
        Self::new(settings)
    }

    async fn setup(&self, out: &mut dyn Write) -> anyhow::Result<Vec<(String, String)>> {
        writeln!(
            out,
            "==> the scheduler's configuration: set these with `qconf -msconf` <=="
        )?;
        for (key, value) in WANTED {
            writeln!(out, "{key:<33} {value}")?;
        }
        writeln!(
            out,
            "\n==> {VERIFIER_FILE} of qmaster's host, which all may run: set `jsv_url script:{VERIFIER_FILE}` with \
             `qconf -mconf` <==\n{VERIFIER}"
        )?;
        let mut lacks = match self.configured().await {
            Ok(configured) => lacks(&configured),
            Err(error) => vec![(
                format!("{error:#}"),
                "start sge_qmaster, or name gridengine.root and gridengine.cell".to_owned(),
            )],
        };
        let accounting = self.settings.accounting();
        if let Err(error) = File::open(&accounting) {
            lacks.push((
                format!("{} cannot be read ({error})", accounting.display()),
                "it comes with the first job that ends".to_owned(),
            ));
        }
        Ok(lacks)
    }
}

/// What a Grid Engine lacks, by its configuration. A verifier of the site's own is taken for one that knows line ends.
fn lacks(configured: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let is = |key: &str| configured.get(key).map_or("", String::as_str);
    let wrong = WANTED
        .iter()
        .filter(|(key, value)| !is(key).eq_ignore_ascii_case(value));
    let wrong = wrong.map(|(key, value)| {
        let mend = format!("write {value} with `qconf -msconf`");
        (format!("{key} is {}", is(key)), mend)
    });
    let mut lacks: Vec<_> = wrong.collect();
    let verifier = is("jsv_url");
    if verifier.is_empty() || verifier.eq_ignore_ascii_case("none") {
        lacks.push((
            "jsv_url is none: a job's request may have a line end, and write lines into `accounting`".to_owned(),
            format!("write script:{VERIFIER_FILE} with `qconf -mconf`, or have such a check in your own verifier"),
        ));
    }
    // What may be altered is altered without the verifier.
    if is("jsv_allowed_mod")
        .split(',')
        .any(|name| name.starts_with("l_"))
    {
        lacks.push((
            "jsv_allowed_mod has l_hard or l_soft: `qalter -l` does not ask the verifier"
                .to_owned(),
            "take them out with `qconf -mconf`".to_owned(),
        ));
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lack_is_found() {
        let good = WANTED.map(|(key, value)| (key.to_owned(), value.to_lowercase()));
        let mut configured = BTreeMap::from(good);
        configured.insert("jsv_url".to_owned(), format!("script:{VERIFIER_FILE}"));
        configured.insert("jsv_allowed_mod".to_owned(), "ac,h,i,p".to_owned());
        assert!(lacks(&configured).is_empty());
        for (key, bad, word) in [
            ("weight_urgency", "0.500000", "weight_urgency is 0.500000"),
            ("jsv_url", "NONE", "jsv_url is none"),
            ("jsv_allowed_mod", "ac,l_soft,p", "jsv_allowed_mod has l"),
        ] {
            let mut configured = configured.clone();
            configured.insert(key.to_owned(), bad.to_owned());
            let found = lacks(&configured);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].0.starts_with(word), "{found:?}");
        }
    }
}
