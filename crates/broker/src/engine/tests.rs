//! What the readings say, as rows; and that the sound one breaks no limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{Factor, MachineClass, PriceList, Share};
use proptest::prelude::*;

use super::*;
use crate::disk::DiskRoom;
use crate::machines::Machines;
use crate::sla::{Sign, Standing};

fn percent(percent: u32) -> Share {
    Share::from_percent(percent).expect("a percentage")
}

/// A VO that holds `held` of `limit` CPUs, and has used `epoch` of 20 % of the epoch.
pub(crate) fn standing(held: u64, limit: u64, epoch: u32, extensible: bool) -> Standing {
    Standing {
        epoch_used: u64::from(percent(epoch).units()),
        epoch_share: percent(20),
        sign: Sign::AtMost,
        burst_used: held,
        burst_limit: limit,
        extensible,
        waiting: 0,
        over_for: None,
        disk: DiskRoom::default(),
    }
}

/// A site of 40 CPUs where "me" stands as given, and others hold some.
pub(crate) fn site(me: Option<Standing>, others: u64) -> SiteView {
    let others = (others > 0).then(|| ("others".into(), standing(others, 40, 0, false).into()));
    let me = me.map(|me| ("me".into(), me.into()));
    SiteView {
        name: "s".to_owned(),
        total: 40,
        vos: me.into_iter().chain(others).collect(),
        ..SiteView::default()
    }
}

/// One word for a verdict.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Now { beyond: false } => "now",
        Verdict::Now { beyond: true } => "beyond",
        Verdict::Wait { .. } => "wait",
        Verdict::No(refusal) => refusal.code(),
    }
}

fn says(engine: Engine, site: &SiteView, cpus: u64) -> &'static str {
    word(&judge(engine, site, &Request::of_cpus("me", cpus), None))
}

/// Rows of a site of 40 CPUs: mine held, limit, epoch % of 20 and extensible; others'; asked; as published;
/// by the prose; soundly.
#[test]
pub(crate) fn readings_differ_as_the_paper_and_its_faults_make_them() {
    let none = None;
    let me = |held, limit, epoch, extensible| Some(standing(held, limit, epoch, extensible));
    let rows = [
        (me(0, 20, 0, false), 0, 1, "now", "wait", "now"),
        (me(18, 20, 0, false), 10, 1, "now", "wait", "now"),
        // The last CPU of a limit: as published it is never given.
        (me(19, 20, 0, false), 10, 1, "burst", "wait", "now"),
        (me(20, 20, 0, false), 10, 1, "burst", "burst", "burst"),
        (me(20, 20, 0, true), 10, 1, "now", "now", "now"),
        // A site that is full of one's own jobs: as published nobody sums them.
        (me(30, 35, 0, false), 10, 1, "now", "wait", "wait"),
        // An idle extensible site beyond the epoch's share: as published it stays idle.
        (me(5, 20, 21, true), 0, 1, "epoch", "now", "beyond"),
        (me(5, 20, 21, false), 0, 1, "epoch", "wait", "epoch"),
        // At the share is not over it.
        (me(5, 20, 20, false), 0, 1, "now", "wait", "now"),
        // A whole site: as published never, by the strict comparison.
        (me(0, 40, 0, false), 0, 40, "others", "wait", "now"),
        (me(0, 20, 0, false), 39, 1, "others", "wait", "now"),
        (none, 0, 1, "no-entry", "no-entry", "no-entry"),
        // More than there is would wait for ever.
        (me(0, 50, 0, true), 0, 41, "others", "now", "too-large"),
        // Nobody waits, and nothing is free: beyond the share there is nothing to wait for.
        (me(5, 20, 21, true), 35, 1, "epoch", "wait", "epoch"),
    ];
    for (index, (me, others, asked, published, prose, sound)) in rows.into_iter().enumerate() {
        let site = site(me, others);
        let said = [Engine::Published, Engine::Prose, Engine::Sound]
            .map(|engine| says(engine, &site, asked));
        assert_eq!(said, [published, prose, sound], "row {index}: {site:?}");
    }
}

/// Rows with jobs that wait and with the site's own word of what is free: free, waiting; mine; asked; soundly.
#[test]
pub(crate) fn who_waits_and_what_local_groups_hold_count() {
    let held = |extensible| standing(5, 10, 0, extensible);
    let rows = [
        (None, 0, held(false), 5, "now"),
        (None, 30, held(false), 5, "now"),
        // 35 are free, 31 of which others have waited for longer.
        (None, 31, held(false), 5, "wait"),
        // Local groups hold 31 of 40, of which no VO knows.
        (Some(4), 0, held(false), 5, "wait"),
        (Some(5), 0, held(false), 5, "now"),
        // A site that claims more free than its VOs leave.
        (Some(40), 0, standing(30, 60, 0, false), 11, "wait"),
        // Idle CPUs beyond the burst limit, for as long as nobody has a use for them.
        (None, 0, held(true), 6, "now"),
        (None, 1, held(true), 6, "burst"),
        (None, 1, standing(0, 20, 21, true), 1, "epoch"),
    ];
    for (index, (free, waiting, me, asked, expected)) in rows.into_iter().enumerate() {
        let site = SiteView {
            free,
            waiting,
            ..site(Some(me), 0)
        };
        assert_eq!(
            says(Engine::Sound, &site, asked),
            expected,
            "row {index}: {site:?}"
        );
    }
}

/// Rows where jobs of the VO wait, whoever sent them: held, waited for, limit, extensible; asked; soundly.
#[test]
pub(crate) fn jobs_of_the_vo_that_wait_count_against_its_limit() {
    let rows = [
        (5, 4, 10, false, 1, "now"),
        (5, 5, 10, false, 1, "burst"),
        (5, 4, 10, false, 2, "burst"),
        (0, 10, 10, false, 1, "burst"),
        // They are ahead of it in the queue, too.
        (5, 35, 60, false, 1, "wait"),
        // While they wait the site has a use for its CPUs.
        (5, 6, 10, true, 1, "burst"),
    ];
    for (index, (held, waiting, limit, extensible, asked, expected)) in rows.into_iter().enumerate()
    {
        let me = Standing {
            waiting,
            ..standing(held, limit, 0, extensible)
        };
        let site = SiteView {
            waiting,
            ..site(Some(me), 0)
        };
        assert_eq!(says(Engine::Sound, &site, asked), expected, "row {index}");
    }
}

#[test]
pub(crate) fn the_prose_compares_what_waits_with_what_is_free() {
    let site = |waiting| SiteView {
        waiting,
        free: Some(10),
        ..site(Some(standing(20, 20, 99, true)), 0)
    };
    assert_eq!(says(Engine::Prose, &site(9), 1), "now");
    assert_eq!(says(Engine::Prose, &site(10), 1), "burst");
}

#[test]
pub(crate) fn a_target_may_be_passed_where_nobody_waits() {
    let target = Standing {
        sign: Sign::Target,
        ..standing(5, 20, 21, false)
    };
    assert_eq!(says(Engine::Sound, &site(Some(target), 0), 1), "beyond");
    let contended = SiteView {
        waiting: 1,
        ..site(Some(target), 0)
    };
    assert_eq!(says(Engine::Sound, &contended, 1), "epoch");
    // Its burst limit binds all the same.
    assert_eq!(says(Engine::Sound, &site(Some(target), 0), 16), "burst");
}

#[test]
pub(crate) fn nobody_is_started_into_a_guarantee_that_is_waited_for() {
    let guaranteed = |waiting| Standing {
        sign: Sign::AtLeast,
        waiting,
        ..standing(3, 40, 99, false)
    };
    let of = |waiting| {
        let mut site = site(Some(standing(0, 40, 0, false)), 0);
        site.vos.insert("kept".into(), guaranteed(waiting).into());
        site
    };
    // 20 % of 40 are 8, of which it holds 3: 5 of the 37 that are idle are kept while they are waited for.
    assert_eq!(says(Engine::Sound, &of(0), 37), "now");
    assert_eq!(says(Engine::Sound, &of(9), 33), "wait");
    assert_eq!(says(Engine::Sound, &of(9), 32), "now");
    assert_eq!(says(Engine::Sound, &of(2), 35), "now");
    // A guarantee is no limit: it may have more.
    let own = judge(Engine::Sound, &of(0), &Request::of_cpus("kept", 37), None);
    assert_eq!(word(&own), "now");
}

#[test]
pub(crate) fn what_does_not_fit_and_what_is_silent_is_refused() {
    let class = MachineClass {
        count: 5,
        cpus: 8,
        mem_mib: 1_000,
        gpus: 0,
        disk_mib: 0,
        spec: Factor::ONE,
        properties: Default::default(),
        queues: Default::default(),
    };
    let mut known = site(Some(standing(0, 40, 0, false)), 0);
    let prices = PriceList {
        machines: BTreeMap::from([("thin".to_owned(), class)]),
        ..PriceList::default()
    };
    known.machines = Some(Arc::new(Machines::new(Arc::new(prices))));
    known.age = Some(Millis(60_000));
    let mut request = Request::of_cpus("me", 16);
    let said = |site: &SiteView, request: &Request<'_>, silence| {
        word(&judge(Engine::Sound, site, request, silence))
    };
    assert_eq!(said(&known, &request, None), "fits-nowhere");
    request.job.held.nodes = 2;
    assert_eq!(said(&known, &request, None), "now");
    assert_eq!(said(&known, &request, Some(Millis(60_000))), "now");
    assert_eq!(said(&known, &request, Some(Millis(59_999))), "silent");
    request.job.held.gpus = 1;
    assert_eq!(said(&known, &request, None), "fits-nowhere");
    request.job.held.gpus = 0;
    known
        .vos
        .get_mut("me")
        .expect("it stands there")
        .disk
        .quota_mib = Some(10);
    request.staged_mib = 10;
    assert_eq!(said(&known, &request, None), "now");
    request.staged_mib = 11;
    assert_eq!(said(&known, &request, None), "disk");
    let published = judge(Engine::Published, &known, &request, None);
    assert_eq!(word(&published), "disk", "in all readings");
}

#[test]
fn reasons_name_their_numbers() {
    let words = |me, others, asked, engine| match judge(
        engine,
        &site(Some(me), others),
        &Request::of_cpus("me", asked),
        None,
    ) {
        Verdict::No(refusal) => refusal.to_string(),
        verdict => panic!("{verdict:?}"),
    };
    assert_eq!(
        words(standing(5, 20, 21, false), 0, 1, Engine::Sound),
        "the VO has used 21 % of the epoch, of 20 %"
    );
    assert_eq!(
        words(standing(20, 20, 0, false), 0, 2, Engine::Sound),
        "the VO holds 20 CPUs, and 2 more are above its burst limit of 20"
    );
    let waiting = Standing {
        waiting: 3,
        ..standing(17, 20, 0, false)
    };
    assert_eq!(
        words(waiting, 0, 2, Engine::Sound),
        "the VO holds 17 CPUs and waits for 3, and 2 more are above its burst limit of 20"
    );
    assert_eq!(
        words(standing(0, 20, 0, false), 39, 1, Engine::Published),
        "other VOs hold 39 CPUs, and 1 more are not below all 40"
    );
}

fn any_standing() -> impl Strategy<Value = Standing> {
    let signs = proptest::sample::select(vec![Sign::Target, Sign::AtMost, Sign::AtLeast]);
    (
        0..40_u64,
        0..60_u64,
        0..100_u32,
        any::<bool>(),
        signs,
        0..10_u64,
    )
        .prop_map(|(held, limit, epoch, extensible, sign, waiting)| Standing {
            sign,
            waiting,
            ..standing(held, limit, epoch, extensible)
        })
}

proptest! {
    /// On the true state a site that is called NOW breaks no upper limit that binds, takes no CPU that is not
    /// there or is waited for, and is beyond the epoch's share only where nobody waits.
    #[test]
    fn now_breaks_no_limit(
        me in any_standing(),
        others in proptest::collection::btree_map("[a-d]", any_standing(), 0..3),
        waiting in prop_oneof![Just(0), 0..20_u64],
        free in proptest::option::of(0..60_u64),
        asked in 1..50_u64,
    ) {
        let mut site = SiteView { waiting, free, ..site(Some(me), 0) };
        let others = others.into_iter();
        site.vos.extend(others.map(|(name, of)| (name.into(), of.into())));
        if let Verdict::Now { beyond } = judge(Engine::Sound, &site, &Request::of_cpus("me", asked), None) {
            prop_assert!(site.held() + asked + waiting <= site.total);
            prop_assert!(free.is_none_or(|free| asked + waiting <= free));
            let extended = me.extensible && waiting == 0;
            prop_assert!(me.burst_used + me.waiting + asked <= me.burst_limit || extended);
            let over = me.sign != Sign::AtLeast && me.epoch_used > u64::from(me.epoch_share.units());
            prop_assert_eq!(over, beyond);
            prop_assert!(!over || waiting == 0 && (me.extensible || me.sign == Sign::Target));
        }
    }

    /// What is sent is seen in the view at once: the same job is not given the same CPUs twice.
    #[test]
    fn what_was_sent_is_not_free(held in 0..40_u64, free in proptest::option::of(0..60_u64), asked in 1..40_u64) {
        let before = SiteView { free, ..site(Some(standing(held, 40, 0, true)), 0) };
        let after = before.clone().with_sent("me", asked);
        prop_assert_eq!(after.idle(), before.idle().saturating_sub(asked));
        prop_assert_eq!(after.vos["me"].burst_used, held + asked);
    }
}
