use fordway_testkit::vector::sequence::*;
/// A sequence that holds; the tests break it in one place each.
const SOUND: &str = r#"
title = "t"
source = "s"

[config]
pool6 = ["2001:db8:64::/96"]

[nat64]
pool4 = ["203.0.113.1"]

[flow]
protocol = "tcp"
v6 = ["2001:db8:1::1", 40000]
v4 = ["203.0.113.1", "$t"]
remote = ["198.51.100.2", 80]

[[step]]
v6 = "S"
expect = "forward"
state = "v6_init"
left = "240s"
bib = [["tcp", ["2001:db8:1::1", 40000], ["203.0.113.1", "$t"]]]

[[step]]
at = "1m"
v4 = "SA"
expect = "forward"
state = "established"
left = "2h"
sessions = 1

[[step]]
at = "2h1m2s"
state = "trans"

[[step.sends]]
v6 = { src = "2001:db8:64::198.51.100.2", dst = "2001:db8:1::1" }
tcp = { sport = 80, dport = 40000, seq = 0, ack = 0, flags = "A", window = 0 }

[[step]]
at = "2h5m4s"
state = "closed"
bibs = 0
"#;

fn mismatch(text: &str) -> Option<String> {
    let sequence = Sequence::parse("case", text).unwrap();
    check_sequence(&mut CoreNat64, &sequence).unwrap().map(|mismatch| mismatch.to_string())
}

#[test]
fn a_sound_sequence_holds() {
    assert_eq!(mismatch(SOUND), None);
}

#[test]
fn every_difference_is_found_and_told() {
    for (from, to, told) in [
        (r#"state = "v6_init""#, r#"state = "v4_init""#, "state: expected v4_init, got v6_init"),
        (r#"left = "240s""#, r#"left = "239s""#, "left of the lifetime: expected 239s"),
        (r#"left = "240s""#, r#"left = "241s""#, "left of the lifetime: expected 241s"),
        (
            r#"40000], ["203.0.113.1", "$t"]]]"#,
            r#"40001], ["203.0.113.1", "$t"]]]"#,
            "BIB: expected",
        ),
        ("sessions = 1", "sessions = 2", "sessions: expected 2, got 1"),
        (r#"v4 = "SA""#, "v4 = \"SA\"\npayload = 1", ""),
        (r#"at = "1m""#, r#"at = "5m""#, "verdict: expected Forward"),
        ("seq = 0, ack", "seq = 1, ack", "packet 0 of the sweeper"),
        ("[[step.sends]]", "[[step.other]]", "unknown field"),
        (r#"at = "2h1m2s""#, r#"at = "2h""#, "sweeper: 0 sent, expected 1"),
        ("bibs = 0", "bibs = 1", "BIB entries: expected 1, got 0"),
        (
            "expect = \"forward\"\nstate = \"v6",
            "expect = \"hold\"\nstate = \"v6",
            "expected to be kept",
        ),
        (
            "expect = \"forward\"\nstate = \"v6",
            "expect = \"drop not_syn\"\nstate = \"v6",
            "Drop(NotSyn)",
        ),
    ] {
        assert!(SOUND.contains(from), "{from}");
        let text = SOUND.replacen(from, to, 1);
        let report = match Sequence::parse("case", &text) {
            Ok(_) => mismatch(&text).unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        // A payload more is no difference: both packets get it.
        assert_eq!(report.is_empty(), told.is_empty(), "{to}: {report}");
        assert!(report.contains(told), "{to}: {report}");
    }
}

#[test]
fn a_value_that_changes_is_a_difference() {
    // The other host does not get the first one's port.
    let other = r#"

[[step]]
input = { v6 = { src = "2001:db8:1::2", dst = "2001:db8:64::198.51.100.2" }, tcp = { flags = "S" } }

[step.expect]
verdict = "forward"
packet = [{ v4 = { src = "203.0.113.1", dst = "198.51.100.2", ttl = 63 }, tcp = { sport = "$t", flags = "S" } }]
"#;
    let end = SOUND.find("[[step]]\nat = \"1m\"").unwrap();
    let text = format!("{}{other}", &SOUND[..end]);
    assert!(mismatch(&text).unwrap().contains("packet 0"), "{text}");
    assert_eq!(mismatch(&text.replace(r#"sport = "$t""#, r#"sport = "$u""#)), None);
}

#[test]
fn what_is_no_sequence_is_refused() {
    for (from, to, told) in [
        ("v6 = \"S\"\n", "", "a packet needs `expect`"),
        ("v6 = \"S\"\n", "v6 = \"S\"\nv4 = \"S\"\n", "at most one of v6, v4 and input"),
        ("v6 = \"S\"\n", "v6 = \"S\"\nflow = \"x\"\n", "no such flow"),
        (r#"at = "1m""#, r#"at = "1 minute""#, "is no time"),
        (r#"["203.0.113.1"]"#, r#"["203.0.113.1:5"]"#, "neither ADDR"),
        ("[nat64]", "[nat64]\nbib = [[\"tcp\", 1]]", "a BIB entry is"),
        (r#"["2001:db8:64::/96"]"#, r#"["2001:db8:64::/64"]"#, "of length 96"),
    ] {
        assert!(SOUND.contains(from), "{from}");
        let error = Sequence::parse("case", &SOUND.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(told), "{to}: {error}");
    }
}

#[test]
fn times() {
    let seconds = |text: &str| {
        let time: Option<Time> = toml::Value::from(text).try_into().ok();
        time.map(|time| time.0.as_millis())
    };
    assert_eq!(seconds("2h4m"), Some(7_440_000));
    assert_eq!(seconds("1500ms"), Some(1500));
    assert_eq!(seconds("1m30s"), Some(90_000));
    for wrong in ["", "s", "1", "1d", "1s2"] {
        assert_eq!(seconds(wrong), None, "{wrong}");
    }
}
