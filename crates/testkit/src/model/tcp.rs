//! The TCP state machine, as the text of RFC 6146 section 3.5.2.2 goes through it state by state.

/// The states, without CLOSED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// V4 INIT.
    V4Init,
    /// V6 INIT.
    V6Init,
    /// ESTABLISHED.
    Established,
    /// V4 FIN RCV.
    V4Fin,
    /// V6 FIN RCV.
    V6Fin,
    /// V6 FIN + V4 FIN RCV.
    BothFin,
    /// TRANS.
    Trans,
}

impl State {
    /// The name that the core gives it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            State::V4Init => "v4_init",
            State::V6Init => "v6_init",
            State::Established => "established",
            State::V4Fin => "v4_fin_rcv",
            State::V6Fin => "v6_fin_rcv",
            State::BothFin => "v4_fin_v6_fin_rcv",
            State::Trans => "trans",
        }
    }
}

/// Which lifetime a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Est,
    Trans,
}

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// A segment counts as one thing: RST before SYN before FIN.
pub(super) fn is_rst(flags: u8) -> bool {
    flags & RST != 0
}

pub(super) fn is_syn(flags: u8) -> bool {
    flags & SYN != 0 && !is_rst(flags)
}

fn is_fin(flags: u8) -> bool {
    flags & FIN != 0 && !is_syn(flags) && !is_rst(flags)
}

/// The next state, and the lifetime that begins anew, if one does.
///
/// Two departures of the product: RST in a state with one FIN (RFC 7857 section 2.2), SYN after both FINs
/// (RFC 5382 REQ-2).
pub(super) fn next(state: State, from_v6: bool, flags: u8) -> (State, Option<Life>) {
    let (syn, fin, rst) = (is_syn(flags), is_fin(flags), is_rst(flags));
    match state {
        State::V4Init => {
            if from_v6 && syn {
                return (State::Established, Some(Life::Est));
            }
            (state, None)
        }
        State::V6Init => {
            if !from_v6 && syn {
                return (State::Established, Some(Life::Est));
            }
            if from_v6 && syn {
                return (state, Some(Life::Trans));
            }
            (state, None)
        }
        State::Established => {
            if fin {
                return (if from_v6 { State::V6Fin } else { State::V4Fin }, Some(Life::Est));
            }
            if rst {
                return (State::Trans, Some(Life::Trans));
            }
            (state, Some(Life::Est))
        }
        State::V4Fin | State::V6Fin => {
            let other_side = from_v6 == (state == State::V4Fin);
            if fin && other_side {
                return (State::BothFin, Some(Life::Trans));
            }
            (state, Some(if rst { Life::Trans } else { Life::Est }))
        }
        State::BothFin => {
            if syn {
                return (if from_v6 { State::V6Init } else { State::V4Init }, Some(Life::Trans));
            }
            (state, None)
        }
        State::Trans => {
            if rst {
                return (state, None);
            }
            (State::Established, Some(Life::Est))
        }
    }
}
