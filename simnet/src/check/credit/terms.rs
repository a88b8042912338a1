//! Terms of allocations, decisions of owners and wishes of jobs that differ from the usual ones.
//!
//! Invariant: what is drawn here comes from a stream of its own, so a run without such terms is what it would be
//! without this file.
//! Deliberately not here: judging (`invariants::verdicts`).

use fairmesh_cluster::Stream;
use fairmesh_model::{
    Allocation, CoreMillis, Factor, Importance, Millis, QuotaMode, Settlement, VoId, WallTime,
};
use fairmesh_quota::price::{Hours, Pricing};
use fairmesh_site::{HoldCall, OwnerQuota, Pattern, SiteConfig};

use crate::check::Run;
use crate::facts::{EXPIRES_AFTER, HoldContext, owner_of};
use crate::invariants::clocks_were_wrong;
use crate::oracle::Documents;
use crate::oracle::rights::Job;
use crate::swarm::Offer;
use crate::vo::{DAY, path};
use crate::world::StepKind;

/// Slices of some allocations began so long ago.
const LONG: Millis = Millis(60 * DAY.0);

/// A price, a configuration and a clock are what they are for so long before a job's price is known to the judge: sites
/// look at the hour each second.
const KNOWN_AFTER: Millis = Millis(15_000);
const LOOKS_WITHIN_TICKS: u64 = 3;

/// A price does not fall below this for want of importance.
const LEAST: Factor = Factor::from_millionths(500_000);

/// The allocation with other terms.
pub(super) fn other(random: &mut Stream, mut body: Allocation, users: usize) -> Allocation {
    let begins_long_ago = random.below(3) == 0;
    for slice in &mut body.slices {
        let thirds = [1, 3, 3, 5][random.index(4)];
        slice.amount = CoreMillis((slice.amount.0 * thirds / 3).max(1));
        if begins_long_ago {
            slice.start = slice.start.before(LONG);
        }
    }
    let amount = body.slices[0].amount.0;
    body.overdraft_max = CoreMillis([0, amount / 10, amount / 2, amount * 2][random.index(4)]);
    body.mode = [body.mode, body.mode, Some(QuotaMode::Soft)][random.index(3)];
    let member = path(&format!("/g0/u{}", random.index(users)));
    if random.below(4) == 0 && member.starts_with(&body.path) {
        body.members.insert(member);
    }
    let factor = |percent: u32| Factor::from_millionths(percent * 10_000);
    body.hold_factor = factor([100, 100, 60, 130][random.index(4)]);
    body.hold_max = (random.below(4) == 0).then_some(CoreMillis(amount / 4 + 1));
    body.fee = factor([0, 0, 50][random.index(3)]);
    body.price_max = (random.below(4) == 0).then(|| factor(110));
    body.settle = [Settlement::Next, Settlement::Next, Settlement::Manual][random.index(3)];
    body
}

/// A job names an account, or says how important it is.
pub(super) fn ask_otherwise(random: &mut Stream, call: &mut HoldCall, group: usize) {
    if random.below(6) == 0 {
        let importance = [0, 60, 160, 200][random.index(4)];
        call.importance = Importance::try_from(importance).expect("at most 200");
    }
    if random.below(6) == 0 {
        let named = ["/".to_owned(), format!("/g{group}")];
        call.account = Some(path(&named[random.index(2)]));
    }
    call.is_exempt = random.below(24) == 0;
}

/// The price by the hour: of the first span that contains the moment, and 1 outside all.
fn by_hours(hours: &[Hours], at: WallTime) -> Factor {
    let (day, minute) = (at.0 / DAY.0, at.0 % DAY.0 / 60_000);
    // The first day of all was a Thursday, and Monday is the first of a week.
    let of_week = |day: u64| usize::try_from((day + 3) % 7).expect("seven");
    let contains = |hours: &&Hours| {
        let (from, until) = (u64::from(hours.from_minute), u64::from(hours.until_minute));
        let is_day = hours.days[of_week(day)];
        let is_eve = hours.days[of_week(day + 6)];
        match from < until {
            true => is_day && (from..until).contains(&minute),
            false => is_day && minute >= from || is_eve && minute < until,
        }
    };
    hours
        .iter()
        .find(contains)
        .map_or(Factor::ONE, |of| of.price)
}

/// Prices that an owner may ask at a moment, where sites look at the hour after `known_after` at the latest.
fn prices(
    config: &SiteConfig,
    vo: VoId,
    at: WallTime,
    (known_after, is_steady): (Millis, bool),
) -> Vec<Factor> {
    let Some(Pricing::Calendar(hours)) = config.quotas.get(&vo).map(|of| &of.pricing) else {
        // What was asked by the configuration before is asked until the next look.
        let other = (!is_steady).then(|| PRICES.map(Factor::from_millionths));
        return [Factor::ONE]
            .into_iter()
            .chain(other.into_iter().flatten())
            .collect();
    };
    let mut all = vec![by_hours(hours, at), by_hours(hours, at.before(known_after))];
    if !is_steady {
        all.push(Factor::ONE);
        all.extend(hours.iter().map(|hours| hours.price));
        all.extend(PRICES.map(Factor::from_millionths));
    }
    all.dedup();
    all
}

/// Prices of nights and of other hours.
const PRICES: [u32; 2] = [700_000, 1_400_000];

impl Run {
    /// A call, as the oracle sees it.
    pub(super) fn asked(&self, node: usize, vo: usize, call: HoldCall) -> HoldContext {
        let (place, now) = (self.world.node(node), self.world.now_at(node));
        let (config, id) = (&place.config, self.ids[vo]);
        let record = &call.record;
        let terms = Documents::terms(&owner_of(config), &self.in_force(node), record);
        let wall = record.end.since(record.start);
        let owner = config.quotas.get(&id);
        let user = record.origin.user.as_deref().unwrap_or_default();
        let is_named = |owner: &OwnerQuota| owner.users.contains(&Pattern::parse(user));
        let steady = &self.credit.steady[node];
        // Where ticks are minutes apart, a site looks at the hour as rarely.
        let known_after = KNOWN_AFTER.max(self.options.tick().times(LOOKS_WITHIN_TICKS));
        let is_steady =
            steady.life == place.life() && self.world.now() >= steady.since.after(known_after);
        let prices = prices(config, id, now.wall, (known_after, is_steady));
        let job = terms.filter(|terms| terms.account.0 == Some(id));
        let job = job.map(|terms| Job {
            user: terms.account.1.clone(),
            named: call.account.clone(),
            charge: terms.cost.of_first(wall.0).charge,
            asked: prices[0],
            least: LEAST,
            importance: call.importance.get().into(),
            owner: owner.and_then(|owner| owner.mode),
            is_exempt: call.is_exempt || owner.is_some_and(|of| of.is_off || is_named(of)),
        });
        HoldContext {
            node,
            vo,
            ticket: 0,
            life: place.life(),
            at: now.mono,
            expires: now.wall.after(EXPIRES_AFTER).after(wall),
            job,
            prices,
            call,
        }
    }

    /// The VO of a job that has ended while its site's owner let no quota hold for that VO, all the time since then.
    pub(in crate::check) fn is_free(&self, node: usize, offer: &Offer) -> Option<VoId> {
        let vo = self.ids[offer.vo?];
        let owner = self.world.node(node).config.quotas.get(&vo)?;
        let (steady, now) = (&self.credit.steady[node], self.world.now());
        let since = self.world.true_wall().before(now.since(steady.since));
        let is_known = owner.is_off && offer.record.end > since && !clocks_were_wrong(&self.world);
        (is_known && steady.life == self.world.node(node).life()).then_some(vo)
    }

    /// An owner takes quotas another way, and asks other prices.
    pub(super) fn decide_otherwise(&mut self, node: usize) {
        let mounted = self.mounted(node);
        if mounted.is_empty() || self.is_liar(node) {
            return;
        }
        self.note_odd("owner of quotas");
        let random = &mut self.credit.of_terms;
        let vo = self.ids[mounted[random.index(mounted.len())]];
        let modes = [
            None,
            None,
            Some(QuotaMode::Strict),
            Some(QuotaMode::Soft),
            Some(QuotaMode::Advisory),
        ];
        let mode = modes[random.index(modes.len())];
        let hours = |from_minute, until_minute, price| Hours {
            days: [true; 7],
            from_minute,
            until_minute,
            price: Factor::from_millionths(price),
        };
        // A night and an afternoon, either of which may begin within the run.
        let noon = u16::try_from(random.between(12 * 60, 15 * 60)).expect("minutes of a day");
        let calendar = vec![
            hours(20 * 60, 6 * 60, PRICES[0]),
            hours(noon, 17 * 60, PRICES[1]),
        ];
        let pricing = [Pricing::Fixed, Pricing::Calendar(calendar)];
        let owner = OwnerQuota {
            mode,
            is_off: random.below(3) == 0,
            users: if random.below(4) == 0 {
                vec![Pattern::parse("u0")]
            } else {
                Vec::new()
            },
            pricing: pricing[random.index(2)].clone(),
            ..OwnerQuota::default()
        };
        let mut config = self.world.node(node).config.clone();
        let bands = config.quotas.get(&vo).is_some_and(|of| of.bands);
        config.quotas.insert(vo, OwnerQuota { bands, ..owner });
        self.world.reconfigure(node, config);
        self.look(Some(node), StepKind::Reconfigured, true);
    }

    /// Notes whether anything about a site's clock, configuration and process has changed.
    pub(in crate::check) fn note_steady(&mut self, node: usize, kind: StepKind) {
        let place = self.world.node(node);
        let (life, now) = (place.life(), self.world.now());
        let ahead_ms = place.clock.ahead_ms(now);
        let steady = &mut self.credit.steady[node];
        let moved = (ahead_ms - steady.ahead_ms).unsigned_abs() > 1_000;
        if moved || steady.life != life || kind == StepKind::Reconfigured {
            *steady = super::Steady {
                since: now,
                life,
                ahead_ms,
            };
        }
    }
}
