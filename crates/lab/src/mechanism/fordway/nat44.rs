//! What is particular to NAT44 by the kernel, set up by the gateway: no engine, counters of the kernel.

use serde_json::Value;

use crate::mechanism::Counted;

/// What the clients' box, and the testers behind it, send from: see `topology::boxes`.
const CLIENTS: [&str; 2] = ["192.0.2.0/24", "198.18.0.0/15"];

/// The subcommand and its options.
pub(super) fn options() -> Vec<String> {
    let mut argv = vec!["nat44", "--uplink", "to-iperf"];
    argv.extend(CLIENTS.iter().flat_map(|net| ["--clients", net]));
    argv.into_iter().map(str::to_owned).collect()
}

/// Whether a status or statistics are those of such a gateway.
pub(super) fn tells(said: &Value) -> bool {
    said.pointer("/nat44/0").is_some()
}

/// What left (`out`) or came back between two readings; `None`: it is no such gateway.
pub(super) fn read(before: &Value, after: &Value, out: bool) -> Option<Counted> {
    let way = if out { "out" } else { "in" };
    let since = |name: &str, what: &str| {
        let path = format!("/nat44/0/counters/{name}/{what}");
        let number = |said: &Value| said.pointer(&path).and_then(Value::as_u64);
        Some(number(after)?.saturating_sub(number(before).unwrap_or(0)))
    };
    let dropped =
        |name: &&str| Some(((*name).to_owned(), since(name, "packets").filter(|n| *n > 0)?));
    let reasons = ["unsolicited", "invalid", "sessions_limit", "rate_limit"];
    Some(Counted {
        octets: since(way, "octets")?,
        packets: since(way, "packets")?,
        drops: reasons.iter().filter_map(dropped).collect(),
    })
}

/// Connections of clients so far.
pub(super) fn created(stats: &Value) -> Option<u64> {
    stats.pointer("/nat44/0/counters/sessions/packets")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_account_is_the_difference_of_two_readings() {
        let said = |out: u64, invalid: u64| {
            serde_json::json!({"nat44": [{"counters": {
                "out": {"packets": out, "octets": 100 * out}, "in": {"packets": 1, "octets": 40},
                "sessions": {"packets": out / 2, "octets": 0},
                "invalid": {"packets": invalid, "octets": 0}}}]})
        };
        let counted = read(&said(10, 0), &said(14, 3), true).unwrap();
        assert_eq!((counted.packets, counted.octets), (4, 400));
        assert_eq!(counted.drops, [("invalid".to_owned(), 3)]);
        assert_eq!(read(&said(10, 0), &said(14, 3), false).unwrap().packets, 0);
        assert_eq!(created(&said(10, 0)), Some(5));
        assert_eq!(read(&Value::Null, &serde_json::json!({"translators": []}), true), None);
    }
}
