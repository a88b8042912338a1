//! The node under test: the program, in a folder of its own, in a process of its own.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh");

/// Accounts of the tree, and users of each: 10,000 entries.
const ACCOUNTS: usize = 200;
const USERS: usize = 50;

/// Clock ticks a second, as `/proc` counts CPU time on Linux.
const TICKS: f64 = 100.0;

/// A node. Killed when dropped.
pub(crate) struct Node {
    child: Child,
    folder: tempfile::TempDir,
    sockets: tempfile::TempDir,
}

impl Node {
    /// Starts one, behind the words of a command that runs others (none, or `valgrind` and its options).
    pub(crate) fn start(behind: &[&str]) -> Self {
        // On a real disk, as a temporary folder may not be; sockets need a short path.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let sockets = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("site");
        let init = Command::new(PROGRAM).arg("init").arg(&place).output();
        assert!(init.expect("runs").status.success());
        let config = place.join("fairmesh.toml");
        std::fs::write(&config, configuration(sockets.path())).expect("written");
        let words = [behind, &[PROGRAM, "run", "--config"]].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .arg(&config)
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert!(line.contains("listens on"), "{line}");
        Self {
            child,
            folder,
            sockets,
        }
    }

    pub(crate) fn lookup(&self) -> PathBuf {
        self.sockets.path().join("lookup.sock")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A folder on the same disk.
    pub(crate) fn beside(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Bytes of files of the data folder whose names hold `word`, as far as they take blocks of the disk.
    pub(crate) fn disk_bytes(&self, word: &str) -> u64 {
        let data = self.folder.path().join("site/data");
        let entries = std::fs::read_dir(data).expect("there").flatten();
        let named = entries.filter(|entry| entry.file_name().to_string_lossy().contains(word));
        named.map(|entry| blocks_below(&entry.path())).sum()
    }

    /// CPU seconds that the node has taken.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        let behind = stat.rsplit_once(')').expect("a name").1;
        let fields: Vec<&str> = behind.split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
        (ticks(11) + ticks(12)) / TICKS
    }

    pub(crate) fn control(&self) -> Http {
        let stream = UnixStream::connect(self.sockets.path().join("control.sock"));
        Http(stream.expect("it listens"))
    }

    /// Ends it by SIGTERM, and waits.
    pub(crate) fn stop(&mut self) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        sent.expect("kill runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may be gone already, which is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to `control.sock` that is kept.
pub(crate) struct Http(UnixStream);

impl Http {
    /// Posts a body and gives the answer's.
    pub(crate) fn post(&mut self, target: &str, body: &[u8]) -> String {
        let length = body.len();
        let head =
            format!("POST {target} HTTP/1.1\r\nHost: fairmesh\r\nContent-Length: {length}\r\n\r\n");
        self.0
            .write_all(&[head.as_bytes(), body].concat())
            .expect("sent");
        let (mut answer, mut piece) = (Vec::new(), [0; 16 << 10]);
        loop {
            let read = self.0.read(&mut piece).expect("answered");
            assert!(read > 0, "the node has closed the connection");
            answer.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&answer);
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            assert!(head.starts_with("HTTP/1.1 200"), "{text}");
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.parse::<usize>())?
                    .ok()
            });
            if body.len() >= length.expect("a length") {
                return body.to_owned();
            }
        }
    }
}

/// Users with their accounts, one for each leaf.
pub(crate) fn pairs() -> Vec<(String, String)> {
    let leaf = |n: usize| (format!("user{n:05}"), format!("project{:03}", n % ACCOUNTS));
    (0..ACCOUNTS * USERS).map(leaf).collect()
}

/// As `configs/slurm.toml`: Slurm accounts of the VO named one by one, any other is a group of the cluster's own.
fn configuration(sockets: &Path) -> String {
    let vo = "5b41f3c8e07f1f6f4f2c3f0a9de2f6a8d1d5b4b6b9a1c7e3905c2d1e0f4a3b2c";
    let mut text = format!(
        "[site]\nname = \"bench\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
         [sockets]\nlookup = \"{0}/lookup.sock\"\ncontrol = \"{0}/control.sock\"\n\
         [vos]\nvo-b = \"{vo}\"\n\
         [[identity]]\naccount = \"grid-P-B1\"\nvo = \"vo-b\"\npath = \"/P-B1/{{user}}\"\n\
         [[identity]]\naccount = \"grid-P-B2\"\nvo = \"vo-b\"\npath = \"/P-B2/{{user}}\"\n\
         [[identity]]\naccount = \"*\"\npath = \"/local/{{account}}/{{user}}\"\n\
         [shares]\n\"/vo-b\" = {{ share = 70, mount = \"vo-b\" }}\n\"/local\" = 30\n",
        sockets.display()
    );
    for account in 0..ACCOUNTS {
        let _ = writeln!(text, "\"/local/project{account:03}\" = 1");
    }
    for (user, account) in pairs() {
        let _ = writeln!(text, "\"/local/{account}/{user}\" = 1");
    }
    text
}

fn blocks_below(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(metadata) = path.metadata() else {
        return 0;
    };
    if !metadata.is_dir() {
        return metadata.blocks() * 512;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| blocks_below(&entry.path())).sum()
}
