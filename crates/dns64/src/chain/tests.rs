use super::*;
use crate::tests::{name, record};

fn end(start: &str, records: &[&str]) -> Option<(String, usize)> {
    let records: Vec<Record> = records.iter().map(|line| record(line)).collect();
    follow(&name(start), &records).map(|chain| (chain.end.to_ascii(), chain.links.len()))
}

#[test]
fn aliases_are_followed_in_any_order() {
    let chain = ["b.net. 9 CNAME c.net.", "A.net. 9 CNAME B.net.", "c.net. 9 A 192.0.2.1"];
    assert_eq!(end("a.net.", &chain), Some(("c.net.".into(), 2)));
    assert_eq!(end("x.net.", &chain), Some(("x.net.".into(), 0)));
    assert_eq!(end("c.net.", &[]), Some(("c.net.".into(), 0)));
}

#[test]
fn circles_and_long_chains_end() {
    assert_eq!(end("a.net.", &["a.net. 9 CNAME a.net."]), None);
    assert_eq!(end("a.net.", &["a.net. 9 CNAME b.net.", "b.net. 9 CNAME a.net."]), None);
    let links: Vec<String> = (0..40).map(|i| format!("{i}.net. 9 CNAME {}.net.", i + 1)).collect();
    let links: Vec<&str> = links.iter().map(String::as_str).collect();
    assert_eq!(end("0.net.", &links[..16]), Some(("16.net.".into(), 16)));
    assert_eq!(end("0.net.", &links), None);
}

#[test]
fn dnames_redirect_what_is_below_them() {
    let dname = "net. 9 DNAME example.org.";
    assert_eq!(end("a.b.net.", &[dname]), Some(("a.b.example.org.".into(), 2)));
    assert_eq!(end("net.", &[dname]), Some(("net.".into(), 0)), "not the name itself");
    let with =
        [dname, "a.net. 5 CNAME a.example.org.", "a.net. 5 RRSIG CNAME", "net. 9 RRSIG DNAME"];
    assert_eq!(end("a.net.", &with), Some(("a.example.org.".into(), 4)));
}

#[test]
fn a_dname_that_makes_a_name_too_long_ends_nowhere() {
    let long =
        format!("{}.{}.{}.{}.", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(50));
    let dname = format!("net. 9 DNAME {long}");
    assert_eq!(end("a.net.", &[&dname]), Some((format!("a.{long}"), 2)));
    assert_eq!(end("abcdefghijklmnop.net.", &[&dname]), None);
}

#[test]
fn a_dname_that_is_none_is_not_followed() {
    // Compressed, cut short, too long: what is left is no alias.
    for data in ["c00c", "0361", "0361626300ff", "ff"] {
        assert_eq!(end("a.net.", &[&format!("net. 9 TYPE39 {data}")]), Some(("a.net.".into(), 0)));
    }
}

#[test]
fn signatures_tell_what_they_cover() {
    assert_eq!(covered(&record("a.net. 9 RRSIG AAAA")), Some(RecordType::AAAA));
    assert_eq!(covered(&record("a.net. 9 TYPE46 00")), None);
    assert_eq!(covered(&record("a.net. 9 A 192.0.2.1")), None);
}
