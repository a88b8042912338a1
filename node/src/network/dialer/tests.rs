//! The dialer, driven by hand: time and randomness are arguments.

use super::*;
use crate::network::config::{DIALS_MAX, REACH_TIMEOUT};

fn site(byte: u8) -> SiteId {
    SiteId::from_bytes([byte; 32])
}

fn address(port: u16) -> Multiaddr {
    format!("/ip4/192.0.2.1/tcp/{port}").parse().unwrap()
}

/// Wants sites 1 to `peers`, each with one configured address.
fn dialer(peers: u8, now: Instant) -> Dialer {
    let config = NetworkConfig {
        redial_min: Duration::from_millis(100),
        redial_max: Duration::from_secs(10),
        unreachable_after: Duration::from_secs(5),
        ..NetworkConfig::default()
    };
    let configured = (1..=peers).map(|byte| (site(byte), vec![address(u16::from(byte))]));
    let mut dialer = Dialer::new(&config, configured.collect());
    dialer.want(&(1..=peers).map(site).collect(), now);
    dialer
}

/// Fails every dial of site 1 from `now` on, for `span`; the reports that came of it.
fn fail_for(dialer: &mut Dialer, now: &mut Instant, span: Duration) -> Vec<Report> {
    let end = *now + span;
    let mut reports = Vec::new();
    while *now < end {
        *now = (*now).max(dialer.next_turn().expect("the dialer never gives up"));
        dialer.take_due(*now).expect("a peer whose turn it is");
        reports.extend(dialer.failed(site(1), "no route", *now, 7));
    }
    reports
}

#[test]
fn a_wanted_peer_is_dialled_once_at_once() {
    let now = Instant::now();
    let mut dialer = dialer(1, now);
    assert_eq!(dialer.take_due(now), Some((site(1), vec![address(1)])));
    assert_eq!(dialer.take_due(now), None);
    dialer.opened(site(1));
    assert_eq!(dialer.next_turn(), None);
}

#[test]
fn a_lost_peer_is_redialled_and_failures_back_off() {
    let mut now = Instant::now();
    let mut dialer = dialer(1, now);
    dialer.take_due(now);
    dialer.opened(site(1));
    dialer.heard(site(1), now);
    dialer.lost(site(1), now, 0);
    let first = dialer.next_turn().unwrap();
    assert!(first <= now + Duration::from_millis(100));
    fail_for(&mut dialer, &mut now, Duration::from_secs(60));
    let wait = dialer.next_turn().unwrap() - now;
    assert!(wait >= Duration::from_secs(5) && wait <= Duration::from_secs(10));
}

#[test]
fn a_peer_that_refuses_us_after_the_handshake_is_not_hammered() {
    let mut now = Instant::now();
    let mut dialer = dialer(1, now);
    for _ in 0..10 {
        now = dialer.next_turn().unwrap();
        dialer.take_due(now);
        dialer.opened(site(1));
        dialer.failed(site(1), "closed at once", now, 0);
    }
    assert!(dialer.next_turn().unwrap() - now >= Duration::from_secs(5));
}

#[test]
fn an_outage_is_reported_once_and_its_end_once() {
    let mut now = Instant::now();
    let mut dialer = dialer(1, now);
    let reports = fail_for(&mut dialer, &mut now, Duration::from_secs(600));
    assert!(matches!(&reports[..], [Report::Unreachable { error, .. }] if error == "no route"));
    dialer.opened(site(1));
    assert!(matches!(
        dialer.heard(site(1), now),
        Some(Report::Back { .. })
    ));
    assert_eq!(dialer.heard(site(1), now), None);
}

#[test]
fn a_peer_that_comes_and_goes_is_reported_at_most_once_an_interval() {
    let mut now = Instant::now();
    let start = now;
    let mut dialer = dialer(1, now);
    let mut reports = 0;
    while now < start + 10 * LOG_INTERVAL {
        reports += fail_for(&mut dialer, &mut now, Duration::from_secs(10)).len();
        dialer.opened(site(1));
        dialer.heard(site(1), now);
        dialer.lost(site(1), now, 0);
    }
    assert!((5..=11).contains(&reports), "{reports} reports");
}

#[test]
fn a_peer_that_is_no_longer_wanted_is_let_go_and_comes_back_at_once() {
    let mut now = Instant::now();
    let mut dialer = dialer(1, now);
    fail_for(&mut dialer, &mut now, Duration::from_secs(60));
    dialer.want(&BTreeSet::new(), now);
    assert_eq!(dialer.next_turn(), None);
    assert_eq!(dialer.failed(site(1), "late", now, 0), None);
    assert_eq!(dialer.next_turn(), None);
    dialer.want(&[site(1)].into(), now);
    assert_eq!(dialer.next_turn(), Some(now));
}

#[test]
fn all_sources_of_addresses_are_tried_the_operators_first() {
    let now = Instant::now();
    let mut dialer = dialer(1, now);
    dialer.set_chartered([(site(1), vec![address(7), address(1)])].into(), now);
    dialer.learn(site(1), vec![address(9), address(7)]);
    let (_, addresses) = dialer.take_due(now).unwrap();
    assert_eq!(addresses, [address(1), address(7), address(9)]);
}

#[test]
fn a_new_address_in_a_charter_is_tried_at_once() {
    let mut now = Instant::now();
    let mut dialer = dialer(1, now);
    fail_for(&mut dialer, &mut now, Duration::from_secs(60));
    dialer.set_chartered([(site(1), vec![address(7)])].into(), now);
    assert_eq!(dialer.next_turn(), Some(now));
}

#[test]
fn a_new_address_in_the_configuration_replaces_the_old_one_at_once() {
    let mut now = Instant::now();
    let mut dialer = dialer(1, now);
    fail_for(&mut dialer, &mut now, Duration::from_secs(60));
    dialer.set_configured([(site(1), vec![address(7)])].into(), now);
    assert_eq!(dialer.next_turn(), Some(now));
    let (_, addresses) = dialer.take_due(now).unwrap();
    assert_eq!(addresses, [address(7)]);
}

#[test]
fn a_start_with_many_peers_goes_in_groups() {
    let now = Instant::now();
    let mut many = Many::new(DIALS_MAX + 100, now);
    let first: Vec<SiteId> = std::iter::from_fn(|| many.dialer.take_due(now))
        .map(|(site, _)| site)
        .collect();
    assert_eq!(first.len(), DIALS_MAX);
    assert_eq!(many.dialer.next_turn(), None);
    many.dialer.opened(first[0]);
    assert!(many.dialer.take_due(now).is_some());
}

/// A VO whose members, but for those that a test lets answer, are dead: each dial of one takes [`REACH_TIMEOUT`].
struct Many {
    dialer: Dialer,
    now: Instant,
    /// When each dial under way fails.
    under_way: BTreeSet<(Instant, SiteId)>,
    /// When each peer was last wanted or failed.
    idle_since: BTreeMap<SiteId, Instant>,
    longest_idle: Duration,
    random: u64,
}

fn member(number: usize) -> SiteId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    SiteId::from_bytes(bytes)
}

impl Many {
    /// Members 1 to `members`, with the intervals of a node.
    fn new(members: usize, now: Instant) -> Self {
        let all = (1..=members).map(member);
        let configured = all.clone().map(|site| (site, vec![address(1)])).collect();
        let mut dialer = Dialer::new(&NetworkConfig::default(), configured);
        dialer.want(&all.clone().collect(), now);
        Self {
            dialer,
            now,
            under_way: BTreeSet::new(),
            idle_since: all.map(|site| (site, now)).collect(),
            longest_idle: Duration::ZERO,
            random: 1,
        }
    }

    /// Goes on until this peer is dialled, or until `end`; how long that took.
    fn until_dialled(&mut self, wanted: Option<SiteId>, end: Duration) -> Option<Duration> {
        let began = self.now;
        while self.now < began + end {
            while let Some((site, _)) = self.dialer.take_due(self.now) {
                let idle = self.now - self.idle_since[&site];
                self.longest_idle = self.longest_idle.max(idle);
                if Some(site) == wanted {
                    return Some(self.now - began);
                }
                self.under_way.insert((self.now + REACH_TIMEOUT, site));
            }
            let ends = self.under_way.first().map(|(at, _)| *at);
            let next = [ends, self.dialer.next_turn()].into_iter().flatten().min();
            self.now = self.now.max(next.expect("the dialer never gives up"));
            while let Some(&(at, site)) = self.under_way.first().filter(|(at, _)| *at <= self.now) {
                self.under_way.remove(&(at, site));
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005) + 1;
                self.dialer.failed(site, "dead", self.now, self.random);
                self.idle_since.insert(site, self.now);
            }
        }
        None
    }
}

/// The bound of a start: the peer that comes last of all is reached within 15 s.
#[test]
fn two_thousand_dead_members_keep_no_two_live_ones_apart() {
    let mut many = Many::new(2_000, Instant::now());
    let took = many.until_dialled(Some(member(2_000)), Duration::from_secs(600));
    assert!(took <= Some(Duration::from_secs(15)), "{took:?}");
}

#[test]
fn peers_that_were_heard_are_dialled_before_all_that_fail() {
    let mut many = Many::new(2_000, Instant::now());
    let live = member(2_000);
    many.until_dialled(Some(live), Duration::from_secs(600));
    many.dialer.opened(live);
    many.dialer.heard(live, many.now);
    // In the rush of second tries, and long after it.
    for quiet in [1, 7, 600] {
        many.until_dialled(None, Duration::from_secs(quiet));
        many.dialer.lost(live, many.now, many.random);
        let took = many.until_dialled(Some(live), Duration::from_secs(600));
        let bound = NetworkConfig::default().redial_min + REACH_TIMEOUT;
        assert!(took <= Some(bound), "{took:?}");
        many.dialer.opened(live);
        many.dialer.heard(live, many.now);
    }
}

#[test]
fn members_that_never_answered_are_dialled_within_the_longest_wait_for_ever() {
    let mut many = Many::new(2_000, Instant::now());
    many.until_dialled(None, Duration::from_secs(1_200));
    let longest = NetworkConfig::default().redial_max;
    assert!(many.longest_idle <= longest, "{:?}", many.longest_idle);
}

#[test]
fn a_peer_that_is_gone_for_good_is_first_for_a_few_tries_only() {
    let mut now = Instant::now();
    let mut dialer = dialer(1, now);
    dialer.take_due(now);
    dialer.opened(site(1));
    dialer.heard(site(1), now);
    dialer.lost(site(1), now, 0);
    assert_eq!(dialer.wanted[&site(1)].rank, Rank::Known);
    fail_for(&mut dialer, &mut now, Duration::from_secs(60));
    assert_eq!(dialer.wanted[&site(1)].rank, Rank::Failing);
}
