//! What a node takes of a machine's memory.

use std::fs;

use anyhow::ensure;
use fairmesh_tests::Site;

use crate::PROGRAM;

/// Two MB for the first byte of each arena were most of the memory of a node that holds little.
#[test]
fn a_node_has_no_huge_pages() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let node = Site::init(PROGRAM, folder.path(), "small")?.start()?;
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid()))?;
    let allowed = status.lines().find(|line| line.starts_with("THP_enabled:"));
    ensure!(allowed.is_none_or(|line| line.ends_with('0')), "{status}");
    Ok(())
}
