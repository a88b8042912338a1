//! What a cluster says of itself: `scontrol show config`, as far as Fairmesh needs it, and where that
//! is silent, the file that it names.
//!
//! Invariant: a value that Slurm prints as `(null)` is no value. Deliberately not here: what is
//! wrong with a cluster (`setup`).

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::{SlurmSettings, UsageSource};
use crate::command::{CommandError, Commands};

/// What slurmctld always answers with `(null)`, whatever its configuration says.
const SILENT: &str = "PrioritySiteFactorPlugin";

/// A cluster's configuration, key by key.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    values: BTreeMap<String, String>,
}

/// Where finished jobs are read from, once that is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// Ended jobs from slurmdbd, by `sacct`.
    Sacct,
    /// The file of `jobcomp/filetxt`.
    File(PathBuf),
    /// Ended jobs from the folder that the completion hook writes to.
    Spool(PathBuf),
}

impl Cluster {
    /// Asks slurmctld.
    ///
    /// # Errors
    /// If it is away.
    pub async fn ask(commands: &Commands) -> Result<Self, CommandError> {
        let said = commands.ask("scontrol", &["show", "config"]).await?;
        let mut cluster = Self::parse(&said);
        let file = cluster.value("SLURM_CONF");
        // Whoever may not read it learns no more than slurmctld says.
        if let Some(text) = file.and_then(|file| fs::read_to_string(file).ok()) {
            cluster.complete(&text);
        }
        Ok(cluster)
    }

    /// Takes from slurm.conf what slurmctld does not say.
    fn complete(&mut self, slurm_conf: &str) {
        let lines = slurm_conf
            .lines()
            .map(|line| line.split('#').next().unwrap_or(line));
        let pairs = lines.filter_map(|line| line.trim().split_once('='));
        let mut told = pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case(SILENT));
        if let Some((_, value)) = told.next_back()
            && self.value(SILENT).is_none()
            && value.trim() != "site_factor/none"
        {
            let value = value.trim().to_owned();
            self.values.insert(SILENT.to_ascii_lowercase(), value);
        }
    }

    /// Reads what `scontrol show config` printed.
    pub fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let values = pairs
            .map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim()))
            .filter(|(_, value)| !matches!(*value, "" | "(null)" | "N/A"))
            .map(|(key, value)| (key, value.to_owned()))
            .collect();
        Self { values }
    }

    /// The value of a key, whatever the case of its letters.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values
            .get(&key.to_ascii_lowercase())
            .map(String::as_str)
    }

    /// The name that records carry.
    pub fn name(&self, settings: &SlurmSettings) -> String {
        let own = settings
            .common
            .cluster
            .as_deref()
            .or(self.value("ClusterName"));
        own.unwrap_or("slurm").to_owned()
    }

    /// Whether the plug-in does the work of `fairmesh slurm sync`.
    pub fn has_our_plugin(&self) -> bool {
        self.value("PrioritySiteFactorPlugin") == Some("site_factor/fairmesh")
    }

    /// Whether slurmdbd keeps the accounts.
    pub fn has_slurmdbd(&self) -> bool {
        self.value("AccountingStorageType") == Some("accounting_storage/slurmdbd")
    }

    /// Where finished jobs are to be read from, or what is missing.
    ///
    /// # Errors
    /// What is missing.
    pub fn finished(&self, settings: &SlurmSettings) -> Result<Finished, String> {
        let file = || {
            let said = self.value("JobCompLoc").map(PathBuf::from);
            settings.jobcomp_file.clone().or(said)
        };
        let spool = || Finished::Spool(settings.spool.clone());
        match settings.usage {
            UsageSource::Sacct => Ok(Finished::Sacct),
            UsageSource::Hook => Ok(spool()),
            UsageSource::Filetxt => file().map(Finished::File).ok_or_else(|| {
                "JobCompLoc is not set: name the file in slurm.jobcomp_file".to_owned()
            }),
            UsageSource::Auto if self.has_slurmdbd() => Ok(Finished::Sacct),
            UsageSource::Auto => match self.value("JobCompType") {
                Some("jobcomp/filetxt") => file().map(Finished::File).ok_or_else(|| {
                    "JobCompType is jobcomp/filetxt and JobCompLoc names no file".to_owned()
                }),
                Some("jobcomp/script") => Ok(spool()),
                _ => Err(
                    "the cluster has neither slurmdbd nor JobCompType=jobcomp/filetxt or \
                          jobcomp/script: only jobs that are still in the queue are seen"
                        .to_owned(),
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurmctld_does_not_say_is_in_its_file() {
        let plugin = |slurm_conf: &str| {
            let mut cluster = Cluster::parse("PrioritySiteFactorPlugin = (null)\n");
            cluster.complete(slurm_conf);
            cluster.has_our_plugin()
        };
        assert!(plugin(
            "a=b\nprioritysitefactorplugin = site_factor/fairmesh # ours\n"
        ));
        assert!(!plugin("#PrioritySiteFactorPlugin=site_factor/fairmesh\n"));
        assert!(!plugin("PrioritySiteFactorPlugin=site_factor/none\n"));
    }

    #[test]
    fn the_source_follows_the_cluster() {
        let settings = SlurmSettings::defaults(std::path::Path::new("/d"));
        let source = |text: &str| Cluster::parse(text).finished(&settings);
        let filetxt = "JobCompType = jobcomp/filetxt\nJobCompLoc = /var/log/slurm/jobcomp\n";
        let file = Finished::File("/var/log/slurm/jobcomp".into());
        assert_eq!(source(filetxt), Ok(file));
        let both = format!("{filetxt}AccountingStorageType = accounting_storage/slurmdbd\n");
        assert_eq!(source(&both), Ok(Finished::Sacct));
        let script = "JobCompType = jobcomp/script\nJobCompLoc = /etc/slurm/hook\n";
        assert_eq!(
            source(script),
            Ok(Finished::Spool("/var/spool/fairmesh".into()))
        );
        assert!(source("JobCompType = jobcomp/none\nJobCompLoc = (null)\n").is_err());
    }
}
