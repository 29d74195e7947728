//! Duplicate address detection (RFC 4862 section 5.4) for the CLAT's address. No interface has the address: the kernel
//! answers for it as a neighbour proxy, but does not probe whether it is in use.
//!
//! The address is in use meanwhile, as RFC 4429 allows for one made by a hash: a proxy's answers never
//! override another host's advertisement, and solicitations go out from the host's own address.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use fordway_wire::checksum::{Sum, pseudo_v6};

/// How many solicitations are sent (`DupAddrDetectTransmits`); one more than the default, for wireless links
/// that lose multicast.
const TRANSMITS: u8 = 2;

/// Time between them, and after the last one (`RetransTimer`).
const RETRANS: Duration = Duration::from_secs(1);

/// The random time before the first one is shorter than this (`MAX_RTR_SOLICITATION_DELAY`), so that hosts
/// that heard the same advertisement don't speak at once.
pub(super) const DELAY: Duration = Duration::from_secs(1);

/// `ff02::1` and `ff02::2`.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const ICMPV6: u8 = 58;

/// Octets of an IPv6 header, and of a message before its options.
const HEADER_LEN: usize = 40;
const MESSAGE_LEN: usize = 24;

const TARGET_LINK_LAYER: u8 = 2;
const NONCE: u8 = 14;

/// A link-layer address of an Ethernet.
pub(super) type Mac = [u8; 6];

/// A packet, and the link-layer address it is for.
type Addressed = (Vec<u8>, Mac);

/// The question whether an address is free on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The address.
    pub(crate) v6: Ipv6Addr,
    /// Index of the link's interface.
    pub(crate) index: u32,
    /// This host there.
    pub(crate) own: Mac,
    /// What tells our own solicitations, which some links send back, from others' (RFC 7527).
    pub(super) nonce: [u8; 6],
}

/// The question while it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Detection {
    question: Question,
    sent: u8,
    next: Instant,
}

/// What is to be done for a detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Send this, and go on.
    Send(Addressed),
    /// Wait until then.
    Wait(Instant),
    /// No answer came: the address is free.
    Free,
}

impl Detection {
    /// Begins at `at`.
    pub(crate) fn new(question: Question, at: Instant) -> Detection {
        Detection { question, sent: 0, next: at }
    }

    /// What is asked.
    pub(crate) fn question(&self) -> Question {
        self.question
    }

    /// The groups whose messages have to be heard.
    pub(crate) fn groups(&self) -> [Mac; 2] {
        [mac_of(ALL_NODES), mac_of(solicited_node(self.question.v6))]
    }

    /// What is to be done now.
    pub(crate) fn due(&mut self, now: Instant) -> Due {
        if now < self.next {
            return Due::Wait(self.next);
        }
        if self.sent == TRANSMITS {
            return Due::Free;
        }
        self.sent += 1;
        self.next = now + RETRANS;
        Due::Send(solicitation(self.question.v6, self.question.nonce))
    }
}

impl Question {
    /// Whether a received packet shows that a neighbour uses the address, or probes for it.
    pub(super) fn is_claim(&self, packet: &[u8], sender: Mac) -> bool {
        // Some links send back what one has sent.
        sender != self.own
            && match Message::parse(packet) {
                Some(Message { kind: ADVERTISEMENT, target, .. }) => target == self.v6,
                Some(Message { kind: SOLICITATION, source, target, nonce }) => {
                    let ours = nonce == Some(self.nonce);
                    target == self.v6 && source.is_unspecified() && !ours
                }
                _ => false,
            }
    }
}

/// Says to the routers where the address is, so that they need not ask when the first packet comes back
/// (RFC 9131 section 4). It overrides nothing, for the address is optimistic.
pub(super) fn announcement(v6: Ipv6Addr, own: Mac) -> Addressed {
    let mut message = message(ADVERTISEMENT, v6);
    message.extend([TARGET_LINK_LAYER, 1]);
    message.extend(own);
    (packet(v6, ALL_ROUTERS, message), mac_of(ALL_ROUTERS))
}

fn solicitation(v6: Ipv6Addr, nonce: [u8; 6]) -> Addressed {
    let mut message = message(SOLICITATION, v6);
    message.extend([NONCE, 1]);
    message.extend(nonce);
    let group = solicited_node(v6);
    (packet(Ipv6Addr::UNSPECIFIED, group, message), mac_of(group))
}

/// A message up to its options, without flags.
fn message(kind: u8, target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message
}

fn packet(source: Ipv6Addr, destination: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    // Two options at most.
    let len = message.len() as u16;
    let sum = pseudo_v6(source, destination, ICMPV6, len.into()).add_bytes(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([ICMPV6, 255]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(message);
    packet
}

/// RFC 4291 section 2.7.1.
fn solicited_node(v6: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | (v6.to_bits() & 0x00ff_ffff))
}

/// RFC 2464 section 7.
fn mac_of(group: Ipv6Addr) -> Mac {
    let octets = group.octets();
    [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]
}

/// A neighbor solicitation or advertisement that is valid (RFC 4861 section 7.1).
struct Message {
    kind: u8,
    source: Ipv6Addr,
    target: Ipv6Addr,
    nonce: Option<[u8; 6]>,
}

impl Message {
    fn parse(packet: &[u8]) -> Option<Message> {
        let header = packet.get(..HEADER_LEN)?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        // Behind the packet there may be what fills the frame up.
        let message = packet.get(HEADER_LEN..HEADER_LEN + len)?;
        let fixed = message.get(..MESSAGE_LEN)?;
        if header[0] >> 4 != 6 || header[6] != ICMPV6 || header[7] != 255 || fixed[1] != 0 {
            return None;
        }
        let (source, destination) = (address(&header[8..24])?, address(&header[24..40])?);
        let sum: Sum = pseudo_v6(source, destination, ICMPV6, len as u32).add_bytes(message);
        if sum.fold() != 0xffff {
            return None;
        }
        let mut nonce = None;
        let mut options = &message[MESSAGE_LEN..];
        while let [kind, eights, ..] = *options {
            let option = options.get(..usize::from(eights) * 8).filter(|it| !it.is_empty())?;
            if kind == NONCE {
                nonce = option[2..].try_into().ok();
            }
            options = &options[option.len()..];
        }
        Some(Message { kind: fixed[0], source, target: address(&fixed[8..24])?, nonce })
    }
}

fn address(octets: &[u8]) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 1, 2, 3, 0x456);
    const OWN: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 2];
    const OURS: [u8; 6] = [1, 2, 3, 4, 5, 6];

    fn detection() -> Detection {
        let question = Question { v6: V6, index: 7, own: OWN, nonce: OURS };
        Detection::new(question, Instant::now())
    }

    #[test]
    fn solicitations_are_as_the_rfcs_draw_them() {
        let mut detection = detection();
        let start = detection.next;
        let Due::Send((packet, mac)) = detection.due(start) else { panic!("nothing is sent") };
        assert_eq!(mac, [0x33, 0x33, 0xff, 3, 4, 0x56]);
        assert_eq!(detection.groups(), [[0x33, 0x33, 0, 0, 0, 1], mac]);
        // Header: 32 octets of ICMPv6, hop limit 255, from nowhere to the solicited-node group.
        assert_eq!(packet[..8], [0x60, 0, 0, 0, 0, 32, 58, 255]);
        assert_eq!(packet[8..24], [0; 16]);
        assert_eq!(packet[24..40], "ff02::1:ff03:456".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(packet[40..42], [135, 0]);
        assert_eq!(packet[44..48], [0; 4]);
        assert_eq!(packet[48..64], V6.octets());
        assert_eq!(packet[64..], [14, 1, 1, 2, 3, 4, 5, 6]);
        // Right by the same rules by which received ones are.
        assert!(Message::parse(&packet).is_some());
        assert_eq!(detection.due(start), Due::Wait(start + RETRANS));
    }

    #[test]
    fn it_ends_when_nobody_has_answered() {
        let mut detection = detection();
        let start = detection.next;
        assert_eq!(detection.due(start - RETRANS), Due::Wait(start));
        assert!(matches!(detection.due(start), Due::Send(_)));
        assert!(matches!(detection.due(start + RETRANS), Due::Send(_)));
        assert_eq!(detection.due(start + RETRANS), Due::Wait(start + 2 * RETRANS));
        assert_eq!(detection.due(start + 2 * RETRANS), Due::Free);
    }

    #[test]
    fn whoever_has_the_address_or_asks_for_it_claims_it() {
        let detection = detection().question();
        let (advertised, _) = announcement(V6, OTHER);
        assert!(detection.is_claim(&advertised, OTHER));
        let (asked, _) = solicitation(V6, [6, 5, 4, 3, 2, 1]);
        assert!(detection.is_claim(&asked, OTHER));
        // Without a nonce, from a host that knows no RFC 7527.
        let plain = packet(Ipv6Addr::UNSPECIFIED, solicited_node(V6), message(SOLICITATION, V6));
        assert!(detection.is_claim(&plain, OTHER));
        // What fills a frame up is no part of it.
        let mut padded = plain;
        padded.extend([0; 20]);
        assert!(detection.is_claim(&padded, OTHER));
    }

    #[test]
    fn other_talk_is_no_claim() {
        let detection = detection().question();
        let (own, _) = solicitation(V6, OURS);
        let (other_address, _) = announcement(Ipv6Addr::LOCALHOST, OTHER);
        // A neighbour that looks for us.
        let looking = packet(Ipv6Addr::LOCALHOST, solicited_node(V6), message(SOLICITATION, V6));
        for packet in [own, other_address, looking] {
            assert!(!detection.is_claim(&packet, OTHER));
        }
        let (reflected, _) = announcement(V6, OWN);
        assert!(!detection.is_claim(&reflected, OWN));
    }

    #[test]
    fn what_is_not_valid_is_passed_over() {
        let detection = detection().question();
        let (good, _) = announcement(V6, OTHER);
        assert!(detection.is_claim(&good, OTHER));
        for len in 0..good.len() {
            assert!(!detection.is_claim(&good[..len], OTHER), "{len}");
        }
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 0x10;
            let harmless = matches!(place, 0..4);
            // The traffic class and the flow label are nobody's business; the version is.
            assert!(!detection.is_claim(&bad, OTHER) || (harmless && place > 0), "{place}");
        }
        let mut endless = good;
        endless[65] = 0;
        assert!(!detection.is_claim(&endless, OTHER));
    }
}
