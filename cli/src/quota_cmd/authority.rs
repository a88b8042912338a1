//! `fairmesh quota grant`, `revoke` and `plan`: an authority's side.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use fairmesh_api::client::Control;
use fairmesh_api::client::documents;
use fairmesh_api::words::{ID_DIGITS_MIN, is_id, timestamp};
use fairmesh_model::{AccountPath, Allocation, Charter, Millis, Share, Signed, Verified, clean};
use fairmesh_policy::VoPolicies;
use fairmesh_quota::fit::{Capacity, imbalance};

use crate::ask::{NodeArgs, unless_refused};
use crate::init::load_key;
use crate::output::{Exit, OutputArgs, Table};
use crate::policy_cmd::{Draft, PolicyDocument, by_vo, may_publish, now, read_bytes, sign_draft};

const WEEK: Millis = Millis(7 * 86_400_000);

/// Weeks that a plan looks ahead at most: two years.
const WEEKS_MAX: u64 = 105;

/// Options of `grant`.
#[derive(Debug, Clone, clap::Args)]
pub struct GrantArgs {
    /// A draft of an allocation (TOML), which is signed beside it, or a signed one
    #[arg(value_name = "DRAFT.toml|DOC.cbor")]
    pub file: PathBuf,
    /// A file with a secret key; repeat it for several
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// Hand it in although a part that is in force falls by it
    #[arg(long)]
    pub yes: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Options of `revoke`.
#[derive(Debug, Clone, clap::Args)]
pub struct RevokeArgs {
    /// Its id or 8 digits of it or more, or its account where that has one allocation
    #[arg(value_name = "ALLOCATION|PATH")]
    pub which: String,
    /// A file with a secret key; repeat it for several
    #[arg(long = "key", value_name = "FILE", required = true)]
    pub keys: Vec<PathBuf>,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Options of `plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    /// Drafts of allocations, or signed ones: all that is to be spent in the VO
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The VO's charter: how many cores its members have
    #[arg(long, value_name = "CHARTER.cbor")]
    pub charter: PathBuf,
    /// The part of the cores that jobs can keep busy, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 90,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub utilisation: u32,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

pub(super) async fn grant(args: &GrantArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let signed = sign_draft(&args.file, &args.keys, out)?;
    let name = args.file.display().to_string();
    let documents = [(name, PolicyDocument::read(&signed)?)];
    let [(name, document)] = &documents;
    let PolicyDocument::Allocation(allocation) = document else {
        bail!("{name} is no allocation: {}", document.name());
    };
    let control = args.node.control();
    // A version with other leaders puts parts out of force.
    if !may_publish(&control, &documents, args.yes, out).await? {
        return Ok(Exit::Failure);
    }
    publish(&control, allocation, out).await
}

pub(super) async fn revoke(args: &RevokeArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let control = args.node.control();
    let Some(last) = find(&control, &args.which).await? else {
        return Ok(Exit::Failure);
    };
    let mut next = last.body().clone();
    let now = now();
    next.id = next.id.or_else(|| Some(last.hash().into()));
    next.version = next
        .version
        .checked_add(1)
        .context("there is no higher version")?;
    next.issued = now;
    next.expires = next.expires.max(now.after(Millis(1)));
    for slice in &mut next.slices {
        // One that has not begun ends as it begins.
        slice.end = slice.end.min(now.max(slice.start.after(Millis(1))));
    }
    sign(next, &args.keys, &control, out).await
}

/// Signs an allocation with the keys in these files, and hands it in.
pub(super) async fn sign(
    body: Allocation,
    keys: &[PathBuf],
    control: &Control,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let keys = keys.iter().map(|file| load_key(file));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let signed = Signed::sign(body, &keys.iter().collect::<Vec<_>>())?;
    publish(control, &signed, out).await
}

async fn publish(
    control: &Control,
    allocation: &Signed<Allocation>,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let published = documents::publish(control, allocation.bytes().to_vec());
    let Some(said) = unless_refused(published.await)? else {
        return Ok(Exit::Failure);
    };
    let body = allocation.claimed();
    let id = body.id.unwrap_or_else(|| allocation.hash().into());
    writeln!(out, "{said}\nallocation {id} of {}", body.path)?;
    Ok(Exit::Success)
}

/// The newest version of the allocation that is meant, of those in force at the node. Where it has none, that is told.
pub(super) async fn find(
    control: &Control,
    which: &str,
) -> anyhow::Result<Option<Verified<Allocation>>> {
    let held = documents::held(control).await;
    match unless_refused(held)? {
        Some(held) => named(&held, which),
        None => Ok(None),
    }
}

/// The newest version of the allocation that is meant, of what is in force of these documents: they are only as good
/// as their signatures, for an officer signs what follows from them.
fn named(held: &[Vec<u8>], which: &str) -> anyhow::Result<Option<Verified<Allocation>>> {
    let id = |of: &Verified<Allocation>| of.body().id.unwrap_or_else(|| of.hash().into());
    let is_meant =
        |of: &&Verified<Allocation>| is_meant(which, &of.body().path, &id(of).to_string());
    let policies = by_vo(held);
    let all = policies.values().flat_map(VoPolicies::allocations);
    let mut found: Vec<_> = all.filter(is_meant).cloned().collect();
    found.sort_by_key(|of| (id(of), of.body().version));
    if found.first().map(id) != found.last().map(id) {
        let mut ids: Vec<String> = found.iter().map(|of| id(of).to_string()).collect();
        ids.dedup();
        bail!(
            "several allocations are meant, name one by its id: {}",
            ids.join(", ")
        );
    }
    let newest = found.pop();
    if newest.is_none() {
        note!(
            "the node knows no allocation `{}`: name its account, or {ID_DIGITS_MIN} digits of its id or more",
            clean(which)
        );
    }
    Ok(newest)
}

/// Whether `which` names the allocation of this account and id. What is empty names none.
fn is_meant(which: &str, account: &AccountPath, id: &str) -> bool {
    // As messages to users name it, too.
    let path = format!("/{}", which.strip_prefix('/').unwrap_or(which));
    let by_path = AccountPath::parse(&path).is_ok_and(|path| path == *account);
    (by_path && !which.is_empty()) || is_id(id, which)
}

pub(super) fn plan(args: &PlanArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let PolicyDocument::Charter(charter) = PolicyDocument::read(&args.charter)? else {
        bail!("{} is no charter", args.charter.display());
    };
    let allocations = args.files.iter().map(|file| read(file));
    let allocations = allocations.collect::<anyhow::Result<Vec<_>>>()?;
    let capacity = capacity(charter.claimed(), args.utilisation);
    // What leaders pass on was granted with the whole.
    let granted = allocations.iter().filter(|of| of.part_of.is_none());
    let slices = granted.flat_map(|of| &of.slices);
    let slices: Vec<_> = slices.map(|slice| (slice.amount.0, *slice)).collect();
    let from = slices.iter().map(|(_, slice)| slice.start).min();
    let until = slices.iter().map(|(_, slice)| slice.end).max();
    let (from, until) = from.zip(until).context("there is no slice")?;
    let mut table = Table::new("From|>Imbalance");
    let mut worst = 0;
    for week in 0..WEEKS_MAX {
        let at = from.after(Millis(WEEK.0 * week));
        if at >= until {
            break;
        }
        // As if nothing were spent before: what has perished by then is gone.
        let value = imbalance(slices.iter().copied(), capacity, at, until);
        worst = worst.max(value);
        table.row([timestamp(at), decimal(value)]);
    }
    table.write(out, &args.output)?;
    if worst > 1_000_000 {
        note!(
            "note: above 1 not everybody can have what he was granted, if nobody spends anything before; more \
             slices take back sooner what can no longer be run"
        );
    }
    let whole = imbalance(slices.iter().copied(), capacity, from, until);
    Ok(Exit::of(whole <= 1_000_000))
}

fn read(file: &Path) -> anyhow::Result<Allocation> {
    let name = file.display().to_string();
    let bytes = read_bytes(file)?;
    if let Ok(text) = std::str::from_utf8(&bytes) {
        return match Draft::parse(text, &name)? {
            Draft::Allocation(allocation) => Ok(*allocation),
            _ => bail!("{name} is no allocation"),
        };
    }
    match PolicyDocument::read(file)? {
        PolicyDocument::Allocation(allocation) => Ok(allocation.claimed().clone()),
        other => bail!("{name} is no allocation: {}", other.name()),
    }
}

fn capacity(charter: &Charter, utilisation: u32) -> Capacity {
    Capacity {
        cores: charter
            .sites
            .iter()
            .map(|member| u64::from(member.cores))
            .sum(),
        utilisation: Share::from_percent(utilisation).unwrap_or(Share::WHOLE),
    }
}

fn decimal(millionths: u64) -> String {
    // Rounded up, so that what is above 1 is not shown as 1.
    let cents = millionths.div_ceil(10_000);
    format!("{}.{:02}", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{AllocationSlice, CoreMillis, SigningKey, WallTime};

    use super::*;

    /// The node may be another owner's.
    #[test]
    fn what_a_node_makes_up_is_not_what_is_signed_next() {
        let key = SigningKey::from_secret(&[1; 32]);
        let role = format!("keys = [\"{}\"]", key.key_id());
        let charter = format!(
            "[charter]\nname = \"vo\"\nversion = 1\nissued = 2027-01-01\nexpires = 2028-01-01\n\
             [authority]\n{role}\n[policy]\n{role}\n"
        );
        let draft = Draft::parse(&charter, "charter").expect("valid");
        let mut charter = draft.into_document().expect("a document");
        charter.add_signature(&key).expect("signed");
        let slice = AllocationSlice {
            amount: CoreMillis(1),
            start: WallTime(0),
            end: WallTime(9),
        };
        let path = AccountPath::parse("/cms").expect("a path");
        let split = [(key.site_id(), 1)].into();
        let granted = Allocation::new(
            charter.vo(),
            path,
            WallTime(0)..WallTime(9),
            vec![slice],
            split,
        );
        let good = Signed::sign(granted.clone(), &[&key]).expect("signed");
        let last = Allocation {
            version: u64::MAX,
            id: Some(good.hash().into()),
            ..granted
        };
        let made_up = Signed::sign(last, &[]).expect("a document");
        let held = [charter.bytes(), good.bytes(), made_up.bytes()].map(<[u8]>::to_vec);
        for which in ["/cms", &good.hash().to_string()] {
            let found = named(&held, which).expect("one is meant").expect("there");
            assert_eq!(found.hash(), good.hash());
        }
    }

    #[test]
    fn an_allocation_is_named_by_its_account_or_by_eight_digits() {
        let id = "c0ffee00".repeat(8);
        let account = AccountPath::parse("/cms").expect("a path");
        let is_meant = |which: &str| is_meant(which, &account, &id);
        for which in ["cms", "/cms", &id[..8], &id] {
            assert!(is_meant(which), "{which}");
        }
        for which in ["", "/", "c", "c0ffee0", "//cms", "cm", "c0ffee01"] {
            assert!(!is_meant(which), "{which}");
        }
        assert!(!super::is_meant("", &AccountPath::root(), &id));
        assert!(super::is_meant("/", &AccountPath::root(), &id));
    }

    #[test]
    fn imbalances_are_rounded_up() {
        assert_eq!(
            [0, 1_000_000, 1_000_001, 2_345_000].map(decimal),
            ["0.00", "1.00", "1.01", "2.35"]
        );
    }
}
