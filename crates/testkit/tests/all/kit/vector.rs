use fordway_testkit::vector::*;
/// A vector that holds; the tests break it in one place each.
const SOUND: &str = r#"
title = "t"
source = "s"

[config]
pool6 = ["2001:db8:64::/96"]
eam = [["198.51.100.0/24", "2001:db8:1::/120"]]

[input]
v4 = { src = "192.0.2.1", dst = "198.51.100.2", df = true }
tcp = {}
payload = 3000

[offload]
checksum = "partial"
gso = { kind = "tcp4", size = 1000 }

[expect]
verdict = "forward"

[expect.offload]
checksum = "partial"
gso = { kind = "tcp6", size = 1000 }

[[expect.packet]]
v6 = { src = "2001:db8:64::192.0.2.1", dst = "2001:db8:1::2", hop = 63 }
tcp = {}
payload = 3000
"#;

fn mismatch(text: &str) -> Option<String> {
    let case = Case::parse("case", text).unwrap();
    check(&mut Core, &case).unwrap().map(|mismatch| mismatch.to_string())
}

fn broken(from: &str, to: &str) -> String {
    assert!(SOUND.contains(from), "{from}");
    SOUND.replacen(from, to, 1)
}

#[test]
fn a_sound_vector_holds() {
    assert_eq!(mismatch(SOUND), None);
}

#[test]
fn every_difference_is_found_and_told() {
    for (from, to, told) in [
        ("hop = 63", "hop = 62", "next header 6 hop limit 62"),
        (r#"dst = "2001:db8:1::2""#, r#"dst = "2001:db8:1::3""#, "ipv6 2001:db8:64::c000:201 >"),
        (r#"tcp6", size = 1000"#, r#"tcp6", size = 999"#, "offload of packet 0"),
        (
            r#"verdict = "forward""#,
            "verdict = \"drop\"\nreason = \"loop\"",
            "verdict: expected Drop(Loop)",
        ),
        ("[expect.offload]", "[expect.counters]\npassed = 1\n\n[expect.offload]", "counter passed"),
        (
            "[expect.offload]",
            "[expect.counters]\n\"v4_to_v6.segments\" = 4\n\n[expect.offload]",
            "expected 4, got 3",
        ),
    ] {
        let mut text = broken(from, to);
        if to.contains("drop") {
            // A packet that is dropped has no successor.
            text.truncate(text.find("[[expect.packet]]").unwrap());
        }
        let report = mismatch(&text).unwrap_or_else(|| panic!("{to} was not found"));
        assert!(report.contains(told), "{to}: {report}");
    }
}

#[test]
fn a_missing_packet_is_a_difference() {
    let text = format!("{SOUND}\n[[expect.packet]]\nhex = \"00\"\n");
    assert!(mismatch(&text).unwrap().contains("packets: expected 2, got 1"));
}

#[test]
fn refuses_what_is_no_vector() {
    for (text, told) in [
        (broken("title", "titel"), "unknown field `titel`"),
        (broken("df = true", "fd = true"), "unknown field `fd`"),
        (broken("pool6", "pool4"), "unknown field `pool4`"),
        (broken("/96", "/95"), "32, 40, 48, 56, 64 or 96 bits"),
        (broken("[input]", "[config.input]"), "unknown field `input`"),
        (broken(r#"verdict = "forward""#, r#"verdict = "drop""#), "needs `reason`"),
        (
            broken(r#"verdict = "forward""#, "verdict = \"forward\"\nreason = \"loop\""),
            "has no `reason`",
        ),
        (
            broken(r#"verdict = "forward""#, "verdict = \"drop\"\nreason = \"lop\""),
            "`lop` is no drop reason",
        ),
        (broken(r#"verdict = "forward""#, "verdict = \"pass\""), "has no `packet`"),
        ("title = \"t\"\nsource = \"s\"".to_owned(), "give either input and expect, or step"),
    ] {
        let error = Case::parse("case", &text).unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
    }
}

#[test]
fn steps_share_one_state() {
    let step = |id: u16| {
        format!(
            r#"
            [[step]]
            [step.input]
            v6 = {{ src = "2001:db8:1::2", dst = "2001:db8:64::192.0.2.1" }}
            udp = {{}}
            [step.expect]
            verdict = "forward"
            [[step.expect.packet]]
            v4 = {{ src = "198.51.100.2", dst = "192.0.2.1", ttl = 63, id = {id} }}
            udp = {{}}
            "#
        )
    };
    let head = &SOUND[..SOUND.find("[input]").unwrap()];
    assert_eq!(mismatch(&format!("{head}{}{}", step(1), step(2))), None);
    let report = mismatch(&format!("{head}{}{}", step(1), step(1))).unwrap();
    assert!(report.contains("step 1:") && report.contains("identification 0x0002"), "{report}");
}
