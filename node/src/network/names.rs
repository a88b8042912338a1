//! Host names in peer addresses: the system resolves them, at each dial.
//!
//! `getaddrinfo` reads resolv.conf, hosts and nsswitch.conf as they are now, so a resolver that comes up late, or an
//! entry that changes, needs no restart. All addresses that a name has are dialled at once; the first connection wins.
//!
//! Invariant: no look-up holds up the node, a dial by number, or a stop. `getaddrinfo` blocks its thread for as long as
//! the resolver is silent, and nothing can interrupt it; so each look-up has a thread of its own, at most
//! [`LOOKUPS_MAX`] of them, and no dial waits for one longer than [`LOOKUP_TIMEOUT`]. They are not tokio's blocking
//! threads, for whose end a runtime waits before the program ends. Each failure says DNS, the name, and what the
//! system answered.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use futures::{FutureExt as _, future};
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::{
    Boxed, DialOpts, ListenerId, Transport, TransportError, TransportEvent,
};
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::network::address::innermost;
use crate::network::config::{ADDRESSES_MAX, LOOKUP_TIMEOUT, LOOKUPS_MAX};

/// How the standard library begins what `getaddrinfo` says.
const STD_PREFIX: &str = "failed to lookup address information: ";

type Connection = (PeerId, StreamMuxerBox);

/// Asks the system for the addresses of a name; blocks.
type LookUp = fn(&str) -> io::Result<Vec<IpAddr>>;

/// Why a name leads nowhere. Nothing was dialled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    #[error("DNS has no address for {0}: {1}")]
    NoAddress(String, String),
    #[error("DNS has no {1} address for {0}")]
    NoneOfFamily(String, &'static str),
    #[error("DNS did not answer for {0} within {n} s", n = LOOKUP_TIMEOUT.as_secs())]
    Silent(String),
    #[error("DNS was not asked for {0}: it is silent on {LOOKUPS_MAX} other names")]
    Busy(String),
    #[error("DNS is not asked for /dnsaddr/{0}: write /dns, /dns4 or /dns6")]
    Unsupported(String),
}

/// Which addresses of a name a multiaddress means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Any,
    V4,
    V6,
    /// Text records that hold multiaddresses: `getaddrinfo` knows none.
    Records,
}

/// The first name in an address, with its place.
fn name_in(address: &Multiaddr) -> Option<(usize, String, Family)> {
    address
        .iter()
        .enumerate()
        .find_map(|(at, part)| match part {
            Protocol::Dns(name) => Some((at, name.into_owned(), Family::Any)),
            Protocol::Dns4(name) => Some((at, name.into_owned(), Family::V4)),
            Protocol::Dns6(name) => Some((at, name.into_owned(), Family::V6)),
            Protocol::Dnsaddr(name) => Some((at, name.into_owned(), Family::Records)),
            _ => None,
        })
}

/// Why no peer can be at an address, as far as its form shows.
pub(crate) fn check(address: &Multiaddr) -> Result<(), NameError> {
    match name_in(address) {
        Some((_, name, Family::Records)) => Err(NameError::Unsupported(name)),
        _ => Ok(()),
    }
}

/// The address once for each of the name's numbers that it means: without duplicates, at most [`ADDRESSES_MAX`].
fn numbered(
    address: &Multiaddr,
    (at, name, family): &(usize, String, Family),
    numbers: &[IpAddr],
) -> Result<Vec<(IpAddr, Multiaddr)>, NameError> {
    let lacking = match family {
        Family::Any => "",
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
        Family::Records => return Err(NameError::Unsupported(name.clone())),
    };
    let mut all: Vec<(IpAddr, Multiaddr)> = Vec::new();
    for number in numbers {
        let is_meant = match family {
            Family::V4 => number.is_ipv4(),
            Family::V6 => number.is_ipv6(),
            _ => true,
        };
        let is_known = all.iter().any(|(known, _)| known == number);
        if is_meant && !is_known && all.len() < ADDRESSES_MAX {
            let replaced = address.replace(*at, |_| Some(Protocol::from(*number)));
            all.extend(replaced.map(|address| (*number, address)));
        }
    }
    match all.is_empty() {
        true => Err(NameError::NoneOfFamily(name.clone(), lacking)),
        false => Ok(all),
    }
}

/// What the system says now.
fn system(name: &str) -> io::Result<Vec<IpAddr>> {
    let addresses = (name, 0).to_socket_addrs()?;
    Ok(addresses.map(|address| address.ip()).collect())
}

/// A transport that dials names, too.
pub(crate) struct Names {
    inner: Arc<Mutex<Boxed<Connection>>>,
    look_up: LookUp,
    patience: Duration,
    /// A look-up returns its permit when its thread ends, even if its dial has given up.
    permits: Arc<Semaphore>,
}

impl Names {
    pub(crate) fn new(inner: Boxed<Connection>) -> Self {
        Self::with(inner, system, LOOKUP_TIMEOUT)
    }

    fn with(inner: Boxed<Connection>, look_up: LookUp, patience: Duration) -> Self {
        Self {
            inner: Arc::new(Mutex::new(inner)),
            look_up,
            patience,
            permits: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        }
    }
}

/// Held to begin a dial or to poll, by one task at a time.
fn lock<T>(inner: &Mutex<T>) -> MutexGuard<'_, T> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn resolve(
    name: &str,
    (look_up, patience): (LookUp, Duration),
    permits: Arc<Semaphore>,
) -> Result<Vec<IpAddr>, NameError> {
    // If resolvers are silent, a dial that gets no turn soon leaves its place to dials by number.
    let permit = timeout(patience / 4, permits.acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        return Err(NameError::Busy(name.to_owned()));
    };
    let no_address = |error: io::Error| {
        let said = error.to_string();
        let said = said.strip_prefix(STD_PREFIX).unwrap_or(&said);
        NameError::NoAddress(name.to_owned(), said.to_owned())
    };
    let (sender, answer) = oneshot::channel();
    let asked = name.to_owned();
    let thread = std::thread::Builder::new().name("look-up".to_owned());
    let begun = thread.spawn(move || {
        let answer = look_up(&asked);
        drop(permit);
        // An error means that the dial has given up.
        let _ = sender.send(answer);
    });
    begun.map_err(no_address)?;
    match timeout(patience, answer).await {
        Ok(Ok(answer)) => answer.map_err(no_address),
        Ok(Err(_)) | Err(_) => Err(NameError::Silent(name.to_owned())),
    }
}

/// Dials all of them at once.
async fn dial_all(
    inner: Arc<Mutex<Boxed<Connection>>>,
    addresses: Vec<(IpAddr, Multiaddr)>,
    options: DialOpts,
) -> io::Result<Connection> {
    let dial = |(number, address): (IpAddr, Multiaddr)| {
        let begun = lock(&inner).dial(address, options);
        let dial = match begun {
            Ok(dial) => dial.left_future(),
            Err(error) => future::err(io::Error::other(error)).right_future(),
        };
        dial.map(move |result| result.map_err(|error| format!("{number}: {}", innermost(&error))))
    };
    let mut dials: FuturesUnordered<_> = addresses.into_iter().map(dial).collect();
    let mut failures = Vec::new();
    while let Some(result) = dials.next().await {
        match result {
            Ok(connection) => return Ok(connection),
            Err(failure) => failures.push(failure),
        }
    }
    Err(io::Error::other(failures.join(", ")))
}

impl Transport for Names {
    type Output = Connection;
    type Error = io::Error;
    type ListenerUpgrade = <Boxed<Connection> as Transport>::ListenerUpgrade;
    type Dial = <Boxed<Connection> as Transport>::Dial;

    fn listen_on(
        &mut self,
        id: ListenerId,
        address: Multiaddr,
    ) -> Result<(), TransportError<io::Error>> {
        lock(&self.inner).listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        lock(&self.inner).remove_listener(id)
    }

    fn dial(
        &mut self,
        address: Multiaddr,
        options: DialOpts,
    ) -> Result<Self::Dial, TransportError<io::Error>> {
        let Some(named) = name_in(&address) else {
            return lock(&self.inner).dial(address, options);
        };
        check(&address).map_err(|error| TransportError::Other(io::Error::other(error)))?;
        let (inner, permits) = (Arc::clone(&self.inner), Arc::clone(&self.permits));
        let how = (self.look_up, self.patience);
        let dial = async move {
            let numbers = resolve(&named.1, how, permits).await;
            let numbers = numbers.and_then(|numbers| numbered(&address, &named, &numbers));
            dial_all(inner, numbers.map_err(io::Error::other)?, options).await
        };
        Ok(dial.boxed())
    }

    fn poll(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, io::Error>> {
        Pin::new(&mut *lock(&self.inner)).poll(context)
    }
}

#[cfg(test)]
mod tests;
