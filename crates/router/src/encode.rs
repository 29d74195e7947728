//! Router advertisements as octets.

use std::net::Ipv6Addr;
use std::time::Instant;

use fordway_dns64::ndp::{
    ALL_NODES, Advertisement, NoRoom, Pref64, Preference, PrefixInformation, RouteInformation,
    ScaledLifetime, Writer,
};
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;

use super::content::Content;
use super::ledger::{Item, Withdrawal};
use super::resolver::Resolver;

/// Octets of an IPv6 header, which the link's MTU counts.
const IPV6_HEADER: usize = 40;
/// The least MTU of IPv6.
const LEAST_MTU: usize = 1280;
/// Longest message, whatever the link takes.
const LONGEST: usize = 9000;
/// DNS servers in one option, so that any fits into the least message.
const SERVERS: usize = 16;
/// Octets of names in one option, for the same reason.
const NAMES: usize = 512;
/// What a captive portal's option says where there is none (RFC 8910 section 2).
const UNRESTRICTED: &str = "urn:ietf:params:capport:unrestricted";

/// An option, written when its message has room for it.
enum Piece {
    LinkLayer(Vec<u8>),
    Mtu(u32),
    Prefix(PrefixInformation),
    Route(RouteInformation),
    Rdnss(u32, Vec<Ipv6Addr>),
    Dnssl(u32, Vec<Name>),
    Pref64(Pref64),
    Dnr(Resolver, u32),
    /// A name whose lifetime is over.
    NoDnr(Name),
    CaptivePortal(String),
}

/// The advertisements of `content` and `withdrawal`: one, or several if the link's `mtu` does not let one hold it all
/// (RFC 4861 section 6.2.3).
pub(super) fn advertisements(
    content: &Content,
    withdrawal: &Withdrawal,
    source: Ipv6Addr,
    mtu: u32,
    now: Instant,
) -> Vec<Vec<u8>> {
    let mut pieces = pieces(content, now);
    withdraw(withdrawal, &mut pieces);
    messages(&content.fields, &pieces, source, mtu)
}

/// The final advertisements, which withdraw everything.
pub(super) fn farewell(
    content: &Content,
    withdrawal: &Withdrawal,
    source: Ipv6Addr,
    mtu: u32,
) -> Vec<Vec<u8>> {
    let fields = Advertisement { router_lifetime: 0, ..content.fields };
    let mut pieces = link(content);
    withdraw(withdrawal, &mut pieces);
    messages(&fields, &pieces, source, mtu)
}

/// An advertisement whose only content is that the router at `source` is no default router.
pub(super) fn parting(content: &Content, source: Ipv6Addr) -> Vec<Vec<u8>> {
    let fields = Advertisement { router_lifetime: 0, ..content.fields };
    messages(&fields, &[], source, 0)
}

/// What describes the link itself.
fn link(content: &Content) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if !content.link_layer.is_empty() {
        pieces.push(Piece::LinkLayer(content.link_layer.clone()));
    }
    pieces.extend(content.mtu.map(Piece::Mtu));
    pieces
}

fn pieces(content: &Content, now: Instant) -> Vec<Piece> {
    let mut pieces = link(content);
    pieces.extend(content.prefixes.iter().map(|it| Piece::Prefix(content.information(it, now))));
    pieces.extend(content.routes.iter().copied().map(Piece::Route));
    dns(content.dns_lifetime, &content.rdnss, &content.dnssl, &mut pieces);
    pieces.extend(content.pref64.iter().copied().map(Piece::Pref64));
    pieces.extend(content.dnr.iter().map(|(it, lifetime)| Piece::Dnr(it.clone(), *lifetime)));
    pieces.extend(content.captive_portal.clone().map(Piece::CaptivePortal));
    pieces
}

fn withdraw(withdrawal: &Withdrawal, pieces: &mut Vec<Piece>) {
    pieces.extend(withdrawal.prefixes.iter().copied().map(Piece::Prefix));
    let (mut servers, mut names) = (Vec::new(), Vec::new());
    for item in &withdrawal.items {
        match item {
            Item::Prefix(_) => {}
            Item::Rdnss(server) => servers.push(*server),
            Item::Dnssl(name) => names.push(name.clone()),
            Item::Route(prefix) => pieces.push(Piece::Route(RouteInformation {
                prefix: prefix.addr(),
                prefix_len: prefix.prefix_len(),
                preference: Preference::Medium,
                lifetime: 0,
            })),
            Item::Pref64(prefix) => pieces.extend(withdrawn(prefix).map(Piece::Pref64)),
            Item::Dnr(name) => pieces.push(Piece::NoDnr(name.clone())),
            Item::CaptivePortal => pieces.push(Piece::CaptivePortal(UNRESTRICTED.to_owned())),
        }
    }
    dns(0, &servers, &names, pieces);
}

fn withdrawn(prefix: &Ipv6Net) -> Option<Pref64> {
    Pref64::new(prefix.addr(), prefix.prefix_len(), ScaledLifetime::ZERO)
}

fn dns(lifetime: u32, servers: &[Ipv6Addr], names: &[Name], pieces: &mut Vec<Piece>) {
    pieces.extend(servers.chunks(SERVERS).map(|it| Piece::Rdnss(lifetime, it.to_vec())));
    let mut group = Vec::new();
    let mut octets = 0;
    for name in names {
        if octets + name.len() > NAMES && !group.is_empty() {
            pieces.push(Piece::Dnssl(lifetime, std::mem::take(&mut group)));
            octets = 0;
        }
        octets += name.len();
        group.push(name.clone());
    }
    if !group.is_empty() {
        pieces.push(Piece::Dnssl(lifetime, group));
    }
}

fn messages(fields: &Advertisement, pieces: &[Piece], source: Ipv6Addr, mtu: u32) -> Vec<Vec<u8>> {
    let room = (mtu as usize).clamp(LEAST_MTU, LONGEST) - IPV6_HEADER;
    let mut messages = Vec::new();
    let mut rest = pieces;
    loop {
        let mut buffer = vec![0; room];
        let Ok(mut writer) = Writer::advertisement(&mut buffer, fields) else {
            return messages;
        };
        let fitting = rest.iter().take_while(|piece| write(piece, &mut writer).is_ok()).count();
        let message = writer.finish(source, ALL_NODES).to_vec();
        // A piece that no message can hold would come up again for ever.
        rest = &rest[fitting.max(usize::from(!rest.is_empty()))..];
        // A message without options is all there is to say, or says nothing.
        if fitting > 0 || pieces.is_empty() {
            messages.push(message);
        }
        if rest.is_empty() {
            return messages;
        }
    }
}

fn write(piece: &Piece, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
    match piece {
        Piece::LinkLayer(address) => writer.source_link_layer(address),
        Piece::Mtu(mtu) => writer.mtu(*mtu),
        Piece::Prefix(info) => writer.prefix(info),
        Piece::Route(route) => writer.route(route),
        Piece::Rdnss(lifetime, servers) => writer.rdnss(*lifetime, servers),
        Piece::Dnssl(lifetime, names) => writer.dnssl(*lifetime, names.iter().map(Name::iter)),
        Piece::Pref64(pref64) => writer.pref64(pref64),
        Piece::Dnr(it, lifetime) => writer.encrypted_dns(
            it.priority,
            *lifetime,
            it.name.iter(),
            &it.addresses,
            &it.params(),
        ),
        Piece::NoDnr(name) => writer.encrypted_dns(1, 0, name.iter(), &[], &[]),
        Piece::CaptivePortal(uri) => writer.captive_portal(uri),
    }
}

#[cfg(test)]
mod tests;
