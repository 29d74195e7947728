//! The answer to a DHCPv6 INFORMATION-REQUEST (RFC 8415 sections 16.12 and 18.3.6).

use std::net::Ipv6Addr;
use std::time::Instant;

use dhcproto::v6::{DhcpOption, DhcpOptions, Message, MessageType, ORO, OptionCode, UnknownOption};
use dhcproto::{Decodable, Decoder, Encodable};
use hickory_proto::rr::Name;

use fordway_serve::Bucket;

use super::resolver::{Resolver, labels};

/// Where clients ask, `ff02::1:2`.
pub(super) const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// How long clients go without asking again, in seconds; below a tenth of the default, a day, as what
/// they are told may change with the device's addresses, and above the least, ten minutes.
const REFRESH_TIME: u32 = 3600;

/// Longest DUID, in octets: type and 128 more (RFC 8415 section 11.1).
const LONGEST_DUID: usize = 130;

/// Replies on one device: so many per second, and so many at once.
const PER_SECOND: u32 = 50;
const BURST: u32 = 100;

/// OPTION_V6_DNR (RFC 9463 section 4.1), which the library does not know.
const V6_DNR: OptionCode = OptionCode::Unknown(144);

/// What clients are told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told<'a> {
    pub(super) servers: &'a [Ipv6Addr],
    pub(super) names: &'a [Name],
    pub(super) resolvers: &'a [Resolver],
    pub(super) captive_portal: Option<&'a str>,
}

/// Why a message gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ignored {
    /// It can't be read.
    Malformed,
    /// Not an INFORMATION-REQUEST.
    Type,
    /// It asks for addresses or prefixes (RFC 8415 section 16.12).
    Association,
    /// It asks another server.
    Server,
}

/// Reads `request` and makes the reply of the server `duid`.
pub(super) fn reply(request: &[u8], duid: &[u8], told: Told<'_>) -> Result<Vec<u8>, Ignored> {
    let Told { servers, names, resolvers, captive_portal } = told;
    // Only this type is read: relays' messages nest, and are for other servers.
    match request.first() {
        None => return Err(Ignored::Malformed),
        Some(kind) if *kind != u8::from(MessageType::InformationRequest) => {
            return Err(Ignored::Type);
        }
        Some(_) => {}
    }
    let request = readable(request)?;
    let request = Message::decode(&mut Decoder::new(&request)).map_err(|_| Ignored::Malformed)?;
    let client = check(request.opts(), duid)?;
    let asked = |code: OptionCode| match request.opts().get(OptionCode::ORO) {
        // A client that lists no options gets all of them.
        None => true,
        Some(DhcpOption::ORO(ORO { opts })) => opts.contains(&code),
        Some(_) => false,
    };
    let mut reply = Message::new_with_id(MessageType::Reply, request.xid());
    let options = reply.opts_mut();
    options.insert(DhcpOption::ServerId(duid.to_vec()));
    if let Some(client) = client {
        options.insert(DhcpOption::ClientId(client.to_vec()));
    }
    if asked(OptionCode::DomainNameServers) && !servers.is_empty() {
        options.insert(DhcpOption::DomainNameServers(servers.to_vec()));
    }
    if asked(OptionCode::DomainSearchList) && !names.is_empty() {
        // The library would compress names, which RFC 8415 section 10 forbids.
        let names = UnknownOption::new(OptionCode::DomainSearchList, search_list(names));
        options.insert(DhcpOption::Unknown(names));
    }
    if asked(V6_DNR) {
        // One option for each (RFC 9463 section 4.2).
        for resolver in resolvers {
            options.insert(DhcpOption::Unknown(UnknownOption::new(V6_DNR, resolver.dhcpv6())));
        }
    }
    if let Some(uri) = captive_portal.filter(|_| asked(OptionCode::DhcpCaptivePortal)) {
        let uri = UnknownOption::new(OptionCode::DhcpCaptivePortal, uri.as_bytes().to_vec());
        options.insert(DhcpOption::Unknown(uri));
    }
    if asked(OptionCode::InformationRefreshTime) {
        options.insert(DhcpOption::InformationRefreshTime(REFRESH_TIME));
    }
    reply.to_vec().map_err(|_| Ignored::Malformed)
}

/// The request with those of its options that count here, whose lengths have been looked at.
///
/// The library reads others, too, and some of them (a vendor class of less than four octets) make it
/// panic; and where one ends nowhere, it passes over all behind it.
fn readable(request: &[u8]) -> Result<Vec<u8>, Ignored> {
    const CLIENT_ID: u16 = 1;
    const SERVER_ID: u16 = 2;
    const IA_NA: u16 = 3;
    const IA_TA: u16 = 4;
    const ORO: u16 = 6;
    const IA_PD: u16 = 25;
    let (front, mut rest) = request.split_at_checked(4).ok_or(Ignored::Malformed)?;
    let mut readable = front.to_vec();
    while let [a, b, c, d, ..] = *rest {
        let len = 4 + usize::from(u16::from_be_bytes([c, d]));
        let (option, behind) = rest.split_at_checked(len).ok_or(Ignored::Malformed)?;
        match u16::from_be_bytes([a, b]) {
            CLIENT_ID | SERVER_ID | ORO => readable.extend(option),
            // RFC 8415 section 16.12.
            IA_NA | IA_TA | IA_PD => return Err(Ignored::Association),
            _ => {}
        }
        rest = behind;
    }
    if rest.is_empty() { Ok(readable) } else { Err(Ignored::Malformed) }
}

/// RFC 8415 section 16.12; gives the client's DUID, if it says it.
fn check<'a>(options: &'a DhcpOptions, duid: &[u8]) -> Result<Option<&'a [u8]>, Ignored> {
    match options.get(OptionCode::ServerId) {
        Some(DhcpOption::ServerId(asked)) if asked != duid => return Err(Ignored::Server),
        _ => {}
    }
    match options.get(OptionCode::ClientId) {
        Some(DhcpOption::ClientId(client)) if client.len() <= LONGEST_DUID => Ok(Some(client)),
        Some(_) => Err(Ignored::Malformed),
        None => Ok(None),
    }
}

/// Names as RFC 1035 section 3.1 has them, one behind the other.
fn search_list(names: &[Name]) -> Vec<u8> {
    names.iter().flat_map(labels).collect()
}

/// This host's identifier as a server: the link-layer address of one of its devices (DUID-LL, RFC 8415
/// section 11.4), the same at every start; without any, a random one (DUID-UUID, section 11.5).
pub(super) fn duid(hardware_address: Option<[u8; 6]>, random: [u8; 16]) -> Vec<u8> {
    match hardware_address {
        // DUID type 3, hardware type 1 (Ethernet).
        Some(address) => [&[0, 3, 0, 1][..], &address].concat(),
        None => [&[0, 4][..], &random].concat(),
    }
}

/// Whether one more reply may be sent at `now`: a host can't make this one send without end.
pub(super) fn admit(replies: &mut Bucket, now: Instant) -> bool {
    replies.take(PER_SECOND, BURST, now)
}

#[cfg(test)]
mod tests;
