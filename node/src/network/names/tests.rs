//! Names that resolve, that do not, and resolvers that are silent.

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::identity::Keypair;

use super::*;
use crate::network::address;
use crate::network::behaviour::transport;

fn address(text: &str) -> Multiaddr {
    text.parse().expect("an address")
}

fn numbers(texts: &[&str]) -> Vec<IpAddr> {
    let numbers = texts.iter().map(|text| text.parse().expect("a number"));
    numbers.collect()
}

/// What comes of a dial of this address, with this resolver.
async fn dial(names: &mut Names, text: &str) -> String {
    let options = DialOpts {
        role: Endpoint::Dialer,
        port_use: PortUse::New,
    };
    match names.dial(address(text), options) {
        Err(TransportError::Other(error)) => address::innermost(&error),
        Err(error) => error.to_string(),
        Ok(dial) => match dial.await {
            Ok(_) => "connected".to_owned(),
            Err(error) => address::innermost(&error),
        },
    }
}

fn names(look_up: LookUp) -> Names {
    with_patience(look_up, LOOKUP_TIMEOUT)
}

fn with_patience(look_up: LookUp, patience: Duration) -> Names {
    let key = Keypair::generate_ed25519();
    let inner = transport(&key, &Arc::default()).expect("a transport");
    Names::with(inner, look_up, patience)
}

/// Blocks as `getaddrinfo` does where the resolver is away, for as long as any test takes.
fn hang(_: &str) -> io::Result<Vec<IpAddr>> {
    loop {
        std::thread::park();
    }
}

#[test]
fn a_name_stands_for_all_its_numbers_of_the_family_that_is_meant() {
    let found = numbers(&["192.0.2.1", "2001:db8::1", "192.0.2.1", "192.0.2.2"]);
    for (text, expected) in [
        (
            "/dns/a.test/tcp/7",
            &[
                "/ip4/192.0.2.1/tcp/7",
                "/ip6/2001:db8::1/tcp/7",
                "/ip4/192.0.2.2/tcp/7",
            ][..],
        ),
        (
            "/dns4/a.test/tcp/7",
            &["/ip4/192.0.2.1/tcp/7", "/ip4/192.0.2.2/tcp/7"],
        ),
        ("/dns6/a.test/tcp/7", &["/ip6/2001:db8::1/tcp/7"]),
    ] {
        let address = address(text);
        let named = name_in(&address).expect("a name");
        let all = numbered(&address, &named, &found).expect("some");
        let all: Vec<String> = all.iter().map(|(_, of)| of.to_string()).collect();
        assert_eq!(all, expected, "{text}");
    }
}

#[test]
fn the_numbers_of_a_name_are_bounded() {
    let address = address("/dns/a.test/tcp/7");
    let many: Vec<IpAddr> = (1..=200).map(|last| [192, 0, 2, last].into()).collect();
    let named = name_in(&address).expect("a name");
    let all = numbered(&address, &named, &many).expect("some");
    assert_eq!(all.len(), ADDRESSES_MAX);
}

#[tokio::test]
async fn every_failure_says_dns_the_name_and_what_the_system_answered() {
    let unknown = |_: &str| Err(io::Error::other(format!("{STD_PREFIX}Name not known")));
    let four = |_: &str| Ok(numbers(&["127.0.0.1"]));
    for (look_up, text, expected) in [
        (
            unknown as LookUp,
            "/dns4/typo.test/tcp/7",
            "DNS has no address for typo.test: Name not known",
        ),
        (
            four,
            "/dns6/a.test/tcp/7",
            "DNS has no IPv6 address for a.test",
        ),
        (
            four,
            "/dnsaddr/a.test",
            "DNS is not asked for /dnsaddr/a.test: write /dns, /dns4 or /dns6",
        ),
    ] {
        assert_eq!(dial(&mut names(look_up), text).await, expected);
    }
}

#[tokio::test]
async fn the_systems_own_words_are_told() {
    // Reserved (RFC 6761): nobody answers for it, with or without a resolver.
    let told = dial(&mut names(system), "/dns/no.such.invalid/tcp/7").await;
    let words = told.strip_prefix("DNS has no address for no.such.invalid: ");
    assert!(
        words.is_some_and(|words| !words.is_empty() && !words.contains(STD_PREFIX)),
        "{told}"
    );
}

#[tokio::test]
async fn all_addresses_of_a_name_are_dialled() {
    // Nobody listens at the ports of two of them; which numbers were tried is in the failure.
    let two = |_: &str| Ok(numbers(&["127.0.0.1", "127.0.0.2"]));
    let told = dial(&mut names(two), "/dns4/a.test/tcp/1").await;
    assert!(
        told.contains("127.0.0.1: ") && told.contains("127.0.0.2: "),
        "{told}"
    );
}

#[tokio::test]
async fn a_silent_resolver_holds_up_no_more_than_its_own_names() {
    let mut silent = with_patience(hang, Duration::from_millis(400));
    let options = DialOpts {
        role: Endpoint::Dialer,
        port_use: PortUse::New,
    };
    let mut dials: FuturesUnordered<_> = (0..LOOKUPS_MAX + 10)
        .map(|at| {
            let address = address(&format!("/dns4/n{at}.test/tcp/7"));
            silent.dial(address, options).expect("a dial")
        })
        .collect();
    let mut told = Vec::new();
    while let Some(result) = dials.next().await {
        told.push(address::innermost(&result.expect_err("nobody answers")));
    }
    let count = |what: &str| told.iter().filter(|told| told.contains(what)).count();
    assert_eq!(count("DNS was not asked for"), 10, "{told:?}");
    assert_eq!(count("DNS did not answer for"), LOOKUPS_MAX, "{told:?}");
    // The threads still hang, and an address by number is dialled.
    let told = dial(&mut silent, "/ip4/127.0.0.1/tcp/1").await;
    assert!(!told.contains("DNS"), "{told}");
}
