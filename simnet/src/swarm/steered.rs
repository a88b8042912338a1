//! A run that bytes stand for, so that a search that watches coverage can steer it.
//!
//! Eight bytes are a seed, little-endian: alone they are the run that the seed draws. Each three bytes after them
//! change one thing of a smaller Grid: a switch; a number of faults or a rate, to a value at its limits; what liars lie
//! about; or the time of a fault, so that it comes within a round of another one.
//!
//! Invariant: the same bytes are the same run, and what they change can be printed as options.
//! Deliberately not here: the search (`simnet/fuzz`).

use fairmesh_cluster::Seed;
use fairmesh_model::Millis;
use serde_json::Value;

use super::{Options, plan_faults};
use crate::liar::{Choice, LIES};

/// Changes that are read; what follows them means nothing.
const CHANGES_MAX: usize = 24;

/// Minutes of the safety phase, and the fewest sites, of a Grid that is changed: many runs say more than long ones.
const MINUTES: u64 = 60;
const SITES: usize = 3;

/// The highest number of faults of one kind.
const FAULTS_MAX: u64 = 12;

/// A fault comes so soon after another one at most: the node's round and its timers have this length.
const TOGETHER_WITHIN: Millis = Millis(10_000);

/// Numbers of entries in one step.
const FEW: [u64; 3] = [1, 2, 3];

impl Options {
    /// The run that bytes stand for; `None` where there are not enough for a seed.
    pub fn steered(bytes: &[u8]) -> Option<(Seed, Self)> {
        let (seed, changes) = bytes.split_first_chunk::<8>()?;
        let seed = Seed(u64::from_le_bytes(*seed));
        if changes.len() < 3 {
            return Some((seed, Self::draw(seed)));
        }
        let sites = SITES + usize::try_from(seed.0 % 3).unwrap_or(0);
        let mut options = Self::draw_of(seed, sites, Some(MINUTES));
        let mut together = Vec::new();
        for change in changes.chunks_exact(3).take(CHANGES_MAX) {
            let (at, to) = (usize::from(change[1]), change[2]);
            options = match change[0] % 4 {
                0 => options.with_lies(seed, Choice::One(&LIES[at % LIES.len()])),
                1 => {
                    together.push((at, usize::from(to)));
                    options
                }
                _ => options.changed(at, to),
            };
        }
        let mut planned = plan_faults(seed, &options, MINUTES * 60_000);
        let count = planned.len();
        for (at, other) in together.into_iter().filter(|_| count > 0) {
            let within = TOGETHER_WITHIN.0 * (other as u64 % 16) / 15;
            planned[other % count].at = Millis(planned[at % count].at.0 + within);
        }
        planned.sort_by_key(|planned| planned.at);
        options.step = Some(planned);
        Some((seed, options))
    }

    /// With another value in the place of that number.
    fn changed(self, at: usize, to: u8) -> Self {
        let mut value = serde_json::to_value(&self).expect("options are plain data");
        let mut places = Vec::new();
        find_places("", "", &mut value, &mut places);
        let count = places.len();
        let (place, most) = &mut places[at % count];
        **place = match place {
            Value::Bool(is) => Value::Bool(!*is),
            _ if *most == usize::MAX as u64 => {
                FEW.map(Value::from)[usize::from(to) % FEW.len()].clone()
            }
            _ => Value::from(u64::from(to) * *most / 255),
        };
        serde_json::from_value(value).unwrap_or(self)
    }
}

/// Switches, and numbers whose every value up to the one beside them makes sense.
fn find_places<'a>(
    above: &str,
    key: &str,
    value: &'a mut Value,
    places: &mut Vec<(&'a mut Value, u64)>,
) {
    match value {
        Value::Object(of) => {
            let fields = of.iter_mut();
            fields.for_each(|(name, value)| find_places(key, name, value, places));
        }
        Value::Array(of) => of
            .iter_mut()
            .for_each(|value| find_places(above, key, value, places)),
        Value::Bool(_) => places.push((value, 1)),
        Value::Number(_) if above == "faults" => places.push((value, FAULTS_MAX)),
        Value::Number(_) if key.ends_with("_permille") => places.push((value, 1_000)),
        Value::Number(_) if key.ends_with("_entries") => places.push((value, usize::MAX as u64)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_seed_and_what_is_changed_of_its_run() {
        let seed = 7_u64.to_le_bytes();
        assert!(Options::steered(&seed[..7]).is_none());
        assert_eq!(
            Options::steered(&seed),
            Some((Seed(7), Options::draw(Seed(7))))
        );
        let of = |changes: &[u8]| {
            Options::steered(&[&seed, changes].concat())
                .expect("there is a seed")
                .1
        };
        let plain = of(&[3, 0, 0]);
        let all = (0..=u8::MAX).map(|at| of(&[3, at, 9]));
        let differs = all.filter(|options| *options != plain).count();
        assert!(differs > 200, "{differs}");
        let together = of(&[1, 0, 5]);
        assert_eq!(
            together.step.as_ref().map(Vec::len),
            plain.step.as_ref().map(Vec::len)
        );
        assert_eq!(Options::from_toml(&together.to_toml()).ok(), Some(together));
        assert_eq!(
            of(&[0, 3, 0])
                .liars
                .iter()
                .filter(|liar| liar.lie == LIES[3].name)
                .count(),
            1
        );
    }
}
