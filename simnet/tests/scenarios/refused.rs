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
            "`do`: unknown variant `partiton`, expected one of `partition`",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"crash\"\n",
            6,
            "missing field `nodes`",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"crash\"\nnodes = [7]\n",
            9,
            "there is no site 7",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"crash\"\nnodes = [1]\nsets = []\n",
            10,
            "`sets`: unexpected keys in table: sets, available keys: nodes",
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
        ("link = { wet = 1 }\n", 6, "`link`: unknown field `wet`"),
        ("sync = \"-1s\"\n", 6, "`sync`: it is below zero"),
        (
            "[[step]]\nat = \"1h\"\ndo = \"crash\"\nnodes = [1]\nfor = \"2d\"\n",
            6,
            "behind the end",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"heal\"\nfor = \"1h\"\n",
            6,
            "`for`: nothing puts this right",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"policy\"\nnode = 0\nshares = { \"/g0\" = -1 }\n",
            10,
            "`shares`: a share of -1 is outside",
        ),
        (
            "[[step]]\nat = \"1h\"\ndo = \"mount\"\nnodes = [0]\nvo = \"moon\"\n",
            10,
            "`vo`: there is no VO `moon`",
        ),
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
