//! Files that are not understood.
//!
//! Invariant: each is refused with its name, the line and the key, and with what would be right.

use simnet::scenario::Scenario;

const HEAD: &str = "title = \"t\"\nshows = \"s\"\nduration = \"1d\"\n[grid]\nsites = 3\n";

fn refusal(body: &str) -> String {
    let text = format!("{HEAD}{body}");
    let error = Scenario::parse(&text, "story.toml").expect_err(body);
    error.to_string()
}

#[test]
fn errors_name_file_line_and_key() {
    for (body, line, words) in [
        (
            "[[step]]\nat = \"1h\"\ndo = \"partiton\"\n",
            8,
            "there is no task `partiton`",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"crash\"\n",
            6,
            "`node`: it is missing",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"crash\"\nnode = 7\n",
            9,
            "there is no site 7",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"crash\"\nnode = 1\nsets = []\n",
            10,
            "`sets`: it means nothing",
        ),
        (
            "[[step]]\nat = \"soon\"\ndo = \"heal\"\n",
            7,
            "no length of time",
        ),
        (
            "[[step]]\nat = \"2d\"\ndo = \"heal\"\n",
            6,
            "behind the end",
        ),
        ("[[step]]\nat = \"1h\"\n", 6, "either a `do` or an `expect`"),
        (
            "[[step]]\nat = \"1h\"\nexpect = \"fault\"\nkind = \"rain\"\n",
            9,
            "it is one of: loss",
        ),
        (
            "[[load]]\nevery = \"1h\"\naccount = \"nobody\"\n",
            6,
            "`account`",
        ),
        ("link = \"wet\"\n", 4, "there is no link `wet`"),
        ("sync = \"-1s\"\n", 4, "below zero"),
        ("colour = 3\n", 6, "colour"),
    ] {
        let error = refusal(body);
        assert!(
            error.starts_with(&format!("story.toml:{line}: ")),
            "{error}"
        );
        assert!(error.contains(words), "{error}");
    }
}
