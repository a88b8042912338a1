//! What `fairmesh gridengine setup` says, and the table `[gridengine]`.
//!
//! Deliberately not here: the loops (`fairmesh_schedulers::gridengine`), and the commands, which are those of every
//! such system (`schedulers::command`).

pub mod settings;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use fairmesh_schedulers::gridengine::{GridEngine, GridEngineSettings, WANTED};

use crate::config::Config;
use crate::finding::Code;
use crate::schedulers::command::System;
use settings::GridEngineTable;

impl System for GridEngine {
    type Settings = GridEngineSettings;
    const TITLE: &'static str = "Grid Engine";
    const CODES: [Code; 4] = [
        Code::GridengineAway,
        Code::GridengineSetup,
        Code::GridengineUnmapped,
        Code::GridengineRange,
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
        let mut lacks = match self.scheduler().await {
            Ok(scheduler) => lacks(&scheduler),
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

fn lacks(scheduler: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let is = |key: &str| scheduler.get(key).map_or("", String::as_str);
    let wrong = WANTED
        .iter()
        .filter(|(key, value)| !is(key).eq_ignore_ascii_case(value));
    wrong
        .map(|(key, value)| {
            let mend = format!("write {value} with `qconf -msconf`");
            (format!("{key} is {}", is(key)), mend)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lack_of_the_scheduler_is_found() {
        let good = WANTED.map(|(key, value)| (key.to_owned(), value.to_lowercase()));
        let mut scheduler = BTreeMap::from(good);
        assert!(lacks(&scheduler).is_empty());
        scheduler.insert("weight_urgency".to_owned(), "0.500000".to_owned());
        let found = lacks(&scheduler);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "weight_urgency is 0.500000");
    }
}
