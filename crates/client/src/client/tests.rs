use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use fairmesh_model::{ContentHash, Millis, WallTime, Window};

use super::*;
use crate::protocol::{View, decode_request, encode_answer, encode_error};

const PATIENCE: Duration = Duration::from_secs(20);

fn view() -> View {
    View {
        as_of: WallTime(1),
        age: Millis(2),
        sites_known: 3,
        sites_total: 4,
        reference_window: Window(5),
        digest: ContentHash::of(b"view"),
        flags: 0,
        generation: 6,
        ranking: 7,
        step: 250_000_000,
    }
}

/// A server that answers each connection's first request with the bytes that `reply` makes of its
/// id, and then closes.
struct Server {
    path: PathBuf,
    thread: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

fn serve(connections: usize, reply: impl Fn(u64) -> Vec<u8> + Send + 'static) -> Server {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("lookup.sock");
    let listener = UnixListener::bind(&path).expect("the path is free");
    let thread = thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut inbox = Inbox::default();
            if inbox.read_frame(&mut stream, PATIENCE).is_ok() {
                let request = decode_request(inbox.frame()).expect("a good request");
                // The client may have given up.
                let _ = stream.write_all(&reply(request.id));
            }
        }
    });
    Server {
        path,
        thread,
        _dir: dir,
    }
}

fn answer(id: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_answer(&mut frame, id, &view(), &[9], false, Some).expect("fits");
    frame
}

fn lookup(server: &Server) -> (Client, Result<Option<u32>, ClientError>) {
    let mut client = Client::connect(&server.path, PATIENCE).expect("it listens");
    let factor = client
        .lookup(&[Who::Path("/a")])
        .map(|answer| answer.factor(0));
    (client, factor)
}

#[test]
fn a_broken_client_says_so_until_it_is_connected_anew() {
    let server = serve(2, answer);
    let (mut client, factor) = lookup(&server);
    assert_eq!(factor.expect("answered"), Some(9));
    let gone = client.lookup(&[]).map(|_| ());
    assert!(matches!(gone, Err(ClientError::Io { .. })), "{gone:?}");
    assert!(client.is_broken());
    assert!(matches!(client.lookup(&[]), Err(ClientError::Broken)));
    client.reconnect().expect("it listens");
    assert_eq!(client.lookup(&[]).expect("answered").factor(0), Some(9));
    server.thread.join().expect("the server ends well");
}

#[test]
fn answers_that_make_no_sense_break_the_client() {
    type Reply = fn(u64) -> Vec<u8>;
    let cases: [(&str, Reply); 5] = [
        ("another id", |id| answer(id + 1)),
        ("half an answer", |id| answer(id)[..40].to_vec()),
        ("nothing", |_| Vec::new()),
        ("noise", |_| vec![0, 0, 0, 1, 0xff]),
        ("a huge length", |_| vec![0xff; 4]),
    ];
    for (name, reply) in cases {
        let server = serve(1, reply);
        let (client, factor) = lookup(&server);
        assert!(factor.is_err() && client.is_broken(), "{name}");
        server.thread.join().expect("the server ends well");
    }
}

#[test]
fn refusals_say_why_and_break_the_client_only_if_the_server_closes() {
    for status in [Status::Busy, Status::StaleHandles] {
        let server = serve(1, move |id| {
            let mut frame = Vec::new();
            encode_error(&mut frame, id, status, "for a reason");
            frame
        });
        let (client, factor) = lookup(&server);
        let text = factor.expect_err("refused").to_string();
        assert!(text.contains("for a reason"), "{text}");
        assert_eq!(client.is_broken(), status.closes());
        server.thread.join().expect("the server ends well");
    }
}

#[test]
fn a_node_that_does_not_answer_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("lookup.sock");
    let _listener = UnixListener::bind(&path).expect("the path is free");
    let mut client = Client::connect(&path, Duration::from_millis(20)).expect("it listens");
    match client.lookup(&[]) {
        Err(ClientError::Io { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }
    assert!(client.is_broken());
}

/// It is stopped, and others wait already: as many as the kernel lets.
#[test]
fn a_node_that_takes_nobody_in_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("lookup.sock");
    let listener = UnixListener::bind(&path).expect("the path is free");
    rustix::net::listen(&listener, 0).expect("it listens");
    let _waiting = UnixStream::connect(&path).expect("one has room");
    let (sender, told) = std::sync::mpsc::channel();
    thread::spawn(move || sender.send(Client::connect(path, Duration::from_millis(20)).err()));
    match told.recv_timeout(PATIENCE).expect("it ends") {
        Some(ClientError::Unreachable { source, .. }) => {
            assert_eq!(source.kind(), io::ErrorKind::TimedOut);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_pipeline_has_an_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("lookup.sock");
    let _listener = UnixListener::bind(&path).expect("the path is free");
    let mut client = Client::connect(&path, PATIENCE).expect("it listens");
    let full = (0..PIPELINE_BYTES_MAX).find_map(|_| client.send(&[Who::Path("/a")]).err());
    assert!(matches!(full, Some(ClientError::PipelineFull)), "{full:?}");
    assert!(!client.is_broken());
}

#[test]
fn who_cannot_reach_a_node_is_told_where_it_was_looked_for_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("lookup.sock");
    let told = || match Client::connect(&socket, PATIENCE) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("nobody listens"),
    };
    let missing = told();
    let path = socket.display().to_string();
    assert!(
        missing.contains(&path) && missing.contains("no such socket"),
        "{missing}"
    );
    assert!(missing.contains("fairmesh run"), "{missing}");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("binds"));
    assert!(told().contains("has ended"), "{}", told());
}
