//! The plug-in `site_factor/fairmesh`, built as an administrator builds it.
//!
//! It takes Slurm's source: `FAIRMESH_SLURM_SRC`, else what `cargo xtask test` fetched below
//! `target/slurm-src`. Deliberately not here: what it does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;

use super::{machine, said};

/// A built plug-in.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// The folder that it is in.
    pub folder: PathBuf,
}

impl Plugin {
    /// The lines of slurm.conf that take it into use.
    pub fn conf(&self, parameters: &str) -> String {
        format!(
            "PrioritySiteFactorPlugin=site_factor/fairmesh\n\
             PrioritySiteFactorParameters={parameters}\nSlurmctldDebug=debug\n"
        )
    }
}

/// The plug-in, built once, with the library of the profile that `program` was built with; or a word
/// on what is missing.
pub fn plugin(program: &str) -> anyhow::Result<Option<Plugin>> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let lack = |source: &Option<PathBuf>| {
        let headers = "/usr/include/slurm/slurm_version.h";
        machine::lack(false)
            .or_else(|| machine::absent(&["cc", "make"]))
            .or_else(|| {
                let none = !Path::new(headers).exists();
                none.then(|| "no headers of Slurm (Debian: libslurm-dev)".to_owned())
            })
            .or_else(|| {
                let none = source.is_none();
                none.then(|| "no source of Slurm: set FAIRMESH_SLURM_SRC".to_owned())
            })
    };
    let source = source();
    if let Some(lack) = lack(&source) {
        eprintln!("SKIPPED, the plug-in was not tried: {lack}");
        return Ok(None);
    }
    let source = source.context("it is there")?;
    let built = BUILT.get_or_init(|| build(program, &source).map_err(|error| format!("{error:#}")));
    let folder = built.clone().map_err(anyhow::Error::msg)?;
    Ok(Some(Plugin { folder }))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn source() -> Option<PathBuf> {
    let is_source = |folder: &PathBuf| folder.join("src/slurmctld/slurmctld.h").exists();
    if let Some(named) = std::env::var_os("FAIRMESH_SLURM_SRC") {
        return Some(PathBuf::from(named)).filter(is_source);
    }
    let unpacked = fs::read_dir(root().join("target/slurm-src")).ok()?;
    unpacked.flatten().map(|entry| entry.path()).find(is_source)
}

fn build(program: &str, source: &Path) -> anyhow::Result<PathBuf> {
    let target = Path::new(program).ancestors().nth(2);
    let target = target.context("target/PROFILE/PROGRAM")?;
    let library = target.join("debug/libfairmesh_client_ffi.a");
    let folder = target.join("slurm-plugin");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let value = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut compile = Command::new(cargo);
    compile
        .args(["build", "--quiet", "--package", "fairmesh-client-ffi"])
        .arg("--target-dir")
        .arg(target);
    let mut make = Command::new("make");
    make.args(["--silent", "--directory", "crates/client-ffi/slurm"])
        .arg(value("SLURM_SRC", source))
        .arg(value("FAIRMESH_LIB", &library))
        .arg(value("BUILD", &folder));
    for step in [&mut compile, &mut make] {
        said(step.current_dir(root()))?;
    }
    Ok(folder)
}
