//! `fairmesh init`: a key, a commented configuration and a share tree, ready to be edited.
//!
//! Invariant: nothing that is there is ever overwritten, and where one of the files is there, none
//! is made: half a set-up with a new key would be another site. Where one cannot be made, none stays. Deliberately not
//! here: VOs, which their authorities make (`policy_cmd`).

pub mod key;
mod own;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use fairmesh_model::{SiteId, is_visible};
use fairmesh_node::config::LISTEN_DEFAULT;
use fairmesh_node::network::Multiaddr;

pub use key::{generate_key, load_key, write_new};

use crate::output::Exit;

pub(crate) const CONFIG: &str = include_str!("fairmesh.toml");
const SHARES: &str = include_str!("shares.toml");

/// Defaults that `configs/fairmesh.service` has otherwise, and what it expects.
const SYSTEMD: [(&str, &str); 4] = [
    ("data_dir = \"data\"", "/var/lib/fairmesh"),
    (
        "key_file = \"site.key\"",
        "/run/credentials/fairmesh.service/site.key",
    ),
    (
        "lookup = \"data/run/lookup.sock\"",
        "/run/fairmesh/lookup.sock",
    ),
    (
        "control = \"data/run/control.sock\"",
        "/run/fairmesh/control.sock",
    ),
];

/// Make a site's key and a commented configuration
#[derive(Debug, Clone, clap::Args)]
pub struct InitArgs {
    /// Where to put them; made if it is not there
    pub dir: PathBuf,
    /// What people call the site [default: this host's name]
    #[arg(long)]
    pub name: Option<String>,
    /// CPUs of the cluster as its batch system counts them: the most that the site may report as used at one moment.
    ///
    /// They are threads where the batch system counts threads, and slots in Grid Engine and LSF. A job that holds more
    /// is refused. Slurm: the fourth number of `sinfo -a -h -o %C`. Grid Engine: the slots of each host in `qhost -q`.
    /// HTCondor: TotalSlotCpus of each slot that is not dynamic. PBS: resources_available.ncpus of each node in
    /// `pbsnodes -a`. LSF: MAX of each host in `bhosts -w`. Without it they are to be filled in before a charter can
    /// be signed.
    #[arg(long, alias = "cores", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: Option<u32>,
    /// Where the node listens; repeat it for several [default: /ip4/0.0.0.0/tcp/7600, which is all addresses; with
    /// --systemd the address of this machine by which others reach it]
    #[arg(long, value_name = "MULTIADDR")]
    pub listen: Vec<Multiaddr>,
    /// Where other sites reach it, for the charter; repeat it for several
    #[arg(long, value_name = "MULTIADDR")]
    pub address: Vec<Multiaddr>,
    /// Write the paths that the packaged unit expects (state in /var/lib/fairmesh, sockets in /run/fairmesh, and the
    /// copy of the key that systemd hands over), and an address to listen at, for the unit has no netlink
    #[arg(long)]
    pub systemd: bool,
    /// Print the site's id and nothing else
    #[arg(short, long)]
    pub quiet: bool,
}

/// Runs `fairmesh init`: writes keys, a configuration and a unit, and prints the next steps.
pub fn run(args: &InitArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut args = args.clone();
    if args.systemd && args.listen.is_empty() {
        args.listen.extend(own::own_address(&args.address));
    }
    let args = &args;
    let name = args.name.clone().unwrap_or_else(host_name);
    let clean = name.chars().all(|c| is_visible(c) && c != '/');
    ensure!(
        clean && (1..=64).contains(&name.len()),
        "`{name}` is no name: use 1 to 64 visible bytes without `/`"
    );
    let files = ["site.key", "fairmesh.toml", "shares.toml", "member.toml"];
    let files = files.map(|file| args.dir.join(file));
    let there = files.iter().find(|file| file.exists());
    if let Some(file) = there {
        anyhow::bail!(
            "{} is there already: nothing was made or changed",
            file.display()
        );
    }
    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make {}", args.dir.display()))?;
    let mut made = Vec::new();
    let (site, member) = make(&files, args, &name, &mut made).inspect_err(|_| {
        // One that cannot be removed either is named by the next try.
        made.iter()
            .for_each(|file| drop(std::fs::remove_file(file)));
    })?;
    if args.quiet {
        writeln!(out, "{}", site.checked())?;
    } else {
        write_next_steps(out, args, site, &member)?;
    }
    Ok(Exit::Success)
}

/// Makes the files, and says in `made` which; gives the site's id and its lines in a charter.
fn make<'f>(
    files: &'f [PathBuf; 4],
    args: &InitArgs,
    name: &str,
    made: &mut Vec<&'f PathBuf>,
) -> anyhow::Result<(SiteId, String)> {
    let [key_file, config_file, shares_file, member_file] = files;
    write_new(shares_file, SHARES.as_bytes(), 0o644)?;
    made.push(shares_file);
    write_new(config_file, config(name, args).as_bytes(), 0o644)?;
    made.push(config_file);
    let site = generate_key(key_file)?.site_id();
    made.push(key_file);
    let member = member(args, name, site);
    write_new(member_file, member.as_bytes(), 0o644)?;
    Ok((site, member))
}

fn config(name: &str, args: &InitArgs) -> String {
    let mut text = CONFIG.replace("{NAME}", &toml::Value::from(name).to_string());
    if !args.listen.is_empty() {
        let default = format!("#: listen = [\"{LISTEN_DEFAULT}\"]");
        text = text.replace(&default, &format!("listen = {}", list(&args.listen)));
    }
    for (default, path) in SYSTEMD.iter().filter(|_| args.systemd) {
        let (key, _) = default.split_once(" = ").unwrap_or((default, ""));
        text = text.replace(&format!("#: {default}\n"), &format!("{key} = \"{path}\"\n"));
    }
    text
}

/// The site's lines in a charter.
fn member(args: &InitArgs, name: &str, site: SiteId) -> String {
    let name = toml::Value::from(name);
    // A number made up here would be a limit that nobody chose, and a draft without one cannot be signed.
    let cpus = args.cpus.map_or_else(
        || "# cpus = FILL IN: of the whole cluster, as its batch system counts them (`fairmesh init --help`)".to_owned(),
        |cpus| format!("cpus = {cpus}"),
    );
    let addresses = if args.address.is_empty() {
        "[\"/dns4/YOUR.HOST/tcp/7600\"]".to_owned()
    } else {
        list(&args.address)
    };
    let site = site.checked();
    format!("[[site]]\nname = {name}\nid = \"{site}\"\n{cpus}\naddresses = {addresses}\n")
}

fn list(addresses: &[Multiaddr]) -> String {
    let quoted = addresses.iter().map(|address| format!("\"{address}\""));
    format!("[{}]", quoted.collect::<Vec<_>>().join(", "))
}

fn write_next_steps(
    out: &mut dyn Write,
    args: &InitArgs,
    site: SiteId,
    member: &str,
) -> anyhow::Result<()> {
    let dir = args.dir.display();
    let config = args.dir.join("fairmesh.toml");
    let config = config.display();
    let site = site.checked();
    let listen = match args.listen.is_empty() {
        true => LISTEN_DEFAULT.to_owned(),
        false => list(&args.listen),
    };
    let start = match args.systemd {
        true => "systemctl enable --now fairmesh".to_owned(),
        false => format!("fairmesh run --config {config}"),
    };
    let member = member.trim_end().replace('\n', "\n         ");
    write!(
        out,
        "Made site.key, fairmesh.toml, shares.toml and member.toml in {dir}

site id  {site}

Keep site.key secret and keep a copy of it: it is the site.

Next:
  1. Edit {config} and {dir}/shares.toml, then
         fairmesh check-config --config {config}
  2. Give the authority of your VO these lines for its charter; they are in {dir}/member.toml:
         {member}
     It takes them into a draft (fairmesh policy new charter --site member.toml), signs and publishes it.
     cpus are those that the batch system counts: threads where it counts threads, slots in Grid Engine and LSF.
  3. Start the node, which listens on {listen}:
         {start}
"
    )?;
    Ok(())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "site" } else { name }.to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use fairmesh_node::config::Config;

    fn ran(dir: &Path, name: &str) -> anyhow::Result<String> {
        let args = InitArgs {
            dir: dir.to_owned(),
            name: Some(name.to_owned()),
            cpus: Some(96),
            listen: Vec::new(),
            address: Vec::new(),
            systemd: false,
            quiet: false,
        };
        let mut out = Vec::new();
        assert_eq!(run(&args, &mut out)?, Exit::Success);
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn what_is_made_is_valid_and_never_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("etc");
        let said = ran(&dir, "hpc \"1\"").expect("makes files");
        let config = Config::load(&dir.join("fairmesh.toml")).expect("valid");
        assert_eq!(config.name, "hpc \"1\"");
        let key = load_key(&config.key_file).expect("a key");
        assert!(
            said.contains(&key.site_id().to_string()) && said.contains("cpus = 96"),
            "{said}"
        );
        let mut args = InitArgs {
            dir,
            name: None,
            cpus: None,
            listen: Vec::new(),
            address: Vec::new(),
            systemd: true,
            quiet: true,
        };
        let text = super::config("hpc", &args);
        let unit = include_str!("../../../configs/fairmesh.service");
        let here = Path::new("/etc/fairmesh/fairmesh.toml");
        let no_file = |_: &Path| anyhow::bail!("no file");
        let text = text.replace("policy_file = \"shares.toml\"\n", "");
        let packaged = Config::parse(&text, here, &no_file).expect("valid");
        let paths = [
            &packaged.data_dir,
            &packaged.key_file,
            &packaged.sockets.lookup,
            &packaged.sockets.control,
        ];
        for (path, (_, expected)) in paths.iter().zip(SYSTEMD) {
            assert_eq!(path.to_string_lossy(), expected);
            assert!(unit.contains(&format!("\"{expected}\"\n")), "{expected}");
        }
        let unknown = member(&args, "hpc", key.site_id());
        assert!(unknown.contains("\n# cpus = FILL IN"), "{unknown}");
        args.cpus = Some(7);
        assert!(member(&args, "hpc", key.site_id()).contains("\ncpus = 7\n"));
        let dir = args.dir;
        let error = ran(&dir, "hpc2").expect_err("it is there").to_string();
        assert!(error.contains("site.key is there already"), "{error}");
        std::fs::remove_file(&config.key_file).expect("removes");
        let error = ran(&dir, "hpc2").expect_err("a half is there").to_string();
        assert!(error.contains("fairmesh.toml is there already"), "{error}");
        assert!(!config.key_file.exists());
        assert!(ran(&folder.path().join("x"), "a/b").is_err());
    }

    #[test]
    fn a_key_that_is_named_as_the_configuration_is_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("site.key");
        generate_key(&path).expect("makes a key");
        let secret = std::fs::read_to_string(&path).expect("there");
        let error = format!("{:?}", Config::load(&path).expect_err("a key"));
        assert!(error.contains("site.key:1:1: this is a file"), "{error}");
        assert!(!error.contains(&secret[..8]), "{error}");
    }

    /// Every key that the comments mention exists, with the default that they say.
    #[test]
    fn the_commented_keys_are_the_defaults() {
        let plain = CONFIG
            .replace("{NAME}", "\"x\"")
            .replace("policy_file = \"shares.toml\"\n", "");
        let shown: String = plain
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        let config = |text: &str| {
            let no_file = |_: &Path| anyhow::bail!("no file");
            Config::parse(text, Path::new("/etc/fairmesh/fairmesh.toml"), &no_file)
        };
        let mut shown = config(&shown).unwrap_or_else(|error| panic!("{error:#}"));
        // Without the table there is no Slurm; with an empty one it has these.
        let slurm = fairmesh_node::config::slurm::SlurmTable::defaults(&shown.data_dir);
        assert_eq!(shown.slurm.take(), Some(slurm));
        // And so it is of what is told of free CPUs.
        assert_eq!(shown.advert.take(), Some(Default::default()));
        // And of jobs that are passed on.
        assert_eq!(shown.forward.take(), Some(Default::default()));
        assert_eq!(shown, config(&plain).expect("valid"));
    }
}
