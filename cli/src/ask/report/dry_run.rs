//! What a dry run knows of the jobs that it has met: each counts once, however often it is in the input.
//!
//! Invariant: a job is tried out once. Instalments of a job that runs wait for a later word until the input ends, so
//! that what its final record replaces is not counted beside it. What it does not replace, by the rule of
//! `fairmesh-site`, is tried out too, and the final record from there on. Of a job that has ended nothing is kept but
//! hashes.

use std::collections::btree_map::{BTreeMap, Entry as Place};
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;

use fairmesh_model::{Millis, Origin, WallTime};
use fairmesh_records::BatchRecord;
use fairmesh_site::replaces_instalments;
use foldhash::quality::FixedState;

use super::item::Batch;
use super::item::Entry;

#[derive(Default)]
pub(super) struct DryRun {
    hasher: FixedState,
    /// Jobs that have ended: the hashes of their keys, and of their names and starts. 18 to 36 bytes a job.
    ended: HashSet<u64, FixedState>,
    /// Jobs that have not, by the hashes of their names and starts.
    starts: HashMap<u64, u64, FixedState>,
    /// The longest instalment of each job that has not: its file, its line and itself.
    running: BTreeMap<u64, (String, u64, Box<Entry>)>,
    /// Whether the key of any job has its start.
    has_by_start: bool,
}

/// Whether the record's key has the start of its run, and not its submission.
fn is_by_start(record: &BatchRecord) -> bool {
    let is_instance = |time: WallTime| time.0 / 1_000 == record.key.instance;
    record.start.is_some_and(is_instance) && !record.submit.is_some_and(is_instance)
}

/// For how long a job that runs has held its resources; for all of the time where its record does not say.
fn held(entry: &Entry) -> Millis {
    entry.record.wall.unwrap_or(Millis(u64::MAX))
}

/// What of a batch is to be tried out now.
#[derive(Default)]
pub(super) struct Sifted {
    pub(super) fresh: Batch,
    /// By positions in those: what is charged of a final record if its job's instalment stays.
    pub(super) rests: BTreeMap<usize, Box<Entry>>,
    /// How many records say nothing that counts.
    pub(super) known: u64,
}

/// Whether one account pays for both, as far as their words say. A source may leave some out.
fn is_same_payer(one: &Origin, other: &Origin) -> bool {
    let pairs = [
        (&one.user, &other.user),
        (&one.account, &other.account),
        (&one.subject, &other.subject),
    ];
    let differ = |(one, other): (&Option<String>, &Option<String>)| {
        one.is_some() && other.is_some() && one != other
    };
    !pairs.into_iter().any(differ)
}

/// What is charged of a final record after an instalment; `None` if it replaces the instalment.
fn rest(entry: &Entry, instalment: &Entry) -> Option<Box<Entry>> {
    let (start, first) = (entry.record.start?, instalment.record.start?);
    let is_same_payer = is_same_payer(&entry.record.origin, &instalment.record.origin);
    if replaces_instalments(is_same_payer, (start, first)) {
        return None;
    }
    let mut rest = Box::new(entry.clone());
    let record = &mut rest.record;
    let until = first.after(held(instalment)).max(start);
    let past = until.since(start);
    record.wall = record
        .wall
        .map(|wall| Millis(wall.0.saturating_sub(past.0)));
    record.start = Some(record.end.map_or(until, |end| until.min(end)));
    Some(rest)
}

impl DryRun {
    /// The hash of the record's key.
    fn key_of(&self, record: &BatchRecord) -> u64 {
        let key = &record.key;
        self.hasher.hash_one((&key.cluster, &key.job, key.instance))
    }

    /// The hashes of the record's names and its start; `by_start` are those of a record whose key has the start.
    fn names_of(&self, record: &BatchRecord, by_start: bool) -> impl Iterator<Item = u64> {
        let start_s = record.start.map(|start| start.0 / 1_000);
        let names = [Some(&record.key.job), record.label.as_ref()];
        let hashes = names.map(|name| {
            let name = (&record.key.cluster, name?, by_start, start_s?);
            Some(self.hasher.hash_one(name))
        });
        hashes.into_iter().flatten()
    }

    /// The run that a record with this key is of: another source may know it by its start, as the node sees it.
    fn run_of(&self, record: &BatchRecord, key: u64) -> u64 {
        if self.ended.contains(&key) || self.running.contains_key(&key) {
            return key;
        }
        let kinds = [(true, self.has_by_start), (false, is_by_start(record))];
        let kinds = kinds.into_iter().filter(|(_, may_be)| *may_be);
        let mut same = kinds.flat_map(|(by_start, _)| self.names_of(record, by_start));
        same.find_map(|name| match self.ended.contains(&name) {
            true => Some(name),
            false => self.starts.get(&name).copied(),
        })
        .unwrap_or(key)
    }

    /// The hashes of the names that the record itself has.
    fn names_now(&mut self, record: &BatchRecord) -> impl Iterator<Item = u64> + use<> {
        let by_start = is_by_start(record);
        self.has_by_start |= by_start;
        let mut names = self.names_of(record, by_start);
        [names.next(), names.next()].into_iter().flatten()
    }

    /// What of a batch is to be tried out now, and how many others say nothing that counts.
    pub(super) fn sift(&mut self, batch: Batch, file: &str) -> Sifted {
        let Sifted {
            mut fresh,
            mut rests,
            mut known,
        } = Sifted::default();
        for (line, entry) in batch {
            // What waits, and what never ran, is no word on what a job held.
            if entry.record.start.is_none() {
                fresh.push((line, entry));
                continue;
            }
            let key = self.key_of(&entry.record);
            let job = self.run_of(&entry.record, key);
            if self.ended.contains(&job) {
                known += 1;
                // A third source may know the job as this one does.
                if job != key {
                    let names = self.names_now(&entry.record);
                    self.ended.extend(names.chain([key]));
                }
            } else if entry.record.state.has_ended() {
                let names = self.names_now(&entry.record);
                self.ended.extend(names.chain([job]));
                let instalment = self.running.get(&job).map(|(_, _, entry)| entry);
                match instalment.map(|instalment| rest(&entry, instalment)) {
                    Some(Some(rest)) => _ = rests.insert(fresh.len(), rest),
                    Some(None) => {
                        self.running.remove(&job);
                        known += 1;
                    }
                    None => {}
                }
                fresh.push((line, entry));
            } else {
                for name in self.names_now(&entry.record) {
                    self.starts.insert(name, job);
                }
                match self.running.entry(job) {
                    Place::Vacant(place) => {
                        place.insert((file.to_owned(), line, entry));
                    }
                    Place::Occupied(mut place) => {
                        known += 1;
                        if held(&entry) > held(&place.get().2) {
                            place.insert((file.to_owned(), line, entry));
                        }
                    }
                }
            }
        }
        Sifted {
            fresh,
            rests,
            known,
        }
    }

    /// These are refused: another record of such a job may be good.
    pub(super) fn forget<'a>(&mut self, refused: impl Iterator<Item = &'a (u64, Box<Entry>)>) {
        for (_, entry) in refused {
            let job = self.run_of(&entry.record, self.key_of(&entry.record));
            for hash in self.names_now(&entry.record).chain([job]) {
                self.ended.remove(&hash);
            }
        }
    }

    /// The last word on jobs that still run, by files.
    pub(super) fn instalments(&mut self) -> BTreeMap<String, Batch> {
        let mut files = BTreeMap::<String, Batch>::new();
        for (file, line, entry) in std::mem::take(&mut self.running).into_values() {
            files.entry(file).or_default().push((line, entry));
        }
        for batch in files.values_mut() {
            batch.sort_by_key(|(line, _)| *line);
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{JobKey, WallTime};
    use fairmesh_records::{Format, JobState};

    use super::*;

    /// Of a job, after so long; what has not started where that is `None`.
    fn word(job: &str, state: JobState, held_ms: Option<u64>) -> Box<Entry> {
        let key = JobKey {
            cluster: "c".to_owned(),
            job: job.to_owned(),
            instance: 1,
        };
        let mut record = BatchRecord::new(Format::SlurmSacct, key, state);
        record.start = held_ms.map(|_| WallTime(1));
        record.wall = held_ms.map(Millis);
        Box::new(Entry {
            record,
            usage: None,
            text: Vec::new(),
        })
    }

    #[test]
    fn a_job_counts_by_its_final_record_or_its_longest_instalment() {
        let (runs, done) = (JobState::Running, JobState::Completed);
        let mut dry_run = DryRun::default();
        let mut sift = |file: &str, words: Vec<Box<Entry>>| {
            let Sifted { fresh, known, .. } = dry_run.sift((1..).zip(words).collect(), file);
            let fresh = fresh
                .into_iter()
                .map(|(line, entry)| (line, entry.record.key.job));
            (fresh.collect::<Vec<_>>(), known)
        };
        let first = vec![
            word("a", runs, Some(5)),
            word("b", runs, Some(9)),
            word("waits", JobState::Pending, None),
            word("c", done, Some(1)),
        ];
        let of = |line: u64, job: &str| (line, job.to_owned());
        assert_eq!(sift("one", first), (vec![of(3, "waits"), of(4, "c")], 0));
        let second = vec![
            word("b", runs, Some(3)),
            word("a", runs, Some(6)),
            word("c", done, Some(2)),
            word("d", runs, Some(4)),
            word("d", done, Some(4)),
            word("d", runs, Some(1)),
        ];
        assert_eq!(sift("two", second), (vec![of(5, "d")], 5));
        let left = dry_run.instalments();
        let left: Vec<(&str, u64)> = left
            .iter()
            .flat_map(|(file, batch)| batch.iter().map(|(line, _)| (file.as_str(), *line)))
            .collect();
        assert_eq!(left, [("one", 2), ("two", 2)]);
        // Another source knows it by its start, which is 0 s here.
        let mut by_start = word("c", done, Some(1));
        by_start.record.key.instance = 0;
        assert_eq!(dry_run.sift(vec![(8, by_start)], "three").known, 1);
        // One that was refused may come again, corrected.
        let again = (7, word("c", done, Some(1)));
        dry_run.forget([&again].into_iter());
        assert_eq!(dry_run.sift(vec![again], "two").fresh.len(), 1);
        // The same if the source that knows jobs by their start comes first.
        let mut dry_run = DryRun::default();
        let mut by_start = word("c", done, Some(1));
        by_start.record.key.instance = 0;
        assert_eq!(dry_run.sift(vec![(1, by_start)], "one").known, 0);
        let by_submission = (1, word("c", done, Some(1)));
        assert_eq!(dry_run.sift(vec![by_submission], "two").known, 1);
    }

    #[test]
    fn an_instalment_stays_if_another_account_or_a_later_start_contradicts_it() {
        let instalment = || word("a", JobState::Running, Some(60));
        let last = |user: &str, start: u64| {
            let mut last = word("a", JobState::Completed, Some(100));
            last.record.origin.user = Some(user.to_owned());
            last.record.start = Some(WallTime(start));
            last
        };
        let tried = |last: Box<Entry>| {
            let mut dry_run = DryRun::default();
            let mut first = instalment();
            first.record.origin.user = Some("ann".to_owned());
            let sifted = dry_run.sift(vec![(1, first), (2, last)], "one");
            let rest = sifted
                .rests
                .get(&0)
                .map(|rest| (rest.record.start, rest.record.wall));
            (rest, dry_run.instalments().len())
        };
        let rest = |held_ms| Some((Some(WallTime(61)), Some(Millis(held_ms))));
        assert_eq!(tried(last("ann", 1)), (None, 0));
        assert_eq!(tried(last("bob", 1)), (rest(40), 1));
        assert_eq!(tried(last("ann", 11)), (rest(50), 1));
    }
}
