//! A node's `lookup.sock` as a thread: it says a factor for each name, or refuses.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fairmesh_client::protocol::{
    Accounts, View, Want, Who, decode_request, encode_answer, split_frame,
};
use fairmesh_model::{ContentHash, Millis, WallTime, Window};

/// Factors by `user/account`, or `user/account/group` where there is one.
type Factors = Arc<Mutex<BTreeMap<String, u32>>>;

/// The server. Its thread ends with the test's process.
pub(crate) struct FakeNode {
    folder: tempfile::TempDir,
    factors: Factors,
    connections: Arc<Mutex<Vec<UnixStream>>>,
}

impl FakeNode {
    /// Listens, and knows these factors.
    pub(crate) fn new(factors: &[(&str, u32)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let known = factors
            .iter()
            .map(|(who, factor)| ((*who).to_owned(), *factor));
        let node = Self {
            folder,
            factors: Arc::new(Mutex::new(known.collect())),
            connections: Arc::default(),
        };
        node.listen();
        node
    }

    /// A path where nobody listens.
    pub(crate) fn away() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            factors: Arc::default(),
            connections: Arc::default(),
        }
    }

    /// Begins to listen.
    pub(crate) fn listen(&self) {
        let listener = UnixListener::bind(self.socket()).expect("the path is free");
        let (factors, connections) = (self.factors.clone(), self.connections.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let ours = stream.try_clone().expect("files are free");
                let all = connections.lock();
                all.unwrap_or_else(PoisonError::into_inner).push(ours);
                let factors = factors.clone();
                std::thread::spawn(move || serve(stream, &factors));
            }
        });
    }

    /// The socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("lookup.sock")
    }

    /// Where the socket is.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Closes all connections, and goes on listening: as if it had been started anew.
    pub(crate) fn close(&self) {
        let all = self.connections.lock();
        for stream in all.unwrap_or_else(PoisonError::into_inner).drain(..) {
            stream.shutdown(Shutdown::Both).expect("it is open");
        }
    }

    /// Changes a factor.
    pub(crate) fn set(&self, who: &str, factor: u32) {
        let mut factors = self.factors.lock().unwrap_or_else(PoisonError::into_inner);
        factors.insert(who.to_owned(), factor);
    }
}

/// A socket that hangs up on every connection, before or in the middle of the request.
pub(crate) fn hang_up(path: &Path) {
    let listener = UnixListener::bind(path).expect("the path is free");
    std::thread::spawn(move || listener.incoming().for_each(drop));
}

/// Handles are the place in the list of names of this connection.
fn serve(mut stream: UnixStream, factors: &Factors) {
    let mut names: Vec<String> = Vec::new();
    let mut inbox = Vec::new();
    let mut bytes = [0; 65_536];
    loop {
        while let Some((body, length)) = split_frame(&inbox).expect("our client frames well") {
            let reply = answer(body, &mut names, factors);
            inbox.drain(..length);
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(length) => inbox.extend_from_slice(&bytes[..length]),
        }
    }
}

fn answer(body: &[u8], names: &mut Vec<String>, factors: &Factors) -> Vec<u8> {
    let mut reply = Vec::new();
    let request = decode_request(body).expect("our client sends good requests");
    let number = |row: usize| u32::try_from(row).expect("few names");
    let rows: Vec<u32> = match request.accounts {
        Accounts::Names(block) => {
            let first = names.len();
            names.extend(block.rows().map(|row| name_of(&row.expect("a good row"))));
            (number(first)..number(names.len())).collect()
        }
        Accounts::Handles { handles, .. } => handles.iter().collect(),
    };
    let known = factors.lock().unwrap_or_else(PoisonError::into_inner);
    let factor = |row: u32| known.get(&names[row as usize]).copied();
    let with_handles = request.want == Want::FactorsAndHandles;
    let frame = encode_answer(&mut reply, request.id, &view(), &rows, with_handles, factor);
    frame.expect("it fits");
    reply
}

fn name_of(who: &Who<'_>) -> String {
    match who {
        Who::Path(path) => (*path).to_owned(),
        Who::Names(names) => {
            let user = names.user.unwrap_or_default();
            let account = names.account.unwrap_or_default();
            let group = names
                .group
                .map_or_else(String::new, |group| format!("/{group}"));
            format!("{user}/{account}{group}")
        }
    }
}

fn view() -> View {
    View {
        as_of: WallTime(1),
        age: Millis(2_000),
        sites_known: 1,
        sites_total: 2,
        reference_window: Window(5),
        digest: ContentHash::of(b"view"),
        flags: 0,
        generation: 6,
        ranking: 7,
        step: 250_000_000,
    }
}
