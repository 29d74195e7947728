//! One packet, as it is told.

use std::time::{Duration, SystemTime};

use fordway_bpf::{Event, Outcome};
use fordway_control::{Glimpse, TraceLine, UserEngine};
use fordway_xlat::{Direction, HEADROOM, Offload, Packet, State, Translator, Verdict};

use super::Filter;

/// Room behind a packet for what translation adds there, in octets.
const TAILROOM: usize = 1024;

/// The line for an event that `filter` takes. `boot` is when the kernel's clock was zero.
pub(crate) fn line(
    event: &Event,
    filter: &Filter,
    translator: &Translator,
    names: (&str, &str),
    boot: SystemTime,
) -> Option<TraceLine> {
    let packet = Glimpse::of(&event.before)?;
    let translated = Glimpse::of(&event.after);
    let both: Vec<&Glimpse> = std::iter::once(&packet).chain(&translated).collect();
    if !filter.takes(event.outcome, &both) {
        return None;
    }
    let (outcome, reason, text) = match event.outcome {
        Outcome::Translated => ("translated", None, None),
        Outcome::PassedOn(reason) => ("passed_on", Some(reason.label()), Some(reason.text())),
        Outcome::Dropped(reason) => ("dropped", Some(reason.label()), Some(reason.text())),
        Outcome::Unmatched => ("unmatched", None, None),
        Outcome::HandedOver => ("handed_over", None, None),
    };
    // A super-packet's or a long packet's snapshot says too little.
    let whole = event.gso_size == 0 && event.before.len() == event.len as usize;
    let passed_on = matches!(event.outcome, Outcome::PassedOn(_));
    let stateless = translator.tables().is_none();
    Some(TraceLine {
        time: time(boot, event.ns),
        translator: names.0.to_owned(),
        device: names.1.to_owned(),
        direction: Direction::of(&event.before).map_or("", Direction::label).to_owned(),
        octets: event.len,
        segment_size: event.gso_size,
        user_engine: (passed_on && whole && stateless)
            .then(|| user_engine(translator, &event.before)),
        packet,
        outcome: outcome.to_owned(),
        reason: reason.map(str::to_owned),
        text: text.map(str::to_owned),
        translated,
    })
}

/// What a stateless core does with a packet that is known whole.
fn user_engine(translator: &Translator, octets: &[u8]) -> UserEngine {
    let mut buffer = vec![0; HEADROOM];
    buffer.extend_from_slice(octets);
    let end = buffer.len();
    buffer.resize(end + TAILROOM, 0);
    let mut packet = Packet::new(&mut buffer, HEADROOM..end, Offload::default());
    // A state of its own: what is looked at here costs the rate limit nothing.
    let verdict = translator.translate(&mut packet, Duration::ZERO, &mut State::new(1), &mut ());
    let packets = match verdict {
        Verdict::Forward | Verdict::Reply(_) => {
            let whole = packet.fragments().map(|piece| [piece.head(), piece.body].concat());
            whole.filter_map(|octets| Glimpse::of(&octets)).collect()
        }
        Verdict::Drop(_) | Verdict::Stored | Verdict::Pass | Verdict::Elsewhere(_) => Vec::new(),
    };
    let (verdict, reason, text) = match verdict {
        Verdict::Forward => ("forward", None, "translated".to_owned()),
        Verdict::Reply(error) => (
            "reply",
            Some(error.reason.label()),
            format!("an ICMP error for the sender. {}", error.reason.text()),
        ),
        Verdict::Drop(reason) => ("drop", Some(reason.label()), reason.text().to_owned()),
        Verdict::Stored => ("stored", None, "kept for a while".to_owned()),
        Verdict::Pass => ("pass", None, "left untouched".to_owned()),
        Verdict::Elsewhere(shard) => {
            ("elsewhere", None, format!("handed over to the gateway that owns shard {shard}"))
        }
    };
    UserEngine { verdict: verdict.to_owned(), reason: reason.map(str::to_owned), text, packets }
}

fn time(boot: SystemTime, ns: u64) -> String {
    let time = boot.checked_add(Duration::from_nanos(ns)).unwrap_or(boot);
    humantime::format_rfc3339_micros(time).to_string()
}

#[cfg(test)]
mod tests {
    use fordway_bpf::PassReason;
    use fordway_xlat::Config;

    use super::*;

    fn event(outcome: Outcome) -> Event {
        // UDP from 198.51.100.2 to 192.0.2.1, TTL 0: an ICMP error is due.
        let mut before = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 0, 17, 0xce, 0x9a];
        before.extend([198, 51, 100, 2, 192, 0, 2, 1, 0, 7, 0, 9, 0, 8, 0, 0]);
        Event { ns: 1_000, len: 28, gso_size: 0, ifindex: 3, outcome, before, after: Vec::new() }
    }

    fn line(event: &Event) -> TraceLine {
        let pool6 = vec!["2001:db8:64::/96".parse().unwrap()];
        let translator = Translator::new(Config { pool6, ..Config::default() }).unwrap();
        let names = ("siit0", "siit0");
        super::line(event, &Filter::default(), &translator, names, SystemTime::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn what_is_passed_on_is_followed_into_the_user_engine() {
        let line = line(&event(Outcome::PassedOn(PassReason::HopLimit)));
        assert_eq!(line.time, "1970-01-01T00:00:00.000001Z");
        assert_eq!(
            (line.outcome.as_str(), line.reason.as_deref()),
            ("passed_on", Some("hop_limit"))
        );
        let user = line.user_engine.as_ref().unwrap();
        assert_eq!(
            (user.verdict.as_str(), user.reason.as_deref()),
            ("reply", Some("hop_limit_exceeded"))
        );
        assert_eq!(line.packet.to_string(), "UDP 198.51.100.2:7 > 192.0.2.1:9");
        assert!(user.text.starts_with("an ICMP error for the sender. "), "{}", user.text);
    }

    #[test]
    fn a_snapshot_that_is_not_whole_is_not_guessed_at() {
        let mut cut = event(Outcome::PassedOn(PassReason::TooBig));
        cut.len = 3000;
        assert_eq!(line(&cut).user_engine, None);
    }

    #[test]
    fn the_tables_of_a_stateful_translator_are_not_touched() {
        use std::sync::Arc;

        use fordway_xlat::nat64::{Heap, Nat64, Pool, Range, Settings, Sizes};
        let address = "192.0.2.1".parse().unwrap();
        let range = Range { first: address, last: address, low: 1024, high: 65_535 };
        let pool = Pool { ranges: vec![range], ..Pool::default() };
        let sizes = Sizes { bibs: 10, sessions: 10, subscribers: 10 };
        let settings = Settings { pools: vec![pool], sizes, ..Settings::default() };
        let nat64 = Nat64::new(settings, Arc::new(Heap::new(&sizes, [1, 2]))).unwrap();
        let nat64 = Arc::new(nat64);
        let pool6 = vec!["2001:db8:64::/96".parse().unwrap()];
        let config = Config { pool6, ..Config::default() };
        let translator = Translator::nat64(config, Arc::clone(&nat64)).unwrap();
        // UDP from an IPv6 host that nobody knows yet.
        let mut before = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        before.extend("2001:db8:1::5".parse::<std::net::Ipv6Addr>().unwrap().octets());
        before.extend("2001:db8:64::c633:6401".parse::<std::net::Ipv6Addr>().unwrap().octets());
        before.extend([0, 7, 0, 9, 0, 8, 0x12, 0x34]);
        let mut event = event(Outcome::PassedOn(PassReason::Subscriber));
        (event.len, event.before) = (before.len() as u32, before);
        let names = ("nat64", "nat64");
        let told =
            super::line(&event, &Filter::default(), &translator, names, SystemTime::UNIX_EPOCH)
                .unwrap();
        assert_eq!((told.reason.as_deref(), told.user_engine), (Some("subscriber"), None));
        assert_eq!(nat64.occupancy().map(|table| table.used), [0, 0, 0]);
    }

    #[test]
    fn lines_survive_the_socket() {
        let line = line(&event(Outcome::Translated));
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<TraceLine>(&text).unwrap(), line);
    }
}
