//! `cargo xtask package`: the Debian package, and with `--check` what becomes of it in a Debian of its own.
//!
//! What is in the package stands in cli/Cargo.toml, for cargo-deb; here is made what it names: the program, manual pages,
//! completions and the bill of materials. `--check` makes a bare Debian with debootstrap, and installs, upgrades, removes
//! and purges the package there (`package-check.sh`). It takes minutes and root, so it is no step of the test command.
//!
//! Invariant: nothing is installed on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::steps::{cargo, go, root, target};

/// The Debian that the package is tried in.
const SUITE: &str = "bookworm";

/// The version of the package that follows the first, so that one can be upgraded to the other.
const NEXT: &str = "9999-1";

/// What is run in that Debian.
const CHECK: &str = include_str!("package-check.sh");

/// What it takes beside nothing.
const OPTIONS: [&str; 2] = ["--check", "--no-build"];

/// Builds the package; with `--check` tries it, with `--no-build` of the program that is in target/release.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    if let Some(option) = options.iter().find(|option| !OPTIONS.contains(option)) {
        return Err(format!(
            "package takes {}, not `{option}`",
            OPTIONS.join(", ")
        ));
    }
    let folder = root().join("target/package");
    if !options.contains(&"--no-build") {
        go(cargo().args(["build", "--package", "fairmesh", "--release"]))?;
    }
    make_files(&folder)?;
    list_materials(&folder)?;
    let first = pack(&folder, None)?;
    println!("package: {}", first.display());
    if options.contains(&"--check") {
        let second = pack(&folder, Some(NEXT))?;
        check(&folder.join("debian"), &first, &second)?;
        println!("package: installed, upgraded, removed and purged in Debian {SUITE}");
    }
    Ok(())
}

/// Manual pages and completions, as the program writes them.
fn make_files(folder: &Path) -> Result<(), String> {
    let program = target().join("release/fairmesh");
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    for folder in [&man, &completions] {
        // There may be none.
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    go(Command::new(&program)
        .arg("man")
        .arg(&man)
        .stdout(Stdio::null()))?;
    for (shell, file) in [
        ("bash", "fairmesh.bash"),
        ("zsh", "_fairmesh"),
        ("fish", "fairmesh.fish"),
    ] {
        let file = completions.join(file);
        let output =
            fs::File::create(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        go(Command::new(&program)
            .args(["completions", shell])
            .stdout(output))?;
    }
    Ok(())
}

/// What the program is made of, with versions and licences (an SBOM, CycloneDX), for whoever looks for a vulnerable crate in
/// what he runs.
fn list_materials(folder: &Path) -> Result<(), String> {
    let file = folder.join("fairmesh.cdx.json");
    let output = fs::File::create(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = cargo();
    command.args(["sbom", "--cargo-package", "fairmesh"]);
    command.args(["--output-format", "cyclone_dx_json_1_4"]);
    go(command.stdout(output))
        .map_err(|error| format!("{error}\ncargo-sbom is had with `cargo install cargo-sbom`"))
}

/// Calls cargo-deb, and says where the package is.
fn pack(folder: &Path, version: Option<&str>) -> Result<PathBuf, String> {
    let mut command = cargo();
    // The release profile keeps lines for backtraces, which would be kept otherwise.
    command.args(["deb", "--package", "fairmesh", "--no-build", "--strip"]);
    command.args(
        version
            .iter()
            .flat_map(|version| ["--deb-version", version]),
    );
    let file = folder.join(format!("fairmesh-{}.deb", version.unwrap_or("this")));
    command.arg("--output").arg(&file);
    go(&mut command)
        .map_err(|error| format!("{error}\ncargo-deb is had with `cargo install cargo-deb`"))?;
    Ok(file)
}

/// Tries the two packages in a Debian of its own.
fn check(debian: &Path, first: &Path, second: &Path) -> Result<(), String> {
    // There may be none.
    let _ = fs::remove_dir_all(debian);
    go(Command::new("debootstrap")
        .args(["--variant=minbase", "--include=systemd-standalone-sysusers"])
        .arg(SUITE)
        .arg(debian)
        .stdout(Stdio::null()))
    .map_err(|error| format!("{error}\nas root on Debian: apt-get install debootstrap"))?;
    for (package, name) in [(first, "first.deb"), (second, "second.deb")] {
        fs::copy(package, debian.join(name)).map_err(|error| error.to_string())?;
    }
    let checked = go(Command::new("chroot")
        .arg(debian)
        .args(["sh", "-euc", CHECK]));
    fs::remove_dir_all(debian).map_err(|error| format!("{}: {error}", debian.display()))?;
    checked
}
