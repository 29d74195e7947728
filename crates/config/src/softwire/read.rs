//! Reading the keys of mode softwire.

use std::net::Ipv6Addr;
use std::ops::Range;

use fordway_softwire::{Binding, BindingError, Bindings, PortSet};
use toml::Spanned;

use super::{HOP_LIMIT, Softwire, SoftwireClient, SoftwireEnd};
use crate::diagnostic::{Diagnostic, Sink};
use crate::section::{Section, Value};
use crate::sections::{Table, set, tables};
use crate::value;

/// Bindings that a file may have: what fits its greatest size, generously.
const MAX_BINDINGS: usize = 200_000;

/// The places that checks across entries point at.
#[derive(Default)]
pub(crate) struct Draft {
    /// Own addresses of the tunnels.
    pub(crate) locals: Vec<Spanned<Ipv6Addr>>,
    /// IPv4 addresses that are given, with their tunnels' other ends.
    pub(crate) bindings: Vec<Spanned<Binding>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Tep,
    Client,
}

/// Reads what belongs to the mode.
pub(crate) fn softwire(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
) -> (Option<Softwire>, Draft) {
    let help = "write role = \"tep\" for the tunnel end point, or role = \"client\"";
    let roles = [("tep", Role::Tep), ("client", Role::Client)];
    let role = section.require(sink, "role", help, |v| value::choice(v, &roles));
    let mut hop_limit = HOP_LIMIT;
    let read = |v: &Value<'_>| value::integer(v, 1..=255, "").map(|number| number as u8);
    set(&mut hop_limit, section.read(sink, "hop_limit", read));
    let (end, draft) = match role.map(Spanned::into_inner) {
        Some(Role::Tep) => read_tep(section, sink),
        Some(Role::Client) => read_client(section, sink),
        None => {
            // Without a role the other keys mean nothing; they are not unknown for that.
            for key in KEYS {
                let _ = section.read(sink, key, |_| Ok(()));
            }
            (None, Draft::default())
        }
    };
    (end.map(|end| Softwire { end, hop_limit }), draft)
}

/// Keys whose meaning depends on the role.
const KEYS: [&str; 9] =
    ["local", "remote", "bindings", "v4", "psid", "psid_len", "psid_offset", "uplink", "hairpin"];

fn read_tep(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Option<SoftwireEnd>, Draft) {
    let help = "write the address that clients send to, such as local = \"2001:db8:2::1\"; it must not be an \
                address of the host itself";
    let local = section.require(sink, "local", help, value::host6);
    for key in ["remote", "v4", "psid", "psid_len", "psid_offset"] {
        let help = "write it in an entry of bindings = [{ v4 = \"192.0.2.1\", remote = \"2001:db8:1::1\" }]";
        section.refuse(sink, key, "this key belongs to role client, or to a binding", help);
    }
    section.refuse(
        sink,
        "uplink",
        "this key belongs to role client",
        "leave it out; routes decide",
    );
    let title = "bindings = [{ v4 = \"192.0.2.1\", remote = \"2001:db8:1::1\" }], or [[translator.bindings]]";
    let entries = section.read(sink, "bindings", |v| tables(v, title));
    let entries = entries.map(Spanned::into_inner).unwrap_or_default();
    if entries.len() > MAX_BINDINGS {
        let message = format!("`bindings`: {} of them; {MAX_BINDINGS} are possible", entries.len());
        sink.push(
            Diagnostic::error(section.span(), message).help("divide them among several files"),
        );
        return (None, Draft::default());
    }
    let own = local.as_ref().map(|local| *local.get_ref());
    let mut locals: Vec<Spanned<Ipv6Addr>> = local.into_iter().collect();
    let mut bindings = Vec::new();
    for entry in entries {
        let span = entry.1.clone();
        let (binding, other) = read_binding(entry, own, sink);
        bindings.extend(binding.map(|binding| Spanned::new(span, binding)));
        locals.extend(other);
    }
    contradictions(&bindings, sink);
    let list = bindings.iter().map(|binding| *binding.get_ref()).collect();
    let end = own.map(|local| SoftwireEnd::Tep { local, bindings: list });
    (end, Draft { locals, bindings })
}

/// A binding, and the own address that it names.
fn read_binding(
    (table, span): Table<'_, '_>,
    own: Option<Ipv6Addr>,
    sink: &mut Sink,
) -> (Option<Binding>, Option<Spanned<Ipv6Addr>>) {
    let mut section = Section::new("a binding", table, span);
    let help = "write the client's IPv4 address such as v4 = \"192.0.2.1\"";
    let v4 = section.require(sink, "v4", help, value::host4);
    let help = "write the client's IPv6 address such as remote = \"2001:db8:1::1\"";
    let remote = section.require(sink, "remote", help, value::host6);
    let ports = ports(&mut section, sink);
    let local = section.read(sink, "local", value::host6);
    if let (Some(remote), Some(own)) = (&remote, local.as_ref().map(|it| *it.get_ref()).or(own))
        && *remote.get_ref() == own
    {
        let message = format!("`remote`: {own} is this end's own address");
        sink.push(Diagnostic::error(remote.span(), message).help("write the client's"));
    }
    section.finish(sink);
    let local_v6 = local.as_ref().map(|it| *it.get_ref()).or(own);
    let binding = match (v4, remote, local_v6, ports) {
        (Some(v4), Some(remote), Some(local), Ok(ports)) => {
            Some(Binding { v4: v4.into_inner(), ports, remote: remote.into_inner(), local })
        }
        _ => None,
    };
    (binding, local)
}

/// `psid`, `psid_len` and `psid_offset`. `Err`: wrong and reported.
fn ports(section: &mut Section<'_, '_>, sink: &mut Sink) -> Result<Option<PortSet>, ()> {
    let bits = |v: &Value<'_>| value::integer(v, 0..=16, "bits").map(|number| number as u8);
    let number = |v: &Value<'_>| value::integer(v, 0..=65_535, "").map(|number| number as u16);
    let given = ["psid", "psid_len", "psid_offset"].map(|key| section.has(key));
    let psid = section.read(sink, "psid", number);
    let len = section.read(sink, "psid_len", bits);
    let offset = section.read(sink, "psid_offset", bits);
    let lost =
        given[0] && psid.is_none() || given[1] && len.is_none() || given[2] && offset.is_none();
    match (psid, len) {
        _ if lost => Err(()),
        (None, None) if offset.is_none() => Ok(None),
        (Some(psid), Some(len)) => {
            let span = psid.span();
            let offset = offset.map_or(0, Spanned::into_inner);
            PortSet::new(offset, len.into_inner(), psid.into_inner()).map(Some).map_err(|error| {
                let help = "a PSID of 4 bits, 0 to 15, divides an address among 16 clients; psid_len and \
                            psid_offset are at most 16 together";
                sink.push(Diagnostic::error(span, format!("`psid`: {error}")).help(help));
            })
        }
        _ => {
            let message = "a shared address needs both `psid` and `psid_len`";
            let help =
                "write psid = 3 and psid_len = 4 for the fourth of 16 parts, or leave both out";
            sink.push(Diagnostic::error(section.span(), message).help(help));
            Err(())
        }
    }
}

/// Two bindings of one address, or of the same ports of it.
fn contradictions(bindings: &[Spanned<Binding>], sink: &mut Sink) {
    let mut table = Bindings::default();
    let place = |wanted: &dyn Fn(&Binding) -> bool| -> Option<Range<usize>> {
        bindings.iter().find(|it| wanted(it.get_ref())).map(Spanned::span)
    };
    for binding in bindings {
        let new = *binding.get_ref();
        let (message, first, help) = match table.insert(new) {
            Ok(None) => continue,
            Ok(Some(old)) => (
                match new.ports {
                    None => format!("`bindings`: {} is given to two clients", new.v4),
                    Some(ports) => {
                        format!("`bindings`: {ports} of {} is given to two clients", new.v4)
                    }
                },
                place(&|it| (it.v4, it.ports) == (old.v4, old.ports)),
                "give each client an address, or other ports of it by psid and psid_len",
            ),
            Err(error @ BindingError::WholeAndShared { .. }) => (
                format!("`bindings`: {error}"),
                place(&|it| it.v4 == new.v4),
                "give all clients of the address a psid, or none",
            ),
            Err(error @ BindingError::Differently(..)) => (
                format!("`bindings`: {error}"),
                place(&|it| it.v4 == new.v4),
                "write the same psid_len and psid_offset for all clients of the address",
            ),
        };
        let diagnostic = Diagnostic::error(binding.span(), message).help(help);
        sink.push(match first {
            Some(first) => diagnostic.related(first, "here first"),
            None => diagnostic,
        });
    }
}

fn read_client(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Option<SoftwireEnd>, Draft) {
    let help = "write the client's IPv4 address such as v4 = \"192.0.2.1\"";
    let v4 = section.require(sink, "v4", help, value::host4);
    let help = "write the tunnel end point's address such as remote = \"2001:db8:2::1\"";
    let remote = section.require(sink, "remote", help, value::host6);
    let ports = ports(section, sink);
    let local = section.read(sink, "local", |v| value::auto_or(v, value::host6));
    let uplink = section.read(sink, "uplink", |v| value::auto_or(v, value::name));
    let help = "write v4, remote and, for a shared address, psid and psid_len";
    section.refuse(
        sink,
        "bindings",
        "this key belongs to role tep; a client has one binding",
        help,
    );
    section.refuse(sink, "hairpin", "this key belongs to role tep", "leave it out");
    let own = local.as_ref().and_then(|local| {
        let span = local.span();
        local.get_ref().map(|local| Spanned::new(span, local))
    });
    if let (Some(own), Some(remote)) = (&own, &remote)
        && own.get_ref() == remote.get_ref()
    {
        let message = "`local`: both ends of the tunnel have this address";
        let help = "write the client's own address, or leave it out";
        sink.push(Diagnostic::error(own.span(), message).help(help));
    }
    let locals = own.into_iter().collect();
    let client = match (v4, remote, ports) {
        (Some(v4), Some(remote), Ok(ports)) => Some(SoftwireClient {
            v4: Some(v4.into_inner()),
            ports,
            local: local.and_then(Spanned::into_inner),
            remote: remote.into_inner(),
            uplink: uplink.and_then(Spanned::into_inner),
            early: None,
        }),
        _ => None,
    };
    (client.map(SoftwireEnd::Client), Draft { locals, bindings: Vec::new() })
}

/// Keys that only mode softwire has.
pub(crate) const OWN: [&str; 8] =
    ["role", "local", "remote", "bindings", "psid", "psid_len", "psid_offset", "hop_limit"];

/// Refuses them in other modes.
pub(crate) fn refuse(section: &mut Section<'_, '_>, sink: &mut Sink) {
    for key in OWN {
        section.refuse(sink, key, "this key belongs to mode softwire", "leave it out");
    }
}

/// What others have and softwires have not.
const FOREIGN: [(&str, &str); 12] = [
    ("pool6", "a softwire translates no addresses"),
    ("pref64", "a softwire translates no addresses"),
    ("eam", "a softwire translates no addresses"),
    ("v6", "in mode softwire this end's IPv6 address is `local`"),
    ("always", "this key belongs to mode clat"),
    ("icmp_source6", "ICMPv6 errors are from the tunnel's own address"),
    ("icmp_node_id", "ICMPv4 errors of a softwire are its own"),
    ("udp_checksum_zero", "a softwire changes nothing behind the IPv4 header"),
    ("allow_private", "a softwire carries any IPv4 address that has a binding"),
    ("ipv4_translatable", "a softwire translates no addresses"),
    ("lowest_ipv6_mtu", "packets without DF are cut to the path's MTU"),
    ("dynamic4", "this key belongs to mode siit"),
];

/// Refuses them here.
pub(crate) fn refuse_foreign(section: &mut Section<'_, '_>, sink: &mut Sink) {
    for (key, why) in FOREIGN {
        section.refuse(sink, key, why, "leave it out");
    }
    for key in ["dynamic4_clients", "dynamic4_idle", "dynamic4_file"] {
        section.refuse(sink, key, "this key belongs to mode siit", "leave it out");
    }
}
