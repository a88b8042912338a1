//! A wire between two nodes that can be cut while both run: a port on this machine that hands on to another.
//!
//! Invariant: while it is cut nothing passes, and nobody is connected through it. Deliberately not here: what
//! passes.

use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

/// The wire.
#[derive(Debug)]
pub struct Wire {
    /// Where it begins, as a multiaddress.
    pub address: String,
    ends: Arc<Mutex<Ends>>,
}

#[derive(Debug, Default)]
struct Ends {
    is_cut: bool,
    open: Vec<TcpStream>,
}

impl Wire {
    /// To a node that listens at a multiaddress.
    pub fn to(address: &str) -> anyhow::Result<Self> {
        let port = address
            .rsplit('/')
            .find_map(|part| part.parse::<u16>().ok());
        let port = port.context("an address with a port")?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let own = listener.local_addr()?.port();
        let ends = Arc::new(Mutex::new(Ends::default()));
        let of_wire = Arc::clone(&ends);
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                // A call that fails is one that the node repeats.
                let _ = hand_on(&of_wire, caller, port);
            }
        });
        Ok(Self {
            address: format!("/ip4/127.0.0.1/tcp/{own}"),
            ends,
        })
    }

    /// Cuts it, or mends it.
    pub fn cut(&self, cut: bool) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.is_cut = cut;
        if cut {
            for end in ends.open.drain(..) {
                // It may have ended already.
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

fn hand_on(ends: &Mutex<Ends>, caller: TcpStream, port: u16) -> std::io::Result<()> {
    let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
    if ends.is_cut {
        return caller.shutdown(Shutdown::Both);
    }
    let called = TcpStream::connect(("127.0.0.1", port))?;
    for (from, to) in [(&caller, &called), (&called, &caller)] {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        std::thread::spawn(move || {
            // However it ends, the other side hears of it.
            let _ = copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    ends.open.extend([caller, called]);
    Ok(())
}
