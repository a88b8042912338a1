//! From the tables of the file to checked values, one function a table.
//!
//! Invariant: a function returns what is valid, or says where the file is wrong and what to write.
//! Deliberately not here: the share tree (`shares`) and the history rule (`history`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use fairmesh_model::{AccountPath, Millis, SiteId, VoId, WindowLength, is_visible};
use libp2p::Multiaddr;
use toml::Spanned;

use super::history::RawHistory;
use super::names::users;
use super::quantity::RawDuration;
use super::raw::{RawPage, RawSockets, RawTiming};
use super::text::{FileError, Source};
use super::{LISTEN_DEFAULT, PageSettings, Peer, Sockets, Timing};
use crate::lookup::LookupConfig;
use crate::network::check_address;
use crate::sockets::SlotLimits;
use crate::users::Writer;

type Checked<T> = Result<T, FileError>;

/// Longest site name: as in charters.
const NAME_BYTES_MAX: usize = 64;

/// Connections that a socket may be given: enough for one of each kind of user, and what a process may have
/// open beside its other files.
const CONNECTIONS: Range<usize> = 8..10_001;

/// Longest path of a Unix socket on Linux (`sun_path`), less the final zero.
const SOCKET_BYTES_MAX: usize = 107;

pub(super) fn site_name(source: Source<'_>, name: &Spanned<String>) -> Checked<String> {
    let text = name.get_ref();
    let clean = text.chars().all(|c| is_visible(c) && c != '/');
    if clean && (1..=NAME_BYTES_MAX).contains(&text.len()) {
        return Ok(text.clone());
    }
    let problem = format!("not a name of 1 to {NAME_BYTES_MAX} visible bytes without `/`");
    Err(source.wrong("site.name", name, problem))
}

pub(super) fn listen(
    source: Source<'_>,
    listen: Option<&[Spanned<String>]>,
) -> Checked<Vec<Multiaddr>> {
    match listen {
        None => Ok(vec![LISTEN_DEFAULT.parse().expect("a constant address")]),
        Some(addresses) => addresses
            .iter()
            .map(|address| multiaddr(source, "network.listen", address))
            .collect(),
    }
}

fn multiaddr(source: Source<'_>, key: &str, address: &Spanned<String>) -> Checked<Multiaddr> {
    let help =
        "write a multiaddress such as \"/ip4/0.0.0.0/tcp/7600\" or \"/dns4/a.example/tcp/7600\"";
    source.parsed(key, address, help)
}

pub(super) fn peers(source: Source<'_>, peers: &[Spanned<String>]) -> Checked<Vec<Peer>> {
    peers
        .iter()
        .map(|peer| {
            let help = "write \"<site id of 64 hex digits>@/ip4/192.0.2.1/tcp/7600\"; \
                        `fairmesh init` and `fairmesh status` print a site's id";
            let wrong =
                |problem: String| source.wrong("network.peers", peer, problem).with_help(help);
            let (site, address) = peer
                .get_ref()
                .split_once('@')
                .ok_or_else(|| wrong("no `@` between site id and address".to_owned()))?;
            let site: SiteId = site.parse().map_err(|error| wrong(format!("{error}")))?;
            let address = address.parse().map_err(|error| wrong(format!("{error}")))?;
            check_address(&address).map_err(|error| wrong(error.to_string()))?;
            Ok(Peer { site, address })
        })
        .collect()
}

pub(super) fn sockets(
    source: Source<'_>,
    raw: &RawSockets,
    base: &Path,
    data_dir: &Path,
) -> Checked<Sockets> {
    let place = |given: &Option<String>, name: &str| {
        let socket = match given {
            Some(given) => base.join(given),
            None => data_dir.join("run").join(name),
        };
        if socket.as_os_str().len() > SOCKET_BYTES_MAX {
            let problem = format!(
                "{} is longer than the {SOCKET_BYTES_MAX} bytes that a Unix socket's path may have",
                socket.display()
            );
            let error = source.error(None, Some(&format!("sockets.{name}")), problem);
            return Err(error.with_help("give a shorter path, such as \"/run/fairmesh/…\""));
        }
        Ok(socket)
    };
    Ok(Sockets {
        lookup: place(&raw.lookup, "lookup.sock")?,
        control: place(&raw.control, "control.sock")?,
        lookup_mode: raw
            .lookup_mode
            .as_ref()
            .map_or(Ok(0o666), |mode| octal(source, mode))?,
        writers: match raw.writers.as_deref() {
            Some(raw) => users(source, "sockets.writers", raw)?,
            None => vec![Writer::Name("root".to_owned())],
        },
        lookup_slots: slots(
            source,
            "sockets.lookup_connections",
            raw.lookup_connections.as_ref(),
            LookupConfig::default().slots,
        )?,
        control_slots: slots(
            source,
            "sockets.control_connections",
            raw.control_connections.as_ref(),
            SlotLimits::CONTROL,
        )?,
    })
}

/// As many connections as the owner says, divided as they are where he says nothing.
fn slots(
    source: Source<'_>,
    key: &str,
    given: Option<&Spanned<i64>>,
    usual: SlotLimits,
) -> Checked<SlotLimits> {
    let Some(given) = given else {
        return Ok(usual);
    };
    match usize::try_from(*given.get_ref()) {
        Ok(all) if CONNECTIONS.contains(&all) => Ok(usual.scaled_to(all)),
        _ => {
            let problem = format!(
                "not a number from {} to {}",
                CONNECTIONS.start,
                CONNECTIONS.end - 1
            );
            Err(source.wrong(key, given, problem))
        }
    }
}

pub(super) fn page(source: Source<'_>, raw: Option<&RawPage>) -> Checked<Option<PageSettings>> {
    let Some(raw) = raw else {
        return Ok(None);
    };
    let help =
        "write an address with a port: \"127.0.0.1:7680\" is seen by users of this machine alone";
    let listen = source.parsed("page.listen", &raw.listen, help)?;
    let name = |name: &Spanned<String>| {
        let text = name.get_ref();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        if !text.is_empty() && text.chars().all(is_name) {
            return Ok(text.clone());
        }
        let problem = format!("`{}` is not the name of a host", text.escape_debug());
        let error = source.wrong("page.hosts", name, problem);
        Err(error.with_help("write names without a port, such as \"grid.example\""))
    };
    let hosts = raw.hosts.iter().map(name).collect::<Checked<_>>()?;
    Ok(Some(PageSettings { listen, hosts }))
}

fn octal(source: Source<'_>, mode: &Spanned<String>) -> Checked<u32> {
    let text = mode.get_ref();
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let bits = u32::from_str_radix(text, 8)
        .ok()
        .filter(|bits| digits && *bits <= 0o777);
    bits.ok_or_else(|| {
        let problem = format!("`{text}` is not a mode of permission bits");
        let help = "write octal digits in quotes: \"0666\" for everybody, \"0660\" for a group";
        source
            .wrong("sockets.lookup_mode", mode, problem)
            .with_help(help)
    })
}

pub(super) fn vos(
    source: Source<'_>,
    raw: &BTreeMap<String, Spanned<String>>,
) -> Checked<BTreeMap<String, VoId>> {
    let mut vos = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (alias, id) in raw {
        let key = format!("vos.{alias}");
        let at = |problem: String| source.wrong(&key, id, problem);
        if AccountPath::root().child(alias).is_err() {
            return Err(at(format!(
                "the alias `{alias}` cannot be a name in a path"
            )));
        }
        let help = "the id is printed by `fairmesh policy show` of the VO's charter";
        let vo: VoId = source.parsed(&key, id, help)?;
        if !seen.insert(vo) {
            return Err(at("this VO has another alias already".to_owned()));
        }
        vos.insert(alias.clone(), vo);
    }
    Ok(vos)
}

pub(super) fn window(source: Source<'_>, raw: &RawHistory) -> Checked<WindowLength> {
    let given = raw.window.as_ref();
    given.map_or(Ok(WindowLength::HOUR), |window| {
        source.window("history.window", window)
    })
}

pub(super) fn timing(source: Source<'_>, raw: &RawTiming) -> Checked<Timing> {
    let default = Timing::default();
    let length = |name: &str, given: &Option<RawDuration>, default: Millis| {
        let key = format!("timing.{name}");
        given
            .as_ref()
            .map_or(Ok(default), |given| source.duration(&key, given))
    };
    let timing = Timing {
        publish: length("publish", &raw.publish, default.publish)?,
        heartbeat: length("heartbeat", &raw.heartbeat, default.heartbeat)?,
        sync: length("sync", &raw.sync, default.sync)?,
        request_timeout: length(
            "request_timeout",
            &raw.request_timeout,
            default.request_timeout,
        )?,
        clock_tolerance: length(
            "clock_tolerance",
            &raw.clock_tolerance,
            default.clock_tolerance,
        )?,
        silence: length("silence", &raw.silence, default.silence)?,
        sweep_entries: match &raw.sweep_entries {
            None => default.sweep_entries,
            Some(given) => match usize::try_from(*given.get_ref()).unwrap_or(usize::MAX) {
                0 => return Err(source.wrong("timing.sweep_entries", given, "must be at least 1")),
                entries => entries,
            },
        },
        ..default
    };
    let at = |given: &Option<RawDuration>| given.as_ref().map(RawDuration::span);
    if timing.heartbeat < timing.publish {
        let place = at(&raw.heartbeat).or(at(&raw.publish));
        let problem = "heartbeat is shorter than publish, and no head may leave that soon";
        return Err(source.error(place, Some("timing.heartbeat"), problem));
    }
    if timing.silence <= timing.heartbeat {
        let place = at(&raw.silence).or(at(&raw.heartbeat));
        let problem = "silence is not longer than heartbeat: an idle site would count as silent";
        return Err(source.error(place, Some("timing.silence"), problem));
    }
    Ok(timing)
}
