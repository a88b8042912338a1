//! The functions of `include/fairmesh.h`, where each is described for those who call it.
//!
//! Invariant: every function catches panics, treats a null pointer as a bad argument, and checks
//! what it is handed before it touches anything. This module alone may hold `unsafe`; each block
//! says what the header asks of the caller.
//!
//! Deliberately not here: any behaviour. A function converts, calls, and converts back.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use fairmesh_client::Names;
use fairmesh_client::points::{IMPORTANCE_POINTS_MAX, Own, Scale};
use fairmesh_client::protocol::UNKNOWN;
use fairmesh_model::record::fitting;

use crate::batch;
use crate::refresh::{FreshTable, Source};
use crate::table::{Found, Refused};

/// Success; positive codes are no errors, negative ones are.
pub const OK: c_int = 0;
/// The name is noted; the node has not answered for it yet.
pub const NOT_YET: c_int = 1;
/// The node knows no such account.
pub const NOT_KNOWN: c_int = 2;
/// A null pointer, a user that is not UTF-8, empty or too long.
pub const BAD_ARGUMENT: c_int = -1;
/// The table holds as many names as it may.
pub const FULL: c_int = -2;
/// The node did not answer, or refused.
pub const NO_ANSWER: c_int = -3;
/// A panic was caught.
pub const BUG: c_int = -4;

/// The node has never answered.
pub const STATE_NEVER: u32 = 0;
/// The last answer is young enough.
pub const STATE_FRESH: u32 = 1;
/// The last answer is older than the caller said is old.
pub const STATE_OLD: u32 = 2;

/// `struct fairmesh_state` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// One of the `STATE_` constants.
    pub state: u32,
    /// Member sites whose usage the node knows.
    pub sites_known: u32,
    /// Sites that ought to contribute.
    pub sites_total: u32,
    /// Names in the table.
    pub names: u32,
    /// Milliseconds since the node last answered; all bits set before the first answer.
    pub answer_age_ms: u64,
    /// Age of the oldest site's data when the node answered, milliseconds.
    pub view_age_ms: u64,
    /// What the node warns of (`docs/lookup.md`, flags).
    pub view_flags: u64,
    /// Grows whenever a factor changes.
    pub revision: u64,
}

/// `struct fairmesh_name` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// The local user.
    pub user: *const c_char,
    /// The batch account; null or empty for none.
    pub account: *const c_char,
    /// The group that the job runs under; null or empty for none.
    pub group: *const c_char,
    /// The queue or partition; null or empty where it is not known.
    pub queue: *const c_char,
    /// The quality of service; null or empty where it is not known.
    pub qos: *const c_char,
}

/// `struct fairmesh_scale` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Points {
    /// Points of the highest factor.
    pub weight: u32,
    /// Points between one account's least and most important job.
    pub importance: u32,
    /// Points are never below,
    pub min: i64,
    /// and never above.
    pub max: i64,
}

/// Starts a table; null on a bad argument or where the system gives no thread.
///
/// # Safety
/// `socket` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_open(
    socket: *const c_char,
    interval_ms: u32,
    old_ms: u32,
    timeout_ms: u32,
) -> *mut FreshTable {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        let Some(socket) = (unsafe { path(socket) }) else {
            return std::ptr::null_mut();
        };
        if interval_ms == 0 || timeout_ms == 0 {
            return std::ptr::null_mut();
        }
        let source = Source {
            socket: socket.to_owned(),
            interval: Duration::from_millis(interval_ms.into()),
            timeout: Duration::from_millis(timeout_ms.into()),
        };
        FreshTable::open(source, Duration::from_millis(old_ms.into()))
            .map_or(std::ptr::null_mut(), |table| Box::into_raw(Box::new(table)))
    })
}

/// Ends a table and its thread.
///
/// # Safety
/// `table` is null or came from [`fairmesh_table_open`], is used by no other thread, and is not used
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_close(table: *mut FreshTable) {
    guarded((), || {
        if !table.is_null() {
            // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
            drop(unsafe { Box::from_raw(table) });
        }
    });
}

/// Notes a name before it is needed.
///
/// # Safety
/// As for [`fairmesh_table_factor`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_add(table: *const FreshTable, name: *const Name) -> c_int {
    let nowhere = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: as the caller promises, and nothing is written.
    unsafe { fairmesh_table_factor(table, name, nowhere.0, nowhere.1) }
}

/// Looks a name up, and notes it where it is new.
///
/// # Safety
/// `table` is null or open; `name` is null or may be read, its members null or C strings; `factor` and
/// `age_ms` are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_factor(
    table: *const FreshTable,
    name: *const Name,
    factor: *mut u32,
    age_ms: *mut u64,
) -> c_int {
    guarded(BUG, || {
        // SAFETY: as the caller promises.
        let (table, name) = unsafe { (table.as_ref(), name.as_ref()) };
        // SAFETY: as the caller promises.
        let words = name.and_then(|name| unsafe { Words::of(name) });
        let (Some(table), Some(words)) = (table, words) else {
            return BAD_ARGUMENT;
        };
        let (code, value) = match table.table().look_up(&words.names()) {
            Ok(Found::Factor(value)) => (OK, value),
            Ok(Found::NotKnown) => (NOT_KNOWN, UNKNOWN),
            Ok(Found::NotYet) => (NOT_YET, UNKNOWN),
            Err(Refused::Name) => (BAD_ARGUMENT, UNKNOWN),
            Err(Refused::Full) => (FULL, UNKNOWN),
        };
        // SAFETY: as the caller promises.
        unsafe {
            if let Some(factor) = factor.as_mut() {
                *factor = value;
            }
            if let Some(age_ms) = age_ms.as_mut() {
                *age_ms = millis(table.table().freshness().answered);
            }
        }
        code
    })
}

/// How far apart two different factors are at the least; 0 before the node has said.
///
/// # Safety
/// `table` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_step(table: *const FreshTable) -> u32 {
    guarded(0, || {
        // SAFETY: as the caller promises.
        unsafe { table.as_ref() }.map_or(0, |table| table.table().step())
    })
}

/// A job's points, for a scheduler that subtracts its nice.
///
/// # Safety
/// `points` is null or may be read; `comment` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_points(
    points: *const Points,
    factor: u32,
    step: u32,
    comment: *const c_char,
    nice: i64,
) -> i64 {
    guarded(0, || {
        // SAFETY: as the caller promises.
        let Some(points) = (unsafe { points.as_ref() }) else {
            return 0;
        };
        let bounded = |sum: i64| sum.min(points.max).max(points.min);
        let scale = Scale {
            range: points.weight,
            importance: points.importance.min(IMPORTANCE_POINTS_MAX),
        };
        if factor == UNKNOWN {
            return bounded(scale.neutral());
        }
        // SAFETY: not null, and as the caller promises.
        let comment = (!comment.is_null()).then(|| unsafe { CStr::from_ptr(comment) });
        let comment = comment.map(CStr::to_string_lossy).unwrap_or_default();
        let own = Own::of(nice, &comment);
        // The bounds are the account's and the digit's: what is given back of nice is not a point more.
        bounded(scale.account(factor) + scale.digit(step, &own)) + scale.nice(step, &own)
    })
}

/// Waits for a change.
///
/// # Safety
/// `table` is null or open, and stays open until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_wait(
    table: *const FreshTable,
    seen: u64,
    timeout_ms: u32,
) -> u64 {
    guarded(seen, || {
        // SAFETY: as the caller promises.
        let table = unsafe { table.as_ref() };
        let timeout = Duration::from_millis(timeout_ms.into());
        table.map_or(seen, |table| table.table().wait(seen, timeout))
    })
}

/// Ends a wait.
///
/// # Safety
/// `table` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_wake(table: *const FreshTable) {
    guarded((), || {
        // SAFETY: as the caller promises.
        if let Some(table) = unsafe { table.as_ref() } {
            table.table().wake();
        }
    });
}

/// How fresh a table is.
///
/// # Safety
/// `table` is null or open; `state` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_state(
    table: *const FreshTable,
    state: *mut State,
) -> c_int {
    guarded(BUG, || {
        // SAFETY: as the caller promises.
        let (Some(table), Some(state)) = (unsafe { (table.as_ref(), state.as_mut()) }) else {
            return BAD_ARGUMENT;
        };
        let fresh = table.table().freshness();
        *state = State {
            state: match (fresh.answered, fresh.is_old) {
                (None, _) => STATE_NEVER,
                (Some(_), false) => STATE_FRESH,
                (Some(_), true) => STATE_OLD,
            },
            sites_known: fresh.view.map_or(0, |view| view.sites_known),
            sites_total: fresh.view.map_or(0, |view| view.sites_total),
            names: u32::try_from(fresh.names).unwrap_or(u32::MAX),
            answer_age_ms: millis(fresh.answered),
            view_age_ms: fresh.view.map_or(0, |view| view.age.0),
            view_flags: fresh.view.map_or(0, |view| view.flags),
            revision: fresh.revision,
        };
        OK
    })
}

/// Why the node does not answer, in words.
///
/// # Safety
/// `table` is null or open; `buffer` is null or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_table_error(
    table: *const FreshTable,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    guarded(0, || {
        // SAFETY: as the caller promises.
        let error = unsafe { table.as_ref() }.map_or_else(String::new, |it| it.table().error());
        // SAFETY: as the caller promises.
        unsafe { put(&error, buffer, size) };
        error.len()
    })
}

/// Looks names up at once, waiting for the node.
///
/// # Safety
/// `socket` is null or a C string; `names` and `factors` are null or have `count` elements, the
/// names' members null or C strings; `error` is null or has room for `error_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairmesh_lookup(
    socket: *const c_char,
    names: *const Name,
    count: usize,
    timeout_ms: u32,
    factors: *mut u32,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    guarded(BUG, || {
        // SAFETY: as the caller promises.
        let outcome = unsafe { lookup(socket, names, count, timeout_ms, factors) };
        let (code, words) = outcome.map_or_else(|refused| refused, |()| (OK, String::new()));
        // SAFETY: as the caller promises.
        unsafe { put(&words, error, error_size) };
        code
    })
}

/// # Safety
/// As for [`fairmesh_lookup`].
unsafe fn lookup(
    socket: *const c_char,
    names: *const Name,
    count: usize,
    timeout_ms: u32,
    factors: *mut u32,
) -> Result<(), (c_int, String)> {
    let bad = |what: String| (BAD_ARGUMENT, what);
    // SAFETY: as the caller promises.
    let socket = unsafe { path(socket) }.ok_or_else(|| bad("no socket is named".to_owned()))?;
    if timeout_ms == 0 {
        return Err(bad("the timeout is zero".to_owned()));
    }
    if count == 0 {
        return Ok(());
    }
    if names.is_null() || factors.is_null() {
        return Err(bad("no names, or no room for factors".to_owned()));
    }
    // SAFETY: not null, and as the caller promises.
    let (names, factors) = unsafe {
        let names = std::slice::from_raw_parts(names, count);
        (names, std::slice::from_raw_parts_mut(factors, count))
    };
    let names = names.iter().enumerate().map(|(row, name)| {
        // SAFETY: as the caller promises.
        let words = unsafe { Words::of(name) };
        words.ok_or_else(|| bad(format!("row {row}: no user, or none in UTF-8")))
    });
    let words = names.collect::<Result<Vec<_>, _>>()?;
    let names = words.iter().map(Words::names).collect::<Vec<_>>();
    let found = batch::look_up(socket, &names, Duration::from_millis(timeout_ms.into()));
    let found = found.map_err(|error| (NO_ANSWER, error.to_string()))?;
    factors.copy_from_slice(&found);
    Ok(())
}

/// What `call` gives, or `otherwise` where it panics.
fn guarded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

/// A user, and what else of a job rules look at: account, group, queue and quality of service. An empty word is none.
struct Words<'a> {
    user: &'a str,
    more: [String; 4],
}

impl<'a> Words<'a> {
    /// `None` for no user, and for one that is not UTF-8.
    ///
    /// # Safety
    /// The members of `name` are as for [`text`].
    unsafe fn of(name: &Name) -> Option<Self> {
        let more = [name.account, name.group, name.queue, name.qos];
        // SAFETY: as the caller promises.
        unsafe {
            Some(Self {
                user: text(name.user)?,
                more: more.map(|word| recorded(word)),
            })
        }
    }

    fn names(&self) -> Names<'_> {
        let [account, group, queue, qos] = self.more.each_ref().map(|word| {
            let given = !word.is_empty();
            given.then_some(word.as_str())
        });
        Names {
            user: Some(self.user),
            account,
            group,
            queue,
            qos,
            subject: None,
        }
    }
}

/// `None` for null and for what is not UTF-8.
///
/// # Safety
/// `text` is null or a C string that outlives `'a`.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: not null, and as the caller promises.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().ok())?
}

/// A name that users choose, as records have it, so that a job stands where it is charged. Null is empty.
///
/// # Safety
/// As for [`text`].
unsafe fn recorded(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: not null, and as the caller promises.
    fitting(fairmesh_model::record::text(unsafe { CStr::from_ptr(name) }.to_bytes()).trim())
}

/// `None` for null and for the empty path.
///
/// # Safety
/// As for [`text`].
unsafe fn path<'a>(path: *const c_char) -> Option<&'a Path> {
    // SAFETY: not null, and as the caller promises.
    let bytes = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes())?;
    (!bytes.is_empty()).then(|| Path::new(OsStr::from_bytes(bytes)))
}

/// Writes as much as fits, and a final zero.
///
/// # Safety
/// `buffer` is null or has room for `size` bytes.
unsafe fn put(words: &str, buffer: *mut c_char, size: usize) {
    if buffer.is_null() || size == 0 {
        return;
    }
    let room = words.len().min(size - 1);
    let length = (0..=room).rev().find(|&end| words.is_char_boundary(end));
    let length = length.unwrap_or(0);
    // SAFETY: not null, `length` is below `size`, and as the caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(words.as_ptr().cast(), buffer, length);
        *buffer.add(length) = 0;
    }
}

fn millis(age: Option<Duration>) -> u64 {
    age.map_or(u64::MAX, |age| {
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX - 1)
    })
}
