//! Starting again from what the store kept.
//!
//! Nothing read from a disk is believed: documents and batches are verified again, exactly as if a
//! peer had sent them. A row that does not pass is left out and named; peers fill the gap.
//!
//! Invariant: the incarnation that counts from now on is higher than any that the store, or a
//! peer's batch in the store, knows of this site, and differs from that of any other life that may
//! have begun from the same rows.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::{Absorbed, Refusal, Replica};
use fairmesh_model::{
    Checkpoint, ContentHash, Counters, Incarnation, Millis, Now, Origin, Signed, SigningKey, Span,
    StreamId, VoId, WallTime, Window, cbor, mutant, mutated,
};

use crate::config::SiteConfig;
use crate::ledger::Ledger;
use crate::notice::Notice;
use crate::site::{Site, Unmapped};
use crate::store::{LedgerRow, Table, parse_ledger_row};

/// A row as the store has it: table, key, value.
pub type Row = (Table, Vec<u8>, Vec<u8>);

/// A row without its table.
type KeyValue = (Vec<u8>, Vec<u8>);

/// Largest row of the versions seen of a VO's documents: some 100 bytes for each delegated path.
const MEMORY_BYTES_MAX: usize = 4 << 20;

/// Largest row of a fact about an origin.
const ORIGIN_BYTES_MAX: usize = 4_096;

impl Site {
    /// A site with a past. `incarnation` is taken unless the past knows one as high.
    pub fn restore(
        config: SiteConfig,
        key: SigningKey,
        incarnation: Incarnation,
        seed: u64,
        now: Now,
        rows: impl IntoIterator<Item = Row>,
    ) -> Self {
        let mut tables: BTreeMap<Table, Vec<KeyValue>> = BTreeMap::new();
        for (table, row_key, value) in rows {
            tables.entry(table).or_default().push((row_key, value));
        }
        let mut take = |table| tables.remove(&table).unwrap_or_default();
        let ledger = take(Table::Ledger);
        let highest = ledger
            .iter()
            .filter_map(|(row_key, value)| Some(parse_ledger_row(row_key, value)?.incarnation))
            .max();
        let mut site = Self::new(config, key, incarnation, seed, now);
        let memory = take(Table::Policy);
        // VOs that the configuration names no more as well: should one be named again, our stream of
        // it must go on, and an older document must be known for a rollback.
        for vo in memory.iter().filter_map(|(key, _)| vo_of(key)) {
            let own = site.id;
            site.replicas
                .entry(vo)
                .or_insert_with(|| Replica::new(vo, own));
        }
        site.restore_memory(mutant!(MemoryUnread, memory, Vec::new()));
        site.restore_documents(mutant!(DocumentsUnread, take(Table::Documents), Vec::new()));
        site.restore_forks(take(Table::Forks));
        site.restore_streams(
            take(Table::Seals),
            take(Table::Checkpoints),
            take(Table::Batches),
        );
        let (sheets, said) = (take(Table::InFlight), take(Table::Descriptions));
        site.restore_registers("in-flight sheet", sheets, Replica::absorb_sheet);
        site.restore_registers("site description", said, Replica::absorb_description);
        site.restore_unmapped(take(Table::Unmapped));
        let published = site
            .replicas
            .values()
            .flat_map(|replica| replica.vector().into_keys().collect::<Vec<_>>());
        let own = published
            .filter(|stream| stream.site == site.id)
            .map(|stream| stream.incarnation);
        let floor = own
            .chain(highest)
            .max()
            .map_or(0, |last| last.0.saturating_add(1));
        // Where the past is ahead of what was handed in, the seed's bits keep two lives apart that
        // begin from one backup.
        let above = floor.saturating_add(seed & 0xf_ffff);
        let above = Incarnation(mutant!(LifeGoesOn, above, floor.saturating_sub(1)));
        let is_fresh = incarnation.0 >= mutant!(LifeGoesOn, floor, u64::MAX);
        site.ledger = Ledger::new(if is_fresh { incarnation } else { above });
        site.restore_ledger(ledger);
        site.expect_own_sheets();
        site.set_left_aside();
        // Look-ups and reports must not meet a site that has forgotten its tree.
        site.rebuild_shares(now);
        for vo in site.replicas.keys().copied().collect::<Vec<_>>() {
            site.move_horizon(now, vo, WallTime(u64::MAX));
        }
        site
    }

    /// Moves what is held of VOs that the configuration does not name out of the way.
    fn set_left_aside(&mut self) {
        let named: BTreeSet<VoId> = self.config.vos.values().copied().collect();
        let held: Vec<VoId> = self.replicas.keys().copied().collect();
        for vo in held.into_iter().filter(|vo| !named.contains(vo)) {
            self.left.extend(self.replicas.remove_entry(&vo));
        }
    }

    /// What was seen before, so that an older document is known for a rollback.
    fn restore_memory(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) {
        for (key, value) in rows {
            let Some(vo) = vo_of(&key) else { continue };
            match cbor::from_slice(&value, MEMORY_BYTES_MAX) {
                Ok(seen) if self.replicas.contains_key(&vo) => {
                    self.replicas
                        .insert(vo, Replica::with_memory(vo, self.id, &seen));
                }
                Ok(_) => {}
                Err(_) => self.expect_row("memory of policy versions", false),
            }
        }
    }

    fn restore_documents(&mut self, mut rows: Vec<(Vec<u8>, Vec<u8>)>) {
        // In any order: what needs a predecessor is tried again until nothing moves.
        loop {
            let before = rows.len();
            rows.retain(|(key, bytes)| {
                let Some(replica) = vo_of(key).and_then(|vo| self.replicas.get_mut(&vo)) else {
                    return true;
                };
                match replica.kind_of(bytes) {
                    Some(kind)
                        if kind == <fairmesh_model::Charter as fairmesh_model::Document>::TYPE =>
                    {
                        replica.absorb_charter(bytes).is_err()
                    }
                    Some(_) => replica.absorb_policy(bytes).is_err(),
                    None => true,
                }
            });
            if rows.is_empty() || rows.len() == before {
                break;
            }
        }
        for (key, _) in rows {
            // Documents of a VO that the site has left are kept, and no damage.
            let ours = vo_of(&key).is_some_and(|vo| self.replicas.contains_key(&vo));
            self.expect_row("document", !ours);
        }
    }

    /// Rows of which each site has one of each VO.
    fn restore_registers(
        &mut self,
        what: &str,
        rows: Vec<KeyValue>,
        absorb: fn(&mut Replica, &[u8]) -> Result<Absorbed, Refusal>,
    ) {
        for (key, value) in rows {
            let replica = vo_of(&key).and_then(|vo| self.replicas.get_mut(&vo));
            let restored = replica.map(|replica| absorb(replica, &value));
            // A site that is listed no more may be listed again.
            let is_good = matches!(restored, Some(Ok(_) | Err(Refusal::NotMember(_))));
            self.expect_row(what, is_good);
        }
    }

    fn restore_forks(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) {
        for (key, value) in rows {
            let pair: Option<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)> =
                cbor::from_slice(&value, 1 << 20).ok();
            let replica = vo_of(&key).and_then(|vo| self.replicas.get_mut(&vo));
            let restored = replica
                .zip(pair)
                .map(|(replica, (a, b))| replica.absorb_fork(&a, &b));
            self.expect_row("fork proof", matches!(restored, Some(Ok(_))));
        }
    }

    fn restore_streams(
        &mut self,
        seals: Vec<(Vec<u8>, Vec<u8>)>,
        checkpoints: Vec<(Vec<u8>, Vec<u8>)>,
        batches: Vec<(Vec<u8>, Vec<u8>)>,
    ) {
        let seals: BTreeMap<ContentHash, Vec<u8>> = seals
            .into_iter()
            .map(|(_, bytes)| (ContentHash::of(&bytes), bytes))
            .collect();
        // The oldest checkpoint of a stream comes before its batches; later ones only confirm what
        // the batches said. Keys of batches sort by VO, stream and seq.
        let mut ordered: Vec<(VoId, Signed<Checkpoint>)> = Vec::new();
        for (key, bytes) in checkpoints {
            match vo_of(&key).zip(Signed::parse(&bytes).ok()) {
                Some(parsed) => ordered.push(parsed),
                None => self.expect_row("checkpoint", false),
            }
        }
        ordered.sort_by_key(|(vo, checkpoint)| {
            (*vo, checkpoint.claimed().stream(), checkpoint.claimed().seq)
        });
        let oldest = |index: &usize| {
            let place = |index: usize| (ordered[index].0, ordered[index].1.claimed().stream());
            *index == 0 || place(*index) != place(*index - 1)
        };
        let (first, later): (Vec<usize>, Vec<usize>) = (0..ordered.len()).partition(oldest);
        first.into_iter().for_each(|index| {
            self.restore_checkpoint(ordered[index].0, ordered[index].1.bytes(), &seals)
        });
        let last = batches.len().saturating_sub(1);
        for (index, (key, bytes)) in batches.into_iter().enumerate() {
            if index == last && mutated!(LastBatchForgotten) {
                continue;
            }
            let Some(replica) = vo_of(&key).and_then(|vo| self.replicas.get_mut(&vo)) else {
                continue;
            };
            let restored =
                replica.absorb_batch(&bytes, WallTime(u64::MAX / 2), Millis(u64::MAX / 2));
            self.expect_row(
                "batch",
                matches!(
                    restored,
                    Ok(Absorbed::Usage { .. } | Absorbed::Known) | Err(Refusal::NotMember(_))
                ),
            );
        }
        later.into_iter().for_each(|index| {
            self.restore_checkpoint(ordered[index].0, ordered[index].1.bytes(), &seals)
        });
    }

    fn restore_checkpoint(
        &mut self,
        vo: VoId,
        bytes: &[u8],
        seals: &BTreeMap<ContentHash, Vec<u8>>,
    ) {
        let Some(replica) = self.replicas.get_mut(&vo) else {
            return;
        };
        let mut restored = replica.absorb_checkpoint(bytes);
        if let Ok(Absorbed::Wanted(hashes)) = &restored {
            let wanted: Vec<&Vec<u8>> = hashes.iter().filter_map(|hash| seals.get(hash)).collect();
            for seal in wanted {
                restored = replica.absorb_seal(seal);
            }
        }
        self.expect_row(
            "checkpoint",
            matches!(restored, Ok(Absorbed::Checkpoints { .. } | Absorbed::Known)),
        );
    }

    fn restore_ledger(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) {
        for (key, value) in rows {
            let Some(row) = parse_ledger_row(&key, &value) else {
                self.expect_row("counter", false);
                continue;
            };
            let published = self.published(&row);
            self.ledger.restore(row, published);
        }
    }

    /// What the row's own incarnation is known to have published of its cell. A day stands for its
    /// windows, and windows for their day, as far as they have been merged.
    fn published(&self, row: &LedgerRow) -> Counters {
        let usage = row
            .account
            .vo
            .and_then(|vo| self.replicas.get(&vo)?.usage());
        let Some(usage) = usage else {
            return Counters::default();
        };
        let stream = StreamId {
            site: self.id,
            incarnation: row.incarnation,
        };
        if mutated!(CarriedWhole) {
            return Counters::default();
        }
        if row.incarnation < usage.settled_below(self.id) {
            return row.counters;
        }
        if row.is_untimed {
            // A life places it before it signs anything.
            let has_signed = usage.head(stream).is_some() || usage.is_retired(stream);
            return if has_signed {
                row.counters
            } else {
                Counters::default()
            };
        }
        let length = usage.window_length();
        let cell = |span| usage.cell(stream, span, &row.account.path);
        let day = Span::Day(row.span.day(length));
        match (row.span, cell(day)) {
            (Span::Window(_), Some(_)) => row.counters,
            (Span::Window(_), None) => cell(row.span).unwrap_or_default(),
            (Span::Day(_), Some(published)) => published,
            (Span::Day(_), None) => {
                let first = length.window_at(day.start(length)).0;
                let last = length.window_at(day.end(length)).0;
                (first..last)
                    .filter_map(|window| cell(Span::Window(Window(window))))
                    .fold(Counters::default(), Counters::plus)
            }
        }
    }

    /// A sheet of an earlier life must be taken back by the next list of running jobs.
    fn expect_own_sheets(&mut self) {
        for (vo, replica) in &self.replicas {
            if replica.sheets().any(|(site, _)| site == self.id) {
                self.streams.entry(*vo).or_default().has_sheet = true;
            }
        }
    }

    fn restore_unmapped(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) {
        for (_, value) in rows {
            let row: Option<(Origin, u64, u64, WallTime)> =
                cbor::from_slice(&value, ORIGIN_BYTES_MAX).ok();
            match row {
                Some((origin, records, charge, last)) => {
                    self.unmapped.insert(
                        origin,
                        Unmapped {
                            records,
                            charge,
                            last,
                        },
                    );
                }
                None => self.expect_row("unmapped origin", false),
            }
        }
    }

    fn expect_row(&mut self, what: &str, good: bool) {
        if !good {
            self.notice(Notice::BadRow {
                what: what.to_owned(),
            });
        }
    }
}

fn vo_of(key: &[u8]) -> Option<VoId> {
    Some(VoId::from_bytes(key.get(..32)?.try_into().ok()?))
}
