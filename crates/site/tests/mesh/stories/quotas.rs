//! Quotas in a mesh: rights move, nobody overspends, and what was granted survives.

use fairmesh_gossip::PartKey;
use fairmesh_model::{
    Allocation, AllocationId, AllocationSlice, CoreMillis, Incarnation, JobKey, Millis, Signed,
    UsageRecord, WallTime,
};
use fairmesh_quota::{Answer, Cell, Row, SliceId, State, Totals, Verdict};
use fairmesh_site::{
    Effect, Event, HoldCall, Moved, QuotaAnswer, QuotaCall, QuotaReply, Reply, SITE_KEY, Site,
    SiteConfig, Table,
};

use super::corrections::correct;
use crate::liar::Liar;
use crate::mesh::{Mesh, ROUGH};
use crate::node::Rows;
use crate::vo::{self, HOUR, job, next_charter, path, sign_charter, site_id};

pub(super) const MINUTE: Millis = Millis::from_secs(60);

/// Credit of `/g0` in core-hours, for ten hours, equally split.
pub(super) fn allocation(mesh: &Mesh, core_hours: u64, sites: usize) -> Allocation {
    let start = mesh.now(0).wall;
    Allocation::new(
        mesh.vo,
        path("/g0"),
        start..start.after(vo::DAY),
        vec![AllocationSlice {
            amount: CoreMillis(core_hours * HOUR.0),
            start,
            end: start.after(Millis(10 * HOUR.0)),
        }],
        (0..sites).map(|site| (site_id(site), 1)).collect(),
    )
}

pub(super) fn grant(mesh: &mut Mesh, node: usize, body: Allocation) -> Signed<Allocation> {
    let signed = Signed::sign(body, &[&vo::authority()]).expect("valid");
    mesh.publish(node, signed.bytes()).expect("it is adopted");
    signed
}

/// A Grid of `sites` with one allocation, whose rights have thawed.
pub(super) fn found(seed: u64, sites: usize, core_hours: u64) -> Mesh {
    found_on(seed, sites, core_hours, |_| {})
}

/// The same on other terms.
pub(super) fn found_on(
    seed: u64,
    sites: usize,
    core_hours: u64,
    terms: impl Fn(&mut Allocation),
) -> Mesh {
    let mut mesh = Mesh::found(seed, sites);
    let mut body = allocation(&mesh, core_hours, sites);
    terms(&mut body);
    grant(&mut mesh, 0, body);
    mesh.run(MINUTE);
    for node in 0..sites {
        let ledger = mesh.nodes[node].site.ledger(mesh.vo).expect("a member");
        assert!(!ledger.is_frozen(), "{node} has heard all");
    }
    mesh
}

/// A job of `/g0/u0` of so many cores that asks for an hour.
pub(super) fn asking(mesh: &Mesh, name: &str, cores: u32) -> UsageRecord {
    let end = mesh.now(0).wall;
    job(name, "grid", "g0", "u0", (end.before(HOUR), end), cores)
}

pub(super) fn call(mesh: &mut Mesh, node: usize, call: QuotaCall) -> Option<QuotaReply> {
    mesh.nodes[node].replies.clear();
    mesh.handle(node, Event::Quota { ticket: 1, call });
    reply(mesh, node)
}

pub(super) fn reply(mesh: &mut Mesh, node: usize) -> Option<QuotaReply> {
    match mesh.nodes[node].replies.pop()? {
        Reply::Quota(reply) => Some(*reply),
        other => panic!("{other:?}"),
    }
}

pub(super) fn answer(reply: Option<QuotaReply>) -> Answer {
    match reply.expect("an answer").expect("a good call") {
        QuotaAnswer::Held { answer, .. } => *answer,
        other => panic!("{other:?}"),
    }
}

pub(super) fn hold_call(record: UsageRecord, may_wait: bool) -> QuotaCall {
    QuotaCall::Hold(Box::new(HoldCall {
        record,
        account: None,
        is_exempt: false,
        may_wait,
        importance: Default::default(),
    }))
}

/// Asks without waiting.
pub(super) fn hold(mesh: &mut Mesh, node: usize, name: &str, cores: u32) -> Answer {
    let record = asking(mesh, name, cores);
    answer(call(mesh, node, hold_call(record, false)))
}

pub(super) fn totals(mesh: &Mesh, node: usize) -> Totals {
    let ledger = mesh.nodes[node].site.ledger(mesh.vo).expect("a member");
    ledger.account_totals(&path("/g0"), mesh.now(node).wall)
}

/// In core-hours: used, held, spendable, on the way.
pub(super) fn hours(totals: Totals) -> [u128; 4] {
    let all = [
        totals.used,
        totals.held,
        totals.spendable,
        totals.on_the_way,
    ];
    all.map(|amount| amount / u128::from(HOUR.0))
}

#[test]
fn a_hold_is_granted_refused_with_a_reason_and_ended_by_the_feed() {
    let mut mesh = found(1, 3, 30);
    let granted = hold(&mut mesh, 1, "a", 8);
    assert_eq!(granted.verdict, Verdict::Granted);
    assert_eq!(hold(&mut mesh, 1, "a", 8), granted, "asked again");
    let refused = hold(&mut mesh, 1, "b", 3);
    assert_eq!(refused.verdict, Verdict::Refused);
    let message = refused.message.expect("a reason");
    assert_eq!(
        message,
        "g0: 2.0 core-hours left here, 22.0 in the VO (0.0 on the way); this job needs 3.0; the rest is at \
         other sites: try again in a minute: fairmesh quota show g0"
    );
    // It ran for half an hour.
    let mut record = asking(&mesh, "a", 8);
    record.start = record.end.before(Millis(HOUR.0 / 2));
    let reported = mesh.report(1, &[record.clone()]).expect("it is counted");
    assert_eq!(hours(totals(&mesh, 1)), [4, 0, 26, 0]);
    let used = totals(&mesh, 1).used;
    assert_eq!(used, u128::from(reported.charge), "as much as is counted");
    mesh.report(1, &[record]).expect("it is known");
    assert_eq!(totals(&mesh, 1).used, used);
    mesh.run(MINUTE);
    assert_eq!(hours(totals(&mesh, 2)), [4, 0, 26, 0], "the others know");
}

/// Seed 7239935591326377719: an owner's rules changed between two calls about one job.
#[test]
fn a_job_whose_names_mean_another_vo_by_now_holds_in_that_vo_alone() {
    let mut mesh = found(3, 1, 10);
    let other = sign_charter(vo::charter("other", 1));
    let vos = [mesh.vo, other.vo()];
    let config = |account: [&str; 2]| {
        let mounted: Vec<_> = account.into_iter().zip(vos).collect();
        vo::config(&mounted, Default::default(), vo::timing())
    };
    let reconfigure = |mesh: &mut Mesh, config: SiteConfig| {
        mesh.nodes[0].config = config.clone();
        mesh.handle(0, Event::Reconfigured(Box::new(config)));
    };
    reconfigure(&mut mesh, config(["grid", "other"]));
    mesh.publish(0, other.bytes()).expect("it founds the VO");
    let body = Allocation {
        vo: vos[1],
        ..allocation(&mesh, 10, 1)
    };
    grant(&mut mesh, 0, body);
    mesh.run(MINUTE);
    let record = asking(&mesh, "1", 4);
    let ask = |mesh: &mut Mesh| match call(mesh, 0, hold_call(record.clone(), false)) {
        Some(Ok(QuotaAnswer::Held { vo, .. })) => vo,
        other => panic!("{other:?}"),
    };
    assert_eq!(ask(&mut mesh), Some(vos[0]));
    reconfigure(&mut mesh, config(["other", "grid"]));
    assert_eq!(ask(&mut mesh), Some(vos[1]));
    let amounts = |mesh: &Mesh| {
        vos.map(|vo| {
            let ledger = mesh.nodes[0].site.ledger(vo).expect("it takes part");
            let rows = ledger.own_rows();
            let sums = rows.map(|(_, row)| (row.held(), row.used()));
            sums.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
        })
    };
    assert_eq!(amounts(&mesh), [(0, 0), (4 * HOUR.0, 0)]);
    mesh.report(0, &[record]).expect("it counts");
    assert_eq!(amounts(&mesh), [(0, 0), (0, 4 * HOUR.0)]);

    // By its end the names of this one mean no VO any more.
    let last = asking(&mesh, "2", 1);
    call(&mut mesh, 0, hold_call(last.clone(), false));
    assert_eq!(amounts(&mesh)[1], (HOUR.0, 4 * HOUR.0));
    reconfigure(&mut mesh, config(["one", "two"]));
    mesh.report(0, &[last]).expect("it counts");
    assert_eq!(amounts(&mesh)[1], (0, 5 * HOUR.0));
}

#[test]
fn rights_that_come_before_their_allocation_are_taken_with_it() {
    let mut mesh = Mesh::found(1, 3);
    mesh.run(MINUTE);
    mesh.cut(2);
    let body = allocation(&mesh, 30, 3);
    grant(&mut mesh, 0, body);
    mesh.run(MINUTE);
    mesh.loses_documents = true;
    mesh.heal();
    mesh.run(MINUTE);
    for (node, name) in [(0, "a"), (1, "b")] {
        assert_eq!(hold(&mut mesh, node, name, 6).verdict, Verdict::Granted);
    }
    mesh.run(MINUTE);
    // C holds what A and B say of the allocation, and not what that is.
    let ledger = mesh.nodes[2].site.ledger(mesh.vo).expect("a member");
    assert!(ledger.grants().is_empty());
    assert_eq!(hours(totals(&mesh, 1)), [0, 12, 18, 0]);
    mesh.loses_documents = false;
    mesh.run(MINUTE);
    assert_eq!(hours(totals(&mesh, 2)), [0, 12, 18, 0]);
}

#[test]
fn rights_move_to_where_they_are_needed() {
    let mut mesh = found(2, 3, 30);
    let record = asking(&mesh, "large", 18);
    assert!(
        call(&mut mesh, 2, hold_call(record, true)).is_none(),
        "it waits"
    );
    mesh.run(Millis::from_secs(2));
    assert_eq!(answer(reply(&mut mesh, 2)).verdict, Verdict::Granted);
    assert_eq!(mesh.nodes[2].site.quota_stats().granted_after_transfer, 1);
    mesh.run(MINUTE);
    for node in 0..3 {
        assert_eq!(hours(totals(&mesh, node)), [0, 18, 12, 0], "{node}");
    }
    // More than all have: it is decided when nobody has anything more.
    let record = asking(&mesh, "larger", 20);
    let waits = call(&mut mesh, 2, hold_call(record, true));
    mesh.run(Millis::from_secs(3));
    let refused = answer(waits.or_else(|| reply(&mut mesh, 2)));
    assert_eq!(refused.verdict, Verdict::Refused);
}

/// Each change says what was left before and after, and nothing of it is lost at a restart.
#[test]
fn each_transfer_is_a_line_at_both_ends_that_outlives_a_start() {
    let mut mesh = found(2, 3, 30);
    let record = asking(&mesh, "large", 18);
    call(&mut mesh, 2, hold_call(record, true));
    mesh.run(MINUTE);
    let lines = |mesh: &Mesh, node: usize| -> Vec<Moved> {
        let site = &mesh.nodes[node].site;
        site.transfers(mesh.vo).copied().collect()
    };
    let all = [0, 1, 2].map(|node| lines(&mesh, node));
    let mut came = 0;
    for moved in &all[2] {
        let Moved { at, transfer: of } = moved;
        let Cell::Taken(from) = of.cell else {
            panic!("it has sent nothing: {moved:?}")
        };
        assert!(
            at.0 > 0 && of.after.0 == of.before.0 + of.amount.0,
            "{moved:?}"
        );
        came += of.amount.0;
        let is_sent = |there: &Moved| {
            let of_there = there.transfer;
            of_there.cell == Cell::Sent(mesh.nodes[2].site.id())
                && of_there.amount == of.amount
                && of_there.before.0 == of_there.after.0 + of.amount.0
        };
        let sender = (0..2).find(|node| mesh.nodes[*node].site.id() == from);
        assert!(
            all[sender.expect("a member")].iter().any(is_sent),
            "{moved:?}"
        );
    }
    assert!(came >= 8 * HOUR.0, "{came}");
    for (node, before) in all.iter().enumerate() {
        mesh.restart(node);
        assert_eq!(&lines(&mesh, node), before, "{node}");
    }
}

#[test]
fn cut_off_sites_spend_what_they_have_and_nobody_more() {
    for seed in 0..6 {
        let mut mesh = found(seed, 4, 40);
        mesh.faults = ROUGH;
        let mut granted = 0_u64;
        for round in 0..40 {
            if round == 10 {
                mesh.cut(2);
            }
            if round == 30 {
                mesh.heal();
            }
            let node = mesh.dice.below(4) as usize;
            let record = asking(&mesh, &format!("{round}"), 3);
            let now = call(&mut mesh, node, hold_call(record, true));
            mesh.run(Millis::from_secs(7));
            let reply = now.or_else(|| reply(&mut mesh, node));
            granted += 3 * u64::from(answer(reply).verdict == Verdict::Granted);
            assert!(granted <= 40, "seed {seed}");
        }
        mesh.run(Millis(5 * MINUTE.0));
        // Nobody kept more than one job less than he could have.
        assert!(granted >= 30, "seed {seed}: {granted}");
        for node in 0..4 {
            let totals = totals(&mesh, node);
            assert_eq!(totals.held, u128::from(granted * HOUR.0), "seed {seed}");
            let sum = totals.used + totals.held + totals.spendable + totals.on_the_way;
            assert_eq!(sum, totals.granted, "seed {seed}");
        }
    }
}

#[test]
fn whatever_crash_comes_a_hold_that_was_granted_stays_and_a_charge_comes_with_its_usage() {
    for crash_after in 0..6 {
        let mut mesh = found(3, 2, 20);
        mesh.nodes[1].crash_after = Some(crash_after);
        let record = asking(&mesh, "a", 4);
        let reply = call(&mut mesh, 1, hold_call(record.clone(), false));
        mesh.restart(1);
        mesh.run(MINUTE);
        let ledger = mesh.nodes[1].site.ledger(mesh.vo).expect("a member");
        let is_held = ledger.mark(&record.key).is_some();
        assert!(is_held || reply.is_none(), "{crash_after}");
        assert_eq!(hours(totals(&mesh, 1))[1], u128::from(is_held) * 4);

        hold(&mut mesh, 1, "a", 4);
        mesh.nodes[1].crash_after = Some(crash_after);
        mesh.report(1, std::slice::from_ref(&record));
        let mark = mesh.nodes[1].mark(&record.key);
        mesh.restart(1);
        mesh.run(MINUTE);
        let ledger = mesh.nodes[1].site.ledger(mesh.vo).expect("a member");
        let state = ledger.mark(&record.key).expect("it was held").state;
        let is_counted = mark.is_some_and(|mark| mark.ended);
        assert_eq!(state == State::Committed, is_counted, "{crash_after}");
        mesh.report(1, &[record]).expect("it is counted now");
        assert_eq!(hours(totals(&mesh, 1))[..2], [4, 0], "{crash_after}");
    }
}

#[test]
fn a_site_on_an_old_store_spends_nothing_until_all_have_been_heard() {
    for is_wiped in [false, true] {
        let mut mesh = found(4, 3, 30);
        let old = mesh.nodes[1].rows.clone();
        let old = if is_wiped { Rows::new() } else { old };
        assert_eq!(hold(&mut mesh, 1, "a", 9).verdict, Verdict::Granted);
        let record = asking(&mesh, "b", 14);
        assert!(call(&mut mesh, 2, hold_call(record, true)).is_none());
        mesh.run(MINUTE);
        let before = hours(totals(&mesh, 0));
        mesh.cut(2);
        mesh.restart_on(1, old);
        mesh.run(MINUTE);
        let refused = hold(&mut mesh, 1, "c", 1);
        if !is_wiped {
            assert_eq!(refused.verdict, Verdict::Refused);
            let message = refused.message.expect("a reason");
            assert!(message.contains("1 more sites"), "{message}");
        }
        mesh.heal();
        mesh.run(MINUTE);
        let ledger = mesh.nodes[1].site.ledger(mesh.vo).expect("a member");
        assert!(!ledger.is_frozen());
        assert_eq!(hours(totals(&mesh, 1)), before, "wiped: {is_wiped}");
        assert_eq!(hours(totals(&mesh, 0)), before, "wiped: {is_wiped}");
    }
}

/// Its documents are lost, too, and are handed in again one by one: the first charter lists nobody else.
#[test]
fn a_wiped_site_waits_for_the_members_of_the_charters_that_come_after_the_first() {
    let mut mesh = Mesh::found(10, 1);
    let config = mesh.config(vo::timing());
    mesh.add(1, config);
    let first = mesh.charter.clone();
    let mut second = next_charter(&first);
    second.sites = vo::charter("grid", 2).sites;
    let second = sign_charter(second);
    mesh.publish(0, second.bytes()).expect("it is adopted");
    let body = allocation(&mesh, 30, 2);
    let credit = grant(&mut mesh, 0, body);
    mesh.connect_all();
    mesh.run(MINUTE);
    assert_eq!(hold(&mut mesh, 0, "a", 15).verdict, Verdict::Granted);
    mesh.run(MINUTE);
    let before = hours(totals(&mesh, 1));
    mesh.stop(1);
    mesh.restart_on(0, Rows::new());
    for document in [first.bytes(), second.bytes(), credit.bytes()] {
        mesh.publish(0, document).expect("it is adopted");
        assert_ne!(hold(&mut mesh, 0, "b", 1).verdict, Verdict::Granted);
    }
    mesh.run(MINUTE);
    mesh.run(MINUTE);
    let message = hold(&mut mesh, 0, "b", 1).message.expect("a reason");
    assert!(message.contains("1 more sites"), "{message}");
    mesh.restart(1);
    mesh.run(MINUTE);
    assert_eq!(hours(totals(&mesh, 0)), before);
    assert_eq!(hold(&mut mesh, 0, "c", 16).verdict, Verdict::Refused);
}

/// A VO that has one member is founded, and grows later: the member that comes need not be up.
#[test]
fn a_site_that_was_alone_for_a_minute_waits_for_no_member_that_is_new() {
    let mut mesh = Mesh::found(11, 1);
    let body = allocation(&mesh, 30, 1);
    grant(&mut mesh, 0, body);
    assert_eq!(hold(&mut mesh, 0, "a", 1).verdict, Verdict::Granted);
    mesh.run(MINUTE);
    let mut second = next_charter(&mesh.charter);
    second.sites = vo::charter("grid", 2).sites;
    mesh.publish(0, sign_charter(second).bytes())
        .expect("it is adopted");
    mesh.run(MINUTE);
    assert_eq!(hold(&mut mesh, 0, "b", 1).verdict, Verdict::Granted);
}

/// Whether it was charged before or waits to be: a job that is taken back costs its quota nothing in the end.
#[test]
fn a_job_is_taken_back_with_what_its_quota_was_charged_or_not_yet() {
    let mut mesh = found(12, 3, 30);
    let jobs = ["charged", "pending"].map(|name| {
        hold(&mut mesh, 1, name, 4);
        asking(&mesh, name, 4)
    });
    mesh.report(1, &jobs[..1]).expect("it is counted");
    mesh.cut(2);
    mesh.restart(1);
    mesh.report(1, &jobs[1..]).expect("it is counted");
    for job in &jobs {
        let refused = correct(&mut mesh, 1, &[job]).refused;
        assert!(refused[0].1.contains("more sites"), "{refused:?}");
    }
    let used = |mesh: &Mesh| {
        let of = mesh.nodes[1].site.usage_by_account(Some(mesh.vo));
        of[&path("/g0/u0")].net()
    };
    assert_eq!(used(&mesh), 8 * HOUR.0, "nothing has changed");
    mesh.heal();
    mesh.run(MINUTE);
    assert_eq!(hours(totals(&mesh, 1)), [8, 0, 22, 0]);
    let corrected = correct(&mut mesh, 1, &[&jobs[0], &jobs[1]]);
    assert_eq!((corrected.counted, corrected.charge), (2, 8 * HOUR.0));
    assert_eq!(used(&mesh), 0);
    assert_eq!(hours(totals(&mesh, 1)), [0, 0, 30, 0]);
}

/// Slices in which a site has taken something of another.
fn taken(mesh: &Mesh, node: usize, from: usize) -> usize {
    let ledger = mesh.nodes[node].site.ledger(mesh.vo).expect("a member");
    let rows = ledger.own_rows();
    rows.filter(|(_, row)| row.get(Cell::Taken(site_id(from))) > 0)
        .count()
}

/// The questions that a site has asked its witnesses since this was last looked at.
fn questions(mesh: &mut Mesh, node: usize) -> usize {
    let sent = std::mem::take(&mut mesh.nodes[node].sent);
    let is_question = |bytes: &&Vec<u8>| bytes[0] == 5 && bytes.len() > 9;
    sent.iter().filter(is_question).count()
}

/// Of 200 slices a member sends each other one a little, again and again; it was granted something of them or not.
#[test]
fn a_little_of_every_slice_costs_few_questions_and_keeps_nobody_elses_rights_waiting() {
    let (sites, liar) = (8, 7);
    let mut mesh = Mesh::found(13, sites);
    let mut body = allocation(&mesh, 8, sites);
    body.slices = vec![body.slices[0]; 200];
    body.split.remove(&site_id(liar));
    let without = grant(&mut mesh, 0, body.clone());
    body.split = [(site_id(liar), 1)].into();
    body.path = path("/g1");
    let with = grant(&mut mesh, 0, body);
    mesh.run(MINUTE);
    mesh.stop(liar);
    let offers = |id: AllocationId, amount: u64| {
        let mut row = Row::default();
        (0..liar).for_each(|to| row.add(Cell::Sent(site_id(to)), amount));
        let part = move |index: u32| {
            let slice = SliceId {
                allocation: id,
                index,
            };
            let name = [&slice.to_bytes()[..16], &index.to_be_bytes()].concat();
            let bytes = [&slice.to_bytes()[..], &row.to_bytes()].concat();
            (PartKey::new(5, &name), Some(bytes))
        };
        (0..200).map(part).collect::<Vec<_>>()
    };
    // Without any credit nobody is asked.
    let mut member = Liar::new(&mesh, liar);
    let incarnation = Incarnation(mesh.now(0).wall.0 + 1);
    for round in 1..4 {
        let parts = offers(without.hash().into(), round);
        member.sign_as(incarnation, mesh.now(0).wall, parts);
        mesh.admit(liar, member);
        questions(&mut mesh, 0);
        mesh.run(Millis::from_secs(5));
        assert_eq!(questions(&mut mesh, 0), 0, "{round}");
        member = mesh.liars.remove(&site_id(liar)).expect("it is there");
    }
    assert_eq!(taken(&mesh, 0, liar), 0);
    // With some, and while nobody answers, a few are asked about at a time, and only those are taken.
    mesh.faults.lost_percent = 100;
    member.sign_as(incarnation, mesh.now(0).wall, offers(with.hash().into(), 1));
    mesh.admit(liar, member);
    mesh.run(Millis::from_secs(4));
    let asked = questions(&mut mesh, 0);
    assert!((6..=32).contains(&asked), "{asked}");
    mesh.run(Millis(1_900));
    assert!((1..=8).contains(&taken(&mesh, 0, liar)));
    // Others' rights come meanwhile, and all of the liar's in the end.
    mesh.faults = crate::mesh::CALM;
    let drained = call(&mut mesh, 1, QuotaCall::Drain);
    assert!(matches!(drained, Some(Ok(QuotaAnswer::Drained(_)))));
    mesh.run(Millis::from_secs(8));
    assert!(taken(&mesh, 0, 1) > 0);
    mesh.run(MINUTE);
    assert_eq!((taken(&mesh, 0, 1), taken(&mesh, 0, liar)), (200, 200));
}

#[test]
fn what_is_revoked_is_gone_for_who_comes_later_too() {
    let mut mesh = Mesh::found(5, 3);
    mesh.stop(2);
    let body = allocation(&mesh, 30, 3);
    let first = grant(&mut mesh, 0, body.clone());
    mesh.run(Millis::from_secs(20));
    let mut second = body;
    (second.version, second.id) = (2, Some(first.hash().into()));
    second.slices[0].end = mesh.now(0).wall.after(MINUTE);
    grant(&mut mesh, 1, second);
    mesh.run(MINUTE);
    mesh.run(MINUTE);
    assert_eq!(hold(&mut mesh, 1, "a", 1).verdict, Verdict::Refused);
    mesh.restart(2);
    mesh.run(MINUTE);
    let documents = |node: usize| mesh.nodes[node].site.documents(mesh.vo);
    assert_eq!(documents(2), documents(0));
    assert_eq!(hours(totals(&mesh, 2)), hours(totals(&mesh, 0)));
    assert_eq!(totals(&mesh, 2).perished, u128::from(30 * HOUR.0));
    // Over a start, too.
    mesh.restart(1);
    assert_eq!(totals(&mesh, 1).perished, u128::from(30 * HOUR.0));
}

#[test]
fn credit_that_nobody_in_charge_has_signed_is_refused() {
    let mut mesh = Mesh::found(6, 2);
    let body = allocation(&mesh, 30, 2);
    let signed = Signed::sign(body, &[&vo::site_key(1)]).expect("valid");
    let refused = mesh.publish(1, signed.bytes());
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(hold(&mut mesh, 1, "a", 1).verdict, Verdict::Exempt);
}

#[test]
fn who_is_no_member_is_given_nothing() {
    let mut mesh = found(7, 3, 30);
    let ledger = mesh.nodes[2].site.ledger(mesh.vo).expect("a member");
    let wants = ledger.ask(
        mesh.now(2).wall,
        &path("/g0"),
        CoreMillis(HOUR.0),
        |_, _| true,
    );
    assert!(!wants.is_empty());
    let mut charter = next_charter(&mesh.charter);
    charter.sites.pop();
    let charter = sign_charter(charter);
    mesh.publish(0, charter.bytes()).expect("adopted");
    mesh.run(MINUTE);
    // It does not know yet, say, and asks.
    let record = asking(&mesh, "large", 18);
    call(&mut mesh, 2, hold_call(record, true));
    mesh.run(MINUTE);
    let sent = |node: usize| mesh.nodes[node].site.quota_stats().transfers;
    assert_eq!((sent(0), sent(1)), (0, 0));
}

#[test]
fn who_leaves_sends_what_is_left_away() {
    let mut mesh = found(8, 3, 30);
    hold(&mut mesh, 2, "a", 4);
    let drained = call(&mut mesh, 2, QuotaCall::Drain).expect("an answer");
    assert_eq!(drained, Ok(QuotaAnswer::Drained(CoreMillis(6 * HOUR.0))));
    mesh.run(MINUTE);
    assert_eq!(hours(totals(&mesh, 0)), [0, 4, 26, 0]);
    assert_eq!(totals(&mesh, 2).here, 0);
    let release = QuotaCall::Release {
        job: JobKey {
            job: "a".to_owned(),
            ..asking(&mesh, "a", 1).key
        },
    };
    assert_eq!(
        call(&mut mesh, 2, release.clone()),
        Some(Ok(QuotaAnswer::Released))
    );
    assert_eq!(call(&mut mesh, 2, release), Some(Ok(QuotaAnswer::Released)));
    assert_eq!(hours(totals(&mesh, 2))[1], 0);
}

#[test]
fn a_site_that_sends_nothing_away_says_why() {
    let said = |mesh: &mut Mesh| match call(mesh, 0, QuotaCall::Drain).expect("an answer") {
        Err(why) => why,
        Ok(answer) => panic!("{answer:?}"),
    };
    let mut alone = found_on(14, 2, 30, |body| {
        body.split.remove(&site_id(1));
    });
    let why = said(&mut alone);
    assert!(why.contains("(30.0 core-hours) names no other"), "{why}");
    let mut frozen = found(15, 2, 30);
    frozen.cut(1);
    frozen.restart(0);
    let why = said(&mut frozen);
    assert!(why.contains("1 more sites"), "{why}");
    frozen.heal();
    frozen.run(MINUTE);
    let sent = |mesh: &mut Mesh| call(mesh, 0, QuotaCall::Drain);
    let all = Some(Ok(QuotaAnswer::Drained(CoreMillis(15 * HOUR.0))));
    assert_eq!(sent(&mut frozen), all);
    let nothing = Some(Ok(QuotaAnswer::Drained(CoreMillis(0))));
    assert_eq!(sent(&mut frozen), nothing, "there is nothing left");
}

#[test]
fn without_an_allocation_nothing_is_kept_or_said_and_with_one_priorities_are_the_same() {
    let tree = |mesh: &Mesh, node: usize| {
        let view = mesh.nodes[node].site.view();
        let reader = view.reader();
        let paths = ["/grid/g0", "/grid/g0/u0", "/grid/g1", "/grid/g1/u2"];
        let entry = |at: &&str| {
            let entry = reader.entry(&path(at)).expect("an entry");
            (reader.sums(entry).global, reader.sums(entry).local)
        };
        paths.iter().map(entry).collect::<Vec<_>>()
    };
    let play = |has_quota: bool| {
        let mut mesh = Mesh::found(9, 3);
        if has_quota {
            let body = allocation(&mesh, 30, 3);
            grant(&mut mesh, 0, body);
        }
        mesh.run(MINUTE);
        for (number, node) in [0, 1, 2, 1].into_iter().enumerate() {
            let verdict = hold(&mut mesh, node, &number.to_string(), 2).verdict;
            assert_eq!(verdict == Verdict::Granted, has_quota);
            let ended = WallTime(vo::START.0 + 20_000);
            let span = (ended.before(HOUR), ended);
            let ran = job(number.to_string(), "grid", "g0", "u0", span, 2);
            mesh.report(node, &[ran]).expect("it is counted");
        }
        mesh.run(MINUTE);
        mesh
    };
    let (off, on) = (play(false), play(true));
    for node in 0..3 {
        assert_eq!(tree(&off, node), tree(&on, node));
        assert_eq!(off.nodes[node].count_rows(Table::Transfers), 0);
        for table in [Table::Rights, Table::Holds] {
            assert_eq!(off.nodes[node].count_rows(table), 0);
            assert!(on.nodes[node].count_rows(table) > 0);
        }
        assert_eq!(off.nodes[node].site.quota_stats().asked, 0);
    }
}

/// Rights are split by id, and what the old key has sent could be taken from the new key once more.
#[test]
fn a_key_that_takes_a_folder_over_has_its_counters_and_none_of_its_rights() {
    let mut mesh = found(1, 3, 30);
    assert_eq!(hold(&mut mesh, 1, "a", 8).verdict, Verdict::Granted);
    assert_eq!(hold(&mut mesh, 2, "b", 16).verdict, Verdict::Refused);
    mesh.run(MINUTE);
    mesh.restart(1);
    mesh.run(MINUTE);
    mesh.stop(1);
    let before = mesh.nodes[1].rows.clone();
    let (now, config) = (mesh.now(1), mesh.nodes[1].config.clone());
    let start = |key: usize, rows: &Rows| {
        let rows = rows.iter();
        let rows: Vec<_> = rows
            .map(|((table, key), value)| (*table, key.clone(), value.clone()))
            .collect();
        let incarnation = Incarnation(1 << 60);
        let mut site = Site::restore(config.clone(), vo::site_key(key), incarnation, 1, now, rows);
        let rights = site
            .ledger(mesh.vo)
            .map_or(0, |ledger| ledger.own_rows().count());
        (rights, site.handle(now, Event::Tick))
    };
    let mut after = before.clone();
    let (rights, effects) = start(7, &before);
    assert_eq!(rights, 0);
    let Some(Effect::Persist(writes)) = effects.into_iter().next() else {
        panic!("the first thing is to remember that");
    };
    for write in writes {
        match write.value {
            Some(value) => after.insert((write.table, write.key), value),
            None => after.remove(&(write.table, write.key)),
        };
    }
    let of = |rows: &Rows, table| rows.keys().filter(|(of, _)| *of == table).count();
    for table in [Table::Rights, Table::Holds] {
        assert!(
            of(&before, table) > 0 && of(&after, table) == 0,
            "{table:?}"
        );
    }
    for table in [Table::Ledger, Table::Jobs, Table::Documents] {
        assert_eq!(of(&before, table), of(&after, table), "{table:?}");
    }
    let id = |rows: &Rows| rows[&(Table::Meta, SITE_KEY.to_vec())].clone();
    assert_eq!(
        (id(&before), id(&after)),
        (
            site_id(1).as_bytes().to_vec(),
            site_id(7).as_bytes().to_vec()
        )
    );
    // The old key's own folder, and that of an earlier release, keep theirs.
    let mut unnamed = before.clone();
    unnamed.remove(&(Table::Meta, SITE_KEY.to_vec()));
    assert!([before, unnamed].iter().all(|rows| start(1, rows).0 > 0));
}

#[test]
fn a_clock_that_is_ahead_for_a_moment_ends_no_hold() {
    let mut mesh = found(1, 3, 30);
    assert_eq!(hold(&mut mesh, 1, "a", 8).verdict, Verdict::Granted);
    mesh.nodes[1].ahead_ms = 365 * 86_400_000;
    mesh.run(Millis::from_secs(2));
    mesh.nodes[1].ahead_ms = 0;
    mesh.run(MINUTE);
    assert_eq!(hours(totals(&mesh, 1))[1], 8, "still held");
    let again = hold(&mut mesh, 1, "a", 8);
    assert_eq!(
        again.verdict,
        Verdict::Granted,
        "asked again, and not ended"
    );
}

/// Nobody can say that the clock is right again; time passes all the same.
#[test]
fn a_site_alone_whose_clock_has_leapt_ends_holds_when_their_time_has_passed() {
    let mut mesh = found(1, 3, 30);
    assert_eq!(hold(&mut mesh, 2, "a", 8).verdict, Verdict::Granted);
    mesh.cut(2);
    mesh.tick_ms = 3_600_000;
    mesh.nodes[2].ahead_ms = 365 * 86_400_000;
    mesh.run(vo::DAY.times(29));
    let state = |mesh: &Mesh| {
        let ledger = mesh.nodes[2].site.ledger(mesh.vo).expect("a member");
        ledger.marks().next().expect("it is known").1.state
    };
    assert_eq!(state(&mesh), State::Held);
    mesh.run(vo::DAY.times(2));
    assert_eq!(state(&mesh), State::Expired);
}
