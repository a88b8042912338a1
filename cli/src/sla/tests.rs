//! The two commands on files.

use serde_json::Value;

use super::*;

const SLA: &str = r#"[sla]
"/a" = { cpu = "20%+, burst 50%" }
"/a/g" = { cpu = "50%" }
"/b" = { cpu = "90%-" }
"/c" = { cpu = "40%", extensible = true, at_most = "30cpus" }
"#;

/// A site of 100 CPUs that is full.
const GRID: &str = r#"{"sites": [{"name": "s", "total": 100, "waiting": 5, "age_s": 7, "vos": {
    "a": {"epoch_used": 20.5, "epoch_share": 20, "burst_used": 51, "burst_limit": 50},
    "b": {"epoch_used": 0, "epoch_share": 90, "burst_used": 10, "burst_limit": 100, "waiting": 5},
    "c": {"epoch_used": 50, "epoch_share": 40, "burst_used": 39, "burst_limit": 25, "extensible": true},
    "d": {"epoch_used": 50, "epoch_share": 0, "burst_used": 0, "burst_limit": 0}
}}]}"#;

fn files() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let (sla, grid) = (
        folder.path().join("sla.toml"),
        folder.path().join("grid.json"),
    );
    std::fs::write(&sla, SLA).expect("writes");
    std::fs::write(&grid, GRID).expect("writes");
    (folder, sla, grid)
}

fn parsable() -> OutputArgs {
    OutputArgs {
        parsable: true,
        noheader: true,
        ..OutputArgs::default()
    }
}

#[test]
fn entries_are_shown_with_what_they_come_to() {
    let (_folder, sla, _) = files();
    let mut args = ShowArgs {
        sla: Some(sla),
        vo: None,
        site: None,
        node: NodeArgs::default(),
        total: 100,
        output: parsable(),
    };
    let shown = |args: &ShowArgs| {
        let mut out = Vec::new();
        assert_eq!(show::show(args, &mut out).expect("valid"), Exit::Success);
        String::from_utf8(out).expect("UTF-8")
    };
    // 20 + 90 + 40 are 150: two thirds of each.
    let expected = "/a|20%+, burst 50%|||no|13.3333333|20\n/a/g|50%|||no|6.6666666|\n/b|90%-|||no|60|\n/c|40%|||yes|26.6666666|30\n";
    assert_eq!(shown(&args), expected);
    args.output = OutputArgs::default();
    let text = shown(&args);
    assert!(
        text.ends_with(
            "Below / 150 % are promised: each counts as its share of that; limits stay.\n"
        ),
        "{text}"
    );
    args.output.json = true;
    let json: Value = serde_json::from_str(&shown(&args)).expect("JSON");
    assert_eq!(
        (&json["schema"], &json["entries"][0]["limit"]),
        (&"fairmesh.sla/1".into(), &20.into())
    );
}

fn check_args(sla: Option<PathBuf>, grid: PathBuf) -> CheckArgs {
    CheckArgs {
        sla,
        grid: Some(grid),
        node: NodeArgs::default(),
        vo: None,
        site: None,
        output: parsable(),
    }
}

fn checked(args: &CheckArgs) -> (Exit, String) {
    let mut out = Vec::new();
    let exit = check::check(args, &mut out).expect("valid");
    (exit, String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn what_is_passed_broken_and_different_is_named() {
    let (_folder, sla, grid) = files();
    let mut args = check_args(Some(sla), grid.clone());
    let (exit, text) = checked(&args);
    assert_eq!(exit, Exit::Failure);
    let expected = "/a|s|passed|7|20.5 % of the epoch are used, of 20 %
/a|s|passed|7|51 CPUs are held, of 50
/b|s|broken|7|its jobs wait for 5 CPUs of its guarantee, and 0 are idle
/c|s|passed|7|39 CPUs are held, of 30
/c|s|differs|7|the site goes by 25 CPUs at once, the SLA says 30
";
    assert_eq!(text, expected);
    // Nobody waits: what is extensible may be passed, and no guarantee is asked for.
    let calm = GRID
        .replace("\"waiting\": 5", "\"waiting\": 0")
        .replace("20.5", "20")
        .replace("51", "50");
    std::fs::write(&grid, calm).expect("writes");
    let (exit, text) = checked(&args);
    assert_eq!((exit, text.lines().count()), (Exit::Success, 1), "{text}");
    args.site = Some("x".to_owned());
    let error = check::check(&args, &mut Vec::new())
        .expect_err("no site")
        .to_string();
    assert!(error.ends_with("there is no site `x`"), "{error}");
}

#[test]
fn sites_are_held_to_what_they_say_where_nothing_was_agreed() {
    let (_folder, _, grid) = files();
    let args = CheckArgs {
        vo: Some("a".to_owned()),
        ..check_args(None, grid)
    };
    let expected = "/a|s|passed|7|20.5 % of the epoch are used, of 20 %\n/a|s|passed|7|51 CPUs are held, of 50\n";
    assert_eq!(checked(&args), (Exit::Failure, expected.to_owned()));
}

#[test]
fn nothing_is_kept_where_nothing_was_looked_at() {
    let (_folder, sla, grid) = files();
    let mut args = check_args(Some(sla.clone()), grid.clone());
    // What was agreed with /e the site does not grant; of what groups of /d get nothing was agreed with the whole.
    std::fs::write(&sla, "[sla]\n\"/d\" = {}\n\"/e\" = { cpu = \"5%\" }\n").expect("writes");
    let absent = "/e|s|absent|7|the VO has no SLA there, and one was agreed\n";
    assert_eq!(checked(&args), (Exit::Failure, absent.to_owned()));
    std::fs::write(&sla, "[sla]\n").expect("writes");
    let none = "/||unchecked|?|nothing is checked: no entry is of a VO\n";
    assert_eq!(checked(&args), (Exit::Failure, none.to_owned()));

    // A VO that is misspelt, and one whose sites say nothing.
    (args.sla, args.vo) = (None, Some("typo".to_owned()));
    let (exit, typo) = checked(&args);
    assert!(typo.starts_with("/typo||unchecked|?|nothing is checked: "));
    assert_eq!(exit, Exit::Failure);
    std::fs::write(&grid, "{\"sites\": []}").expect("writes");
    assert_eq!(checked(&args), (Exit::Failure, typo));
    args.output = OutputArgs::default();
    let (_, text) = checked(&args);
    assert!(!text.contains("is kept"), "{text}");
    args.output.json = true;
    let json: Value = serde_json::from_str(&checked(&args).1).expect("JSON");
    let finding = &json["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["site"]),
        (&"unchecked".into(), &"".into())
    );
}

/// The room of a VO is what the broker would give it; and a site that is silent has none.
#[test]
fn a_vo_stands_at_each_site_with_its_room_and_the_age_of_what_is_known() {
    let text = r#"{"sites": [
        {"name": "s", "total": 100, "free": 30, "waiting": 5, "age_s": 7, "vos": {
            "a": {"epoch_used": 2.5, "epoch_share": 20, "burst_used": 10, "burst_limit": 50, "waiting": 5}}},
        {"name": "t", "total": 10, "age_s": 70, "vos": {
            "a": {"epoch_used": 0, "epoch_share": 5, "burst_used": 1, "burst_limit": 10, "sign": "guarantee"}}},
        {"name": "u", "total": 8, "age_s": 7, "vos": {
            "a": {"epoch_used": 9, "epoch_share": 5, "burst_used": 2, "burst_limit": 4, "extensible": true, "over_s": 60}}},
        {"name": "v", "total": 8, "vos": {}}]}"#;
    let grid = Grid::parse(text, "grid").expect("a Grid");
    let mut args = ShowArgs {
        sla: None,
        vo: Some("a".to_owned()),
        site: None,
        node: NodeArgs::default(),
        total: 100,
        output: parsable(),
    };
    let shown = |args: &ShowArgs| {
        let mut out = Vec::new();
        stand::show(args, "a", &grid, Millis::from_secs(60), &mut out).expect("valid");
        String::from_utf8(out).expect("UTF-8")
    };
    let expected = "s|100|20%+|2.5|10|50|5|25||7|
t|10|5%-|0|1|10|0|0||70|what is known of the site is 70 s old
u|8|5%+, extensible|9|2|4|0|6|67|7|
v|8|nothing||0||0|0|||the VO has no SLA there
";
    assert_eq!(shown(&args), expected);
    args.output = OutputArgs::default();
    assert!(shown(&args).ends_with("\n13 CPUs are held, and 31 more could start now.\n"));
    args.site = Some("x".to_owned());
    let none = stand::show(&args, "a", &grid, Millis(0), &mut Vec::new());
    assert!(none.expect_err("no site").to_string().contains("`x`"));
}
