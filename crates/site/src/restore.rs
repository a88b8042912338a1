//! Restoring a site from the rows of its store.
//!
//! The disk is not trusted: documents and heads are verified again, as if a peer had sent them. A row that does not
//! pass is left out and reported; peers fill the gap.
//!
//! Invariant: the new incarnation is higher than any of this site in the store, and differs from that of any other
//! start from the same rows.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::PartKey;
use fairmesh_model::{ContentHash, Incarnation, Now, Origin, Span, VoId, WallTime, cbor, mutant};
use fairmesh_policy::{HighestSeen, PolicyError};

use crate::adoptions::parse_adoption;
use crate::advert::part::newest;
use crate::clocks::doubt_clock;
use crate::correct::tell;
use crate::describe::describe_all;
use crate::document::Document;
use crate::forward::rows::parse as parse_forwarded;
use crate::instalments::Instalments;
use crate::jobs::Unmapped;
use crate::notice::Notice;
use crate::own::counted_under;
use crate::parts::{Cx, Forwarding, Jobs, Own, Shares, Vos};
use crate::quota::rights::RightsHandler;
use crate::quota::rows::{parse_hold, parse_rights};
use crate::quota::transfers::parse_transfer;
use crate::reach::Reaches;
use crate::refund::{REFUND_BYTES_MAX, Refund, Relocation, is_relocation};
use crate::remap::apply::tell_of_move;
use crate::store::{HeadId, SITE_KEY, Table, Write, head_row, parse_ledger_row};
use crate::trees::TreeHandler;
use crate::usage::UsageHandler;
use crate::vo::Vo;

/// A row as the store has it: table, key, value.
pub type Row = (Table, Vec<u8>, Vec<u8>);

/// A row without its table.
type KeyValue = (Vec<u8>, Vec<u8>);

/// Receives progress: the current step, how many items of it are done, and of how many (0 if it is not counted).
pub type Tell<'a> = dyn FnMut(&'static str, usize, usize) + 'a;

/// Largest row in bytes of the versions seen of a VO's documents: some 100 bytes for each delegated path.
const MEMORY_BYTES_MAX: usize = 4 << 20;

/// Largest row in bytes of an unmapped origin, and of a proof.
const FACT_BYTES_MAX: usize = 4_096;

/// Restores all parts of the site.
pub(crate) struct RestoreHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) forward: &'a mut Forwarding,
}

impl RestoreHandler<'_> {
    fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(self.cx, self.own, self.vos, self.shares)
    }

    fn rights(&mut self) -> RightsHandler<'_> {
        RightsHandler::new(self.cx, self.own, self.vos)
    }

    fn trees(&mut self) -> TreeHandler<'_> {
        TreeHandler {
            cx: self.cx,
            own: self.own,
            vos: self.vos,
            shares: self.shares,
            running: &self.jobs.running,
        }
    }

    /// Restores the site from `rows`; `tell` receives progress. The site counts under `incarnation`, unless the rows
    /// contain one as high. The order of the steps matters: documents define the members, and members whose heads and
    /// rights count.
    pub(crate) fn restore(
        &mut self,
        incarnation: Incarnation,
        seed: u64,
        now: Now,
        rows: impl IntoIterator<Item = Row>,
        tell: &mut Tell<'_>,
    ) {
        let mut tables: BTreeMap<Table, Vec<KeyValue>> = BTreeMap::new();
        for (table, row_key, value) in rows {
            tables.entry(table).or_default().push((row_key, value));
        }
        self.bind_rows(&mut tables);
        let mut take = |table| tables.remove(&table).unwrap_or_default();
        // Also for VOs that the configuration no longer names: if one is named again, an old document must be
        // recognised as a rollback.
        self.restore_memory(now, take(Table::Policy));
        let documents = take(Table::Documents);
        tell("takes in documents", 0, documents.len());
        self.restore_documents(now, mutant!(DocumentsUnread, documents, Vec::new()));
        let (heads, parts) = (take(Table::Heads), take(Table::Parts));
        self.restore_heads(now, heads, parts, tell);
        self.restore_proofs(now, take(Table::Proofs));
        self.restore_unmapped(now, take(Table::Unmapped));
        let cells = take(Table::Ledger);
        tell("takes in its own counters", 0, cells.len());
        self.restore_ledger(now, incarnation, seed, cells);
        self.restore_reach(now, mutant!(ReachUnread, take(Table::Reach), Vec::new()));
        self.restore_instalments(now, take(Table::Instalments));
        self.restore_refunds(now, mutant!(AuditUnread, take(Table::Audit), Vec::new()));
        self.restore_adoptions(now, take(Table::Adoptions));
        self.restore_rights(now, take(Table::Rights), take(Table::Holds));
        self.restore_transfers(now, take(Table::Transfers));
        self.restore_forwarded(now, take(Table::Forwarded));
        self.mend_own(now);
        self.set_left_aside();
        self.vos.follow_mounts();
        let vos = self.vos.ids();
        for (done, vo) in vos.iter().enumerate() {
            tell("sums up the usage of VOs", done, vos.len());
            self.usage().read_members(now, *vo);
        }
        describe_all(&self.cx.config, self.own, self.vos);
        // Before the site answers anything: a look-up without a tree would rank all users equally.
        tell("builds its share tree", 0, 0);
        self.trees().rebuild_shares(now);
    }

    /// Binds the rows to the site's id. If the key was replaced, the new key takes over the counters but no rights:
    /// rights are split by id, and members could take from the new key what the old one had already sent.
    fn bind_rows(&mut self, tables: &mut BTreeMap<Table, Vec<KeyValue>>) {
        let mut facts = tables.remove(&Table::Meta).unwrap_or_default();
        facts.retain(|(key, _)| key == SITE_KEY);
        let owner = facts.pop().map(|(_, id)| id);
        if owner.as_deref() == Some(self.cx.id.as_bytes()) {
            return;
        }
        let id = Write::set(Table::Meta, SITE_KEY.to_vec(), self.cx.id.as_bytes());
        let mut writes = vec![id];
        // In one change with the id: a crash in between would leave the old key's rights under the new id.
        if owner.is_some() {
            for table in [Table::Rights, Table::Holds, Table::Transfers] {
                let gone = tables.remove(&table).unwrap_or_default().into_iter();
                writes.extend(gone.map(|(key, _)| Write::delete(table, key)));
            }
        }
        self.cx.persist(writes);
    }

    /// Restores the versions seen, by which an older document is recognised as a rollback.
    fn restore_memory(&mut self, now: Now, rows: Vec<KeyValue>) {
        let parse = |key: Vec<u8>, value: Vec<u8>| {
            let seen = cbor::from_slice::<HighestSeen>(&value, MEMORY_BYTES_MAX).ok()?;
            Some((vo_of(&key)?, seen))
        };
        for (vo, seen) in self.read_rows(now, "memory of policy versions", rows, parse) {
            self.vos.insert(vo, Vo::new(vo, &self.cx.key, &seen));
        }
    }

    fn restore_documents(&mut self, now: Now, rows: Vec<KeyValue>) {
        let parse = |key: Vec<u8>, bytes: Vec<u8>| {
            let document = Document::read(&bytes);
            let document = document.filter(|document| Some(document.hash()) == hash_of(&key));
            Some((key, document?))
        };
        let mut rows = self.read_rows(now, "document", rows, parse);
        // Rows come in any order, so documents that need a predecessor are tried again until nothing changes. So are
        // older versions, because a later charter may name other signers, whose newest version they are. Documents
        // that are not in force then stay, because they may come into force again, also in a VO that the site has
        // left.
        loop {
            let before = rows.len();
            let mut superseded = Vec::new();
            rows.retain(|(key, document)| {
                let Some(vo) = vo_of(key).and_then(|vo| self.vos.get_mut(&vo)) else {
                    return true;
                };
                let restored = vo.restore(document);
                if matches!(restored, Err(PolicyError::Rollback { .. })) {
                    superseded.push(Write::delete(Table::Documents, key.clone()));
                }
                restored.is_err()
            });
            if rows.is_empty() || rows.len() == before {
                self.cx.persist(superseded);
                break;
            }
        }
    }

    fn restore_heads(
        &mut self,
        now: Now,
        heads: Vec<KeyValue>,
        parts: Vec<KeyValue>,
        tell: &mut Tell<'_>,
    ) {
        let (all, mut done) = (parts.len(), 0);
        tell("takes in parts of heads", done, all);
        let mut by_head: BTreeMap<HeadId, Vec<(PartKey, Vec<u8>)>> = BTreeMap::new();
        let parse = |key: Vec<u8>, bytes| {
            let (id, part) = HeadId::of_key(&key)?;
            Some((id, PartKey::from_bytes(part)?, bytes))
        };
        for (id, part, bytes) in self.read_rows(now, "part of a head", parts, parse) {
            by_head.entry(id).or_default().push((part, bytes));
        }
        for (key, bytes) in heads {
            let id = HeadId::of_key(&key).map(|(id, _)| id);
            let held = id.and_then(|id| self.vos.get_mut(&id.vo));
            let Some((id, held)) = id.zip(held) else {
                continue;
            };
            let kinds = held.kinds();
            let parts = by_head.remove(&id).unwrap_or_default();
            done += parts.len();
            tell("takes in parts of heads", done, all);
            match held.replica.restore(&kinds, &bytes, parts) {
                Ok(gone) => {
                    self.cx
                        .persist(gone.iter().map(|row| head_row(id.vo, row)).collect());
                }
                // A crash cannot leave a head without its parts, because both are one change; so the disk is damaged.
                Err(_) => self.bad_row(now, "head"),
            }
        }
        for held in self.vos.values_mut() {
            held.advert.restore(newest(&held.replica, self.cx.id));
        }
        let signed_at = self.vos.values().filter_map(|vo| vo.signed_at(self.cx.id));
        self.cx.clock.last_head_at =
            mutant!(LastHeadForgotten, signed_at.max(), None).unwrap_or_default();
        doubt_clock(self.cx, self.vos, now.wall);
    }

    fn restore_proofs(&mut self, now: Now, rows: Vec<KeyValue>) {
        for (key, value) in rows {
            let pair = cbor::from_slice::<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>(
                &value,
                FACT_BYTES_MAX,
            );
            let held = vo_of(&key).and_then(|vo| self.vos.get_mut(&vo));
            let restored = held
                .zip(pair.ok())
                .map(|(held, (a, b))| held.replica.take_proof(&a, &b));
            if !matches!(
                restored,
                Some(Ok(_) | Err(fairmesh_gossip::Refusal::NotMember(_)))
            ) {
                self.bad_row(now, "proof of a fork");
            }
        }
        // No new notices: the operator was notified when the proofs were found.
        self.vos
            .values_mut()
            .for_each(|held| drop(held.replica.forks_found()));
    }

    /// The ledger, under a new incarnation.
    fn restore_ledger(
        &mut self,
        now: Now,
        incarnation: Incarnation,
        seed: u64,
        rows: Vec<KeyValue>,
    ) {
        let parse = |key: Vec<u8>, value: Vec<u8>| parse_ledger_row(&key, &value);
        let restored = self.read_rows(now, "counter", rows, parse);
        let heads = self
            .vos
            .values()
            .flat_map(|vo| vo.replica.heads_of(self.cx.id));
        let published = heads.map(|head| head.body().incarnation);
        // Local accounts count without incarnations.
        let vo_cells = restored.iter().filter(|(vo, _)| vo.is_some());
        let counted = vo_cells.map(|(_, cell)| counted_under(cell.0));
        let highest = published.chain(counted).max();
        let floor = highest.map_or(0, |last| last.0.saturating_add(1));
        // If the store knows a higher incarnation than the one given, random bits are added to it: two starts from
        // one backup must not share an incarnation.
        let above = Incarnation(floor.saturating_add(seed & 0xf_ffff));
        let above = mutant!(IncarnationGoesOn, above, highest.unwrap_or(above));
        *self.own = Own::new(
            if incarnation.0 >= mutant!(IncarnationGoesOn, floor, u64::MAX) {
                incarnation
            } else {
                above
            },
            self.cx.config.local_window,
        );
        restored.into_iter().for_each(|row| self.own.restore(row));
        self.own.pack();
        let moved = self.own.move_windows();
        self.cx.persist(moved.writes);
    }

    /// Merges windows into days that the ledger also has as a whole, and joins in what the site's own heads contain
    /// beyond the ledger. An older store that was put back lacks what heads from peers still have.
    fn mend_own(&mut self, now: Now) {
        for vo in self.vos.ids().into_iter().map(Some).chain([None]) {
            let window = self.vos.window(&self.cx.config, vo);
            let whole: BTreeSet<Span> = self.own.spans(vo).collect();
            let is_whole = |day: Span| whole.contains(&day);
            let mended = self.own.merge_days(vo, window, is_whole);
            self.cx.persist(mended.writes);
            if let Some(vo) = vo {
                let parts = self.vos[&vo].replica.part_keys(self.cx.id);
                let parts: Vec<PartKey> = parts.into_iter().collect();
                self.usage().absorb_own(now, vo, &parts);
            }
        }
    }

    /// Sets aside the VOs that the configuration does not name. They are kept, so that a VO that is named again
    /// continues.
    fn set_left_aside(&mut self) {
        let named: BTreeSet<VoId> = self.cx.config.vos.values().copied().collect();
        for vo in self.vos.ids() {
            if !named.contains(&vo) {
                self.vos.left.extend(self.vos.members.remove_entry(&vo));
            }
        }
    }

    fn restore_unmapped(&mut self, now: Now, rows: Vec<KeyValue>) {
        type Seen = (Origin, u64, u64, WallTime);
        let parse = |_, value: Vec<u8>| cbor::from_slice::<Seen>(&value, FACT_BYTES_MAX).ok();
        for row in self.read_rows(now, "unmapped origin", rows, parse) {
            let (origin, records, charge, last) = row;
            let seen = Unmapped {
                records,
                charge,
                last,
            };
            self.jobs.unmapped.insert(origin, seen);
        }
    }

    fn restore_rights(&mut self, now: Now, rights: Vec<KeyValue>, holds: Vec<KeyValue>) {
        let parse = |key: Vec<u8>, value: Vec<u8>| parse_rights(&key, &value);
        let rights = self.read_rows(now, "rights", rights, parse);
        let parse = |key: Vec<u8>, value: Vec<u8>| parse_hold(&key, &value);
        let holds = self.read_rows(now, "hold", holds, parse);
        self.rights().restore_quotas(rights, holds);
    }

    fn restore_transfers(&mut self, now: Now, rows: Vec<KeyValue>) {
        let parse = |key: Vec<u8>, value: Vec<u8>| parse_transfer(&key, &value);
        let rows = self.read_rows(now, "transfer of rights", rows, parse);
        self.vos.restore_transfers(rows);
    }

    fn restore_forwarded(&mut self, now: Now, rows: Vec<KeyValue>) {
        let parse = |key: Vec<u8>, value: Vec<u8>| parse_forwarded(&key, &value);
        let rows = self.read_rows(now, "forwarded job", rows, parse);
        *self.forward = Forwarding::restore(self.cx.id, self.cx.config.accepted(), rows);
    }

    fn restore_reach(&mut self, now: Now, rows: Vec<KeyValue>) {
        let parse = |key: Vec<u8>, value: Vec<u8>| {
            let vo = vo_of(&key);
            let is_key = vo.is_some() || key.is_empty();
            is_key.then_some((vo, Reaches::from_bytes(&value)?))
        };
        let rows = self.read_rows(now, "reach of counters", rows, parse);
        self.own.reach = rows.into_iter().collect();
    }

    fn restore_instalments(&mut self, now: Now, rows: Vec<KeyValue>) {
        let parse = |key, value: Vec<u8>| Some((key, Instalments::from_bytes(&value)?));
        let rows = self.read_rows(now, "charge of a running job", rows, parse);
        self.jobs.instalments = rows.into_iter().collect();
    }

    fn restore_refunds(&mut self, now: Now, rows: Vec<KeyValue>) {
        let (moves, refunds) = rows.into_iter().partition(|(key, _)| is_relocation(key));
        let parse = |key, value: Vec<u8>| {
            let refund = cbor::from_slice::<Refund>(&value, REFUND_BYTES_MAX).ok()?;
            Some((key, refund))
        };
        for (key, refund) in self.read_rows(now, "correction", refunds, parse) {
            tell(self.vos, self.own, &refund);
            self.jobs.refunds.insert(key, refund);
        }
        let parse = |key, value: Vec<u8>| {
            let moved = cbor::from_slice::<Relocation>(&value, REFUND_BYTES_MAX).ok()?;
            Some((key, moved))
        };
        for (key, moved) in self.read_rows(now, "move of usage", moves, parse) {
            tell_of_move(self.vos, self.own, &moved);
            self.jobs.relocations.insert(key, moved);
        }
    }

    fn restore_adoptions(&mut self, now: Now, rows: Vec<KeyValue>) {
        let parse = |key: Vec<u8>, value: Vec<u8>| parse_adoption(&key, &value);
        let rows = self.read_rows(now, "adopted document", rows, parse);
        self.vos.adoptions = rows.into_iter().collect();
    }

    /// Parses rows; a damaged row is left out and reported.
    fn read_rows<T>(
        &mut self,
        now: Now,
        what: &str,
        rows: Vec<KeyValue>,
        parse: impl Fn(Vec<u8>, Vec<u8>) -> Option<T>,
    ) -> Vec<T> {
        let mut read = Vec::with_capacity(rows.len());
        for (key, value) in rows {
            match parse(key, value) {
                Some(row) => read.push(row),
                None => self.bad_row(now, what),
            }
        }
        read
    }

    fn bad_row(&mut self, now: Now, what: &str) {
        let what = what.to_owned();
        self.cx.notice(now.mono, Notice::BadRow { what });
    }
}

fn vo_of(key: &[u8]) -> Option<VoId> {
    Some(VoId::from_bytes(key.get(..32)?.try_into().ok()?))
}

fn hash_of(key: &[u8]) -> Option<ContentHash> {
    Some(ContentHash::from_bytes(key.get(32..)?.try_into().ok()?))
}
