//! What a translator does: `mode`, and the keys of each mode.

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::Pool6;
use serde_json::json;

use crate::diagnostic::Sink;
use crate::keys::common::{HOST4, HOST6, INTERFACE, POOL6};
use crate::keys::form::{BOOLEAN, Choice, Form, Plain, list, or};
use crate::keys::{Key, Keys, Reload, Section, Written, keys};
use crate::name::InterfaceName;
use crate::nat64::{Dynamic4, Nat64};
use crate::softwire::{self, Softwire};
use crate::value;

/// What a translator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Stateless IP/ICMP translation (RFC 7915) between networks.
    Siit(Siit),
    /// The customer side of 464XLAT (RFC 6877).
    Clat(Clat),
    /// Stateful NAT64 (RFC 6146).
    Nat64(Box<Nat64>),
    /// One end of softwires (RFC 2473, RFC 7596).
    Softwire(Box<Softwire>),
}

/// The words of `mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Siit,
    Clat,
    Nat64,
    Softwire,
    NatPt,
    Nat44,
    DualStack,
}

pub(crate) const MODE: Choice<Kind> = Choice(&[
    ("siit", Kind::Siit),
    ("clat", Kind::Clat),
    ("nat64", Kind::Nat64),
    ("softwire", Kind::Softwire),
    ("nat-pt", Kind::NatPt),
    ("nat44", Kind::Nat44),
    ("dual-stack", Kind::DualStack),
]);

/// RFC 7335: the addresses of the "service continuity prefix", of which a CLAT's host takes one.
const CLAT_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);

const PREFIXES: &str = "write a list such as [\"64:ff9b::/96\"]";
const PLAT: &str =
    "write pref64 = \"auto\", or the PLAT's prefix such as pref64 = \"64:ff9b::/96\"";

keys! {
    /// What only mode `siit` has.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Siit {
        /// Translation prefixes (RFC 6052) of 32, 40, 48, 56, 64 or 96 bits. IPv4 addresses without a mapping become
        /// addresses of the first; addresses of all of them are understood, the longest prefix first. Routed into the
        /// interface
        pool6: Vec<Pool6> = list(POOL6, PREFIXES), or(Vec::new());
        /// IPv6 hosts without a mapping get an IPv4 address on first use
        dynamic4: Option<Dynamic4>, flat();
    }
}

keys! {
    /// What only a CLAT has.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Clat {
        /// Translation prefix of the PLAT, the network's NAT64. `auto`: the prefix that the network announces (RFC
        /// 8781, RFC 7050); the translator exists while one is announced
        pref64: Pref64 = PREF64, needed(Pref64::Auto, PLAT),
            reload(But("from a prefix to `auto`, or back,"));
        /// With `pref64 = "auto"`, keep the translator when the host gets IPv4 from the network. `false`: the
        /// translator is taken down while the host has IPv4
        always: bool = BOOLEAN, or(false), if(*pref64 == Pref64::Auto);
        /// The host's IPv4 address on the interface (RFC 7335)
        v4: Ipv4Addr = HOST4, or(CLAT_V4);
        /// The IPv6 address that `v4` is translated to. `auto`: a stable address in the uplink's /64; see
        /// [operations](operations.md#the-clats-ipv6-address)
        v6: Option<Ipv6Addr> = or("auto", HOST6), or(None);
        /// Device towards the IPv6 network. `auto`: that of the route to `pref64`. With a name, the kernel engine can
        /// work [at the uplink](#attach-points)
        uplink: Option<InterfaceName> = or("auto", INTERFACE), or(None), reload(Down);
    }
}

/// A CLAT's translation prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pref64 {
    /// This one.
    Fixed(Pool6),
    /// The one that the network tells (RFC 7050, RFC 8781); without one, or where there is native IPv4, the
    /// CLAT waits.
    Auto,
}

impl Pref64 {
    /// The prefix, if it is known from the configuration.
    #[must_use]
    pub fn fixed(&self) -> Option<&Pool6> {
        match self {
            Pref64::Fixed(pool6) => Some(pool6),
            Pref64::Auto => None,
        }
    }
}

const PREF64: Plain<Pref64> = Plain {
    read: |v| Ok(value::auto_or(v, value::pool6)?.map_or(Pref64::Auto, Pref64::Fixed)),
    write: |pref64| pref64.fixed().map_or("auto".to_owned(), Pool6::to_string).into(),
    named: ("prefix, `\"auto\"`", "", "PREFIX|auto"),
    schema: || json!({"anyOf": [{"type": "string"}, {"const": "auto"}]}),
};

/// Keys of one mode that are something else in another, with what to write there.
const INSTEAD: [(Kind, &[&str], &str); 11] = [
    (Kind::Siit, &["pref64"], "in mode siit the translation prefixes are pool6 = [...]"),
    (
        Kind::Siit,
        &["v4", "v6"],
        "in mode siit addresses are mapped by eam = [[\"192.0.2.1\", \"2001:db8::1\"]]",
    ),
    (
        Kind::Clat,
        &["pool6"],
        "in mode clat the PLAT's translation prefix is pref64 = \"64:ff9b::/96\"",
    ),
    (
        Kind::Clat,
        &["dynamic4", "dynamic4_clients", "dynamic4_idle", "dynamic4_file"],
        "give each IPv6 host a mapping in eam = [...]",
    ),
    (
        Kind::Nat64,
        &["dynamic4", "dynamic4_clients", "dynamic4_idle", "dynamic4_file"],
        "in mode nat64 hosts share addresses; leave it out, or take mode = \"siit\"",
    ),
    (Kind::Softwire, &["pool6", "pref64"], "leave it out: a softwire translates no addresses"),
    (Kind::Nat64, &["pref64"], "in mode nat64 the translation prefixes are pool6 = [...]"),
    (Kind::Nat64, &["v4", "v6"], "in mode nat64 the IPv4 addresses are pool4 = [\"192.0.2.1\"]"),
    (Kind::NatPt, &["pref64"], "in mode nat-pt the translation prefixes are pool6 = [...]"),
    (
        Kind::NatPt,
        &["v4", "v6"],
        "in mode nat-pt the IPv4 addresses are addresses = [\"192.0.2.0/26\"]",
    ),
    (Kind::Softwire, &["v6"], "in mode softwire this end's IPv6 address is `local`"),
];

/// Refuses the keys that other modes have and this one has not.
fn refuse_foreign(kind: Kind, section: &mut Section<'_, '_>, sink: &mut Sink) {
    let modes = [
        ("siit", Siit::keys()),
        ("clat", Clat::keys()),
        ("nat64", Nat64::keys()),
        ("nat-pt", crate::nat64::NatPt::keys()),
        ("softwire", softwire::all_keys()),
    ];
    for (mode, keys) in modes {
        for name in keys.into_iter().map(|key| key.name) {
            if !section.has(name) || section.knows(name) {
                continue;
            }
            let stands = |it: &&(Kind, &[&str], &str)| it.0 == kind && it.1.contains(&name);
            let help = INSTEAD.iter().find(stands).map_or("leave it out", |it| it.2);
            section.refuse(sink, name, &format!("this key belongs to mode {mode}"), help);
        }
    }
}

impl Mode {
    /// Its name in the file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Mode::Siit(_) => "siit",
            Mode::Clat(_) => "clat",
            Mode::Nat64(nat64) if nat64.nat_pt.is_some() => "nat-pt",
            Mode::Nat64(_) => "nat64",
            Mode::Softwire(_) => "softwire",
        }
    }

    /// Addresses are translated.
    pub(crate) fn translates(&self) -> bool {
        !matches!(self, Mode::Softwire(_))
    }

    /// Its mappings are explicit.
    pub(crate) fn is_stateless(&self) -> bool {
        matches!(self, Mode::Siit(_) | Mode::Clat(_))
    }

    /// A softwire's client.
    pub(crate) fn is_client(&self) -> bool {
        matches!(self, Mode::Softwire(softwire) if softwire.client().is_some())
    }
}

impl Keys for Mode {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Mode, bool) {
        let kind = section.read(sink, "mode", |v| MODE.read(v)).map(toml::Spanned::into_inner);
        let (mode, complete) = match kind {
            Some(Kind::Clat) => {
                let (clat, complete) = Clat::read(section, sink);
                (Mode::Clat(clat), complete)
            }
            Some(Kind::Nat64 | Kind::NatPt) => {
                let (nat64, complete) = Nat64::read(section, sink);
                (Mode::Nat64(Box::new(nat64)), complete)
            }
            Some(Kind::Softwire) => {
                let (softwire, complete) = Softwire::read(section, sink);
                (Mode::Softwire(Box::new(softwire)), complete)
            }
            _ => {
                let (siit, complete) = Siit::read(section, sink);
                (Mode::Siit(siit), complete && kind.is_some())
            }
        };
        // Common keys come behind: none of them is a mode's.
        refuse_foreign(kind.unwrap_or(Kind::Siit), section, sink);
        (mode, complete)
    }

    fn write(&self, to: &mut Written) {
        to.put("mode", self.name().into());
        match self {
            Mode::Siit(siit) => siit.write(to),
            Mode::Clat(clat) => clat.write(to),
            Mode::Nat64(nat64) => nat64.write(to),
            Mode::Softwire(softwire) => softwire.write(to),
        }
    }

    /// The mode alone: the keys of each are those of its type.
    fn keys() -> Vec<Key> {
        vec![Key::new(
            "mode",
            &MODE,
            crate::keys::NEEDED.to_owned(),
            "`siit`: stateless translation between networks (RFC 7915). `clat`: the customer side of 464XLAT (RFC 6877). `nat64`: stateful translation (RFC 6146), IPv6 hosts share IPv4 addresses; [nat64.md](nat64.md) has examples. `nat-pt`: historic (RFC 2766), the keys of `nat64` and [its own](nat-pt.md#options). `nat44`, `dual-stack`: what the kernel does by itself, with [keys of their own](#mode-nat44). `softwire`: IPv4 in IPv6 ([how](softwire.md))",
        )
        .reload(Reload::Down)]
    }
}
