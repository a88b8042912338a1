//! Tests that mostly wait run beside the others: real Slurms go by their own seconds, and need no core.
//!
//! Cargo starts every test program by `xtask beside PROGRAM ARGUMENTS` (its *runner*). That starts one of
//! [`WAITING`], once, and returns; any other it runs to its end. What the first prints goes to a file, which
//! is locked as long as it runs, and is printed when it has ended.
//!
//! Invariant: the steps do not end before all that was started in one of them has.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The test programs, as cargo names them but for the hash.
pub(crate) const WAITING: &[&str] = &["slurm", "gridengine", "condor"];

/// The last line of a program that went well.
const GOOD: &str = "beside: exit status 0\n";

/// What makes cargo run tests by this.
pub(crate) fn runner() -> Result<String, String> {
    let this = std::env::current_exe().map_err(|error| format!("cannot find xtask: {error}"))?;
    Ok(format!(
        "target.'cfg(all())'.runner=['{}','beside']",
        this.display()
    ))
}

/// Runs a test program, or starts it.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<ExitCode, String> {
    let of = |error: io::Error| format!("cannot run {program}: {error}");
    let Some(name) = waiting(program) else {
        let status = Command::new(program).args(arguments).status().map_err(of)?;
        return Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    };
    let log = match File::create_new(file_of(name).map_err(of)?) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            println!("{name} has been started already");
            return Ok(ExitCode::SUCCESS);
        }
        log => log.map_err(of)?,
    };
    log.lock().map_err(of)?;
    let output = || log.try_clone().map(Stdio::from).map_err(of);
    Command::new("sh")
        .args(["-c", r#""$0" "$@"; echo "beside: exit status $?""#, program])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?)
        .spawn()
        .map_err(of)?;
    println!("{name} runs beside what follows, and is told of at the end");
    Ok(ExitCode::SUCCESS)
}

/// Forgets what earlier runs have left.
pub(crate) fn clear() {
    for file in WAITING.iter().filter_map(|name| file_of(name).ok()) {
        // There may be none.
        let _ = fs::remove_file(file);
    }
}

/// Waits for all that was started, and prints what it has printed.
pub(crate) fn wait() -> Result<(), String> {
    let mut failed = Vec::new();
    for name in WAITING {
        let told = |error: io::Error| format!("cannot read what {name} has printed: {error}");
        let file = file_of(name).map_err(told)?;
        if !file.exists() {
            continue;
        }
        // Whoever writes it has the lock until it ends.
        File::open(&file)
            .and_then(|log| log.lock_shared())
            .map_err(told)?;
        let text = fs::read_to_string(&file).map_err(told)?;
        println!("\n     Ended beside these: {name}\n{text}");
        if !text.ends_with(GOOD) {
            failed.push(*name);
        }
    }
    match failed[..] {
        [] => Ok(()),
        _ => Err(format!("{} failed", failed.join(", "))),
    }
}

fn waiting(program: &str) -> Option<&'static str> {
    let name = Path::new(program).file_name()?.to_str()?;
    let (name, _hash) = name.rsplit_once('-')?;
    WAITING.iter().copied().find(|waiting| *waiting == name)
}

fn file_of(name: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(format!("beside-{name}.log")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_names() {
        assert_eq!(
            waiting("/a/target/debug/deps/slurm-272b01853d06c098"),
            Some("slurm")
        );
        assert_eq!(waiting("/a/slurm/nodes-272b01853d06c098"), None);
        assert_eq!(waiting("slurm"), None);
    }
}
