//! `lifetimes`: how long what is known of a session is kept (RFC 6146 section 4).

use std::time::Duration;

use fordway_xlat::nat64::Lifetimes;
use toml::Spanned;

use crate::diagnostic::{Diagnostic, Sink};
use crate::section::Section;
use crate::sections::Table;
use crate::value;

/// What can be set, without regard to what the RFCs allow.
const RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600);

/// A key: its lifetime, the least that the RFC allows, and which one.
struct Key {
    name: &'static str,
    place: fn(&mut Lifetimes) -> &mut Duration,
    least: Option<(u64, &'static str)>,
    /// Where less is only against the RFC's advice (SHOULD), and taken with a warning: what may happen.
    advice: Option<&'static str>,
}

const KEYS: [Key; 7] = [
    Key {
        name: "udp",
        place: |it| &mut it.udp,
        least: Some((120, "RFC 4787 REQ-5")),
        advice: None,
    },
    Key {
        name: "icmp",
        place: |it| &mut it.icmp,
        least: Some((60, "RFC 5508 REQ-2")),
        advice: None,
    },
    Key {
        name: "tcp_est",
        place: |it| &mut it.tcp_est,
        least: Some((7200, "RFC 5382 REQ-5")),
        advice: None,
    },
    Key {
        name: "tcp_trans",
        place: |it| &mut it.tcp_trans,
        least: Some((240, "RFC 5382 REQ-5")),
        advice: None,
    },
    Key {
        name: "tcp_incoming_syn",
        place: |it| &mut it.tcp_incoming_syn,
        least: Some((6, "RFC 5382 REQ-4")),
        advice: None,
    },
    Key {
        name: "port_rest",
        place: |it| &mut it.port_rest,
        least: Some((120, "RFC 6888 REQ-8")),
        advice: Some("packets for the last host that had a port may reach the next one"),
    },
    Key { name: "subscriber", place: |it| &mut it.subscriber, least: None, advice: None },
];

/// Reads the table. `allow_short`: what is below the RFCs' least is taken, with a warning.
pub(crate) fn read(
    (table, span): Table<'_, '_>,
    allow_short: bool,
    lifetimes: &mut Lifetimes,
    sink: &mut Sink,
) {
    let mut section = Section::new("lifetimes", table, span);
    for key in &KEYS {
        let read = section.read(sink, key.name, |v| value::duration(v, RANGE));
        let Some(read) = read else { continue };
        key.check(&read, allow_short, sink);
        *(key.place)(lifetimes) = read.into_inner();
    }
    section.finish(sink);
}

impl Key {
    fn check(&self, read: &Spanned<Duration>, allow_short: bool, sink: &mut Sink) {
        let Some((least, source)) = self.least else { return };
        let least = Duration::from_secs(least);
        if *read.get_ref() >= least {
            return;
        }
        let show = humantime::format_duration;
        let message = format!(
            "`{}`: {} is less than {} ({source})",
            self.name,
            show(*read.get_ref()),
            show(least)
        );
        let lost = "sessions of hosts that rely on the RFC will be lost";
        sink.push(match (self.advice, allow_short) {
            (Some(consequence), _) => Diagnostic::warning(read.span(), message).help(consequence),
            (None, true) => Diagnostic::warning(read.span(), message).help(lost),
            (None, false) => Diagnostic::error(read.span(), message).help(format!(
                "write \"{}\" or more, or add allow_short_lifetimes = true to the translator",
                show(least)
            )),
        });
    }
}
