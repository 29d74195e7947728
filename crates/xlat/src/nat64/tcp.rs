//! The state machine of TCP sessions (RFC 6146 section 3.5.2.2); `crates/bpf/c/nat64_tcp.h` in C.

use fordway_wire::tcp::flag;

/// From which side a packet comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From an IPv6 host.
    V6,
    /// From the IPv4 network.
    V4,
}

/// What a segment means to the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// SYN is set, ACK is not.
    Syn,
    /// SYN and ACK are set: to the state machine the same, but nothing to wait for an answer with.
    SynAck,
    /// FIN is set.
    Fin,
    /// RST is set.
    Rst,
    /// Anything else.
    Other,
}

impl Segment {
    /// By the flags of a TCP header. Where several are set, which no sound host does, RST goes before
    /// SYN and SYN before FIN: the less is believed, the shorter the state lives.
    #[must_use]
    pub fn of(flags: u8) -> Segment {
        match flags {
            _ if flags & flag::RST != 0 => Segment::Rst,
            _ if flags & (flag::SYN | flag::ACK) == flag::SYN => Segment::Syn,
            _ if flags & flag::SYN != 0 => Segment::SynAck,
            _ if flags & flag::FIN != 0 => Segment::Fin,
            _ => Segment::Other,
        }
    }

    /// Whether the state machine takes it for a SYN.
    #[must_use]
    pub fn opens(self) -> bool {
        matches!(self, Segment::Syn | Segment::SynAck)
    }
}

/// The state of a TCP session; CLOSED is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TcpState {
    /// A SYN came from IPv4.
    V4Init = 6,
    /// A SYN came from IPv6.
    V6Init = 7,
    /// SYNs came from both.
    Established = 8,
    /// A FIN came from IPv4.
    V4FinRcv = 9,
    /// A FIN came from IPv6.
    V6FinRcv = 10,
    /// FINs came from both.
    V4FinV6FinRcv = 11,
    /// A RST came, or nothing for TCP_EST.
    Trans = 12,
}

impl TcpState {
    /// Every state.
    pub const ALL: [TcpState; 7] = [
        TcpState::V4Init,
        TcpState::V6Init,
        TcpState::Established,
        TcpState::V4FinRcv,
        TcpState::V6FinRcv,
        TcpState::V4FinV6FinRcv,
        TcpState::Trans,
    ];

    pub(crate) fn of(number: u8) -> Option<TcpState> {
        TcpState::ALL.into_iter().find(|state| *state as u8 == number)
    }

    /// The RFC's name in snake case, for metrics and JSON.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            TcpState::V4Init => "v4_init",
            TcpState::V6Init => "v6_init",
            TcpState::Established => "established",
            TcpState::V4FinRcv => "v4_fin_rcv",
            TcpState::V6FinRcv => "v6_fin_rcv",
            TcpState::V4FinV6FinRcv => "v4_fin_v6_fin_rcv",
            TcpState::Trans => "trans",
        }
    }
}

/// Which of the configured lifetimes counts for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Timeout {
    /// UDP_DEFAULT.
    Udp = 0,
    /// ICMP_DEFAULT.
    Icmp = 1,
    /// TCP_EST.
    TcpEst = 2,
    /// TCP_TRANS.
    TcpTrans = 3,
    /// TCP_INCOMING_SYN.
    TcpIncomingSyn = 4,
}

/// The number of classes of lifetimes.
pub(crate) const TIMEOUTS: usize = 5;

/// What a segment does to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state now.
    pub state: TcpState,
    /// The lifetime starts anew, of this class; `None`: it goes on.
    pub lifetime: Option<Timeout>,
}

/// The transition of a session in `state` for a segment from `side`.
///
/// Beyond the RFC's words: a RST while one FIN was seen shortens the lifetime (RFC 7857 section 2.2), until
/// another segment shows that the connection lives; and a SYN after both FINs is a new connection of the same
/// ports (RFC 5382 REQ-2), not a leftover of the old one.
#[must_use]
pub fn transition(state: TcpState, side: Side, segment: Segment) -> Transition {
    use TcpState::{Established, Trans, V4FinRcv, V4FinV6FinRcv, V4Init, V6FinRcv, V6Init};
    let to = |state, lifetime| Transition { state, lifetime: Some(lifetime) };
    let stay = Transition { state, lifetime: None };
    let segment = if segment.opens() { Segment::Syn } else { segment };
    match (state, side, segment) {
        (V4Init, Side::V6, Segment::Syn) | (V6Init, Side::V4, Segment::Syn) => {
            to(Established, Timeout::TcpEst)
        }
        (V6Init, Side::V6, Segment::Syn) => to(V6Init, Timeout::TcpTrans),
        (V4Init | V6Init, _, _) => stay,
        (Established, Side::V4, Segment::Fin) => to(V4FinRcv, Timeout::TcpEst),
        (Established, Side::V6, Segment::Fin) => to(V6FinRcv, Timeout::TcpEst),
        (Established, _, Segment::Rst) => to(Trans, Timeout::TcpTrans),
        (Established, _, _) => to(Established, Timeout::TcpEst),
        (V4FinRcv, Side::V6, Segment::Fin) | (V6FinRcv, Side::V4, Segment::Fin) => {
            to(V4FinV6FinRcv, Timeout::TcpTrans)
        }
        (V4FinRcv | V6FinRcv, _, Segment::Rst) => to(state, Timeout::TcpTrans),
        (V4FinRcv | V6FinRcv, _, _) => to(state, Timeout::TcpEst),
        (V4FinV6FinRcv, Side::V6, Segment::Syn) => to(V6Init, Timeout::TcpTrans),
        (V4FinV6FinRcv, Side::V4, Segment::Syn) => to(V4Init, Timeout::TcpTrans),
        (V4FinV6FinRcv, _, _) | (Trans, _, Segment::Rst) => stay,
        (Trans, _, _) => to(Established, Timeout::TcpEst),
    }
}
