//! Look-ups against a bare echo, at 1, 8 and 64 clients, and batches of 10,000.
//!
//! Each round times the echo, names and handles one behind the other, so that a machine's moods meet all
//! alike; the ratio is the middle one of the rounds.

use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

use crate::echo::Echo;
use crate::node::{Node, pairs};
use crate::rows::{Rows, median};
use crate::wire::{Wire, by_handle, by_name, columns};

const ROUNDS: usize = 21;

/// Round trips of all clients together in one round.
const ROUND_TRIPS: usize = 4_000;

const BATCHES: usize = 60;

pub(crate) fn measure(node: &Node, rows: &mut Rows) {
    let echo_socket = node.lookup().with_file_name("echo.sock");
    let _echo = Echo::start(&echo_socket);
    let names = [
        ("look-up by name, 1 client", "look-up by handle, 1 client"),
        ("look-up by name, 8 clients", "look-up by handle, 8 clients"),
        (
            "look-up by name, 64 clients",
            "look-up by handle, 64 clients",
        ),
    ];
    for (clients, (name, handle)) in [1, 8, 64].into_iter().zip(names) {
        let (named, handled, rate) = ratios(&node.lookup(), &echo_socket, clients);
        rows.say(name, format!("{named:.2} of the echo ({rate:.0} a second)"));
        rows.say(handle, format!("{handled:.2} of the echo"));
    }
    batches(node, rows);
}

/// By name, by handle, and the echo's own rate.
fn ratios(lookup: &Path, echo: &Path, clients: usize) -> (f64, f64, f64) {
    let pairs = pairs();
    let mut wires: Vec<Client> = (0..clients)
        .map(|client| Client::new(lookup, echo, &pairs[client * 7..client * 7 + 1]))
        .collect();
    let (mut named, mut handled, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let bare = timed(&mut wires, |client| client.echo.echo(&client.by_name));
        let name = timed(&mut wires, |client| {
            client.node.call(&client.by_name);
        });
        let handle = timed(&mut wires, |client| {
            client.node.call(&client.by_handle);
        });
        named.push(bare / name);
        handled.push(bare / handle);
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        rates.push(ROUND_TRIPS as f64 / bare);
    }
    (median(named), median(handled), median(rates))
}

struct Client {
    node: Wire,
    echo: Wire,
    by_name: Vec<u8>,
    by_handle: Vec<u8>,
}

impl Client {
    fn new(lookup: &Path, echo: &Path, who: &[(String, String)]) -> Self {
        let mut node = Wire::connect(lookup);
        let answer = columns(node.call(&by_name(who, true)));
        assert!(answer.factors.iter().all(|factor| *factor <= 1_000_000_000));
        Self {
            node,
            echo: Wire::connect(echo),
            by_name: by_name(who, false),
            by_handle: by_handle(answer.generation, &answer.handles),
        }
    }
}

/// Seconds that all clients together take for [`ROUND_TRIPS`].
fn timed(clients: &mut [Client], round_trip: impl Fn(&mut Client) + Sync) -> f64 {
    let each = ROUND_TRIPS / clients.len();
    let ready = Barrier::new(clients.len() + 1);
    std::thread::scope(|scope| {
        let (ready, round_trip) = (&ready, &round_trip);
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    ready.wait();
                    (0..each).for_each(|_| round_trip(client));
                })
            })
            .collect();
        ready.wait();
        let began = Instant::now();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("it is answered"));
        began.elapsed().as_secs_f64()
    })
}

fn batches(node: &Node, rows: &mut Rows) {
    let pairs = pairs();
    let frame = by_name(&pairs, true);
    let mut first = Wire::connect(&node.lookup());
    let began = Instant::now();
    let answer = columns(first.call(&frame));
    let cold = began.elapsed();
    assert!(answer.factors.iter().all(|factor| *factor <= 1_000_000_000));
    let names = by_name(&pairs, false);
    let handles = by_handle(answer.generation, &answer.handles);
    let (mut named, mut handled) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        for (frame, took) in [(&names, &mut named), (&handles, &mut handled)] {
            let began = Instant::now();
            first.call(frame);
            took.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let said = format!(
        "{:.2} ms; the first of a connection {:.2} ms",
        median(named),
        cold.as_secs_f64() * 1e3
    );
    rows.say("batch of 10,000 by name", said);
    rows.say(
        "batch of 10,000 by handle",
        format!("{:.2} ms", median(handled)),
    );
}
