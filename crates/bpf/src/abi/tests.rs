//! Holds the mirror against the objects' BTF.

use fordway_xlat::{Direction, DropReason};
use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize};

use super::*;
use crate::PassReason;
use crate::object::ObjectFile;

const HEADER: &str = include_str!("../../c/include/fordway_abi.h");

/// Name, size, and name and offset of each field.
type Structure = (&'static str, usize, Vec<(String, usize)>);

fn structures() -> Vec<Structure> {
    macro_rules! structures {
        ($($name:ident)*) => {
            vec![$((
                $name::C_NAME,
                $name::SIZE,
                $name::FIELDS.iter().map(|&(name, offset, _)| (name.to_owned(), offset)).collect(),
            ),)*]
        };
    }
    structures!(FwPool6 FwEam FwEamKey4 FwEamKey6 FwConfig FwDirectionCounters FwCounters FwEvent)
}

#[test]
fn structures_are_as_in_the_objects() {
    let mut compared = 0;
    for file in [ObjectFile::TC, ObjectFile::XDP] {
        let btf = Btf::from_raw("object", file.octets()).unwrap().expect("BTF");
        for (name, size, fields) in structures() {
            // The object does not tell of a structure that none of its maps and functions has.
            let Some(found) = btf.type_by_name::<Struct<'_>>(name) else { continue };
            assert_eq!(found.size(), size, "size of {name}");
            let members = found.iter().map(|member| {
                let MemberAttr::Normal { offset } = member.attr else { panic!("a bit field") };
                (member.name.expect("a name").to_string_lossy().into_owned(), offset as usize / 8)
            });
            assert_eq!(members.collect::<Vec<_>>(), fields, "fields of {name}");
            compared += 1;
        }
    }
    assert!(compared >= 14, "only {compared} structures are in the objects");
}

#[test]
fn structures_are_as_in_the_header() {
    for (name, size, fields) in structures() {
        let body = HEADER.split(&format!("struct {name} {{\n")).nth(1).expect("the structure");
        let body = body.split("\n};").next().expect("its end");
        let mut offset = 0;
        let mut found = Vec::new();
        for line in body.lines().filter(|line| line.ends_with(';')) {
            let line = line.trim().trim_end_matches(';');
            let (c_type, declared) = line.rsplit_once(' ').expect("type and name");
            let (field, count) = match declared.split_once('[') {
                Some((field, count)) => (field, number(count.trim_end_matches(']'))),
                None => (declared, 1),
            };
            found.push((field.to_owned(), offset));
            let inner =
                structures().into_iter().find(|inner| c_type == format!("struct {}", inner.0));
            offset += count
                * match (c_type, inner) {
                    ("__u8", _) => 1,
                    ("__u32", _) => 4,
                    ("__u64", _) => 8,
                    (_, Some(inner)) => inner.1,
                    other => panic!("{other:?}"),
                };
        }
        assert_eq!(found, fields, "fields of {name}");
        assert_eq!(offset, size, "size of {name}");
    }
}

/// A number, or the name of one, in the header.
fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| {
        let define = format!("#define {text} ");
        let line = HEADER.lines().find_map(|line| line.strip_prefix(&define));
        line.expect("a defined number").parse().expect("a number")
    })
}

#[test]
fn numbers_are_as_in_the_header() {
    let mut drops = vec![("FW_DROP_NONE".to_owned(), 0)];
    for reason in DropReason::ALL {
        drops.push((constant("FW_DROP_", reason.label()), u32::from(reason.number())));
    }
    drops.push(("FW_DROP_COUNT".to_owned(), DropReason::COUNT as u32));
    assert_eq!(enumeration("fw_drop_reason"), drops);

    let mut passes = vec![("FW_PASS_NONE".to_owned(), 0)];
    for reason in PassReason::ALL {
        passes.push((constant("FW_PASS_", reason.label()), u32::from(reason.number())));
    }
    passes.push(("FW_PASS_COUNT".to_owned(), PassReason::COUNT as u32));
    assert_eq!(enumeration("fw_pass_reason"), passes);

    let directions =
        [("FW_V4_TO_V6", Direction::V4ToV6 as u32), ("FW_V6_TO_V4", Direction::V6ToV4 as u32)];
    assert_eq!(enumeration("fw_direction"), named(&directions));

    let outcomes = [
        ("FW_TRANSLATED", u32::from(outcome::TRANSLATED)),
        ("FW_PASSED_ON", u32::from(outcome::PASSED_ON)),
        ("FW_DROPPED", u32::from(outcome::DROPPED)),
        ("FW_UNMATCHED", u32::from(outcome::UNMATCHED)),
    ];
    assert_eq!(enumeration("fw_outcome"), named(&outcomes));

    let choices = [
        ("FW_UDP_ZERO_COMPUTE", u32::from(udp_checksum_zero::COMPUTE)),
        ("FW_UDP_ZERO_DROP", u32::from(udp_checksum_zero::DROP)),
        ("FW_UDP_ZERO_PASS", u32::from(udp_checksum_zero::PASS)),
    ];
    assert_eq!(enumeration("fw_udp_checksum_zero"), named(&choices));

    for (name, value) in [
        ("FW_ABI_VERSION", ABI_VERSION as usize),
        ("FW_MAX_POOL6", MAX_POOL6),
        ("FW_MAX_INLINE_EAM", MAX_INLINE_EAM),
        ("FW_MAX_DEVICES", MAX_DEVICES),
        ("FW_TRACE_SNAP", TRACE_SNAP),
    ] {
        assert_eq!(number(name), value, "{name}");
    }
}

#[test]
fn reasons_fit_their_counters() {
    let counters = FwCounters::zeroed();
    assert!(DropReason::COUNT <= counters.drops.len());
    assert!(PassReason::COUNT <= counters.passed_on.len());
}

#[test]
fn octets_there_and_back() {
    let octets: Vec<u8> = (0..FwConfig::SIZE).map(|index| index as u8).collect();
    let config = FwConfig::from_octets(&octets).unwrap();
    assert_eq!(config.to_octets(), octets);
    assert_eq!(config.pool6[1].hi.to_ne_bytes(), octets[24..32]);
    assert_eq!(FwConfig::from_octets(&octets[1..]), None);
}

fn constant(prefix: &str, label: &str) -> String {
    format!("{prefix}{}", label.to_uppercase())
}

fn named(numbers: &[(&str, u32)]) -> Vec<(String, u32)> {
    numbers.iter().map(|&(name, number)| (name.to_owned(), number)).collect()
}

/// Names and numbers of an enumeration of the header. Constants that are nowhere a variable's type
/// leave no trace in an object, so the text itself is read.
fn enumeration(name: &str) -> Vec<(String, u32)> {
    let body = HEADER.split(&format!("enum {name} {{")).nth(1).expect("the enumeration");
    let body = body.split('}').next().expect("its end");
    let mut next = 0;
    let mut found = Vec::new();
    for line in body.lines() {
        let line = line.split("/*").next().unwrap_or_default().trim().trim_end_matches(',');
        if line.is_empty() {
            continue;
        }
        let (name, number) = match line.split_once(" = ") {
            Some((name, number)) => (name, number.parse().expect("a number")),
            None => (line, next),
        };
        found.push((name.to_owned(), number));
        next = number + 1;
    }
    found
}
