//! `lifetimes`: how long each kind of session stays in the table (RFC 6146 section 4).

use std::time::Duration;

use fordway_xlat::nat64::Lifetimes;

use crate::diagnostic::{Diagnostic, Sink};
use crate::keys::form::{Time, time};
use crate::keys::{Places, keys};

/// What can be set, without regard to what the RFCs allow: up to 30 days.
pub(crate) const LIFETIME: Time = time(1_000, 30 * 86_400_000);

keys! {
    impl Lifetimes {
        /// UDP sessions; at least 2 minutes (RFC 4787 REQ-5)
        "udp" (udp) = LIFETIME;
        /// ICMP queries; at least 1 minute (RFC 5508 REQ-2)
        "icmp" (icmp) = LIFETIME;
        /// Established TCP connections without a packet; then `tcp_trans` begins. At least 2 hours, 2 hours and 4
        /// minutes together (RFC 5382 REQ-5)
        "tcp_est" (tcp_est) = LIFETIME;
        /// TCP connections that begin or end; at least 4 minutes
        "tcp_trans" (tcp_trans) = LIFETIME;
        /// Unsolicited SYNs from IPv4; at least 6 seconds (RFC 5382 REQ-4)
        "tcp_incoming_syn" (tcp_incoming_syn) = LIFETIME;
        /// Hold-down of a UDP port or ICMP identifier before another host gets it; 2 minutes are recommended (RFC 6888 REQ-8)
        "port_rest" (hold_down) = LIFETIME;
        /// How long a subscriber without a session keeps its address and blocks
        "subscriber" (subscriber) = LIFETIME;
    }
}

/// The least that an RFC allows, in seconds, and which one.
const LEAST: [(&str, u64, &str); 6] = [
    ("udp", 120, "RFC 4787 REQ-5"),
    ("icmp", 60, "RFC 5508 REQ-2"),
    ("tcp_est", 7200, "RFC 5382 REQ-5"),
    ("tcp_trans", 240, "RFC 5382 REQ-5"),
    ("tcp_incoming_syn", 6, "RFC 5382 REQ-4"),
    ("port_rest", 120, "RFC 6888 REQ-8"),
];

/// Holds lifetimes against the RFCs. `at`: those of the translator. `allow_short`: what is below the least is taken, with a
/// warning.
pub(crate) fn check(
    at: &Places,
    lifetimes: &[(&str, Duration)],
    allow_short: bool,
    sink: &mut Sink,
) {
    let Some(at) = at.tables("lifetimes").first() else { return };
    for (key, given) in lifetimes {
        let Some((_, least, source)) = LEAST.iter().find(|(it, ..)| it == key) else { continue };
        let (Some(span), least) = (at.key(key), Duration::from_secs(*least)) else { continue };
        if *given >= least {
            continue;
        }
        let (given, least) =
            (humantime::format_duration(*given), humantime::format_duration(least));
        let message = format!("`{key}`: {given} is less than {least} ({source})");
        sink.push(match (*key, allow_short) {
            // Only against the RFC's advice (SHOULD).
            ("port_rest", _) => Diagnostic::warning(span, message)
                .help("packets for the last host that had a port may reach the next one"),
            (_, true) => Diagnostic::warning(span, message)
                .help("sessions of hosts that rely on the RFC will be lost"),
            (_, false) => Diagnostic::error(span, message).help(format!(
                "write \"{least}\" or more, or add allow_short_lifetimes = true to the translator"
            )),
        });
    }
}
