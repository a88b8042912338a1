//! The plug-in `site_factor/fairmesh`, built as an administrator builds it.
//!
//! It takes Slurm's source: `FAIRMESH_SLURM_SRC`, else what `cargo xtask test` fetched below
//! `target/slurm-src`. Deliberately not here: what it does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;
use fairmesh_needs::Need;

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

/// The plug-in, built once, with the library that was built beside `program`; none where something is
/// missing.
pub fn plugin(program: &str) -> anyhow::Result<Option<Plugin>> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if let Some(lack) = machine::lack(false) {
        fairmesh_needs::lacks(Need::Slurm, &lack);
        return Ok(None);
    }
    let source = source();
    let headers = Path::new("/usr/include/slurm/slurm_version.h").exists();
    let lack = machine::absent(&["cc", "make"])
        .or_else(|| (!headers).then(|| "no headers of Slurm (libslurm-dev)".to_owned()))
        .or_else(|| source.is_none().then(|| "no source of Slurm".to_owned()));
    if let Some(lack) = lack {
        fairmesh_needs::lacks(Need::Plugin, &lack);
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
    let built = Path::new(program).parent().context("target/PROFILE")?;
    // One for each Slurm: make sees what is older, not what is of another.
    let folder = built.join("slurm-plugin");
    let folder = folder.join(source.file_name().context("a folder of a version")?);
    let library = youngest_library(&built.join("deps"))?;
    let value = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut make = Command::new("make");
    make.args(["--silent", "--directory", "crates/client-ffi/slurm"])
        .arg(value("SLURM_SRC", source))
        .arg(value("FAIRMESH_LIB", &library))
        .arg(value("BUILD", &folder));
    said(make.current_dir(root()))?;
    Ok(folder)
}

/// The static library that cargo has built as a dependency of this crate.
fn youngest_library(folder: &Path) -> anyhow::Result<PathBuf> {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|it| it.starts_with("libfairmesh_client_ffi") && it.ends_with(".a"))
    };
    let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let age = |path: &PathBuf| fs::metadata(path).and_then(|it| it.modified()).ok();
    let youngest = files.filter(is_library).max_by_key(age);
    youngest.context("no static library: cargo builds all kinds of a library")
}
