//! What `fairmesh condor setup` says.
//!
//! Deliberately not here: the loops (`fairmesh_schedulers::condor`), and the commands, which are those of every such
//! system (`schedulers::command`).

use std::fs::File;
use std::io::Write;

use fairmesh_api::finding::Code;
use fairmesh_node::config::Config;
use fairmesh_node::config::condor::CondorTable;
use fairmesh_schedulers::Scheduler as _;
use fairmesh_schedulers::condor::{Condor, CondorSettings, WANTED, is_as_wanted};

use crate::schedulers::command::System;

impl System for Condor {
    type Settings = CondorSettings;
    const TITLE: &'static str = "HTCondor";
    const CODES: [Code; 5] = [
        Code::CondorAway,
        Code::CondorSetup,
        Code::CondorUnmapped,
        Code::CondorRange,
        Code::CondorCapacity,
    ];

    fn table(config: &Config) -> Option<&CondorTable> {
        config.condor.as_ref()
    }

    fn of(settings: CondorSettings) -> Self {
        Self::new(settings)
    }

    async fn setup(&self, out: &mut dyn Write) -> anyhow::Result<Vec<(String, String)>> {
        writeln!(
            out,
            "==> the negotiator's and the schedds' configuration, such as /etc/condor/config.d/90-fairmesh; \
             then `condor_reconfig` <=="
        )?;
        for (key, value) in WANTED {
            writeln!(out, "{key} = {value}")?;
        }
        let mut lacks = Vec::new();
        for (key, value) in WANTED {
            match self.configured(key).await {
                Ok(is) if is.as_deref().is_some_and(|is| is_as_wanted(is, value)) => {}
                Ok(is) => {
                    let is = is.unwrap_or_else(|| "not set".to_owned());
                    lacks.push((format!("{key} is {is}"), format!("write {value}")));
                }
                Err(error) => {
                    lacks.push((error.to_string(), "install HTCondor's commands".to_owned()));
                    break;
                }
            }
        }
        for error in [self.queue(false).await.err(), self.numbers().await.err()] {
            let mend = "start HTCondor's daemons".to_owned();
            lacks.extend(error.map(|error| (format!("{error:#}"), mend)));
        }
        match self.history().await {
            Ok(file) => lacks.extend(File::open(&file).err().map(|error| {
                let problem = format!("{} cannot be read ({error})", file.display());
                (problem, "it comes with the first job that ends".to_owned())
            })),
            Err(error) => lacks.push((format!("{error:#}"), "name the schedd's file".to_owned())),
        }
        Ok(lacks)
    }
}
