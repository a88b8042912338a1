//! A throw-away computing element of NorduGrid ARC for a test: A-REX with its web service, jobs that the machine
//! itself runs (`lrms=fork`), and a certificate authority that signs one host and one user.
//!
//! Invariant: one that is dropped is stopped; its port was free a moment ago. Where the packages or the rights are
//! missing, there is none, and the reason is said. Deliberately not here: what a test is about.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;

use crate::process::Site;
use crate::slurm::{absent, await_that, is_root};

/// Who submits jobs, as his certificate names him.
pub const SUBJECT: &str = "/DC=org/DC=nordugrid/DC=ARC/O=TestCA/CN=ann";

/// Its name in records.
pub const NAME: &str = "ce1";

/// Whom he is mapped to: a user that every Debian has.
const LOCAL_USER: &str = "nobody:nogroup";

/// What starts A-REX and its web service.
const DAEMONS: [&str; 2] = ["arc-arex", "arc-arex-ws"];

/// A computing element.
#[derive(Debug)]
pub struct Arc {
    folder: PathBuf,
    port: u16,
}

impl Arc {
    /// Starts one whose jobs are held at a site's node, and whose archive feeds it, as docs/arc.md has it; or says
    /// what is missing.
    pub fn start(folder: &Path, program: &str, site: &Site) -> anyhow::Result<Option<Self>> {
        let programs = ["arched", "arcctl", "arcsub", "arcproxy", "arckill"];
        let lack =
            absent(&programs).or_else(|| (!is_root()).then(|| "an A-REX needs root".to_owned()));
        if let Some(lack) = lack {
            fairmesh_needs::lacks(Need::Arc, &lack);
            return Ok(None);
        }
        // Jobs run as another user, on the way to whose folder these lie.
        for above in folder.ancestors().take(2) {
            fs::create_dir_all(above)?;
            fs::set_permissions(above, fs::Permissions::from_mode(0o755))?;
        }
        for name in ["ca", "run", "log", "session", "control", "user"] {
            fs::create_dir(folder.join(name))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let arc = Self {
            folder: folder.to_owned(),
            port,
        };
        arc.certify()?;
        // Otherwise its start lets openssl look for a prime, and leaves it behind at that for minutes.
        let mut group = Command::new("openssl");
        group.args([
            "genpkey",
            "-genparam",
            "-algorithm",
            "DH",
            "-pkeyopt",
            "group:ffdhe2048",
        ]);
        arc.said(group.arg("-out").arg(folder.join("control/dhparam.pem")))?;
        fs::write(arc.conf(), arc.configuration(program, site))?;
        for daemon in DAEMONS {
            let mut start = Command::new(format!("/usr/share/arc/{daemon}-start"));
            start.env("ARC_CONFIG", arc.conf());
            arc.said(start.env("TMPDIR", arc.folder.join("run")))?;
        }
        await_that("an A-REX that listens", || {
            let pids = DAEMONS.map(|daemon| arc.pid_file(daemon).exists());
            Ok(pids == [true, true] && std::net::TcpStream::connect(("localhost", port)).is_ok())
        })?;
        arc.run("arcproxy", &["-c", "validityPeriod=12h"])?;
        Ok(Some(arc))
    }

    /// Submits a job of one core that may run so many minutes; gives its id, or, as an error, what its user reads.
    pub fn submit(&self, script: &str, minutes: u32) -> anyhow::Result<String> {
        let job = format!("&(executable=/bin/sh)(arguments=-c \"{script}\")(walltime={minutes})");
        let endpoint = format!("https://localhost:{}/arex", self.port);
        let said = self.run(
            "arcsub",
            &["-d", "INFO", "-C", &endpoint, "-T", "arcrest", "-e", &job],
        )?;
        let id = said.split_once("jobid: ").context("no id")?.1;
        Ok(id.split_whitespace().next().context("no id")?.to_owned())
    }

    /// Runs one of ARC's commands as the user, and gives what it printed.
    pub fn run(&self, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let user = self.folder.join("user");
        let mut command = Command::new(command);
        command
            .args(arguments)
            .env("HOME", &user)
            .current_dir(&user);
        for (name, file) in [
            ("X509_CERT_DIR", "ca"),
            ("X509_USER_CERT", "user/client-ann-cert.pem"),
            ("X509_USER_KEY", "user/client-ann-key.pem"),
            ("X509_USER_PROXY", "user/proxy.pem"),
        ] {
            command.env(name, self.folder.join(file));
        }
        self.said(&mut command)
    }

    /// A-REX's accounting archive, which ARC 7 calls otherwise.
    pub fn archive(&self) -> PathBuf {
        let folder = self.folder.join("control/accounting");
        let newer = folder.join("accounting_v2.db");
        if newer.exists() {
            newer
        } else {
            folder.join("accounting.db")
        }
    }

    fn conf(&self) -> PathBuf {
        self.folder.join("arc.conf")
    }

    fn pid_file(&self, daemon: &str) -> PathBuf {
        self.folder.join(format!("run/{daemon}.pid"))
    }

    /// An authority, a host and a user.
    fn certify(&self) -> anyhow::Result<()> {
        let ca = self.folder.join("ca").display().to_string();
        for (at, action) in [
            ("ca", &["init"][..]),
            ("run", &["hostcert", "-n", "localhost"]),
            ("user", &["usercert", "-n", "ann", "--no-auth"]),
        ] {
            let mut arcctl = Command::new("arcctl");
            arcctl.args(["test-ca", "--ca-id", "test", "--ca-dir", &ca]);
            self.said(arcctl.args(action).current_dir(self.folder.join(at)))?;
        }
        Ok(())
    }

    fn configuration(&self, program: &str, site: &Site) -> String {
        let (folder, port) = (self.folder.display(), self.port);
        let socket = site.data().join("run/control.sock");
        let socket = socket.display();
        let [arex, ws] = DAEMONS.map(|daemon| self.pid_file(daemon).display().to_string());
        format!(
            "[common]\nhostname = localhost\nx509_cert_dir = {folder}/ca\n\
             x509_host_key = {folder}/run/host-localhost-key.pem\n\
             x509_host_cert = {folder}/run/host-localhost-cert.pem\n\
             [authgroup:all]\nsubject = {SUBJECT}\n[mapping]\nmap_to_user = all {LOCAL_USER}\n\
             [lrms]\nlrms = fork\n\
             [arex]\ncontroldir = {folder}/control\nsessiondir = {folder}/session\nruntimedir = {folder}/rte\n\
             logfile = {folder}/log/arex.log\njoblog = {folder}/log/jobs.log\nhelperlog = {folder}/log/helper.log\n\
             pidfile = {arex}\nwatchdog = no\nwakeupperiod = 1\n\
             statecallout = ACCEPTED timeout=15,onfailure=fail,ontimeout=pass {program} arc hold %I --control %C \
             --user %U --cluster {NAME} --socket {socket}\n\
             helper = . {program} report --follow --format arc --cluster {NAME} --socket {socket} \
             %C/accounting\n\
             [arex/ws]\nwsurl = https://localhost:{port}/arex\nlogfile = {folder}/log/ws.log\npidfile = {ws}\n\
             [arex/ws/jobs]\nallowaccess = all\n\
             [infosys]\nlogfile = {folder}/log/infosys.log\n[infosys/glue2]\n[infosys/cluster]\n[queue:fork]\n"
        )
    }

    /// Runs a program to its end and gives what it printed, on standard error too.
    fn said(&self, command: &mut Command) -> anyhow::Result<String> {
        let Output {
            status,
            stdout,
            stderr,
        } = command.stdin(Stdio::null()).output()?;
        let words = [stdout, stderr].concat();
        let words = String::from_utf8_lossy(&words).into_owned();
        ensure!(status.success(), "{command:?}: {words}");
        Ok(words)
    }
}

impl Drop for Arc {
    fn drop(&mut self) {
        for log in ["arex.log", "helper.log"] {
            if std::thread::panicking() {
                let log = fs::read_to_string(self.folder.join("log").join(log));
                println!("{}", log.unwrap_or_default());
            }
        }
        for file in DAEMONS.map(|daemon| self.pid_file(daemon)) {
            // One that has not come so far has none.
            let Ok(pid) = fs::read_to_string(&file) else {
                continue;
            };
            let pid = pid.trim();
            // A-REX leaves its helpers behind; elsewhere systemd ends them with it.
            let helpers = Command::new("ps")
                .args(["-o", "pid=", "--ppid", pid])
                .output();
            let helpers = helpers.map_or_else(|_| Vec::new(), |output| output.stdout);
            let helpers = String::from_utf8_lossy(&helpers).into_owned();
            let ended = || {
                let mut kill = Command::new("kill");
                kill.arg("-TERM").arg(pid).args(helpers.split_whitespace());
                let _ = kill.stderr(Stdio::null()).status();
                Ok(!Path::new("/proc").join(pid).exists())
            };
            // A test that failed has said more than a daemon that does not stop could.
            let _ = await_that("its end", ended);
        }
    }
}
