//! Maps of people as they are written, and mistakes with the place where they are.

use super::*;

fn parse(text: &str) -> Result<People, String> {
    let vos = BTreeMap::from([("cms".to_owned(), VoId::from_bytes([1; 32]))]);
    let file = "people.csv";
    read(Source { file, text }, &vos).map_err(|error| error.to_string())
}

fn rows(people: &People) -> Vec<(Option<&str>, Option<&str>, bool, &str)> {
    let mut rows = Vec::new();
    for Person {
        user,
        subject,
        account,
    } in people.rows()
    {
        let path = account.path.as_str();
        rows.push((
            user.as_deref(),
            subject.as_deref(),
            account.vo.is_some(),
            path,
        ));
    }
    rows
}

#[test]
fn a_map_is_read_as_spreadsheets_and_people_write_it() {
    let text = "\u{feff}# Our people.\r\n\r\npath, User,vo,subject\r\n/ann,ann,cms,\"/DC=ch/CN=Ann, \"\"A\"\" B\"\r\n\
                # A comment.\n\"/p/bob\" , bob,,\n\n/eve,,cms,/CN=eve";
    let people = parse(text).expect("valid");
    assert_eq!(
        rows(&people),
        [
            (Some("ann"), Some("/DC=ch/CN=Ann, \"A\" B"), true, "/ann"),
            (Some("bob"), None, false, "/p/bob"),
            (None, Some("/CN=eve"), true, "/eve"),
        ]
    );
    let users_alone = parse("user,path\nann,/ann\n").expect("valid");
    assert_eq!(users_alone.rows().len(), 1);
}

#[test]
fn mistakes_are_shown_where_they_are() {
    for (text, expected) in [
        ("", "people.csv:1:1: no row"),
        ("# nothing\n", "people.csv:1:1: no row"),
        (
            "user;path\n",
            "people.csv:1:1: there is no column `user;path`",
        ),
        (
            "user,login,path\n",
            "people.csv:1:6: there is no column `login`",
        ),
        (
            "user,path,user\n",
            "people.csv:1:11: the column `user` is there twice",
        ),
        ("user,vo\n", "people.csv:1:1: no column `path`"),
        (
            "vo,path\n",
            "people.csv:1:1: neither a column `user` nor a column `subject`",
        ),
        (
            "user,path\n\n# x\nann\n",
            "people.csv:4:1: 1 cells, where the first row has 2",
        ),
        (
            "user,path\nann,/a,b\n",
            "people.csv:2:5: 3 cells, where the first row has 2",
        ),
        (
            "user,path\nann,\n",
            "people.csv:2:5: `path`: a person without a path",
        ),
        (
            "user,path\n,/ann\n",
            "people.csv:2:1: a person without a user",
        ),
        (
            "user,path\nann,ann\n",
            "people.csv:2:5: `path`: not an account path",
        ),
        (
            "user,path\nann,/{user}\n",
            "people.csv:2:5: `path`: a template",
        ),
        (
            "user,subject,vo,path\n\"a\",\"/CN=x, y\",atlas,/a\n",
            "people.csv:2:16: `vo`: no VO has the alias `atlas`",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn a_name_that_is_there_twice_or_that_no_job_has_is_refused_without_naming_anybody() {
    for (text, expected) in [
        (
            "user,path\nann,/a\n# x\nbob,/b\nann,/c\n",
            "people.csv:5:1: `user`: the row of line 2 has the same user",
        ),
        (
            "subject,user,path\n/CN=a,,/a\n,b,/b\n/CN=a,c,/c\n",
            "people.csv:4:1: `subject`: the row of line 2 has the same subject",
        ),
        (
            "user,path\n\"ann,/a\nbob,/b\n",
            "people.csv:2:1: 1 cells, where",
        ),
        (
            "user,path\n\u{feff}ann,/a\n",
            "people.csv:2:1: `user`: not a name",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
    let error = parse("user,path\nann,/ann\nann,/secret\n").expect_err("twice");
    let first = error.lines().next().unwrap_or_default();
    assert!(
        !first.contains("ann") && !first.contains("secret"),
        "{first}"
    );
}
