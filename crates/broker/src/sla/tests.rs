//! The flat form as rows, its round trip, and what it means.

use fairmesh_model::Millis;
use proptest::prelude::*;

use super::*;

const DAY: u64 = 86_400_000;

fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).expect("a path")
}

fn percent(text: &str) -> Amount {
    Amount::Percent(Share::parse_percent(text).expect("a percentage"))
}

fn bound(amount: Amount, interval: u64) -> Option<Bound> {
    let interval = Millis(interval);
    Some(Bound { amount, interval })
}

#[test]
fn grants_are_read_as_they_are_written() {
    use Resource::{Cpu, Disk, Net};
    use Sign::{AtLeast, AtMost, Target};
    let grant = |share, sign, burst| Grant { share, sign, burst };
    let rows = [
        (
            "10%",
            Cpu,
            grant(bound(percent("10"), 30 * DAY), Target, None),
        ),
        (
            "25%+",
            Cpu,
            grant(bound(percent("25"), 30 * DAY), AtMost, None),
        ),
        (
            " 5.5 % - / 12h",
            Cpu,
            grant(bound(percent("5.5"), DAY / 2), AtLeast, None),
        ),
        (
            "150cpus+ / 90min",
            Cpu,
            grant(bound(Amount::Units(150), DAY / 16), AtMost, None),
        ),
        (
            "10% / 7d, burst 40% / 30s",
            Cpu,
            grant(
                bound(percent("10"), 7 * DAY),
                Target,
                bound(percent("40"), 30_000),
            ),
        ),
        (
            "burst 40cpus",
            Cpu,
            grant(None, Target, bound(Amount::Units(40), DAY)),
        ),
        (
            "2TiB+",
            Disk,
            grant(bound(Amount::Units(2 << 40), 30 * DAY), AtMost, None),
        ),
        (
            "10%",
            Disk,
            grant(bound(percent("10"), 30 * DAY), Target, None),
        ),
        (
            "10%+ / 1d",
            Net,
            grant(bound(percent("10"), DAY), AtMost, None),
        ),
    ];
    for (text, resource, expected) in rows {
        let grant = Grant::parse(text, resource);
        assert_eq!(grant.as_ref(), Ok(&expected), "{text}");
        assert_eq!(
            Grant::parse(&expected.to_text(resource), resource),
            Ok(expected)
        );
    }
}

#[test]
fn what_is_no_grant_is_refused_with_what_to_write() {
    let rows = [
        (
            "",
            Resource::Cpu,
            "a share is missing: write one such as 10% or 150cpus",
        ),
        (
            "10",
            Resource::Cpu,
            "`10` is no amount: write 10% or 150cpus",
        ),
        ("120%", Resource::Cpu, "`120%` is no amount"),
        ("-5%", Resource::Cpu, "`-5%` is no amount"),
        ("1.5cpus", Resource::Cpu, "`1.5cpus` is no amount"),
        ("2TiB", Resource::Cpu, "`2TiB` is no amount"),
        (
            "99999999PiB",
            Resource::Disk,
            "`99999999PiB` is no amount: write 2TiB or 10%",
        ),
        ("10cpus", Resource::Net, "`10cpus` is no amount: write 10%"),
        ("10% / 0d", Resource::Cpu, "`0d` is no interval"),
        ("10% / month", Resource::Cpu, "`month` is no interval"),
        ("10%, 40%", Resource::Cpu, "`40%` is left over"),
        ("10%, burst 40%, 5%", Resource::Cpu, "`5%` is left over"),
        (
            "10%, burst 40%+",
            Resource::Cpu,
            "a burst is always an upper limit",
        ),
        ("10%, burst", Resource::Cpu, "a share is missing"),
        ("2TiB / 1d", Resource::Disk, "disk has no intervals"),
        (
            "2TiB, burst 3TiB",
            Resource::Disk,
            "disk has no intervals and no bursts",
        ),
    ];
    for (text, resource, expected) in rows {
        let error = Grant::parse(text, resource).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn documents_are_refused_where_they_are_wrong() {
    let rows = [
        (
            "\"/a\" = 1\n",
            "s.toml:1:1: unknown field `/a`, expected `sla`",
        ),
        ("", "s.toml:1:1: there is no table [sla]"),
        (
            "[sla]\n\"/a\" = 5\n",
            "s.toml:2:8: `/a`: invalid type: integer `5`, expected a table such as { cpu",
        ),
        (
            "[sla]\n\"/a\" = { cpu = 5 }\n",
            "s.toml:2:16: `/a.cpu`: expected a share in quotes",
        ),
        (
            "[sla]\n\"/a\" = { cpu = \"5\" }\n",
            "s.toml:2:16: `/a.cpu`: `5` is no amount",
        ),
        (
            "[sla]\n\"/a\" = { cup = \"5%\" }\n",
            "s.toml:2:10: `/a.cup`: unknown field `cup`, expected one of `cpu`, `disk`",
        ),
        (
            "[sla]\n\"/a\" = { at_most = \"5%\" }\n",
            "s.toml:2:20: `/a.at_most`: `5%` is no amount: write 150cpus",
        ),
        (
            "[sla]\n\"/a\" = { extensible = 1 }\n",
            "s.toml:2:23: `/a.extensible`: invalid type: integer `1`, expected a boolean",
        ),
        ("[sla]\n\"a\" = {}\n", "s.toml:2:1: `a`: account path"),
        (
            "[sla]\n\"/a/b\" = {}\n",
            "s.toml:2:1: `/a/b`: there is no entry `/a` above it",
        ),
        (
            "[sla]\n\"/a\" = {}\n\"/a\" = {}\n",
            "s.toml:3:1: duplicate key",
        ),
        (
            "[sla]\n\"/a\" = { cpu = \"60%-\" }\n\"/b\" = { cpu = \"40.1%-\" }\n",
            "s.toml:2:1: `/a`: the guarantees below `/` add up to 101 %",
        ),
    ];
    for (text, expected) in rows {
        let error = Sla::parse(text, "s.toml").expect_err(text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

const EXAMPLE: &str = r#"[sla]
"/VO-A" = { cpu = "10%, burst 40%", disk = "2TiB", extensible = true }
"/VO-A/P-A1" = { cpu = "25%+", at_most = "150cpus" }
"/VO-B" = { cpu = "5%-" }
"#;

#[test]
pub(crate) fn a_standing_is_what_the_entry_says() {
    let sla = Sla::parse(EXAMPLE, "s.toml").expect("valid");
    assert_eq!(sla.to_toml(), EXAMPLE);
    let had = Had {
        epoch: 7,
        burst: 3,
        waiting: 2,
    };
    let standing = sla.entries[&path("/VO-A")].standing(99, had);
    // 40 % of 99 is 39.6: no part of a CPU can be given.
    assert_eq!((standing.burst_limit, standing.burst_used), (39, 3));
    assert_eq!(standing.epoch_share.to_string(), "10");
    assert!(standing.extensible && standing.sign == Sign::Target);
    // What is left out does not bind; what is given in CPUs is a part of the site.
    let entry = |text: &str| {
        Sla::parse(&format!("[sla]\n\"/a\" = {text}\n"), "s")
            .expect("valid")
            .entries[&path("/a")]
            .clone()
    };
    let free = entry("{}").standing(40, had);
    assert_eq!((free.epoch_share, free.burst_limit), (Share::WHOLE, 40));
    let cpus = entry(r#"{ cpu = "10cpus+, burst 30cpus", at_most = "20cpus" }"#).standing(40, had);
    assert_eq!(
        (cpus.epoch_share.to_string().as_str(), cpus.burst_limit),
        ("25", 20)
    );
}

/// 40 % and 80 % of one site: a third and two thirds of what each level has. Limits stay.
#[test]
pub(crate) fn what_is_promised_twice_is_shared_out() {
    let text = r#"[sla]
"/a" = { cpu = "40%" }
"/a/g" = { cpu = "50%" }
"/b" = { cpu = "80%+" }
"#;
    let sla = Sla::parse(text, "s").expect("valid");
    let entitled = |name: &str| sla.entitlements(600)[&path(name)];
    assert_eq!([entitled("/a"), entitled("/b")], [333_333_333, 666_666_666]);
    assert_eq!(entitled("/a/g"), 166_666_666);
    assert_eq!(sla.entitlements(600).get(&path("/c")), None);
    let over = sla.oversubscribed(600);
    assert_eq!(
        over,
        [Oversubscribed {
            above: AccountPath::root(),
            sum: 1_200_000_000
        }]
    );
    assert_eq!(
        sla.limits(600),
        BTreeMap::from([(AccountPath::root(), 600), (path("/b"), 480)])
    );
    // In CPUs the same: 240 and 480 of 600.
    let cpus = Sla::parse(
        "[sla]\n\"/a\" = { cpu = \"240cpus\" }\n\"/b\" = { cpu = \"80%\" }\n",
        "s",
    )
    .expect("valid");
    assert_eq!(cpus.entitlements(600)[&path("/a")], 333_333_333);
}

/// The VO of GRUBER's experiments: 600 CPUs, a quarter of them a group.
#[test]
fn limits_go_down_the_tree() {
    let text = r#"[sla]
"/" = { at_most = "600cpus" }
"/g" = { cpu = "25%+" }
"/g/u" = { cpu = "50%", at_most = "40cpus" }
"/g/v" = { cpu = "10%+" }
"/h" = {}
"/h/w" = { cpu = "50%+" }
"#;
    let limits = Sla::parse(text, "s").expect("valid").limits(1_000);
    let expected = [
        ("/", 600),
        ("/g", 150),
        ("/g/u", 40),
        ("/g/v", 15),
        ("/h/w", 300),
    ];
    assert_eq!(
        limits,
        expected.map(|(name, cpus)| (path(name), cpus)).into()
    );
    let few = Sla::parse(text, "s").expect("valid").limits(100);
    assert_eq!(
        few[&AccountPath::root()],
        100,
        "sites contribute less than the limit"
    );
}

fn any_bound(resource: Resource) -> impl Strategy<Value = Bound> {
    let share = (0..=Share::ONE)
        .prop_map(|units| Amount::Percent(Share::from_units(units).expect("at most one")));
    let amount = match resource {
        Resource::Net => share.boxed(),
        _ => prop_oneof![share, any::<u64>().prop_map(Amount::Units)].boxed(),
    };
    let interval = (1..200_000_u64).prop_map(Millis::from_secs);
    let usual = Just(grant::EPOCH);
    let interval = if resource == Resource::Disk {
        usual.boxed()
    } else {
        interval.boxed()
    };
    (amount, interval).prop_map(|(amount, interval)| Bound { amount, interval })
}

fn any_grant(resource: Resource) -> impl Strategy<Value = Grant> {
    let signs = proptest::sample::select(vec![Sign::Target, Sign::AtMost]);
    let burst = match resource {
        Resource::Disk => Just(None).boxed(),
        _ => proptest::option::of(any_bound(resource)).boxed(),
    };
    (proptest::option::of(any_bound(resource)), signs, burst)
        .prop_filter("one of both", |(share, _, burst)| {
            share.is_some() || burst.is_some()
        })
        .prop_map(|(share, sign, burst)| Grant {
            share,
            sign: if share.is_some() { sign } else { Sign::Target },
            burst,
        })
}

fn any_entry() -> impl Strategy<Value = SlaEntry> {
    let grant = |resource| proptest::option::of(any_grant(resource));
    let grants = (
        grant(Resource::Cpu),
        grant(Resource::Disk),
        grant(Resource::Net),
    );
    (grants, any::<Option<u64>>(), any::<bool>(), any::<bool>()).prop_map(
        |((cpu, disk, net), at_most, extensible, mean)| SlaEntry {
            cpu,
            disk,
            net,
            at_most,
            extensible,
            mean,
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(entries in proptest::collection::btree_map("/[ -.0-~]{1,12}", any_entry(), 0..6)) {
        let entries = entries.into_iter().filter_map(|(name, entry)| Some((AccountPath::parse(&name).ok()?, entry)));
        let sla = Sla { entries: entries.collect() };
        let text = sla.to_toml();
        let read = Sla::parse(&text, "s").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(read, sla);
    }

    /// Whatever is promised, siblings are entitled to no more than their parent.
    #[test]
    fn entitlements_add_up_to_no_more_than_there_is(entries in proptest::collection::btree_map("/[a-e]", any_entry(), 1..5), total in 1..1_000_u64) {
        let entries = entries.into_iter().map(|(name, entry)| (path(&name), entry));
        let sla = Sla { entries: entries.collect() };
        let entitled: u64 = sla.entitlements(total).values().sum();
        prop_assert!(entitled <= u64::from(Share::ONE));
    }

    #[test]
    fn any_text_is_a_document_or_an_error(text in "\\PC{0,80}") {
        let _ = Sla::parse(&format!("[sla]\n\"/a\" = {{ cpu = \"{text}\" }}\n"), "s");
        let _ = Grant::parse(&text, Resource::Disk);
    }
}
