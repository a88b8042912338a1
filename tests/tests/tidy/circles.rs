//! No circles of imports between the rooms of a crate, but for those in `circles.txt`, and no second way around the
//! arrows between crates.
//!
//! A room is a module with all that is below it. None of a circle can be read, tested or moved without the others.
//! `circles.txt` holds today's circles and may only shrink: a circle that has become smaller or is gone has to be made
//! smaller or taken out there too.

use std::collections::BTreeSet;

use xtask::imports::{Circle, Graph};

use super::{Text, code_files, from_root, report, root};

/// Today's circles, as `folder: room room`, with comments behind `#`.
const LISTED: &str = include_str!("circles.txt");

/// Files that re-export something of another crate, today. May only shrink.
const DOORS: &[&str] = &[
    "node/src/config/mod.rs",
    "node/src/network/config.rs",
    "node/src/network/message.rs",
    "node/src/store/mod.rs",
];

#[test]
fn rooms_do_not_import_each_other_in_circles() {
    let mut graph = Graph::default();
    let files: Vec<_> = code_files().map(|file| from_root(&file)).collect();
    graph.add_crates(&files, &|file| {
        std::fs::read_to_string(root().join(file)).ok()
    });
    report("circles of imports", offences(&graph, &listed(LISTED)));
}

#[test]
fn crates_do_not_re_export_each_other() {
    let files = code_files().filter_map(Text::read);
    let doors: BTreeSet<String> = files.flat_map(|file| doors(&file)).collect();
    let is_listed = |door: &String| DOORS.iter().any(|file| door.starts_with(*file));
    let new = doors.iter().filter(|door| !is_listed(door)).cloned();
    report("re-exports of another crate", new.collect());
    let is_gone = |file: &&&str| !doors.iter().any(|door| door.starts_with(**file));
    let gone = DOORS.iter().filter(is_gone).map(|file| (*file).to_owned());
    report("files to take out of DOORS", gone.collect());
}

fn listed(text: &str) -> BTreeSet<Circle> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let circles = lines.filter_map(|line| line.split_once(": "));
    let circles = circles.map(|(folder, rooms)| Circle {
        folder: folder.to_owned(),
        rooms: rooms.split(' ').map(str::to_owned).collect(),
    });
    circles.collect()
}

/// The circles of a graph that are not in the list, and those of the list that are not in the graph.
fn offences(graph: &Graph, listed: &BTreeSet<Circle>) -> Vec<String> {
    let found = graph.circles();
    let mut offences = Vec::new();
    for circle in found.difference(listed) {
        let here = || listed.iter().filter(|known| known.folder == circle.folder);
        if here().any(|known| circle.rooms.is_subset(&known.rooms)) {
            offences.push(format!("smaller now; write in circles.txt\n{circle}"));
            continue;
        }
        let is_known = |from: &str, to: &str| {
            here().any(|known| known.rooms.contains(from) && known.rooms.contains(to))
        };
        let chain = graph.shortest_chain(circle, |from, to| !is_known(from, to));
        let chain = chain.iter().map(|import| {
            let (file, line, path) = (&import.file, import.line, &import.path);
            format!("\n    {file}:{line}: `{path}`")
        });
        let chain: String = chain.collect();
        offences.push(format!(
            "not in circles.txt:\n{circle}\n  the shortest way around:{chain}"
        ));
    }
    for circle in listed.difference(&found) {
        let is_in =
            |now: &Circle| now.folder == circle.folder && !now.rooms.is_disjoint(&circle.rooms);
        if !found.iter().any(is_in) {
            offences.push(format!("gone; take out of circles.txt\n{circle}"));
        }
    }
    offences
}

/// Lines that re-export something of another crate of the workspace.
fn doors(file: &Text) -> Vec<String> {
    file.offenders_outside_tests(|line| {
        let path = line.trim_start().strip_prefix("pub use ")?;
        let path = path.trim_start_matches("::");
        let is_door = path.starts_with("fairmesh") || path.starts_with("simnet");
        is_door.then(|| format!("`{path}`"))
    })
}

/// A crate in which `a` and `b` import each other, and much else that is no circle.
const MADE_UP: &[(&str, &str)] = &[
    (
        "x/src/lib.rs",
        "mod a; mod b; mod c; mod d; mod e; pub use c::Shown; fn root() { a::f(); }",
    ),
    (
        "x/src/a.rs",
        "use std::fmt;\nuse crate::{b::B, d as other};\n#[cfg(test)] mod tests { use crate::e::E; }",
    ),
    (
        "x/src/b.rs",
        "use super::d;\nfn f() { vec![crate::a::A, d::D]; }",
    ),
    (
        "x/src/c/mod.rs",
        "//! See [`crate::d`].\nmod inner;\npub(in crate::d) use inner::Deep;\npub struct Shown;",
    ),
    ("x/src/c/inner.rs", "use super::Shown;\npub struct Deep;"),
    ("x/src/d.rs", "use crate::Shown;\nstruct D;"),
    (
        "x/src/e.rs",
        "#[serde(with = \"crate::c::Deep\")]\nstruct E(super::a::A);",
    ),
];

fn made_up(also: &[(&'static str, &'static str)]) -> Graph {
    let files = [also, MADE_UP].concat();
    let mut graph = Graph::default();
    graph.add_crate("x/src/lib.rs", &|file| {
        let found = files.iter().find(|(name, _)| *name == file)?;
        Some(found.1.to_owned())
    });
    graph
}

#[test]
fn imports_of_a_made_up_crate_are_found() {
    let graph = made_up(&[]);
    let imports = graph.imports().map(|(folder, from, to, import)| {
        assert_eq!(folder, "x/src");
        format!("{from}:{} {to}", import.line)
    });
    assert_eq!(
        imports.collect::<Vec<_>>(),
        [
            "a:2 b", "a:2 d", "b:2 a", "b:1 d", "d:1 c", "e:2 a", "e:1 c"
        ]
    );
}

#[test]
fn a_circle_is_refused_unless_it_is_listed_as_it_is() {
    let graph = made_up(&[]);
    let refused = offences(&graph, &listed(""));
    let chain = "x/src: a b\n  the shortest way around:\n    x/src/a.rs:2: `crate::b::B`\n    x/src/b.rs:2: `crate::a::A`";
    assert!(
        refused.len() == 1 && refused[0].ends_with(chain),
        "{refused:?}"
    );
    let exact = listed("# Why.\nx/src: a b\n");
    assert_eq!(offences(&graph, &exact), [""; 0]);
    // One room more: the chain leads through what is new.
    let larger = made_up(&[("x/src/d.rs", "use crate::a::A;")]);
    let refused = offences(&larger, &exact);
    assert!(
        refused.len() == 1 && refused[0].contains("`crate::d`"),
        "{refused:?}"
    );
    let shrunk = offences(&graph, &listed("x/src: a b d"));
    assert!(
        shrunk.len() == 1 && shrunk[0].starts_with("smaller"),
        "{shrunk:?}"
    );
    let gone = offences(&graph, &listed("x/src: a b\nx/src: c d\n"));
    assert!(gone.len() == 1 && gone[0].starts_with("gone"), "{gone:?}");
}

#[test]
fn a_planted_door_is_found() {
    let door =
        "pub use fairmesh_gossip as gossip;\npub use own::Thing;\nuse fairmesh_quota::Row;\n";
    assert_eq!(doors(&Text::new("node/src/a.rs", door)).len(), 1);
}
