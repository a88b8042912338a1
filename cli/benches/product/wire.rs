//! The look-up protocol, written from its documentation (`fairmesh_client::protocol`) and not from its code.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// One connection.
pub(crate) struct Wire {
    stream: UnixStream,
    buffer: Vec<u8>,
}

/// An answer's columns.
pub(crate) struct Columns {
    pub(crate) generation: u64,
    pub(crate) factors: Vec<u32>,
    pub(crate) handles: Vec<u32>,
}

impl Wire {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("it listens");
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Sends a frame and takes back as many bytes.
    pub(crate) fn echo(&mut self, frame: &[u8]) {
        self.stream.write_all(frame).expect("sent");
        self.buffer.resize(frame.len(), 0);
        self.stream.read_exact(&mut self.buffer).expect("echoed");
    }

    /// Sends a frame and takes a frame; its body.
    pub(crate) fn call(&mut self, frame: &[u8]) -> &[u8] {
        self.stream.write_all(frame).expect("sent");
        // What is there is read at once: one call for a small answer, as the echo has one.
        let mut got = 0;
        loop {
            self.buffer
                .resize(self.buffer.len().max(got + (64 << 10)), 0);
            got += match self.stream.read(&mut self.buffer[got..]).expect("answered") {
                0 => panic!("the node has closed the connection"),
                read => read,
            };
            if let Some(length) = self.buffer[..got].first_chunk() {
                let whole = 4 + usize_of(u32::from_be_bytes(*length).into());
                if got >= whole {
                    return &self.buffer[4..whole];
                }
            }
        }
    }
}

/// A request by user and account; with handles or without.
pub(crate) fn by_name(who: &[(String, String)], with_handles: bool) -> Vec<u8> {
    let mut block = u32_of(who.len()).to_be_bytes().to_vec();
    for (user, account) in who {
        block.push(3);
        for name in [user, account] {
            let length = u16::try_from(name.len()).expect("short");
            block.extend(length.to_be_bytes());
            block.extend(name.as_bytes());
        }
    }
    let mut body = vec![0xa4, 1, 1, 2, 7, 3, u8::from(with_handles), 4];
    head(&mut body, 2, block.len());
    body.extend(block);
    framed(body)
}

/// A request by handle.
pub(crate) fn by_handle(generation: u64, handles: &[u32]) -> Vec<u8> {
    let mut body = vec![0xa5, 1, 1, 2, 7, 3, 0, 5];
    head(&mut body, 2, handles.len() * 4);
    body.extend(handles.iter().flat_map(|handle| handle.to_be_bytes()));
    body.push(6);
    head(&mut body, 0, usize_of(generation));
    framed(body)
}

/// Takes an answer apart.
pub(crate) fn columns(mut body: &[u8]) -> Columns {
    let mut columns = Columns {
        generation: 0,
        factors: Vec::new(),
        handles: Vec::new(),
    };
    let (_, pairs) = take_head(&mut body);
    for _ in 0..pairs {
        match take_head(&mut body).1 {
            3 => assert_eq!(take_head(&mut body).1, 0, "the node has refused"),
            4 => {
                let (_, fields) = take_head(&mut body);
                for _ in 0..fields {
                    let key = take_head(&mut body).1;
                    let (major, number) = take_head(&mut body);
                    if major == 2 {
                        body = &body[usize_of(number)..];
                    } else if key == 8 {
                        columns.generation = number;
                    }
                }
            }
            5 => columns.factors = take_column(&mut body),
            6 => columns.handles = take_column(&mut body),
            _ => drop(take_head(&mut body)),
        }
    }
    columns
}

fn take_column(body: &mut &[u8]) -> Vec<u32> {
    let (_, length) = take_head(body);
    let (column, rest) = body.split_at(usize_of(length));
    *body = rest;
    let rows = column.chunks_exact(4);
    rows.map(|row| u32::from_be_bytes(row.try_into().expect("four")))
        .collect()
}

/// The major type and the number of the next item.
fn take_head(body: &mut &[u8]) -> (u8, u64) {
    let (first, mut rest) = body.split_first().expect("an item");
    let bytes = match first & 31 {
        24 => 1,
        25 => 2,
        26 => 4,
        27 => 8,
        _ => 0,
    };
    let (number, behind) = rest.split_at(bytes);
    rest = behind;
    *body = rest;
    let folded = number
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let number = if bytes == 0 {
        u64::from(first & 31)
    } else {
        folded
    };
    (first >> 5, number)
}

/// Appends the head of an item, in the shortest form.
fn head(body: &mut Vec<u8>, major: u8, number: usize) {
    let major = major << 5;
    match number {
        0..24 => body.push(major | u8::try_from(number).expect("small")),
        24..256 => body.extend([major | 24, u8::try_from(number).expect("small")]),
        256..65_536 => {
            body.push(major | 25);
            body.extend(u16::try_from(number).expect("small").to_be_bytes());
        }
        _ => {
            body.push(major | 26);
            body.extend(u32_of(number).to_be_bytes());
        }
    }
}

fn framed(body: Vec<u8>) -> Vec<u8> {
    [u32_of(body.len()).to_be_bytes().as_slice(), &body].concat()
}

fn u32_of(number: usize) -> u32 {
    u32::try_from(number).expect("far below 4 GiB")
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).expect("fits memory")
}
