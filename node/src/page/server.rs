//! The TCP listener: who is let in, and for how long.
//!
//! Invariants: connections are counted in all and by address before anything is read from them, and each ends by
//! itself or by its age, however slowly its client reads. A request is answered only where its `Host` is an address, or
//! a name that the owner has written down: a web site that points its own name at this machine reads nothing.
//! Deliberately not here: what is shown.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::gather::Page;
use super::{Refused, router};
use crate::config::PageSettings;
use crate::control::{ControlServer, serve};
use crate::sockets::serve_all;

/// Connections at most: each holds a page, some 200 kB, or the next piece of a table.
pub const CONNECTIONS_MAX: usize = 64;

/// Of these from one address: a proxy in front has the most.
const OF_ONE_MAX: usize = 48;

/// How long a request's head may take, and a connection lie idle between two.
const HEAD_DEADLINE: Duration = Duration::from_secs(15);

/// How long a connection may live: who reads slower than this does not read it all.
const AGE_MAX: Duration = Duration::from_secs(300);

/// How long connections get to finish when the node stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// A listener that is bound and not yet running.
pub struct PageServer {
    listener: TcpListener,
    page: Arc<Page>,
}

impl PageServer {
    /// Listens where the settings say, for pages of what `control` serves.
    ///
    /// # Errors
    /// If that address cannot be had.
    pub async fn bind(settings: &PageSettings, control: &ControlServer) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(settings.listen).await?,
            page: Arc::new(Page::new(control.shared(), settings.hosts.clone())),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` holds true, or its sender is gone.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let Self { listener, page } = self;
        let (held, connections_stop) = (Arc::new(Held::default()), stop.clone());
        let take = |(stream, from): (TcpStream, SocketAddr)| {
            let place = Held::take(&held, from.ip())?;
            let (router, stop) = (router(Arc::clone(&page)), connections_stop.clone());
            Some(async move {
                let served = serve(stream, router, HEAD_DEADLINE, stop);
                if let Ok(Err(error)) = tokio::time::timeout(AGE_MAX, served).await {
                    tracing::debug!(%from, %error, "a connection to the page ended");
                }
                drop(place);
            })
        };
        serve_all(listener, "the page", STOP_GRACE, stop, take).await;
    }
}

#[derive(Debug, Default)]
struct Held(Mutex<BTreeMap<IpAddr, usize>>);

/// One counted connection; it is given back when dropped.
struct Place(Arc<Held>, IpAddr);

impl Held {
    fn take(held: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let mut of = held.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = of.get(&from).copied().unwrap_or(0);
        if own >= OF_ONE_MAX || of.values().sum::<usize>() >= CONNECTIONS_MAX {
            return None;
        }
        of.insert(from, own + 1);
        drop(of);
        Some(Place(Arc::clone(held), from))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = of.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                of.remove(&self.1);
            }
        }
    }
}

/// Lets through what asks for this host.
pub(super) async fn guard(State(page): State<Arc<Page>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_own(host, &page.hosts) {
        let is_open = matches!(request.uri().path(), "/metrics" | "/page.css" | "/icon.svg");
        if page.is_private() && !is_open {
            let why = "the owner of this node hides who has used what (privacy.hide), and a page does not know who reads \
                       it: on the cluster `fairmesh share` shows what is yours";
            return Refused::new(StatusCode::FORBIDDEN, why).into_response();
        }
        return next.run(request).await;
    }
    let why = "no page of this node has that name: ask for it by address, or have the name written into `hosts` of \
               [page] in the node's configuration";
    Refused::new(StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Whether `host`, with or without a port, is an address or one of `names`. Only a name can be pointed elsewhere.
fn is_own(host: &str, names: &[String]) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let inner = without_port.strip_prefix('[');
    let inner = inner.and_then(|inner| inner.strip_suffix(']'));
    let is_address = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => without_port.parse::<std::net::Ipv4Addr>().is_ok(),
    };
    let same = |name: &str| name.eq_ignore_ascii_case(without_port);
    is_address || same("localhost") || names.iter().any(|name| same(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_wrote_down_is_no_name_of_ours() {
        let names = ["grid.example".to_owned()];
        for (host, expected) in [
            ("127.0.0.1:7680", true),
            ("192.0.2.7", true),
            ("[::1]:7680", true),
            ("[::1]", true),
            ("localhost:1", true),
            ("Grid.Example:7680", true),
            ("", false),
            ("evil.example", false),
            ("127.0.0.1.evil.example:7680", false),
            ("grid.example.evil", false),
            ("::1", false),
        ] {
            assert_eq!(is_own(host, &names), expected, "{host}");
        }
    }

    #[test]
    fn one_address_leaves_places_to_others() {
        let held = Arc::new(Held::default());
        let take = |last| Held::take(&held, IpAddr::from([192, 0, 2, last]));
        let mut of_one: Vec<_> = (0..OF_ONE_MAX).map(|_| take(1).expect("a place")).collect();
        assert!(take(1).is_none());
        let others = CONNECTIONS_MAX - OF_ONE_MAX;
        let of_others: Vec<_> = (0..others).map(|_| take(2).expect("a place")).collect();
        assert!(take(3).is_none(), "there are no more");
        of_one.pop();
        assert!(take(3).is_some());
        drop((of_one, of_others));
        assert!(held.0.lock().expect("unharmed").is_empty());
    }
}
