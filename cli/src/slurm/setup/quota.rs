//! The files that hold Slurm's jobs to quotas, and what of them a cluster lacks.
//!
//! Invariant: what the files say follows from the configuration alone, so a file that differs from it is found.
//! Deliberately not here: what they do (`slurm::quota`, and the Lua beside this).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fairmesh_node::config::slurm::OnSilence;
use fairmesh_schedulers::slurm::cluster::Cluster;

use super::super::Place;
use super::{absolute, finding};

/// Where Lua's modules lie, below which there is a folder for each version of Lua.
const LUA_FOLDERS: [&str; 4] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
];

/// The files, and where they belong.
#[derive(Debug)]
pub(super) struct QuotaFiles {
    /// Beside slurm.conf, where Slurm looks for it.
    pub(super) job_submit: (PathBuf, String),
    pub(super) check: (PathBuf, String),
    pub(super) prolog: (PathBuf, String),
    /// Where the prolog notes which jobs it has put back.
    spool: PathBuf,
}

impl QuotaFiles {
    pub(super) fn of(
        place: &Place,
        cluster: Option<&Cluster>,
        program: &str,
        config: &str,
    ) -> Self {
        let said = cluster.and_then(|cluster| cluster.value("SLURM_CONF").map(PathBuf::from));
        let slurm_conf = place.table.slurm.slurm_conf.clone().or(said);
        let slurm_conf = slurm_conf.as_deref().map(absolute);
        let folder = slurm_conf.as_deref().and_then(Path::parent);
        let folder = folder.unwrap_or(Path::new("/etc/slurm"));
        // Slurm's daemons run it, whose working directory is theirs.
        let socket = absolute(&place.pair.sockets.control);
        let [job_submit, check, prolog] =
            ["job_submit.lua", "fairmesh-quota.lua", "fairmesh-prolog"]
                .map(|name| folder.join(name));
        let name = cluster.map_or_else(
            || Cluster::default().name(&place.table.slurm),
            |cluster| cluster.name(&place.table.slurm),
        );
        let on_silence = match place.table.on_silence {
            OnSilence::Run => "run",
            OnSilence::Refuse => "refuse",
        };
        Self {
            spool: place.table.slurm.spool.clone(),
            job_submit: (
                job_submit,
                include_str!("job_submit.lua")
                    .replace("{QUOTA_LUA}", &lua(&check.to_string_lossy())),
            ),
            check: (
                check,
                include_str!("fairmesh-quota.lua")
                    .replace("{SOCKET}", &lua(&socket.to_string_lossy()))
                    .replace("{CLUSTER}", &lua(&name))
                    .replace("{ON_SILENCE}", on_silence),
            ),
            prolog: (
                prolog,
                format!(
                    "#!/bin/sh\nexec {program} slurm prolog --config {config} --on-silence {on_silence}\n"
                ),
            ),
        }
    }

    /// The lines of slurm.conf.
    pub(super) fn slurm_conf(&self) -> String {
        let prolog = self.prolog.0.display();
        format!(
            "# Jobs are held to quotas: at submission, and before they start.\n\
             JobSubmitPlugins=lua\nPrologSlurmctld={prolog}\n"
        )
    }

    /// Whether slurmctld holds jobs to an earlier text. It reads job_submit.lua, and the check with it, when it starts
    /// and when that file's time of modification has changed. A copy may keep an old time, so that of the check is the
    /// change of its inode.
    fn is_stale(&self, cluster: &Cluster) -> bool {
        let of = |path: &Path| fs::metadata(path).ok();
        let (Some(stub), Some(check)) = (of(&self.job_submit.0), of(&self.check.0)) else {
            return false;
        };
        let started = cluster
            .value("BOOT_TIME")
            .and_then(|time| time.parse::<i64>().ok());
        let read = |started: i64| started.max(stub.mtime());
        started.is_some_and(|started| check.ctime() > read(started))
    }

    /// What of it a cluster lacks.
    pub(super) fn findings(&self, cluster: &Cluster) -> Vec<(String, String)> {
        let mut findings = Vec::new();
        let reconfigure = "in slurm.conf, then `scontrol reconfigure`";
        let plugins = cluster.value("JobSubmitPlugins").unwrap_or_default();
        if !plugins.split(',').any(|plugin| plugin.trim() == "lua") {
            findings.push(finding(
                "JobSubmitPlugins has no lua, so jobs without credit are not refused at submission",
                format!("write JobSubmitPlugins=lua {reconfigure}"),
            ));
        }
        let prolog = self.prolog.0.display();
        let prologs = ["PrologSlurmctld", "PrologSlurmctld[0]"].map(|key| cluster.value(key));
        if prologs.iter().all(Option::is_none) {
            findings.push(finding(
                "there is no PrologSlurmctld, so what jobs may cost is not held",
                format!("write PrologSlurmctld={prolog} {reconfigure}"),
            ));
        }
        for (path, text) in [&self.check, &self.prolog] {
            if fs::read_to_string(path).is_ok_and(|is| is == *text) {
                continue;
            }
            findings.push(finding(
                format!(
                    "{} is missing, or not as this configuration wants it",
                    path.display()
                ),
                "write the files with `fairmesh slurm setup --write DIR`, and copy it from there",
            ));
        }
        let (path, _) = &self.job_submit;
        let name = self.check.0.to_string_lossy();
        if self.is_stale(cluster) {
            let path = path.display();
            findings.push(finding(
                format!(
                    "{name} has changed since slurmctld read it, and the text of before is in force"
                ),
                format!(
                    "touch {path}: slurmctld reads both when the time of that file has changed"
                ),
            ));
        }
        if !fs::read_to_string(path).is_ok_and(|text| text.contains(&*name)) {
            findings.push(finding(
                format!("{} does not ask {name}", path.display()),
                "take over the two lines with `quota` of the file that `setup --write DIR` writes",
            ));
        }
        if !self.spool.is_dir() {
            let spool = self.spool.display();
            findings.push(finding(
                format!("the spool {spool} is no folder, so jobs that are held for want of credit stay held"),
                format!("install -d -o slurm -g slurm -m 0750 {spool}"),
            ));
        }
        if !has_lua_sockets() {
            findings.push(finding(
                "Lua has no module socket.unix",
                "apt-get install lua-socket",
            ));
        }
        findings
    }
}

fn has_lua_sockets() -> bool {
    let folders = |of: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(of).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let libraries = LUA_FOLDERS.iter().flat_map(|folder| {
        let mut all = folders(Path::new(folder));
        all.push(PathBuf::from(folder));
        all
    });
    let versions = libraries.flat_map(|library| folders(&library.join("lua")));
    versions
        .map(|version| version.join("socket/unix.so"))
        .any(|module| module.exists())
}

/// A text between quotes in Lua.
fn lua(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedulers::{Pair, Sockets};
    use fairmesh_needs::Need;
    use fairmesh_node::config::slurm::SlurmTable;
    use fairmesh_schedulers::slurm::Slurm;
    use std::process::Command;

    /// Runs a Lua program, of which the first argument is the library and the second the program.
    const IN_LUA: &str = r#"
import ctypes, sys
lua = ctypes.CDLL(sys.argv[1])
lua.luaL_newstate.restype = ctypes.c_void_p
lua.lua_tolstring.restype = ctypes.c_char_p
state = ctypes.c_void_p(lua.luaL_newstate())
lua.luaL_openlibs(state)
bad = lua.luaL_loadstring(state, sys.argv[2].encode())
if not bad and hasattr(lua, "lua_pcall"):
    bad = lua.lua_pcall(state, 0, 0, 0)
elif not bad:
    bad = lua.lua_pcallk(state, 0, 0, 0, ctypes.c_ssize_t(0), None)
if bad:
    sys.exit(lua.lua_tolstring(state, -1, None).decode())
"#;

    /// What slurmctld and the node are to the Lua, and a clock that is set.
    const STUBS: &str = r#"
slurm = { SUCCESS = 0, INFINITE = 4294967295, log_user = print, log_error = print }
clock, groups = 1000, nil
os.time = function() return clock end
io.popen = function()
	return groups and { read = function() return groups end, close = function() end }
end
local function nothing() end
local function yes() return true end
package.loaded["socket.unix"] = function()
	return {
		settimeout = nothing, connect = yes, close = nothing,
		send = function(_, text) asked = text; return true end,
		receive = function()
			return 'HTTP/1.1 200 OK\r\n\r\n{"verdict":"waiting","needs_core_ms":"7"}'
		end,
	}
end
function submit(account, component, gid)
	local job = { user_name = "eve", account = account, het_job_offset = component, group_id = gid }
	assert(quota.check(job, {}) == slurm.SUCCESS)
end
"#;

    /// Runs a program beside the Lua that is installed, which it knows as `quota`.
    fn in_lua(program: &str) {
        let libraries = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let files = libraries.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten());
        let library = files.flatten().find(|file| {
            let name = file.file_name();
            let name = name.to_string_lossy();
            name.starts_with("liblua5.") && !name.contains('-') && name.ends_with(".so.0")
        });
        let Some(library) = library.map(|file| file.path()) else {
            return fairmesh_needs::lacks(Need::Slurm, "no liblua");
        };
        let text = include_str!("fairmesh-quota.lua");
        let program = format!("{STUBS}\nquota = (function()\n{text}\nend)()\n{program}");
        let mut python = Command::new("python3");
        match python
            .args(["-c", IN_LUA])
            .arg(library)
            .arg(program)
            .output()
        {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => fairmesh_needs::lacks(Need::Python, &error.to_string()),
        }
    }

    #[test]
    fn nothing_of_a_submission_stays_within_slurmctld() {
        in_lua(
            r#"
for number = 1, 100 do
	submit("cms" .. number, 4294967294)
end
local at, name, kept = 0
repeat
	at = at + 1
	name, kept = debug.getupvalue(quota.check, at)
until name == "components" or name == nil
assert(next(kept) == nil, "an account is kept")
-- What the components of one job need together is known.
submit("cms", 0)
assert(asked:find('"ahead_core_ms":0[,}]'), asked)
submit("cms", 1)
submit("cms", 2)
assert(asked:find('"ahead_core_ms":14[,}]'), asked)
submit("cms", 0)
assert(asked:find('"ahead_core_ms":0[,}]'), asked)
"#,
        );
    }

    #[test]
    fn a_group_that_had_no_name_for_a_moment_has_one_later() {
        in_lua(
            r#"
submit("cms", nil, 5)
assert(not asked:find('"group"'), asked)
groups = "higgs:x:5:eve"
clock = 1009
submit("cms", nil, 5)
assert(not asked:find('"group"'), "asked again at once")
clock = 1010
submit("cms", nil, 5)
assert(asked:find('"group":"higgs"'), asked)
groups = nil
clock = 9999
submit("cms", nil, 5)
assert(asked:find('"group":"higgs"'), "asked again although it has a name")
"#,
        );
    }

    #[test]
    fn a_cluster_without_them_lacks_each() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut table = SlurmTable::defaults(folder.path());
        table.slurm.slurm_conf = Some(folder.path().join("slurm.conf"));
        table.slurm.spool = folder.path().to_owned();
        let pair = Pair {
            scheduler: Slurm::new(table.slurm.clone()),
            settings: table.slurm.common.clone(),
            sockets: Sockets {
                lookup: folder.path().join("lookup.sock"),
                control: "/run/a \"b\".sock".into(),
            },
        };
        let place = Place { table, pair };
        let bare = Cluster::parse("ClusterName = alpha\nJobSubmitPlugins = defaults\n");
        let files = QuotaFiles::of(&place, Some(&bare), "/bin/fairmesh", "/etc/f.toml");
        assert!(files.check.1.contains("local CLUSTER = \"alpha\""));
        assert!(
            files
                .check
                .1
                .contains("local SOCKET = \"/run/a \\\"b\\\".sock\"")
        );
        // As it is wanted also where the prolog cannot read that.
        assert!(files.prolog.1.ends_with(" --on-silence run\n"));
        let problems = |cluster: &Cluster| {
            let findings = files.findings(cluster).into_iter();
            let problems = findings.map(|(problem, _)| problem);
            problems
                .filter(|problem| !problem.starts_with("Lua "))
                .collect::<Vec<_>>()
        };
        let found = problems(&bare);
        assert_eq!(found.len(), 5, "{found:?}");
        for (path, text) in [&files.job_submit, &files.check, &files.prolog] {
            fs::write(path, text).expect("written");
        }
        let good = Cluster::parse("JobSubmitPlugins = defaults,lua\nPrologSlurmctld = /x\n");
        assert_eq!(problems(&good), Vec::<String>::new());
        fs::write(&files.check.0, "-- old").expect("written");
        let found = problems(&good);
        assert!(
            found.len() == 1 && found[0].contains("not as this configuration"),
            "{found:?}"
        );
        // The right text once more, which slurmctld has not read: job_submit.lua is of before, and so is its start.
        fs::write(&files.check.0, &files.check.1).expect("written");
        let stub = fs::File::options().append(true).open(&files.job_submit.0);
        let stub = stub.expect("there");
        stub.set_modified(std::time::UNIX_EPOCH).expect("set");
        let running = |boot_time: &str| {
            let plugins = "JobSubmitPlugins = lua\nPrologSlurmctld = /x\n";
            problems(&Cluster::parse(&format!(
                "{plugins}BOOT_TIME = {boot_time}\n"
            )))
        };
        let found = running("1000");
        assert!(
            found.len() == 1 && found[0].contains("has changed since slurmctld read it"),
            "{found:?}"
        );
        assert_eq!(
            running("99999999999"),
            Vec::<String>::new(),
            "started since"
        );
        let touched = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
        stub.set_modified(touched).expect("set");
        assert_eq!(running("1000"), Vec::<String>::new());
    }
}
