//! Whole files: the examples, and mistakes with the place where they are.

use super::*;

const MINIMAL: &str = "[site]\nname = \"hpc1\"\n";

fn config(text: &str) -> anyhow::Result<Config> {
    let no_file = |path: &Path| anyhow::bail!("no file {}", path.display());
    Config::parse(text, Path::new("/etc/fairmesh/fairmesh.toml"), &no_file)
}

/// A file whose first four lines name a site and the VO `physics`.
pub(super) fn with_physics(rest: &str) -> Result<Config, String> {
    let no_file = |path: &Path| anyhow::bail!("no file {}", path.display());
    let text = format!(
        "[site]\nname = \"s\"\n[vos]\nphysics = \"{}\"\n{rest}",
        vo(1)
    );
    let config = Config::parse(&text, Path::new("f.toml"), &no_file);
    config.map_err(|error| format!("{error:#}"))
}

fn problem(text: &str) -> String {
    config(text).expect_err(text).to_string()
}

fn vo(byte: u8) -> String {
    VoId::from_bytes([byte; 32]).to_string()
}

#[test]
fn a_name_is_enough() {
    let config = config(MINIMAL).expect("valid");
    assert_eq!(config.listen, [LISTEN_DEFAULT.parse().expect("an address")]);
    assert_eq!(config.data_dir, Path::new("/etc/fairmesh/data"));
    assert_eq!(config.key_file, Path::new("/etc/fairmesh/site.key"));
    assert_eq!(
        config.sockets.lookup,
        Path::new("/etc/fairmesh/data/run/lookup.sock")
    );
    assert_eq!(config.sockets.writers, [Writer::Name("root".to_owned())]);
    assert_eq!(config.history, HistoryRule::default());
    assert_eq!(config.timing, Timing::default());
}

#[test]
fn vos_without_a_tree_share_equally() {
    let text = format!("{MINIMAL}[vos]\na = \"{}\"\nb = \"{}\"\n", vo(1), vo(2));
    let config = config(&text).expect("valid");
    let targets: Vec<_> = config
        .policy
        .entries()
        .map(|(path, entry)| (path.to_string(), entry.share.to_string()))
        .collect();
    let half = |path: &str| (path.to_owned(), "1".to_owned());
    assert_eq!(targets, [half("/a"), half("/b")]);
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let id = vo(1);
    for (rest, place, words) in [
        ("colour = 1\n", "3:1", "unknown field `colour`"),
        (
            "[timing]\npublish = \"10x\"\n",
            "4:11",
            "`timing.publish`: `10x` is not a length of time",
        ),
        (
            "[records]\nkeep_size = \"4GB\"\n",
            "4:13",
            "`records.keep_size`: `4GB` is not a size",
        ),
        (
            "[records]\nkeep_size = \"15M\"\n",
            "4:13",
            "`records.keep_size`: `15M` is less than 16 MiB",
        ),
        (
            "[timing]\nheartbeat = \"1s\"\n",
            "4:13",
            "heartbeat is shorter than publish",
        ),
        (
            "[timing]\nsilence = \"30s\"\n",
            "4:11",
            "silence is not longer than heartbeat",
        ),
        ("[timing]\nsweep_entries = 0\n", "4:17", "at least 1"),
        (
            "[history]\nwindow = \"7h\"\n",
            "4:10",
            "does not divide a day",
        ),
        (
            "[network]\nlisten = [\"0.0.0.0:7600\"]\n",
            "4:11",
            "write a multiaddress",
        ),
        (
            "[network]\npeers = [\"/ip4/192.0.2.1/tcp/1\"]\n",
            "4:10",
            "no `@`",
        ),
        (
            "[network]\npeers = [\"abc@/ip4/192.0.2.1/tcp/1\"]\n",
            "4:10",
            "64 hexadecimal",
        ),
        (
            &format!("[network]\npeers = [\"{id}@/dnsaddr/a.test\"]\n"),
            "4:10",
            "`network.peers`: DNS is not asked for /dnsaddr/a.test: write /dns, /dns4 or /dns6",
        ),
        ("[sockets]\nlookup_mode = \"0999\"\n", "4:15", "octal"),
        ("[sockets]\nlookup_mode = \"4755\"\n", "4:15", "octal"),
        ("[sockets]\nlookup_connections = 7\n", "4:22", "8 to 10000"),
        (
            "[sockets]\nwriters = [\"a b\"]\n",
            "4:12",
            "not a user name",
        ),
        ("[vos]\na = \"12\"\n", "4:5", "`vos.a`: `12` is not a VO id"),
        (
            "[vos]\n\"a/b\" = \"12\"\n",
            "4:9",
            "cannot be a name in a path",
        ),
        (
            "[[identity]]\npath = \"/x\"\nvo = \"a\"\n",
            "5:6",
            "no VO has the alias `a`",
        ),
        (
            "[[identity]]\npath = \"/x/{usr}\"\n",
            "4:8",
            "an unknown word in braces",
        ),
        (
            "[[identity]]\npath = \"x\"\n",
            "4:8",
            "does not begin with `/`",
        ),
        (
            "[shares]\n\"/a\" = { share = 3, mount = \"a\" }\n",
            "4:1",
            "mounts `a`, which has no id",
        ),
        ("[shares]\n\"/a\" = -1\n", "4:8", "outside 0..10000000000"),
    ] {
        let problem = problem(&format!("{MINIMAL}{rest}"));
        assert!(
            problem.starts_with(&format!("/etc/fairmesh/fairmesh.toml:{place}: ")),
            "{problem}"
        );
        assert!(problem.contains(words), "{problem}");
    }
    for (text, words) in [
        ("", "missing field `site`"),
        ("[site]\nname = \"a/b\"\n", "not a name"),
        ("[site\n", "fairmesh.toml:1:"),
        (
            "policy_file = \"s.toml\"\n[site]\nname = \"a\"\n",
            "no file /etc/fairmesh/s.toml",
        ),
        (
            "policy_file = \"s.toml\"\n[site]\nname = \"a\"\n[shares]\n",
            "not both",
        ),
    ] {
        assert!(problem(text).contains(words), "{}", problem(text));
    }
    let twice = format!("{MINIMAL}[vos]\na = \"{id}\"\nb = \"{id}\"\n");
    assert!(problem(&twice).contains("another alias already"));
}

#[test]
fn a_reload_says_what_it_does() {
    let old = config(MINIMAL).expect("valid");
    assert_eq!(Config::diff(&old, &old), Reload::default());
    let changed = "[site]\nname = \"hpc2\"\n[network]\nlisten = []\n[timing]\nsync = \"5s\"\n[shares]\n\"/l\" = 1\n";
    let reload = Config::diff(&old, &config(changed).expect("valid"));
    assert_eq!(reload.applied, ["shares", "timing"]);
    assert_eq!(reload.needs_restart, ["site.name", "network.listen"]);
    // A history is told in windows, and these stay.
    let reload_of = |history: &str| {
        Config::diff(
            &old,
            &config(&format!("{MINIMAL}[history]\n{history}")).expect("valid"),
        )
    };
    assert_eq!(reload_of("half_life = \"2d\"").applied, ["history"]);
    let days = reload_of("window = \"1d\"");
    assert_eq!(
        (days.applied, days.needs_restart),
        (
            vec![],
            vec!["history.window".to_owned(), "history".to_owned()]
        )
    );
}

#[test]
fn what_an_owner_can_hardly_mean_is_named() {
    let id = "ab".repeat(32);
    let rule = |account: &str| {
        format!(
            "[[identity]]\naccount = \"{account}\"\nvo = \"a\"\npath = \"/{{account}}/{{user}}\"\n"
        )
    };
    let doubts = |text: String| -> Vec<String> {
        let doubts = config(&text).expect("valid").doubts().into_iter();
        doubts
            .map(|found| format!("{}: {}", found.code, found.text))
            .collect()
    };
    let vos = format!("{MINIMAL}[vos]\na = \"{id}\"\n");
    let good = format!("{vos}{}", rule("*"));
    assert_eq!(doubts(good.clone()), [""; 0]);
    let doubted = |text: String, expected: &str| {
        let found = doubts(text);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    };
    doubted(
        vos,
        "vo-without-rule: vos.a: no identity rule has vo = \"a\"",
    );
    doubted(
        format!("{good}[shares]\n\"/l\" = 1\n"),
        "vo-not-mounted: vos.a: no entry of the share tree mounts",
    );
    doubted(
        format!("{good}{}", rule("cms")),
        "rule-hidden: identity: rule 2 (account = \"cms\") is never reached: rule 1 (account = \"*\")",
    );
    doubted(
        format!("{good}[history]\nhalf_life = \"30d\"\nhorizon = \"7d\"\n"),
        "half-life-beyond-horizon: history.half_life is longer than history.horizon",
    );
    let hidden = format!("{good}[privacy]\nhide = [\"priority\"]\n");
    assert_eq!(doubts(hidden.clone()), [""; 0]);
    doubted(
        format!("{hidden}[page]\nlisten = \"127.0.0.1:7680\"\n"),
        "page-hidden: page: it does not know who reads it",
    );
    doubted(
        format!("{good}[privacy.coordinators]\n\"/a/p\" = [\"carol\"]\n"),
        "coordinators-in-vain: privacy.coordinators",
    );
}

#[test]
fn every_example_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let folder = std::env::var_os("FAIRMESH_CONFIGS").map_or(folder, PathBuf::from);
    let mut examples = 0;
    for file in std::fs::read_dir(&folder).expect("the examples are in configs/") {
        let path = file.expect("readable").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("UTF-8")
            .to_owned();
        match name.as_str() {
            _ if !name.ends_with(".toml")
                || name.starts_with("vo-")
                || name.ends_with("shares.toml") => {}
            _ => {
                let config = Config::load(&path).unwrap_or_else(|error| panic!("{error:#}"));
                assert_eq!(config.doubts(), [], "{name}");
                assert!(
                    !config.to_site_config().introducers.is_empty(),
                    "{name} names a peer"
                );
                examples += 1;
            }
        }
    }
    assert!(examples >= 3, "{examples} examples in {}", folder.display());
}

#[test]
fn records_are_kept_for_400_days_unless_told_otherwise() {
    let kept = config(MINIMAL).expect("valid").records;
    assert_eq!(kept, Some(Keep::default()));
    let text = format!("{MINIMAL}[records]\nkeep = \"7d\"\nkeep_size = \"1GiB\"\n");
    let short = config(&text).expect("valid");
    let keep = short.records.expect("kept");
    assert_eq!((keep.age.0, keep.bytes), (7 * 86_400_000, 1 << 30));
    let none = config(&format!("{MINIMAL}[records]\nenabled = false\n")).expect("valid");
    assert_eq!(none.records, None);
    let applied = Config::diff(&config(MINIMAL).expect("valid"), &short).applied;
    assert_eq!(applied, ["records"]);
    let restart = Config::diff(&short, &none).needs_restart;
    assert_eq!(restart, ["records.enabled"]);
}

#[test]
fn a_rule_of_no_vo_into_a_vos_tree_is_doubted() {
    let doubts = |rule: &str| {
        let text = format!(
            "[[identity]]\n{rule}\n[[identity]]\naccount = \"p\"\nvo = \"physics\"\npath = \"/x\"\n\
             [shares]\n\"/physics\" = {{ share = 1, mount = \"physics\" }}\n\"/local\" = 1\n"
        );
        let doubts = with_physics(&text).expect("valid").doubts();
        let below = doubts
            .into_iter()
            .filter(|doubt| doubt.code == "below-mount");
        below.count()
    };
    assert_eq!(doubts("account = \"a\"\npath = \"/physics/{user}\""), 1);
    assert_eq!(doubts("account = \"a\"\npath = \"/local/{user}\""), 0);
    assert_eq!(
        doubts("account = \"a\"\nvo = \"physics\"\npath = \"/physics/{user}\""),
        0
    );
}
