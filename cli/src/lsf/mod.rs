//! What `fairmesh lsf setup` says.
//!
//! Deliberately not here: the loops (`fairmesh_schedulers::lsf`), and the commands, which are those of every such system
//! (`schedulers::command`).

use std::fs::File;
use std::io::Write;

use fairmesh_api::finding::Code;
use fairmesh_node::config::Config;
use fairmesh_node::config::lsf::LsfTable;
use fairmesh_schedulers::Scheduler as _;
use fairmesh_schedulers::lsf::{Lsf, LsfSettings};

use crate::schedulers::command::System;

/// What a queue says whose jobs have system values.
const WANTED: &str = "APS_PRIORITY = WEIGHT[[JPRIORITY, 1]]";

impl System for Lsf {
    type Settings = LsfSettings;
    const TITLE: &'static str = "LSF";
    const CODES: [Code; 5] = [
        Code::LsfAway,
        Code::LsfSetup,
        Code::LsfUnmapped,
        Code::LsfRange,
        Code::LsfCapacity,
    ];

    fn table(config: &Config) -> Option<&LsfTable> {
        config.lsf.as_ref()
    }

    fn of(settings: LsfSettings) -> Self {
        Self::new(settings)
    }

    async fn setup(&self, out: &mut dyn Write) -> anyhow::Result<Vec<(String, String)>> {
        writeln!(
            out,
            "==> lsb.queues: in one queue, with the others' names; then `badmin reconfig` <==\n\
             {WANTED}\nQUEUE_GROUP  = QUEUE ..."
        )?;
        let mut lacks = Vec::new();
        match self.has_priorities().await {
            Ok(true) => {}
            Ok(false) => lacks.push((
                "no queue has APS_PRIORITY".to_owned(),
                format!("write {WANTED} into lsb.queues"),
            )),
            Err(error) => lacks.push((
                format!("{error:#}"),
                "start LSF, or name lsf.envdir and lsf.bin_dir".to_owned(),
            )),
        }
        for error in [self.queue(false).await.err(), self.numbers().await.err()] {
            let mend = "start LSF's daemons".to_owned();
            lacks.extend(error.map(|error| (format!("{error:#}"), mend)));
        }
        let accounting = &self.settings.accounting;
        if let Err(error) = File::open(accounting) {
            let problem = format!("{} cannot be read ({error})", accounting.display());
            lacks.push((problem, "name it in lsf.accounting".to_owned()));
        }
        Ok(lacks)
    }
}
