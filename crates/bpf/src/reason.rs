//! The outcomes of a packet.

use fordway_xlat::DropReason;

macro_rules! pass_reasons {
    ($($name:ident = $number:literal, $label:literal, $text:literal;)*) => {
        /// Why the programs passed a packet of the translator to the user engine.
        ///
        /// Append-only: a number never changes its meaning. The same numbers stand in `fordway_abi.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum PassReason {
            $(#[doc = $text] $name = $number,)*
        }

        impl PassReason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [PassReason] = &[$(PassReason::$name,)*];

            /// The reason's label in metrics and JSON, in snake case.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(PassReason::$name => $label,)* }
            }

            /// One sentence for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(PassReason::$name => $text,)* }
            }
        }
    };
}

pass_reasons! {
    Malformed = 1, "malformed", "Lengths contradict each other.";
    NotLinear = 2, "not_linear", "Its headers can't be reached by a program.";
    ExtensionHeaders = 3, "extension_headers", "Extension headers that a program does not walk.";
    HopLimit = 4, "hop_limit", "It expires here, and an ICMP error is due.";
    TooBig = 5, "too_big", "It does not fit and must not be cut, and an ICMP error is due.";
    NeedsFragments = 6, "needs_fragments", "It has to leave in pieces.";
    Unmapped = 7, "unmapped", "An address has no mapping, and an ICMP error may be due.";
    Hairpin = 8, "hairpin", "It turns back to the network it came from (RFC 7757 section 4).";
    IcmpError = 9, "icmp_error", "An ICMP error with extensions, or about an unusual packet.";
    UdpChecksum = 10, "udp_checksum", "UDP without a checksum that a program can compute.";
    Transport = 11, "transport", "A transport header that programs can't correct.";
    Offload = 12, "offload", "A super-packet whose segments would have to change.";
    RouteOption = 13, "route_option", "A source route or Routing header, and an ICMP error is due.";
    Resize = 14, "resize", "The kernel refused to make room.";
    PartialChecksum = 15, "partial_checksum", "At XDP: its sender left the checksum to a device.";
    NoRoute = 16, "no_route", "At XDP: no route, no neighbour, or no forwarding.";
    NoRedirect = 17, "no_redirect", "At XDP: its way out is a device that takes no redirected frames.";
    Subscriber = 18, "subscriber", "A subscriber that has no block of ports yet.";
    Port = 19, "port", "No free port was found quickly.";
    Session = 20, "session", "State that the user engine has to make.";
    Nat64Fragment = 21, "nat64_fragment", "A fragment, to be reassembled before stateful translation.";
    Nat64Hairpin = 22, "nat64_hairpin", "From one host behind the translator to another (RFC 6146 section 3.8).";
    Nat64IcmpError = 23, "nat64_icmp_error", "An ICMP error about a stateful session.";
    Chain = 24, "chain", "A chain of table entries longer than a program walks.";
    SoftwireSource = 25, "softwire_source", "Out of a softwire by another tunnel than its binding's, and an ICMP error is due.";
    SoftwireEcn = 26, "softwire_ecn", "A congestion mark in a softwire that its sender would not understand.";
    SoftwireFragment = 27, "softwire_fragment", "A fragment of a shared address, to be reassembled first.";
    Alg = 28, "alg", "An application level gateway may watch its connection.";
    Shard = 29, "shard", "In a cluster: no program may translate its shard now.";
}

impl PassReason {
    /// One more than the highest number: the length of an array indexed by reason.
    pub const COUNT: usize = PassReason::ALL.len() + 1;

    /// The reason's number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The reason with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<PassReason> {
        usize::from(number).checked_sub(1).and_then(|index| PassReason::ALL.get(index)).copied()
    }
}

/// What became of a packet in the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Translated, and on its way.
    Translated,
    /// Passed to the user engine (at XDP: to the host's stack).
    PassedOn(PassReason),
    /// Dropped, as the user engine would.
    Dropped(DropReason),
    /// Not the translator's; unchanged.
    Unmatched,
    /// Given to the gateway of the cluster that owns its shard; unchanged.
    HandedOver,
}

#[cfg(test)]
mod tests {
    use super::PassReason;

    #[test]
    fn numbers_are_dense_and_start_at_one() {
        for (index, reason) in PassReason::ALL.iter().enumerate() {
            assert_eq!(usize::from(reason.number()), index + 1, "{reason:?}");
            assert_eq!(PassReason::from_number(reason.number()), Some(*reason));
        }
        assert_eq!(PassReason::from_number(0), None);
        assert_eq!(PassReason::from_number(PassReason::COUNT as u8), None);
    }
}
