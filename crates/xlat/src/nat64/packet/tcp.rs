//! The state machine of TCP sessions (RFC 6146 section 3.5.2.2); `crates/bpf/c/nat64_tcp.h` in C.

use fordway_wire::tcp::flag;

use crate::nat64::table::{Side, TcpState, Timeout};

/// What a segment means to the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// SYN is set, ACK is not.
    Syn,
    /// SYN and ACK are set: a SYN to the state machine, but it is never stored.
    SynAck,
    /// FIN is set.
    Fin,
    /// RST is set.
    Rst,
    /// Anything else.
    Other,
}

impl Segment {
    /// By the flags of a TCP header. If a packet has several, RST counts before SYN and SYN before FIN: the choice with
    /// the shortest lifetime.
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
/// Beyond the RFC's words: a RST while one FIN was seen shortens the lifetime (RFC 7857 section 2.2), until another
/// segment shows that the connection lives; and a SYN after both FINs is a new connection of the same ports (RFC 5382
/// REQ-2), not a leftover of the old one.
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
