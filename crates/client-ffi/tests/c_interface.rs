//! The C interface as a scheduler sees it: the table behind it against a fake node, and the example
//! program, compiled against the header and the static library.

mod fake;

use std::ffi::{CString, c_char};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fairmesh_client::{Names, ROWS_OF_ANY_NAMES};
use fairmesh_client_ffi::batch::look_up;
use fairmesh_client_ffi::refresh::{FreshTable, Source};
use fairmesh_client_ffi::table::{Found, Refused};

use fake::{FakeNode, hang_up};

const PATIENCE: Duration = Duration::from_secs(30);

fn open(node: &FakeNode, interval: Duration) -> FreshTable {
    let source = Source {
        socket: node.socket(),
        interval,
        timeout: Duration::from_secs(2),
    };
    FreshTable::open(source, PATIENCE).expect("a thread")
}

/// A job's words; an empty one is none.
fn name<'a>(user: &'a str, account: &'a str, group: &'a str) -> Names<'a> {
    let given = |word: &'a str| (!word.is_empty()).then_some(word);
    Names {
        user: given(user),
        account: given(account),
        group: given(group),
        ..Names::default()
    }
}

/// Waits until the table says so.
fn await_word(fresh: &FreshTable, user: &str, account: &str, expected: Result<Found, Refused>) {
    let began = Instant::now();
    let mut seen = 0;
    while fresh.table().look_up(&name(user, account, "")) != expected {
        let error = fresh.table().error();
        assert!(began.elapsed() < PATIENCE, "never {expected:?}: {error}");
        seen = fresh.table().wait(seen, Duration::from_millis(100));
    }
}

#[test]
fn a_new_name_is_asked_for_at_once_and_a_change_is_noticed() {
    let node = FakeNode::new(&[("ann/physics", 7), ("ann/", 8)]);
    // With this interval, only the news can have made the table ask.
    let patient = open(&node, PATIENCE * 10);
    await_word(&patient, "ann", "physics", Ok(Found::Factor(7)));
    await_word(&patient, "ann", "", Ok(Found::Factor(8)));
    await_word(&patient, "bob", "physics", Ok(Found::NotKnown));

    let quick = open(&node, Duration::from_millis(20));
    await_word(&quick, "ann", "physics", Ok(Found::Factor(7)));
    node.set("ann/physics", 9);
    await_word(&quick, "ann", "physics", Ok(Found::Factor(9)));
    assert_eq!(
        patient.table().look_up(&name("ann", "physics", "")),
        Ok(Found::Factor(7))
    );
}

/// The same user in the same account, whom a rule on groups maps to two entries.
#[test]
fn the_group_of_a_job_is_asked_for() {
    let node = FakeNode::new(&[("ann/physics/g1", 7), ("ann//g2", 8)]);
    let fresh = open(&node, PATIENCE * 10);
    let table = fresh.table();
    assert_eq!(
        table.look_up(&name("ann", "physics", "g1")),
        Ok(Found::NotYet)
    );
    assert_eq!(table.look_up(&name("ann", "", "g2")), Ok(Found::NotYet));
    await_word(&fresh, "ann", "physics", Ok(Found::NotKnown));
    let answered = table.look_up(&name("ann", "physics", "g1"));
    assert_eq!(answered, Ok(Found::Factor(7)));
    assert_eq!(table.look_up(&name("ann", "", "g2")), Ok(Found::Factor(8)));
}

#[test]
fn the_longest_names_fit_in_a_request() {
    let node = FakeNode::new(&[]);
    let long = "x".repeat(512);
    let names = vec![
        Names {
            queue: Some(&long),
            qos: Some(&long),
            ..name(&long, &long, &long)
        };
        ROWS_OF_ANY_NAMES
    ];
    let factors = look_up(&node.socket(), &names, PATIENCE).expect("they fit");
    assert_eq!(factors.len(), ROWS_OF_ANY_NAMES);
}

#[test]
fn more_names_than_one_request_takes_are_all_answered_for() {
    let node = FakeNode::new(&[("ann/0", 1), ("ann/8999", 2)]);
    let fresh = open(&node, Duration::from_millis(20));
    for account in 0..9_000 {
        let _ = fresh
            .table()
            .look_up(&name("ann", &account.to_string(), ""));
    }
    await_word(&fresh, "ann", "8999", Ok(Found::Factor(2)));
    await_word(&fresh, "ann", "0", Ok(Found::Factor(1)));

    let accounts: Vec<String> = (0..9_000).map(|account| account.to_string()).collect();
    let names: Vec<_> = accounts.iter().map(|it| name("ann", it, "")).collect();
    let factors = look_up(&node.socket(), &names, PATIENCE).expect("answered");
    assert_eq!((factors[0], factors[1], factors[8_999]), (1, u32::MAX, 2));
}

#[test]
fn a_node_that_comes_late_is_found() {
    let node = FakeNode::away();
    let fresh = open(&node, Duration::from_millis(20));
    let began = Instant::now();
    while fresh.table().error().is_empty() {
        assert!(began.elapsed() < PATIENCE, "no error came");
        fresh.table().wait(0, Duration::from_millis(10));
    }
    assert_eq!(
        fresh.table().look_up(&name("ann", "", "")),
        Ok(Found::NotYet)
    );
    assert_eq!(fresh.table().freshness().answered, None);
    node.set("ann/", 5);
    node.listen();
    await_word(&fresh, "ann", "", Ok(Found::Factor(5)));
    assert!(fresh.table().error().is_empty());
}

/// The plug-in's points are those of `fairmesh slurm sync`, within its bounds.
#[test]
#[allow(unsafe_code)]
fn points_are_those_of_the_client() {
    use fairmesh_client::points::{Own, Scale};
    use fairmesh_client_ffi::ffi::{Points, fairmesh_points};
    let scale = Scale {
        range: 1_000_000,
        importance: 200,
    };
    let step = 1_000_000;
    let points = |factor, comment: Option<&std::ffi::CStr>, nice, max| {
        let points = Points {
            weight: scale.range,
            importance: scale.importance,
            min: 5,
            max,
        };
        let comment = comment.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
        // SAFETY: both point to what outlives the call, or are null.
        unsafe { fairmesh_points(&raw const points, factor, step, comment, nice) }
    };
    for (comment, words) in [
        (None, ""),
        (Some(c"fairmesh:importance=150"), "fairmesh:importance=150"),
        (Some(c"\xff fairmesh:importance=0"), "fairmesh:importance=0"),
    ] {
        for nice in [-500, -100, 0, 30, 100, 500] {
            let job = scale.job(500_000_000, step, &Own::of(nice, words));
            assert_eq!(points(500_000_000, comment, nice, i64::MAX), job);
        }
    }
    assert_eq!(
        points(1_000_000_000, None, 30, 1_000_000),
        1_000_030,
        "Slurm takes 30 off"
    );
    for (max, expected) in [(i64::MAX, 500_000), (9, 9)] {
        let nobodys = points(u32::MAX, Some(c"fairmesh:importance=200"), 100, max);
        assert_eq!(nobodys, expected, "the middle, within the bounds");
    }
}

/// Else a user who writes such an account is ordered by another entry than he is charged to.
#[test]
#[allow(unsafe_code)]
fn an_account_that_cannot_be_shown_is_asked_for_as_it_is_charged() {
    use fairmesh_client_ffi::ffi::*;
    use fairmesh_model::record::fitting;
    let long = "x".repeat(600);
    let fit = format!("ann/{}", fitting(long.as_str()));
    let node = FakeNode::new(&[
        ("ann/x\u{fffd}ff", 7),
        ("ann/x\u{fffd}e2\u{fffd}80\u{fffd}8b", 6),
        (&fit, 8),
        ("ann/x/g\u{fffd}ff", 9),
    ]);
    let socket = CString::new(node.socket().to_str().expect("UTF-8")).expect("no zero in it");
    let long = CString::new(long).expect("no zero in it");
    let none = c"".as_ptr();
    let names = [
        (c"x\xff".as_ptr(), none),
        (c"x\u{200b}".as_ptr(), none),
        (long.as_ptr(), none),
        (c" x".as_ptr(), c"g\xff".as_ptr()),
    ]
    .map(|(account, group)| Name {
        user: c"ann".as_ptr(),
        account,
        group,
        queue: none,
        qos: none,
    });
    let (mut factors, no_text) = ([0; 4], std::ptr::null_mut());
    let (names, found) = (names.as_ptr(), factors.as_mut_ptr());
    // SAFETY: every pointer is to a C string or an array that outlives the call.
    let codes = unsafe {
        let asked = fairmesh_lookup(socket.as_ptr(), names, 4, 30_000, found, no_text, 0);
        let table = fairmesh_table_open(socket.as_ptr(), 1_000, 1_000, 1_000);
        let noted = Name {
            user: c"ann".as_ptr(),
            account: c"\xff".as_ptr(),
            group: none,
            queue: none,
            qos: none,
        };
        let noted = fairmesh_table_add(table, &raw const noted);
        fairmesh_table_close(table);
        (asked, noted)
    };
    assert_eq!(codes, (OK, NOT_YET));
    assert_eq!(factors, [7, 6, 8, 9]);
}

#[test]
fn null_and_nonsense_are_bad_arguments() {
    use fairmesh_client_ffi::ffi::*;
    let null = std::ptr::null::<c_char>();
    let latin = CString::new([0xff_u8]).expect("no zero in it");
    // The functions promise to take null; that is what is tried here.
    let codes = call_with_nothing(null, latin.as_ptr());
    assert_eq!(codes, [BAD_ARGUMENT; 4]);
}

#[allow(unsafe_code)]
fn call_with_nothing(null: *const c_char, latin: *const c_char) -> [i32; 4] {
    use fairmesh_client_ffi::ffi::*;
    let node = FakeNode::away();
    let socket = CString::new(node.socket().to_str().expect("UTF-8")).expect("no zero in it");
    let nobody = Name {
        user: null,
        account: null,
        group: null,
        queue: null,
        qos: null,
    };
    let mut factor = 0;
    let no_table = std::ptr::null();
    let no_text = std::ptr::null_mut();
    // SAFETY: every pointer is null, or to a C string or a variable that outlives the call.
    unsafe {
        assert!(fairmesh_table_open(null, 1, 1, 1).is_null());
        assert!(fairmesh_table_open(socket.as_ptr(), 0, 1, 1).is_null());
        fairmesh_table_close(std::ptr::null_mut());
        fairmesh_table_wake(no_table);
        let table = fairmesh_table_open(socket.as_ptr(), 1, 1, 1_000);
        let age = std::ptr::null_mut();
        let latin = Name {
            user: latin,
            ..nobody
        };
        let latin = fairmesh_table_factor(table, &raw const latin, &raw mut factor, age);
        fairmesh_table_close(table);
        let row = &raw const nobody;
        let path = socket.as_ptr();
        [
            latin,
            fairmesh_table_add(no_table, std::ptr::null()),
            fairmesh_table_state(no_table, std::ptr::null_mut()),
            fairmesh_lookup(path, row, 1, 9, &raw mut factor, no_text, 0),
        ]
    }
}

/// The youngest static library beside this test's program: cargo has built it for this test.
fn static_library() -> PathBuf {
    let test = std::env::current_exe().expect("a program has a path");
    let folder = test.parent().expect("it lies in a folder");
    let entries = folder.read_dir().expect("a readable folder").flatten();
    let libraries = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libfairmesh_client_ffi") && name.ends_with(".a")
    });
    let built = |entry: &std::fs::DirEntry| entry.metadata().and_then(|it| it.modified()).ok();
    let youngest = libraries.max_by_key(built);
    youngest
        .expect("cargo builds all kinds of a library")
        .path()
}

fn compile(source: &str, folder: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-Wno-sign-compare", "-I"]);
    compiler.arg(here.join("include")).arg("-o");
    compiler.args([&program, &here.join(source), &static_library()]);
    run(compiler.args(["-lpthread", "-ldl", "-lm"]));
    program
}

/// It ends well; a C compiler is there, as Rust needs one, too.
fn run(command: &mut Command) {
    let output = command.output().expect("it is there");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
}

fn ask(program: &Path, socket: &Path, names: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.arg(socket).args(names);
    command.output().expect("it was just compiled")
}

#[test]
fn the_example_in_c_prints_factors_and_says_what_is_wrong() {
    let node = FakeNode::new(&[("ann/physics", 750_000_000), ("carol/", 1), ("ann//g", 2)]);
    let program = compile("examples/lookup.c", node.folder());
    let names = ["ann:physics", "bob:physics", "carol", "ann::g"];
    let output = ask(&program, &node.socket(), &names);
    let words = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        words,
        "ann physics - 750000000\nbob physics - unknown\ncarol - - 1\nann - g 2\n"
    );

    // A broken socket is an error and no signal, which would end the scheduler.
    let rude = node.socket().with_file_name("rude.sock");
    hang_up(&rude);
    for socket in [rude, node.socket().with_file_name("none.sock")] {
        for _ in 0..20 {
            let output = ask(&program, &socket, &names);
            let words = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(words.starts_with("no factors: "), "{words}");
        }
    }
}

/// What Slurm's plug-in calls users and groups, with a name service and a clock of the test's own.
#[test]
fn a_user_whom_the_directory_did_not_know_once_is_no_number_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm");
    let program = folder.path().join("people");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg("-o").arg(&program);
    compiler.args([here.join("people_test.c"), here.join("people.c")]);
    run(compiler.arg("-lpthread"));
    run(&mut Command::new(program));
}

/// A signal would end the scheduler that the table is in.
#[test]
fn a_node_that_ends_between_two_questions_raises_no_signal() {
    let node = FakeNode::new(&[("ann/", 7), ("bob/", 8)]);
    let program = compile("tests/node_ends.c", node.folder());
    let mut command = Command::new(program);
    command.arg(node.socket());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it was just compiled");
    let mut word = [0; 6];
    let mut said = child.stdout.take().expect("it is piped");
    said.read_exact(&mut word).expect("it has asked");
    node.close();
    drop(child.stdin.take());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{status}");
}
