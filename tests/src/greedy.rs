//! Users of the machine who want a node's sockets for themselves.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};

/// Numbers that no user of this machine has. Together they may have more connections than there are.
pub const USERS: std::ops::Range<u32> = 61_001..61_017;

/// Connects forty times, says so, and asks on all of them (nothing, maybe) until it is killed.
const GREEDY: &str = r#"
    use IO::Socket::UNIX;
    $SIG{PIPE} = "IGNORE";
    my ($path, $ask) = @ARGV;
    my @held = map { IO::Socket::UNIX->new(Peer => $path) } 1..40;
    $| = 1;
    print scalar(grep { defined } @held), "\n";
    for (;;) {
        for my $one (grep { defined } @held) { $one->blocking(0); syswrite($one, $ask); sysread($one, my $answer, 65536) }
        select(undef, undef, undef, 0.2);
    }
"#;

/// Killed when dropped.
#[derive(Debug)]
pub struct Greedy(Child);

impl Greedy {
    /// A user of that number, who asks `ask` on forty connections. Only root can play others.
    pub fn start(uid: u32, socket: &Path, ask: &str) -> anyhow::Result<Self> {
        let mut child = Command::new("perl")
            .args(["-e", GREEDY])
            .arg(socket)
            .arg(ask)
            .uid(uid)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut held = String::new();
        BufReader::new(child.stdout.take().context("piped")?).read_line(&mut held)?;
        ensure!(held.trim() == "40", "{uid} has {held} connections");
        Ok(Self(child))
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
