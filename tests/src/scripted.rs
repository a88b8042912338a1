//! A Slurm made of scripts, so that each of its daemons can be away and each command can hang.
//!
//! Deliberately not here: real Slurms (`slurm`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Commands of Slurm. A file `dbd-away`, `ctld-away` or `hangs` in their folder does what it is called; `queue` and
/// `ended` have the rows, with `,` between columns.
const SCRIPTS: [(&str, &str); 6] = [
    (
        "scontrol",
        "[ $# -gt 0 ] || { cat >> $here/set; exit 0; }
[ -e $here/ctld-away ] && { echo 'Unable to contact slurm controller' >&2; exit 1; }
printf 'AccountingStorageType = accounting_storage/slurmdbd\\nClusterName = alpha\\n'
printf 'PriorityType = priority/multifactor\\n'; [ ! -e $here/plugin ] || cat $here/plugin",
    ),
    (
        "squeue",
        "while [ -e $here/hangs ]; do sleep 1; done
for word in \"$@\"; do case $word in JobID:*) columns=${word%%,*} ;; esac; done
sed \"s/,/${columns#*:}/g; s/$/${columns#*:}/\" $here/queue | tr -d '\\n'",
    ),
    (
        "sacct",
        "[ -e $here/dbd-away ] && { echo 'Connection refused' >&2; exit 1; }
for word in \"$@\"; do
    case $before in -o) columns=$word ;; esac
    case $word in --delimiter=*) mark=${word#*=} ;; esac
    before=$word
done
[ -n \"$mark\" ] || exit 0
{ echo \"$columns\"; cat $here/ended; } | sed \"s/,/$mark/g\"",
    ),
    (
        "sacctmgr",
        "[ -e $here/dbd-away ] && { echo 'Connection refused' >&2; exit 1; }; exit 0",
    ),
    ("sprio", ""),
    ("sinfo", "echo 0/8/0/8"),
];

/// Writes the commands of a Slurm without jobs into a folder.
///
/// # Errors
/// If a file cannot be written.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    for (name, script) in SCRIPTS {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\nhere=${{0%/*}}\n{script}\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    for rows in ["queue", "ended"] {
        fs::write(folder.join(rows), "")?;
    }
    Ok(())
}

/// Puts a job of two cores into a list, as its only one: it waits, has run for a minute, or has ended.
///
/// # Errors
/// If the list cannot be written.
pub fn has(folder: &Path, list: &str, id: u64) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let (start, end) = (now - 60, now + 600);
    let row = match list {
        "queue" => format!(
            "{id},{id},RUNNING,None,1,2,{start},{start},{end},1:00,11:00,cpu=2,1,main,normal,n1,ann,ann,ann,0,0:00,x"
        ),
        "waiting" => format!(
            "{id},{id},PENDING,Priority,1,2,{start},N/A,N/A,0:00,11:00,cpu=2,1,main,normal,,ann,ann,ann,0,0:00,x"
        ),
        _ => format!(
            "{id},{id},alpha,ann,ann,7,ann,7,main,normal,COMPLETED,0:0,{start},{start},{start},{now},60,5,1,2,2,4G,\
             cpu=2,cpu=2,n1,1,x"
        ),
    };
    let list = if list == "waiting" { "queue" } else { list };
    Ok(fs::write(folder.join(list), format!("{row}\n"))?)
}
