//! What becomes of a packet.

/// The outcome of a packet. The octets of an outcome lie in the packet's own buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Translated: send [`fragments`](crate::Packet::fragments) on.
    Forward,
    /// Not translated: the buffer now holds an ICMP error for the packet's sender; send it.
    Reply(IcmpError),
    /// Not translated; the counter of the reason is raised, and the sender gets no answer.
    Drop(DropReason),
    /// Kept for a while: an unsolicited SYN (RFC 6146 section 3.5.2.2). Or consumed: a Packet Too Big from inside a
    /// softwire (RFC 2473 section 8.3).
    Stored,
    /// Not for the translator, by its addresses. Only at attach points that see traffic which was not routed to it. The
    /// packet is unchanged, but what lay behind its own length is cut off.
    Pass,
    /// In a cluster: the packet's shard is not translated here, but by another gateway, to which it is to be handed over.
    /// The packet is unchanged, but what lay behind its own length is cut off; nothing in the tables was changed.
    Elsewhere(u16),
}

/// An ICMP error that answers a packet, and why the packet could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Which error.
    pub kind: IcmpErrorKind,
    /// Why the packet itself was dropped; counted like any drop.
    pub reason: DropReason,
}

/// The ICMP errors that a translator originates (in the family of the packet that they answer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpErrorKind {
    /// ICMPv4 11/0 or ICMPv6 3/0.
    TimeExceeded,
    /// ICMPv4 3/4 (fragmentation needed) or ICMPv6 2/0 (packet too big).
    TooBig {
        /// Next-hop MTU in the family of the answered packet, in octets.
        mtu: u16,
    },
    /// ICMPv4 3/13 or ICMPv6 1/1 (RFC 7915 sections 4.4 and 5.4).
    AdministrativelyProhibited,
    /// ICMPv4 3/5 (RFC 7915 section 4.1).
    SourceRouteFailed,
    /// ICMPv6 4/0 (RFC 7915 section 5.1).
    ParameterProblem {
        /// Offset of the offending octet in the answered packet.
        pointer: u32,
    },
    /// ICMPv4 3/1 (host unreachable) or ICMPv6 1/3 (RFC 6146 section 3.5.1.1, RFC 6888 REQ-11).
    AddressUnreachable,
    /// ICMPv4 3/3 or ICMPv6 1/4 (RFC 6146 section 3.5.2.2).
    PortUnreachable,
    /// ICMPv4 3/2, or ICMPv6 1/4, as RFC 6146 section 3.4 demands.
    ProtocolUnreachable,
    /// ICMPv4 3/13 or ICMPv6 1/5 (source address failed ingress/egress policy; RFC 7596 section 6.2).
    SourcePolicy,
}

/// What becomes of a DNS message that an ALG has read in the path of packets (RFC 2766 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsAction {
    /// It is forwarded unchanged.
    Pass,
    /// It is forwarded with other octets.
    Replace,
    /// It is not forwarded; another message is sent back to its source.
    Return,
}

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $label:literal, $text:literal;)*) => {
        /// Why a packet was dropped.
        ///
        /// Append-only: a number never changes its meaning. The same number stands in `fordway_abi.h`, the label in
        /// metrics, and both in `docs/drop-reasons.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* #[doc = $text] $name = $number,)*
        }

        impl DropReason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)*];

            /// The reason's label in metrics and JSON, in snake case.
            pub const fn label(self) -> &'static str {
                match self { $(DropReason::$name => $label,)* }
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

drop_reasons! {
    Truncated = 1, "truncated", "Shorter than its own headers or length fields say.";
    BadVersion = 2, "bad_version", "Neither IPv4 nor IPv6.";
    BadHeader = 3, "bad_header", "The IPv4 header length is below 20 octets, or the total length below the header length.";
    BadHeaderChecksum = 4, "bad_header_checksum", "The IPv4 header checksum is wrong.";
    Martian = 5, "martian", "An address that can't be on a wire: 0.0.0.0/8, 240.0.0.0/4, ::/96, ::ffff:0:0/96.";
    Loopback = 6, "loopback", "A loopback address: 127.0.0.0/8 or ::1.";
    LinkLocal = 7, "link_local", "A link-local address: 169.254.0.0/16 or fe80::/10.";
    Multicast = 8, "multicast", "A multicast address; multicast is not translated.";
    Broadcast = 9, "broadcast", "The limited broadcast address.";
    SelfAddressed = 10, "self_addressed", "Addressed to or sent from the translator's own ICMP source address.";
    NonGlobal = 11, "non_global", "64:ff9b::/96 with a non-global IPv4 address (RFC 6052 section 3.1).";
    NoMappingSource = 12, "no_mapping_source", "The source address has no mapping.";
    NoMappingDestination = 13, "no_mapping_destination", "The destination address has no mapping.";
    ReservedOctet = 14, "reserved_octet", "Bits 64 to 71 of an IPv4-embedded IPv6 address are not zero (RFC 6052 section 2.2).";
    Loop = 15, "loop", "Both ends lie in pool6 where no IPv6 host is numbered from it, or a route leads back into the interface: the packet would loop.";
    HopLimitExceeded = 16, "hop_limit_exceeded", "TTL or hop limit ran out here.";
    SourceRoute = 17, "source_route", "An unexpired IPv4 source route option.";
    RoutingHeader = 18, "routing_header", "An IPv6 Routing header with segments left.";
    TooBig = 19, "too_big", "Does not fit the next hop and must not be fragmented.";
    FragmentedIcmp = 20, "fragmented_icmp", "A fragment of an ICMP message; its checksum can't be translated.";
    FragmentExtension = 21, "fragment_extension", "A Fragment Header followed by an extension header (RFC 7915 section 5.1.1).";
    BadFragment = 22, "bad_fragment", "A fragment that reaches beyond 65,535 octets, of a length that is not a multiple of 8, or that cuts a transport header.";
    UdpChecksumZero = 23, "udp_checksum_zero", "UDP over IPv4 without a checksum, dropped by configuration.";
    UdpChecksumZeroFragment = 24, "udp_checksum_zero_fragment", "A first fragment of UDP without a checksum; it can't be computed.";
    IcmpType = 25, "icmp_type", "An ICMP type that has no counterpart.";
    IcmpCode = 26, "icmp_code", "An ICMP code that has no counterpart.";
    IcmpPointer = 27, "icmp_pointer", "A Parameter Problem pointer that has no counterpart.";
    IcmpInner = 28, "icmp_inner", "The packet inside an ICMP error is malformed or has an address without mapping.";
    IcmpNested = 29, "icmp_nested", "An ICMP error about an ICMP error.";
    BadIcmpChecksum = 30, "bad_icmp_checksum", "The checksum of an ICMP error is wrong.";
    BadOffload = 31, "bad_offload", "Offload state that does not match the packet.";
    NoHeadroom = 32, "no_headroom", "Not enough room in front of the packet.";
    QueueFull = 33, "queue_full", "The device did not take the packet.";
    DeviceError = 34, "device_error", "Writing to the device failed.";
    Protocol = 35, "protocol", "A protocol number of the other family: ICMPv6 or an extension header in IPv4, ICMPv4 in IPv6.";
    NoBib = 36, "no_bib", "No BIB entry for the destination: no host behind the translator uses this address and port.";
    Filtered = 37, "filtered", "Address-dependent filtering: no session with this remote address.";
    PoolExhausted = 38, "pool_exhausted", "No free address or port in the pool for this subscriber.";
    BibFull = 39, "bib_full", "The table of BIB entries is full.";
    SessionsFull = 40, "sessions_full", "The table of sessions is full.";
    SubscribersFull = 41, "subscribers_full", "The table of subscribers is full.";
    PortQuota = 42, "port_quota", "The subscriber has all the ports that it may have.";
    SessionQuota = 43, "session_quota", "The subscriber has all the sessions that it may have.";
    RateQuota = 44, "rate_quota", "The subscriber opens sessions faster than it may.";
    NotSyn = 45, "not_syn", "A TCP segment without SYN, and without a BIB entry.";
    FragmentsFull = 46, "fragments_full", "No room to keep a fragment until the others come, or too many fragments of one packet.";
    FragmentTimeout = 47, "fragment_timeout", "The other fragments of the packet did not come in time.";
    FragmentOverlap = 48, "fragment_overlap", "Fragments of one packet overlap or contradict each other (RFC 5722).";
    SynsFull = 49, "syns_full", "No room to store an unsolicited IPv4 SYN.";
    SynUnanswered = 50, "syn_unanswered", "An unsolicited IPv4 SYN without an answer within TCP_INCOMING_SYN.";
    Transport = 51, "transport", "A transport protocol that stateful NAT64, or a shared address, does not carry.";
    Draining = 52, "draining", "The translator is draining: no new sessions.";
    ExternallyInitiated = 53, "externally_initiated", "A TCP connection opened from the IPv4 side, refused by configuration.";
    Busy = 54, "busy", "Another processor kept changing the same entry; the sender tries again.";
    SoftwireBinding = 55, "softwire_binding", "No softwire has a binding for the IPv4 destination and its port.";
    SoftwireSource = 56, "softwire_source", "Out of a softwire with a source, or through a tunnel, that no binding allows; or into it with a source that is not the client's.";
    SoftwireEcn = 57, "softwire_ecn", "Congestion was marked on the tunnel packet, and the packet in it is not ECN-capable (RFC 6040 section 4.2).";
    SoftwireUnbound = 58, "softwire_unbound", "The softwire's client has no IPv4 address yet.";
    SoftwireHairpin = 59, "softwire_hairpin", "From one softwire to another, which the configuration does not allow.";
    MayNotBegin = 60, "may_not_begin", "An IPv4 host that may not begin sessions, by configuration (NAT-PT).";
    PortInUse = 61, "port_in_use", "For a bound address (NAT-PT), but the host uses this port towards IPv4 under another address.";
    ReceiveQueueFull = 62, "receive_queue_full", "The interface's queue was full: the user engine had not read the packets before in time.";
    PassRate = 63, "pass_rate", "From IPv4, for the user engine, and more than the kernel engine passes to it for one reason.";
    LeaseEnded = 64, "lease_ended", "The gateway's lease in its cluster has ended, so another one may translate the packet's shard.";
    OtherShard = 65, "other_shard", "Its shard is another gateway's, and the packet could not be handed to it.";
}

impl DropReason {
    /// One more than the highest number: the length of an array indexed by reason.
    pub const COUNT: usize = DropReason::ALL.len() + 1;

    /// The reason's number.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::DropReason;

    #[test]
    fn numbers_are_dense_and_start_at_one() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(usize::from(reason.number()), index + 1, "{reason:?}");
        }
    }
}
