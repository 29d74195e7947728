//! `[[translator]]`.

use std::net::Ipv4Addr;
use std::ops::Range;

use fordway_xlat::addr::{Eam, Pool6};
use fordway_xlat::config::{ICMP_SOURCE4, IPV6_MIN_MTU};
use fordway_xlat::{IcmpErrors, TrafficClass, UdpChecksumZero};
use ipnet::Ipv4Net;
use toml::Spanned;

use crate::diagnostic::{Diagnostic, Sink};
use crate::engine::{self, PASS_RATE, Place};
use crate::name::InterfaceName;
use crate::nat64;
use crate::nat64::read::{Dynamic4Draft, Nat64Draft};
use crate::section::{Section, Value};
use crate::sections::{Table, set};
use crate::softwire;
use crate::types::{Attach, Clat, Engine, Mode, Pref64, Source6, Translator};
use crate::value;
use crate::{DEFAULT_METRIC, QUEUE_LENGTH};

/// RFC 7335: the addresses of the "service continuity prefix", of which a CLAT's host takes one.
const CLAT_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);

/// The least and the greatest IPv6 path MTU.
const MTU: std::ops::RangeInclusive<i64> = IPV6_MIN_MTU as i64..=65_535;

/// A translator as read: the finished value, and the places that checks across entries point at.
pub(crate) struct Draft {
    translator: Option<Translator>,
    /// Where the entry begins.
    pub(crate) span: Range<usize>,
    pub(crate) name: Option<Spanned<InterfaceName>>,
    pub(crate) pool6: Vec<Spanned<Pool6>>,
    /// There may be prefixes that could not be read.
    pub(crate) pool6_unread: bool,
    pub(crate) eam: Vec<Spanned<Eam>>,
    pub(crate) v6: Option<Range<usize>>,
    pub(crate) routes4: Vec<Spanned<Ipv4Net>>,
    pub(crate) nat64: Option<Nat64Draft>,
    pub(crate) dynamic4: Option<Dynamic4Draft>,
    pub(crate) softwire: softwire::read::Draft,
}

impl Draft {
    /// The translator as far as it is complete.
    pub(crate) fn translator(&self) -> Option<&Translator> {
        self.translator.as_ref()
    }

    pub(crate) fn finish(self) -> Option<Translator> {
        self.translator
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Siit,
    Clat,
    Nat64,
    Softwire,
    NatPt,
}

impl Kind {
    fn is_stateful(self) -> bool {
        matches!(self, Kind::Nat64 | Kind::NatPt)
    }
}

/// Reads an entry. `None` when not even its mode is known, so that its keys mean nothing.
pub(crate) fn read((table, span): Table<'_, '_>, sink: &mut Sink) -> Option<Draft> {
    let mut section = Section::new("[[translator]]", table, span);
    let mode_help = "write mode = \"siit\", \"clat\", \"nat64\", \"softwire\", \"nat-pt\", \"nat44\" or \"dual-stack\"";
    let kind = section.require(sink, "mode", mode_help, kind)?.into_inner()?;
    let name_help = "write a name such as name = \"siit0\"; the interface gets it";
    let name = section.require(sink, "name", name_help, value::translator_name);
    let (eam, mut routes4) = read_networks(&mut section, sink, kind);
    let mut particular = match kind {
        Kind::Siit => read_siit(&mut section, sink, name.as_ref()),
        Kind::Clat => read_clat(&mut section, sink),
        Kind::Nat64 | Kind::NatPt => read_nat64(&mut section, sink, kind == Kind::NatPt),
        Kind::Softwire => read_softwire(&mut section, sink),
    };
    if !kind.is_stateful() {
        refuse_stateful(&mut section, sink);
    }
    if kind != Kind::NatPt {
        for key in nat64::nat_pt::KEYS {
            section.refuse(sink, key, "this key belongs to mode nat-pt", "leave it out");
        }
    }
    if kind == Kind::Softwire {
        softwire::read::refuse_foreign(&mut section, sink);
    } else {
        softwire::read::refuse(&mut section, sink);
    }
    if particular.takes_all_ipv4 && !section.has("routes4") {
        routes4 = vec![Spanned::new(section.span(), Ipv4Net::default())];
    }
    let has_mapping = !eam.is_empty() || particular.dynamic4.is_some();
    let place = match (kind, &particular.mode) {
        (Kind::Clat, _) => Place::Clat,
        (_, Some(Mode::Softwire(softwire))) if softwire.client().is_none() => Place::Tep,
        (Kind::Softwire, _) => Place::Client,
        _ => Place::Gateway,
    };
    let translator = read_common(&mut section, sink, kind, place, has_mapping);
    let (span, pool6_written) = (section.span(), section.has("pool6"));
    section.finish(sink);
    let translator = match (name.clone(), particular.mode.take()) {
        (Some(name), Some(mode)) => Some(Translator {
            name: name.into_inner(),
            mode,
            eam: eam.iter().map(|eam| *eam.get_ref()).collect(),
            routes4: routes4.iter().map(|net| *net.get_ref()).collect(),
            ..translator
        }),
        _ => None,
    };
    let Particular { pool6, v6, nat64, dynamic4, softwire, .. } = particular;
    let pool6_unread = translator.is_none() || pool6_written && pool6.is_empty();
    Some(Draft {
        translator,
        span,
        name,
        pool6,
        pool6_unread,
        eam,
        v6,
        routes4,
        nat64,
        dynamic4,
        softwire,
    })
}

/// The mode; `None` where [`crate::draft`] has the entry read by somebody else.
fn kind(value: &Value<'_>) -> Result<Option<Kind>, crate::section::Problems> {
    let modes = [
        ("siit", Some(Kind::Siit)),
        ("clat", Some(Kind::Clat)),
        ("nat64", Some(Kind::Nat64)),
        ("softwire", Some(Kind::Softwire)),
        ("nat-pt", Some(Kind::NatPt)),
        ("nat44", None),
        ("dual-stack", None),
    ];
    value::choice(value, &modes)
}

type Networks = (Vec<Spanned<Eam>>, Vec<Spanned<Ipv4Net>>);

/// Explicit mappings and further routes, where the mode has them.
fn read_networks(section: &mut Section<'_, '_>, sink: &mut Sink, kind: Kind) -> Networks {
    let default_routes4 = match kind {
        Kind::Clat => vec![Spanned::new(section.span(), Ipv4Net::default())],
        Kind::Siit | Kind::Softwire => Vec::new(),
        Kind::Nat64 | Kind::NatPt => {
            let why = "mode nat64 gives addresses by itself";
            let help = "leave it out; ports are forwarded by bib = [...], and hosts with an address of \
                        their own belong to a translator of mode siit";
            section.refuse(sink, "eam", why, help);
            let help = "leave it out: the addresses of pool4 and bib are routed into the interface";
            section.refuse(sink, "routes4", "mode nat64 knows what to route", help);
            return (Vec::new(), Vec::new());
        }
    };
    // Elsewhere it is refused, with a reason.
    if kind == Kind::Softwire {
        let help = "write a list of IPv4 networks such as [\"192.0.2.0/24\"]";
        let routes4 = list(section.read(sink, "routes4", |v| value::list(v, help, value::prefix4)));
        return (Vec::new(), routes4);
    }
    let eam_help = "write a list of pairs: [[\"198.51.100.0/24\", \"2001:db8:1::/120\"]]";
    let eam = list(section.read(sink, "eam", |v| value::list(v, eam_help, value::eam)));
    let routes4_help = "write a list of IPv4 networks such as [\"198.51.100.0/24\"]";
    let routes4 = section
        .read(sink, "routes4", |v| value::list(v, routes4_help, value::prefix4))
        .map_or(default_routes4, Spanned::into_inner);
    (eam, routes4)
}

/// What a mode has of its own.
#[derive(Default)]
struct Particular {
    mode: Option<Mode>,
    pool6: Vec<Spanned<Pool6>>,
    v6: Option<Range<usize>>,
    nat64: Option<Nat64Draft>,
    dynamic4: Option<Dynamic4Draft>,
    softwire: softwire::read::Draft,
    /// Without `routes4`, all of IPv4 goes this way.
    takes_all_ipv4: bool,
}

/// Keys that only a CLAT has.
fn refuse_clat(section: &mut Section<'_, '_>, sink: &mut Sink, addresses: &str, mode: &str) {
    let pref64 = format!("in mode {mode} the translation prefixes are pool6 = [...]");
    let uplink = format!("leave it out; routes decide in mode {mode}");
    for (key, help) in
        [("pref64", pref64.as_str()), ("v4", addresses), ("v6", addresses), ("uplink", &uplink)]
    {
        section.refuse(sink, key, "this key belongs to mode clat", help);
    }
    section.refuse(sink, "always", "this key belongs to mode clat", "leave it out");
}

fn read_siit(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
    name: Option<&Spanned<InterfaceName>>,
) -> Particular {
    let help = "write a list such as [\"64:ff9b::/96\"]";
    let read = section.read(sink, "pool6", |v| value::list(v, help, value::pool6));
    let pool6 = list(read);
    let addresses = "in mode siit addresses are mapped by eam = [[\"192.0.2.1\", \"2001:db8::1\"]]";
    refuse_clat(section, sink, addresses, "siit");
    let name = name.map_or("siit", |name| name.get_ref().as_str());
    let (dynamic4, draft) = nat64::read::dynamic4(section, sink, name).unzip();
    if let Some(draft) = draft.as_ref().filter(|_| !section.has("pool6")) {
        let message = "`dynamic4` needs `pool6`: what else would IPv4 hosts be to IPv6 hosts";
        let help = "write pool6 = [\"64:ff9b::/96\"]";
        sink.push(Diagnostic::error(draft.span.clone(), message).help(help));
    } else if !section.has("pool6") && !section.has("eam") {
        let message = "neither `pool6` nor `eam` is set: no address could be translated";
        let help = "write pool6 = [\"64:ff9b::/96\"], or eam = [[IPV4, IPV6]], or both";
        sink.push(Diagnostic::error(section.span(), message).help(help));
    }
    let prefixes = pool6.iter().map(|pool6| *pool6.get_ref()).collect();
    let mode = Some(Mode::Siit { pool6: prefixes, dynamic4 });
    Particular { mode, pool6, dynamic4: draft, ..Particular::default() }
}

fn read_nat64(section: &mut Section<'_, '_>, sink: &mut Sink, is_nat_pt: bool) -> Particular {
    let (mode, addresses) = match is_nat_pt {
        false => ("nat64", "in mode nat64 the IPv4 addresses are pool4 = [\"192.0.2.1\"]"),
        true => ("nat-pt", "in mode nat-pt the IPv4 addresses are addresses = [\"192.0.2.0/26\"]"),
    };
    refuse_clat(section, sink, addresses, mode);
    let help = "leave it out, or take mode = \"siit\"";
    let dynamic4 = "in mode nat64 hosts share addresses: this key belongs to mode siit";
    for key in ["dynamic4", "dynamic4_clients", "dynamic4_idle", "dynamic4_file"] {
        section.refuse(sink, key, dynamic4, help);
    }
    let why = "in mode nat64 IPv6 hosts are not numbered from pool6";
    section.refuse(sink, "ipv4_translatable", why, "leave it out");
    let (nat64, pool6, draft) = nat64::read::nat64(section, sink, is_nat_pt);
    let mode = Some(Mode::Nat64(Box::new(nat64)));
    Particular { mode, pool6, nat64: Some(draft), ..Particular::default() }
}

fn read_softwire(section: &mut Section<'_, '_>, sink: &mut Sink) -> Particular {
    let (softwire, draft) = softwire::read::softwire(section, sink);
    let takes_all_ipv4 = softwire.as_ref().is_some_and(|softwire| softwire.client().is_some());
    let mode = softwire.map(|softwire| Mode::Softwire(Box::new(softwire)));
    Particular { mode, softwire: draft, takes_all_ipv4, ..Particular::default() }
}

fn read_clat(section: &mut Section<'_, '_>, sink: &mut Sink) -> Particular {
    let pool6_help = "in mode clat the PLAT's translation prefix is pref64 = \"64:ff9b::/96\"";
    section.refuse(sink, "pool6", "this key belongs to mode siit", pool6_help);
    let dynamic4 = "this key belongs to mode siit";
    for key in ["dynamic4", "dynamic4_clients", "dynamic4_idle", "dynamic4_file"] {
        section.refuse(sink, key, dynamic4, "give each IPv6 host a mapping in eam = [...]");
    }
    let help = "write pref64 = \"auto\", or the PLAT's prefix such as pref64 = \"64:ff9b::/96\"";
    let pref64 = section.require(sink, "pref64", help, |v| value::auto_or(v, value::pool6));
    let always = section.read(sink, "always", value::boolean);
    if let (Some(always), Some(Some(_))) = (&always, pref64.as_ref().map(Spanned::get_ref)) {
        let message =
            "`always` belongs to pref64 = \"auto\": a CLAT with a fixed prefix never steps aside";
        sink.push(Diagnostic::error(always.span(), message).help("leave it out"));
    }
    let mut v4 = CLAT_V4;
    set(&mut v4, section.read(sink, "v4", value::host4));
    let v6 = section.read(sink, "v6", |v| value::auto_or(v, value::host6));
    let uplink = section.read(sink, "uplink", |v| value::auto_or(v, value::name));
    let v6_span = v6.as_ref().map(Spanned::span);
    let mode = pref64.as_ref().map(|pref64| {
        Mode::Clat(Clat {
            pref64: pref64.get_ref().map_or(Pref64::Auto, Pref64::Fixed),
            always: always.is_some_and(Spanned::into_inner),
            v4,
            v6: v6.and_then(Spanned::into_inner),
            uplink: uplink.and_then(Spanned::into_inner),
        })
    });
    let fixed = |pref64: Spanned<Option<Pool6>>| {
        let span = pref64.span();
        pref64.into_inner().map(|pref64| Spanned::new(span, pref64))
    };
    let pool6 = pref64.and_then(fixed).into_iter().collect();
    Particular { mode, pool6, v6: v6_span, ..Particular::default() }
}

/// Keys that only mode nat64 has.
const STATEFUL: [&str; 18] = [
    "pool4",
    "port_blocks",
    "deterministic",
    "pool",
    "bib",
    "filtering",
    "accept_v4_syn",
    "refresh_from_v4",
    "alg",
    "ftp_ports",
    "lifetimes",
    "allow_short_lifetimes",
    "subscriber_len",
    "quotas",
    "max_sessions",
    "max_bib",
    "max_subscribers",
    "log",
];

fn refuse_stateful(section: &mut Section<'_, '_>, sink: &mut Sink) {
    for key in STATEFUL {
        section.refuse(sink, key, "this key belongs to mode nat64", "leave it out");
    }
}

impl Translator {
    /// What a table without keys stands for. Name and mode are to be put in.
    pub(crate) fn usual() -> Translator {
        Translator {
            name: InterfaceName::placeholder(),
            mode: Mode::Siit { pool6: Vec::new(), dynamic4: None },
            eam: Vec::new(),
            routes4: Vec::new(),
            engine: Engine::default(),
            attach: Attach::default(),
            devices: Vec::new(),
            measure: false,
            pass_rate: Some(PASS_RATE),
            metric: DEFAULT_METRIC,
            icmp_source4: Some(ICMP_SOURCE4),
            icmp_node_id: false,
            icmp_source6: Source6::default(),
            icmp_errors: IcmpErrors::default(),
            udp_checksum_zero: UdpChecksumZero::default(),
            traffic_class: TrafficClass::default(),
            allow_private: false,
            ipv4_translatable: false,
            hairpin: true,
            mss_clamp: false,
            mtu: None,
            lowest_ipv6_mtu: IPV6_MIN_MTU,
            queues: None,
            queue_length: QUEUE_LENGTH,
            pin_queues: true,
            manage: true,
        }
    }
}

fn read_common(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
    kind: Kind,
    place: Place,
    has_mapping: bool,
) -> Translator {
    let clat = kind == Kind::Clat;
    let translates = kind != Kind::Softwire;
    let mut t = Translator {
        ipv4_translatable: kind == Kind::Siit && !has_mapping,
        mss_clamp: clat || kind == Kind::Softwire,
        ..Translator::usual()
    };
    engine::read(section, sink, place, &mut t);
    set(&mut t.metric, section.read(sink, "metric", metric));
    set(&mut t.icmp_source4, section.read(sink, "icmp_source4", source4));
    set(&mut t.icmp_node_id, section.read(sink, "icmp_node_id", value::boolean));
    if translates {
        read_translation(section, sink, kind, &mut t);
    }
    read_icmp_errors(section, sink, &mut t.icmp_errors);
    set(&mut t.traffic_class, section.read(sink, "traffic_class", traffic_class));
    set(&mut t.hairpin, section.read(sink, "hairpin", value::boolean));
    set(&mut t.mss_clamp, section.read(sink, "mss_clamp", value::boolean));
    set(&mut t.mtu, section.read(sink, "mtu", |v| value::auto_or(v, |v| value::octets(v, MTU))));
    if translates {
        let lowest = section.read(sink, "lowest_ipv6_mtu", |v| value::octets(v, MTU));
        warn_of_lowest_mtu(sink, lowest.as_ref(), t.mtu);
        set(&mut t.lowest_ipv6_mtu, lowest);
    }
    set(&mut t.queues, section.read(sink, "queues", queues));
    set(&mut t.queue_length, section.read(sink, "queue_length", queue_length));
    set(&mut t.pin_queues, section.read(sink, "pin_queues", value::boolean));
    set(&mut t.manage, section.read(sink, "manage", value::boolean));
    t
}

/// What has a meaning only where addresses are translated.
fn read_translation(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
    kind: Kind,
    t: &mut Translator,
) {
    set(&mut t.icmp_source6, section.read(sink, "icmp_source6", source6));
    set(&mut t.udp_checksum_zero, section.read(sink, "udp_checksum_zero", udp_checksum_zero));
    set(&mut t.allow_private, section.read(sink, "allow_private", value::boolean));
    if !kind.is_stateful() {
        set(&mut t.ipv4_translatable, section.read(sink, "ipv4_translatable", value::boolean));
    }
}

type Parsed<T> = Result<T, crate::section::Problems>;

fn metric(v: &Value<'_>) -> Parsed<u32> {
    // The range lies within u32.
    value::integer(v, 1..=i64::from(u32::MAX), "").map(|number| number as u32)
}

fn source4(v: &Value<'_>) -> Parsed<Option<Ipv4Addr>> {
    match v.get_ref().as_str() {
        Some("off") => Ok(None),
        _ => value::host4(v).map(Some),
    }
}

fn source6(v: &Value<'_>) -> Parsed<Source6> {
    match v.get_ref().as_str() {
        Some("off") => Ok(Source6::Off),
        _ => Ok(value::auto_or(v, value::host6)?.map_or(Source6::Auto, Source6::Address)),
    }
}

fn udp_checksum_zero(v: &Value<'_>) -> Parsed<UdpChecksumZero> {
    value::choice(v, &UDP_CHECKSUM_ZERO)
}

pub(crate) const UDP_CHECKSUM_ZERO: [(&str, UdpChecksumZero); 3] = [
    ("compute", UdpChecksumZero::Compute),
    ("drop", UdpChecksumZero::Drop),
    ("pass", UdpChecksumZero::Pass),
];

pub(crate) fn traffic_class(v: &Value<'_>) -> Parsed<TrafficClass> {
    match v.get_ref().as_integer() {
        // The range lies within u8.
        Some(_) => value::integer(v, 0..=255, "").map(|octet| TrafficClass::Set(octet as u8)),
        None => value::choice(v, &[("copy", TrafficClass::Copy)]),
    }
}

fn queues(v: &Value<'_>) -> Parsed<Option<usize>> {
    value::auto_or(v, |v| value::integer(v, 1..=256, "").map(|number| number as usize))
}

/// A queue costs eight octets per place beside the packets in it, in the kernel's memory.
fn queue_length(v: &Value<'_>) -> Parsed<u32> {
    // The range lies within u32.
    value::integer(v, 64..=65_536, "").map(|number| number as u32)
}

pub(crate) fn read_icmp_errors(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
    errors: &mut IcmpErrors,
) {
    let IcmpErrors::Limited { burst: default_burst, .. } = IcmpErrors::default() else {
        return;
    };
    set(errors, section.read(sink, "icmp_errors", value::icmp_errors));
    let read = section.read(sink, "icmp_errors_burst", |v| value::integer(v, 1..=1_000_000, ""));
    match errors {
        IcmpErrors::Limited { burst, .. } => {
            *burst = read.map_or(default_burst, |read| read.into_inner() as u32);
        }
        IcmpErrors::Off | IcmpErrors::Unlimited => {
            if let Some(read) = read {
                let message = "`icmp_errors_burst` has no effect without a rate";
                let help = "write a rate such as icmp_errors = \"1000/s\", or leave the burst out";
                sink.push(Diagnostic::warning(read.span(), message).help(help));
            }
        }
    }
}

fn warn_of_lowest_mtu(sink: &mut Sink, lowest: Option<&Spanned<u32>>, mtu: Option<u32>) {
    if let (Some(lowest), Some(mtu)) = (lowest, mtu)
        && *lowest.get_ref() > mtu
    {
        let message = format!("`lowest_ipv6_mtu` is above `mtu`: {mtu} octets is what fits");
        sink.push(Diagnostic::warning(lowest.span(), message).help(format!("write {mtu}")));
    }
}

fn list<T>(read: Option<Spanned<Vec<T>>>) -> Vec<T> {
    read.map(Spanned::into_inner).unwrap_or_default()
}
