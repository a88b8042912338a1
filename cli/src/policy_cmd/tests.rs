//! An authority's work from the first key to the second charter, as files.

use clap::Parser;
use fairmesh_model::{Distance, KeyId};

use super::*;
use crate::emulate::{Charges, ShareTree};

#[derive(Debug, clap::Parser)]
struct Cli {
    #[command(flatten)]
    policy: PolicyArgs,
}

/// A folder, and commands run in it.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("there")
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("writes");
    }

    /// Runs a command line in which `@name` is a file in the folder.
    fn try_run(&self, line: &str) -> anyhow::Result<(Exit, String)> {
        let words = line
            .split_whitespace()
            .map(|word| match word.strip_prefix('@') {
                Some(name) => self.path(name).display().to_string(),
                None => word.to_owned(),
            });
        let cli = Cli::try_parse_from(std::iter::once("policy".to_owned()).chain(words))?;
        let mut out = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let exit = runtime.block_on(run(&cli.policy, &mut out))?;
        Ok((exit, String::from_utf8(out)?))
    }

    fn run(&self, line: &str) -> String {
        let (exit, said) = self
            .try_run(line)
            .unwrap_or_else(|error| panic!("{line}: {error:#}"));
        assert_eq!(exit, Exit::Success, "{line}: {said}");
        said.trim_end().to_owned()
    }

    fn refused(&self, line: &str) -> String {
        format!("{:#}", self.try_run(line).expect_err(line))
    }

    fn fails(&self, line: &str) -> String {
        let (exit, said) = self
            .try_run(line)
            .unwrap_or_else(|error| panic!("{line}: {error:#}"));
        assert_eq!(exit, Exit::Failure, "{line}: {said}");
        said
    }
}

/// Keys a, b and c; charter 1 of a and b (both must sign), whose shares c signs.
fn founded() -> Desk {
    let desk = Desk::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| desk.run(&format!("keygen @{name}")));
    desk.run(&format!(
        "new charter --name VO-B --authority {a} --authority {b} --threshold 2 --policy {c} -o @1.toml"
    ));
    let site = KeyId::from_bytes([7; 32]);
    let sites = format!("[[site]]\nname = \"hpc1\"\nid = \"{site}\"\ncores = 96\n");
    desk.write("1.toml", &(desk.read("1.toml") + &sites));
    desk
}

#[test]
fn signatures_are_added_one_by_one() {
    let desk = founded();
    let said = desk.run("sign @1.toml --key @a");
    assert!(said.contains("1 of 2 needed signatures"), "{said}");
    let said = desk.fails("verify @1.cbor");
    assert!(
        said.contains("1 valid signatures of the 2 that are needed"),
        "{said}"
    );
    // The other machine has the same draft, and comes to the same payload.
    desk.run("sign @1.toml --key @b -o @other.cbor");
    let hash = |file: &str| {
        desk.run(&format!("show @{file}"))
            .lines()
            .nth(2)
            .map(str::to_owned)
    };
    assert_eq!(hash("1.cbor"), hash("other.cbor"));
    assert!(
        desk.refused("sign @1.toml --key @b")
            .contains("is there already")
    );
    let said = desk.run("sign @1.cbor --key @b --key @c");
    assert!(
        said.contains("2 of 2 needed") && said.contains("is no key of this charter"),
        "{said}"
    );
    assert!(desk.run("verify @1.cbor").contains("ok "), "complete now");
}

#[test]
fn a_charter_is_followed_by_the_next_and_by_shares() {
    let desk = founded();
    desk.run("sign @1.toml --key @a --key @b");
    desk.run("new charter --from @1.cbor -o @2.toml");
    assert!(
        desk.read("2.toml").contains("version = 2\nvo = \""),
        "{}",
        desk.read("2.toml")
    );
    desk.write(
        "2.toml",
        &desk
            .read("2.toml")
            .replace("name = \"VO-B\"", "name = \"VO-C\""),
    );
    desk.run("sign @2.toml --key @a --key @b");
    assert_eq!(
        desk.run("verify @2.cbor --charter @1.cbor")
            .matches("ok ")
            .count(),
        2
    );
    assert!(desk.fails("verify @2.cbor").contains("missing"));
    desk.run("new shares --charter @1.cbor -o @s.toml");
    let tree = "\"/P-B1\" = 60\n\"/P-B1/U-B11\" = 12.5\n\"/P-B2\" = 40\n";
    desk.write("s.toml", &(desk.read("s.toml") + tree));
    desk.run("sign @s.toml --key @a -o @wrong.cbor");
    assert!(
        desk.fails("verify @wrong.cbor --charter @1.cbor")
            .contains("0 valid signatures")
    );
    desk.run("sign @s.toml --key @c");
    desk.run("verify @s.cbor --charter @1.cbor @2.cbor");
    let shown = desk.run("show @s.cbor --charter @1.cbor");
    assert!(
        shown.contains("# 1 of 1 needed signatures of its role are valid"),
        "{shown}"
    );
    assert!(shown.contains("\"/P-B1/U-B11\" = 12.5"), "{shown}");
    desk.run("new shares --from @s.cbor -o @s2.toml");
    assert!(desk.read("s2.toml").contains("version = 2\nprevious = \""));
    assert!(
        desk.refused("verify @s.cbor")
            .contains("nothing says who may sign")
    );
}

#[test]
fn what_show_prints_is_the_draft() {
    let desk = founded();
    let rules = desk
        .read("1.toml")
        .replace(
            "charging = \"cpu-time\"",
            "charging = { weights = { cpu = 1000, gpu = 8000, mem_gib = 250 } }",
        )
        .replace("usage_mode = \"active\"", "usage_mode = \"predictive\"")
        .replace("distance = \"absolute\"", "distance = \"mix:0.25\"")
        .replace(
            "half_life = \"7d\"\nhorizon = \"90d\"",
            "windows = { length = \"1d\", count = 9, factor = 90.5 }",
        );
    desk.write("1.toml", &rules);
    desk.run("sign @1.toml --key @a");
    desk.write("shown.toml", &desk.run("show @1.cbor"));
    desk.run("sign @shown.toml --key @a");
    // How long it is to its end may change between the two.
    let show = |what: &str| {
        let shown = desk.run(what);
        let lines = shown.lines().filter(|line| !line.starts_with("# expires"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(show("show @1.cbor"), show("show @shown.cbor"));
    let Draft::Charter(charter) = Draft::parse(&rules, "x").expect("valid") else {
        panic!("a charter")
    };
    assert_eq!(
        charter.distance,
        Distance::Mix {
            k: fairmesh_model::Share::from_percent(25).expect("25")
        }
    );
    assert_ne!(charter.charging, fairmesh_model::ChargingRule::CpuTime);
}

#[test]
fn a_charter_may_charge_by_machine_and_with_discounts() {
    let desk = founded();
    let rules = desk.read("1.toml").replace(
        "charging = \"cpu-time\"",
        "charging = { penalty = { disk = false, factor_max = 2.5 } }\n\
         discounts = { preemptible = 50 }",
    );
    desk.write("1.toml", &rules);
    desk.run("sign @1.toml --key @a");
    let shown = desk.run("show @1.cbor");
    for line in [
        "charging = { penalty = { gpu = true, disk = false, factor_max = 2.5 } }",
        "discounts = { preemptible = 50, idle = 100 }",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    desk.write("shown.toml", &shown);
    desk.run("sign @shown.toml --key @a");
    let again = desk.run("show @shown.cbor");
    // A day more may have passed of the time that is left.
    let draft = |shown: &str| {
        shown
            .split_once("[charter]")
            .map(|(_, draft)| draft.to_owned())
    };
    assert!(draft(&shown).is_some());
    assert_eq!(draft(&shown), draft(&again));
}

#[test]
fn mistakes_in_drafts_are_shown_where_they_are() {
    let desk = founded();
    let good = desk.read("1.toml");
    for (from, to, words) in [
        ("cores = 96", "cores = -1", "1.toml:"),
        ("cores = 96", "core = 96", "unknown field `core`"),
        (
            "threshold = 2",
            "threshold = 3",
            "authority: threshold 3 of 2 keys",
        ),
        ("window = \"1h\"", "window = \"7h\"", "`charter.window`"),
        (
            "distance = \"absolute\"",
            "distance = \"far\"",
            "`charter.distance`",
        ),
        ("issued = 20", "issued = 21", "expires before it is issued"),
        ("version = 1", "version = 2", "version 2"),
        ("[charter]", "[chart]", "neither a charter"),
    ] {
        desk.write("1.toml", &good.replacen(from, to, 1));
        let problem = desk.refused("sign @1.toml --key @a");
        assert!(problem.contains(words), "{from} -> {to}: {problem}");
    }
    desk.write("1.toml", &good);
    desk.run("sign @1.toml --key @a --key @b");
    desk.run("new shares --charter @1.cbor -o @s.toml");
    let lines = desk.read("s.toml").lines().count();
    desk.write("s.toml", &(desk.read("s.toml") + "\"/x\" = -1\n"));
    let problem = desk.refused("sign @s.toml --key @c");
    assert!(
        problem.contains(&format!("s.toml:{}:8: ", lines + 1)),
        "{problem}"
    );
    desk.write("junk", "\u{1}");
    assert!(desk.refused("sign @junk --key @a").contains("junk:1:"));
    std::fs::write(desk.path("junk.cbor"), [0xd8, 0x62, 0x80]).expect("writes");
    assert!(desk.refused("show @junk.cbor").contains("is no document"));
    let whole = std::fs::read(desk.path("1.cbor")).expect("signed");
    std::fs::write(desk.path("short.cbor"), &whole[..whole.len() / 2]).expect("writes");
    let problem = desk.refused("show @short.cbor");
    let is_clear = problem.contains("cut off at byte") && !problem.contains("charter");
    assert!(is_clear, "{problem}");
}

#[test]
fn a_plan_says_who_gains_and_who_loses() {
    let tree = |text: &str| ShareTree::parse(&format!("[shares]\n{text}"), "t").expect("valid");
    let old = tree("\"/a\" = 50\n\"/b\" = 50\n\"/b/u\" = 100\n");
    let new = tree("\"/a\" = 75\n\"/b\" = 25\n\"/b/u\" = 50\n\"/b/v\" = 50\n");
    let usage = Charges::parse("path,charge\n/a,60\n/b/u,40\n", "u").expect("valid");
    let lines = plan::compare(&old, &new, Some(&usage), Distance::Absolute, || {}).expect("plans");
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line.path.as_str(),
                line.change.as_str(),
                line.old_rank,
                line.new_rank,
            )
        })
        .collect();
    let expected = [
        ("/a", "+25", Some(2), Some(1)),
        ("/b/v", "+12.5", None, Some(2)),
        ("/b", "-25", Some(1), Some(3)),
        ("/b/u", "-37.5", Some(1), Some(4)),
    ];
    assert_eq!(seen, expected);
    let desk = Desk::new();
    desk.write("old.toml", "[shares]\n\"/a\" = 50\n\"/b\" = 50\n");
    desk.write("new.toml", "[shares]\n\"/a\" = 75\n\"/b\" = 25\n");
    let said = desk.run("plan --old @old.toml --new @new.toml -P");
    assert_eq!(said, "Entry|Old%|New%|Change%\n/a|50|75|+25\n/b|50|25|-25");
    desk.write(
        "less.toml",
        "[shares]\n\"/a\" = { share = 50, at_most = 60 }\n\"/b\" = 50\n",
    );
    assert_eq!(
        desk.run("plan --old @old.toml --new @less.toml -P"),
        "Entry|Old%|New%|Change%|OldAtMost%|NewAtMost%\n/a|50|50|0|100|60"
    );
    desk.write(
        "local.toml",
        "[shares]\n\"/a\" = { share = 50, usage = \"local\", distance = \"relative\" }\n\"/b\" = 50\n",
    );
    assert_eq!(
        desk.run("plan --old @old.toml --new @local.toml -P"),
        "Entry|Old%|New%|Change%|OldTerms|NewTerms\n/a|-|-|0|-|usage local, distance relative"
    );
    assert_eq!(
        desk.run("plan --old @old.toml --new @old.toml"),
        "nobody gains or loses"
    );
}

#[test]
fn the_example_charter_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let folder = std::env::var_os("FAIRMESH_CONFIGS").map_or(folder, PathBuf::from);
    for name in ["vo-charter.toml", "vo-shares.toml"] {
        let text = std::fs::read_to_string(folder.join(name)).expect("there");
        let draft = Draft::parse(&text, name).unwrap_or_else(|error| panic!("{error:#}"));
        let again = match &draft {
            Draft::Charter(charter) => charter_toml(charter),
            Draft::Shares(shares) => shares_toml(shares),
            Draft::Allocation(body) => allocation_toml(body),
            Draft::Snapshot(body) => snapshot_draft::snapshot_toml(body),
        };
        assert_eq!(Draft::parse(&again, name).expect("what we write"), draft);
    }
}

#[test]
fn credit_is_drafted_signed_shown_and_changed() {
    let desk = Desk::new();
    let key = desk.run("keygen @a.key");
    desk.run(&format!(
        "new charter --name vo --authority {key} --out @c.toml"
    ));
    let sites = [("a", "11".repeat(32), 30), ("b", "22".repeat(32), 10)];
    let mut charter = desk.read("c.toml");
    for (name, id, cores) in &sites {
        charter += &format!("[[site]]\nname = \"{name}\"\nid = \"{id}\"\ncores = {cores}\n");
    }
    desk.write("c.toml", &charter);
    desk.run("sign @c.toml --key @a.key");
    desk.run(
        "new allocation --charter @c.cbor --path /P-A1 --amount 1000 --slices 3 --days 30 --out @q.toml",
    );
    let draft = desk.read("q.toml");
    let said = "core_hours = \"333.333333333\"";
    assert!(draft.contains(said), "{draft}");
    let weight = format!("\"{}\" = 30", sites[0].1);
    assert!(draft.contains(&weight), "{draft}");
    let signed = desk.run("sign @q.toml --key @a.key");
    assert!(signed.contains("allocation 1 of `/P-A1`"), "{signed}");
    desk.run("verify @q.cbor --charter @c.cbor");
    let shown = desk.run("show @q.cbor --charter @c.cbor");
    assert!(shown.contains("1 of 1 needed signatures"), "{shown}");
    desk.write("again.toml", &shown);
    let same = |line: &str| line.starts_with("hash").then(|| line.to_owned());
    let hash = |said: &str| said.lines().find_map(same);
    assert_eq!(
        hash(&desk.run("sign @again.toml --key @a.key")),
        hash(&signed)
    );

    desk.run("new allocation --from @q.cbor --out @q2.toml");
    let next = desk.read("q2.toml");
    assert!(
        next.contains("version = 2") && next.contains("\nid = \""),
        "{next}"
    );
    desk.run("sign @q2.toml --key @a.key");
    desk.run("verify @q.cbor @q2.cbor --charter @c.cbor");
    desk.write("q3.toml", &next.replace("333.333333333", "400"));
    desk.run("sign @q3.toml --key @a.key");
    let (exit, said) = desk
        .try_run("verify @q.cbor @q3.cbor --charter @c.cbor")
        .expect("runs");
    assert_eq!(exit, Exit::Failure);
    assert!(said.contains("may not change"), "{said}");
    let bad = desk.read("q.toml").replace("333.333333333", "a lot");
    desk.write("bad.toml", &bad);
    let refused = desk.refused("sign @bad.toml --key @a.key");
    assert!(
        refused.contains("bad.toml:") && refused.contains("slice.core_hours"),
        "{refused}"
    );
}

/// One key counts once, however often it is written or signs.
#[test]
fn a_key_that_is_there_twice_is_named() {
    let desk = founded();
    let draft = desk.read("1.toml");
    let (_, keys) = draft.split_once("[authority]\nkeys = [\n").expect("keys");
    let (first, _) = keys.split_once('\n').expect("one");
    let (_, last) = keys.split_once("\n").expect("two");
    let (last, _) = last.split_once('\n').expect("two");
    desk.write("twice.toml", &draft.replace(last, first));
    let refused = desk.refused("sign @twice.toml --key @a");
    let id = first.trim().trim_matches(['"', ',']);
    let named = refused.contains(&id[..60]) && refused.contains("is listed twice");
    assert!(named && refused.contains("twice.toml:"), "{refused}");

    let said = desk.run("sign @1.toml --key @a --key @a");
    assert!(said.contains("has signed it already"), "{said}");
    assert!(said.contains("1 of 2 needed"), "{said}");
    // Somebody who passes the file on puts another's name below it.
    let mut bytes = std::fs::read(desk.path("1.cbor")).expect("there");
    let last = bytes.last_mut().expect("a signature");
    *last ^= 1;
    std::fs::write(desk.path("1.cbor"), bytes).expect("written");
    let refused = desk.refused("sign @1.cbor --key @a");
    assert!(
        refused.contains("somebody has changed the file"),
        "{refused}"
    );
}

#[test]
fn a_rotated_key_that_would_empty_the_tree_is_named_before_it_is_published() {
    let desk = founded();
    desk.run("sign @1.toml --key @a --key @b");
    let d = desk.run("keygen @d");
    desk.run("new charter --from @1.cbor -o @2.toml");
    let draft = desk.read("2.toml");
    let role = draft
        .split_once("[policy]\nkeys = [\n  \"")
        .expect("the role");
    let (old, _) = role.1.split_once('"').expect("a key");
    desk.write("2.toml", &draft.replace(old, &d));
    desk.run("sign @2.toml --key @a --key @b");
    desk.run("new shares --charter @1.cbor -o @s1.toml");
    desk.write("s1.toml", &(desk.read("s1.toml") + "\"/x\" = 60\n"));
    desk.run("sign @s1.toml --key @c");
    desk.run("new shares --from @s1.cbor -o @s2.toml");
    desk.run("sign @s2.toml --key @d -o @by-d.cbor");
    desk.run("sign @s2.toml --key @c --key @d -o @by-both.cbor");
    // Before anything is published, and without a node.
    let planned = desk.run("plan --old @1.cbor @s1.cbor --new @1.cbor @2.cbor @s1.cbor -P");
    assert!(planned.contains("/x|100|-|-100"), "{planned}");
    let planned = desk.run("plan --old @1.cbor @s1.cbor --new @1.cbor @2.cbor @by-d.cbor");
    assert_eq!(planned, "nobody gains or loses");
    let bytes = |names: &[&str]| -> Vec<Vec<u8>> {
        let read = |name: &&str| std::fs::read(desk.path(name)).expect("there");
        names.iter().map(read).collect()
    };
    let falls = |held: &[&str], published: &[&str]| -> Vec<String> {
        let files: Vec<PathBuf> = published.iter().map(|name| desk.path(name)).collect();
        let documents = verify::in_order(&files).expect("documents");
        let falls = publish::falls(&bytes(held), &documents).expect("one VO");
        falls
            .iter()
            .map(|document| format!("{} {}", document.path, document.version))
            .collect()
    };
    assert_eq!(falls(&["1.cbor", "s1.cbor"], &["2.cbor"]), ["/ 1"]);
    assert!(falls(&["1.cbor", "s1.cbor"], &["by-d.cbor", "2.cbor"]).is_empty());
    assert!(falls(&["1.cbor", "by-both.cbor"], &["2.cbor"]).is_empty());
    assert!(falls(&["1.cbor", "s1.cbor"], &["by-both.cbor"]).is_empty());
}

#[test]
fn a_snapshot_is_drafted_signed_shown_verified_and_planned_with() {
    let desk = founded();
    desk.run("sign @1.toml --key @a --key @b");
    let online = desk.run("keygen @online");
    assert_eq!(online.len(), 64 + 5, "it ends with check digits: {online}");
    desk.run(&format!(
        "new charter --from @1.cbor --snapshot {online} -o @2.toml"
    ));
    desk.run("sign @2.toml --key @a --key @b");
    // The next charter keeps the role without a word.
    desk.run("new charter --from @2.cbor -o @3.toml");
    assert!(
        desk.read("3.toml")
            .contains(&format!("[snapshot]\nkeys = [\n  \"{}", &online[..64]))
    );
    desk.run("new shares --charter @1.cbor -o @s.toml");
    desk.write("s.toml", &(desk.read("s.toml") + "\"/x\" = 60\n"));
    desk.run("sign @s.toml --key @c");
    let said = desk.run("verify @1.cbor @2.cbor @s.cbor");
    assert!(said.contains("note     no snapshot has arrived"), "{said}");
    desk.run("new snapshot @1.cbor @2.cbor @s.cbor -o @n.toml");
    let said = desk.run("sign @n.toml --key @online");
    assert!(said.contains("n.cbor: snapshot 1"), "{said}");
    let said = desk.run("verify @n.cbor @s.cbor @2.cbor @1.cbor");
    assert!(
        said.ends_with("n.cbor: snapshot 1\nnote     charter 2") || said.contains("snapshot 1"),
        "{said}"
    );
    assert!(!said.contains("vouches"), "{said}");
    let shown = desk.run("show @n.cbor --charter @1.cbor @2.cbor");
    assert!(
        shown.contains("# 1 of 1 needed signatures of its role are valid"),
        "{shown}"
    );
    desk.write("again.toml", &shown);
    desk.run("sign @again.toml --key @online");
    let again = std::fs::read(desk.path("again.cbor")).expect("there");
    assert_eq!(again, std::fs::read(desk.path("n.cbor")).expect("there"));
    // It has no shares, and changes none.
    let planned =
        desk.run("plan --old @1.cbor @2.cbor @s.cbor --new @1.cbor @2.cbor @s.cbor @n.cbor");
    assert_eq!(planned, "nobody gains or loses");
    assert!(
        desk.refused("plan --old @s.cbor --new @n.cbor")
            .contains("is a snapshot, which has no shares")
    );
    // Another version of the shares than it names.
    desk.run("new shares --from @s.cbor -o @s2.toml");
    desk.run("sign @s2.toml --key @c");
    desk.run("new snapshot @1.cbor @2.cbor @s2.cbor @n.cbor -o @n2.toml");
    assert!(desk.read("n2.toml").contains("version = 2\n"));
    desk.run("sign @n2.toml --key @online");
    let said = desk.run("verify @1.cbor @2.cbor @s.cbor @n2.cbor");
    assert!(said.contains("names share policy 2 of `/` ("), "{said}");
    // Who may sign anything else may not sign it, and the other way about.
    desk.run("sign @n.toml --key @c -o @by-c.cbor");
    assert!(
        desk.fails("verify @1.cbor @2.cbor @s.cbor @by-c.cbor")
            .contains("REFUSED")
    );
    let c = show_key(&desk, "c");
    desk.write("both.toml", &desk.read("2.toml").replace(&online[..64], &c));
    let refused = desk.refused("sign @both.toml --key @a");
    assert!(
        refused.contains("is a key of `snapshot` and of `policy`"),
        "{refused}"
    );
}

/// The id of a key in a file.
fn show_key(desk: &Desk, name: &str) -> String {
    let key = crate::init::load_key(&desk.path(name)).expect("a key");
    key.key_id().to_string()
}

#[test]
fn text_that_hides_or_turns_is_shown_as_numbers_and_reads_back() {
    let desk = founded();
    let hostile = "/dns4/a\\u202Eb\\u001B[2J\\u3164/tcp/1";
    let site = format!(
        "\n[[site]]\nname = \"s\"\nid = \"{}\"\ncores = 1\naddresses = [\"{hostile}\"]\n",
        "11".repeat(32)
    );
    desk.write("1.toml", &(desk.read("1.toml") + &site));
    let said = desk.run("sign @1.toml --key @a --key @b");
    let shown = desk.run("show @1.cbor");
    for text in [&said, &shown, &desk.run("verify @1.cbor")] {
        assert!(
            text.chars().all(|c| !fairmesh_model::hides(c) || c == '\n'),
            "{text:?}"
        );
    }
    assert!(
        shown.contains("a\\U0000202Eb\\U0000001B[2J\\U00003164"),
        "{shown}"
    );
    desk.write("again.toml", &shown);
    desk.run("sign @again.toml --key @a --key @b");
    let bytes = |name| std::fs::read(desk.path(name)).expect("there");
    assert_eq!(bytes("again.cbor"), bytes("1.cbor"));
    // A name in a draft, a path and an id: refused, and what is refused is shown.
    desk.run("new shares --charter @1.cbor -o @s.toml");
    desk.write("s.toml", &(desk.read("s.toml") + "\"/x\\u202Ey\" = 60\n"));
    let refused = desk.refused("sign @s.toml --key @c");
    assert!(refused.contains("forbidden name"), "{refused:?}");
    let told = crate::cli::escaped(&refused);
    assert!(
        told.contains("\\u{202e}") && told.chars().all(|c| c != '\u{202e}'),
        "{told:?}"
    );
}

#[test]
fn a_key_that_is_named_as_the_draft_is_not_shown() {
    let desk = founded();
    let secret = desk.read("a");
    for line in [
        "sign @a --key @b",
        "plan --old @a --new @a",
        "show @a",
        "verify @a",
    ] {
        let refused = desk.refused(line);
        assert!(!refused.contains(&secret[..8]), "{line}: {refused}");
    }
    let refused = desk.refused("sign @a --key @b");
    assert!(refused.contains("a file with a secret key"), "{refused}");
}

#[test]
fn windows_are_said_in_one_place_and_an_error_names_that() {
    let desk = founded();
    let draft = desk.read("1.toml");
    let own = "window = \"1h\"\n";
    assert_eq!(draft.matches(own).count(), 1, "{draft}");
    let twice = draft.replace("[history]\n", "[history]\nwindow = \"6h\"\n");
    desk.write("1.toml", &twice);
    let refused = desk.refused("sign @1.toml --key @a");
    let line = twice.lines().position(|line| line == "window = \"6h\"");
    let place = format!("1.toml:{}:10: `history.window`: ", line.expect("there") + 1);
    assert!(refused.contains(&place), "{refused}");

    desk.write("1.toml", &twice.replace(own, ""));
    desk.run("sign @1.toml --key @a");
    assert!(desk.run("show @1.cbor").contains("window = \"6h\"\n"));
    desk.write("2.toml", &twice.replace(own, "").replace("6h", "7h"));
    let refused = desk.refused("sign @2.toml --key @a");
    assert!(refused.contains("`history.window`: "), "{refused}");
}

/// What a site's owner sends is his lines, and officers read what else they sign.
#[test]
fn a_charter_says_which_sites_leave_join_and_change_keys() {
    let desk = founded();
    desk.run("sign @1.toml --key @a --key @b");
    let member = |name: &str, digit: &str, cpus: u32| {
        let id = digit.repeat(64);
        desk.write(
            &format!("{name}.toml"),
            &format!("[[site]]\nname = \"{name}\"\nid = \"{id}\"\ncpus = {cpus}\n"),
        );
    };
    member("hpc2", "2", 64);
    desk.run("new charter --from @1.cbor --site @hpc2.toml -o @2.toml");
    let said = desk.run("sign @2.toml --key @a --key @b");
    assert!(said.contains("hpc2 joins (2222"), "{said}");
    // Another key under the same name takes the entry over, with its new lines.
    member("hpc2", "3", 96);
    desk.run("new charter --from @2.cbor --site @hpc2.toml -o @3.toml");
    let draft = desk.read("3.toml");
    assert_eq!(draft.matches("name = \"hpc2\"").count(), 1, "{draft}");
    assert!(
        draft.contains("cpus = 96") && !draft.contains(&"2".repeat(64)),
        "{draft}"
    );
    let planned = desk.run("plan --old @2.cbor --new @3.toml");
    let take_over = format!("--take-over {}", "2".repeat(64));
    assert!(planned.starts_with("hpc2 changes its key") && planned.contains(&take_over));
    let said = desk.run("sign @3.toml --key @a --key @b");
    assert!(said.contains(&planned), "{said}");
    // The same key with other lines: no other entry, and no other key.
    member("hpc2", "3", 128);
    desk.run("new charter --from @3.cbor --site @hpc2.toml -o @4.toml");
    let draft = desk.read("4.toml");
    assert_eq!(draft.matches("name = \"hpc2\"").count(), 1, "{draft}");
    let planned = desk.run("plan --old @1.cbor @3.cbor --new @4.toml");
    assert_eq!(planned, "hpc2 changes its lines, and keeps its key");
    let none = desk.read("4.toml");
    desk.write("5.toml", none.split("[[site]]").next().expect("some"));
    let planned = desk.run("plan --old @3.cbor --new @5.toml --json");
    let all: Vec<&str> = planned.matches("\"change\": \"leaves\"").collect();
    assert_eq!(all.len(), draft.matches("[[site]]\n").count(), "{planned}");
    let said = desk.run("plan --old @3.cbor --new @3.cbor");
    assert_eq!(said, "no site leaves, joins or changes");
    // Alone in a folder the draft says that what was before is not known.
    std::fs::create_dir(desk.path("alone")).expect("made");
    desk.write("alone/4.toml", &desk.read("4.toml"));
    let said = desk.run("sign @alone/4.toml --key @a --key @b");
    assert!(said.contains("charter 3 is not in this folder"), "{said}");
}

#[test]
fn a_threshold_that_no_keys_can_reach_makes_no_draft() {
    let desk = founded();
    let key = show_key(&desk, "a");
    let line = format!("new charter --authority {key} --threshold 2 -o @none.toml");
    let refused = desk.refused(&line);
    assert!(
        refused.contains("--threshold 2") && !desk.path("none.toml").exists(),
        "{refused}"
    );
}

#[test]
fn a_sites_lines_bring_nothing_else_into_a_charter() {
    let desk = founded();
    desk.run("sign @1.toml --key @a --key @b");
    let site = |name: &str, digit: &str| {
        let id = digit.repeat(64);
        format!(
            "[[site]]\nname = \"{name}\"\nid = \"{id}\"\ncores = 64\ngpus = 8\nmem = \"1TiB\"\n"
        )
    };
    let role = format!("[snapshot]\nkeys = [\"{}\"]\n", show_key(&desk, "c"));
    let free = "[charter.discounts]\npreemptible = 0\nidle = 0\n".to_owned();
    for (more, words) in [
        (&role, "unknown field `snapshot`"),
        (&free, "unknown field `charter`"),
        (&site("hpc3", "3"), "2 sites"),
    ] {
        desk.write("member.toml", &(site("hpc2", "2") + more));
        let refused = desk.refused("new charter --from @1.cbor --site @member.toml");
        let named = refused.contains(words) && refused.contains("member.toml");
        assert!(named, "{words}: {refused}");
    }
    desk.write("member.toml", "");
    let refused = desk.refused("new charter --from @1.cbor --site @member.toml");
    assert!(refused.contains("missing field `site`"), "{refused}");

    desk.write("member.toml", &site("hpc2", "2"));
    desk.run("new charter --from @1.cbor --site @member.toml -o @2.toml");
    let draft = desk.read("2.toml");
    let said = desk.run("sign @2.toml --key @a");
    for line in [
        "sites hpc1 (96 CPUs), hpc2 (64 CPUs, 8 GPUs, 1024 GiB)",
        "keys  authority 2 of 2, policy 1 of 1, snapshots none",
        "terms no discounts, 0 readers; all else: fairmesh policy show FILE",
    ] {
        assert!(said.contains(line), "{said}");
    }
    // By hand, as before: whoever signs is told.
    desk.write(
        "3.toml",
        &(draft + &role.replace(&show_key(&desk, "c"), &"4".repeat(64)) + &free),
    );
    let said = desk.run("sign @3.toml --key @a");
    for words in [
        ", snapshots 1 of 1\n",
        "\nterms preemptible 0 %, idle 0 %, ",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

/// A payload of a later release, or of somebody's own making: as it is in the file, and one key more.
fn with_a_key_more(document: &[u8]) -> Vec<u8> {
    use ciborium::Value;
    let mut document: Value = ciborium::from_reader(document).expect("CBOR");
    let parts = match &mut document {
        Value::Tag(_, parts) => parts.as_array_mut().expect("four parts"),
        _ => panic!("no COSE"),
    };
    let payload = parts[2].as_bytes_mut().expect("a payload");
    let mut body: Value = ciborium::from_reader(&payload[..]).expect("a body");
    let fields = body.as_map_mut().expect("fields");
    // The longest, so it is the last.
    fields.push(("who_may_do_without_signatures".into(), "eve".into()));
    let bytes = |value: &Value| {
        let mut bytes = Vec::new();
        ciborium::into_writer(value, &mut bytes).expect("written");
        bytes
    };
    *payload = bytes(&body);
    parts[3] = Value::Array(Vec::new());
    bytes(&document)
}

#[test]
fn nobody_signs_what_his_release_does_not_read() {
    let desk = founded();
    desk.run("sign @1.toml --key @a");
    let whole = std::fs::read(desk.path("1.cbor")).expect("there");
    let more = with_a_key_more(&whole);
    std::fs::write(desk.path("more.cbor"), &more).expect("written");
    for line in ["sign @more.cbor --key @a", "new charter --from @more.cbor"] {
        let refused = desk.refused(line);
        assert!(
            refused.contains("take a newer release"),
            "{line}: {refused}"
        );
    }
    assert_eq!(std::fs::read(desk.path("more.cbor")).expect("there"), more);
    for said in [desk.run("show @more.cbor"), desk.fails("verify @more.cbor")] {
        assert!(said.contains("charter 1, which says more than"), "{said}");
    }
    assert!(!desk.run("show @1.cbor").contains("says more than"));
}
