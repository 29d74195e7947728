//! Holds the mirror against the objects' BTF.

use fordway_xlat::nat64::{TcpState, Timeout, layout};
use fordway_xlat::{Direction, DropReason};
use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize};

use super::*;
use crate::program::ObjectFile;
use crate::{Clock, PassReason};

const HEADERS: [&str; 4] = [
    include_str!("../../c/include/fordway_abi.h"),
    include_str!("../../c/include/fordway_nat64.h"),
    include_str!("../../c/include/fordway_softwire.h"),
    include_str!("../../c/include/fordway_path.h"),
];

/// What stands behind `text` in the headers.
fn behind(text: &str) -> Option<&'static str> {
    HEADERS.into_iter().find_map(|header| header.split(text).nth(1))
}

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
    structures!(
        FwPool6 FwEam FwEamKey4 FwEamKey6 FwConfig FwDirectionCounters FwCounters FwEvent FwPool4Range
        FwVirtualMac FwPod FwPart FwNat64Config FwSoftwireConfig FwSoftwireAddress FwSoftwireKey FwSoftwireTunnel FwSoftwireHere
        FwPathTotals FwRouting
    )
}

#[test]
fn structures_are_as_in_the_objects() {
    let mut compared = 0;
    use ObjectFile as File;
    for file in [File::TC, File::XDP, File::XDP_NAT64, File::SOFTWIRE, File::PATH] {
        let btf = Btf::from_raw("object", file.octets).unwrap().expect("BTF");
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
    assert!(compared >= 23, "only {compared} structures are in the objects");
}

/// Size, and names and offsets of the fields that anybody looks at.
macro_rules! entry {
    ($name:literal, $type:ty: $($field:ident)*) => {
        ($name, size_of::<$type>(), vec![$((stringify!($field), offset_of!($type, $field)),)*])
    };
}

#[test]
fn entries_of_the_tables_are_the_cores() {
    let entries = [
        entry!("fw_bib", layout::Bib: v6_hi v6_lo v4 v4_port v6_port next6 next4 life subscriber
            created since protocol flags alg_session alg_shift),
        entry!("fw_session", layout::Session: life bib next remote remote_port pool6 protocol local
            local_port seen packets octets),
        entry!("fw_block", layout::Block: v4 low high),
        entry!("fw_subscriber", layout::Subscriber: hi lo next life mark sessions ports last_used rate
            pool seen created blocks),
        entry!("fw_free", layout::Free: head count),
        entry!("fw_nat64_meta", layout::Meta: layout entries masks secret clock_offset_ns draining
            fresh by_address),
    ];
    let btf = Btf::from_raw("object", ObjectFile::TC.octets).unwrap().expect("BTF");
    for (name, size, fields) in entries {
        let found = btf.type_by_name::<Struct<'_>>(name).expect(name);
        assert_eq!(found.size(), size, "size of {name}");
        let members = found.iter().map(|member| {
            let MemberAttr::Normal { offset } = member.attr else { panic!("a bit field") };
            (member.name.expect("a name").to_string_lossy().into_owned(), offset as usize / 8)
        });
        let members = members.filter(|(name, _)| name != "reserved").collect::<Vec<_>>();
        let fields = fields.into_iter().map(|(name, offset)| (name.to_owned(), offset));
        assert_eq!(members, fields.collect::<Vec<_>>(), "fields of {name}");
    }
}

#[test]
fn states_are_the_cores() {
    let states = enumeration("fw_entry_state");
    use layout::{bib_flags, entry_state, session_seen};
    let entry_states = [
        ("FW_ENTRY_FREE", entry_state::FREE),
        ("FW_ENTRY_CLAIMED", entry_state::CLAIMED),
        ("FW_ENTRY_DEAD", entry_state::DEAD),
        ("FW_ENTRY_LIMBO", entry_state::LIMBO),
        ("FW_ENTRY_LIVE", entry_state::LIVE),
        ("FW_ENTRY_HOLD_DOWN", entry_state::HOLD_DOWN),
    ];
    let wide = |(name, number): (&'static str, u8)| (name, u32::from(number));
    assert_eq!(states[..6], named(&entry_states.map(wide)));
    assert_eq!(states.len(), entry_states.len() + TcpState::ALL.len());
    let flags = [
        ("FW_BIB_STATIC", bib_flags::STATIC),
        ("FW_BIB_SEEN", bib_flags::SEEN),
        ("FW_BIB_ADDED", bib_flags::ADDED),
        ("FW_BIB_EXPECTED", bib_flags::EXPECTED),
        ("FW_BIB_HELD", bib_flags::HELD),
    ];
    assert_eq!(enumeration("fw_bib_flags"), named(&flags.map(wide)));
    let seen = [
        ("FW_SESSION_TOLD", u32::from(session_seen::TOLD)),
        ("FW_SESSION_SHIFTED", u32::from(session_seen::SHIFTED)),
    ];
    assert_eq!(enumeration("fw_session_seen"), named(&seen));
    for state in TcpState::ALL {
        let name = format!("FW_TCP_{}", state.label().to_uppercase());
        assert!(states.contains(&(name.clone(), state as u32)), "{name} {states:?}");
    }
    assert_eq!(enumeration("fw_timeout").last(), Some(&("FW_TIMEOUTS".to_owned(), 5)));
    let timeouts = [
        ("FW_TIMEOUT_UDP", Timeout::Udp as u32),
        ("FW_TIMEOUT_ICMP", Timeout::Icmp as u32),
        ("FW_TIMEOUT_TCP_EST", Timeout::TcpEst as u32),
        ("FW_TIMEOUT_TCP_TRANS", Timeout::TcpTrans as u32),
        ("FW_TIMEOUT_TCP_INCOMING_SYN", Timeout::TcpIncomingSyn as u32),
    ];
    assert_eq!(enumeration("fw_timeout")[..5], named(&timeouts));
    let roles =
        [("FW_SOFTWIRE_TEP", softwire_role::TEP), ("FW_SOFTWIRE_CLIENT", softwire_role::CLIENT)];
    assert_eq!(
        enumeration("fw_softwire_role"),
        named(&roles.map(|(name, number)| (name, u32::from(number))))
    );
    let modes = [
        ("FW_NAT64_NONE", 0),
        ("FW_NAT64_STATEFUL", nat64_mode::STATEFUL),
        ("FW_NAT64_DYNAMIC4", nat64_mode::DYNAMIC4),
    ];
    assert_eq!(enumeration("fw_nat64_mode"), named(&modes));
    let clocks = [
        ("FW_CLOCK_MACHINE", Clock::Machine as u32),
        ("FW_CLOCK_MOVED", Clock::Moved as u32),
        ("FW_CLOCK_STANDS", Clock::Stands as u32),
    ];
    assert_eq!(enumeration("fw_clock"), named(&clocks));
}

#[test]
fn structures_are_as_in_the_header() {
    for (name, size, fields) in structures() {
        let body = behind(&format!("struct {name} {{\n")).expect("the structure");
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
                    ("__u16", _) => 2,
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

/// A number, or the name of one, in the headers.
fn number(text: &str) -> usize {
    let define = format!("#define {text} ");
    let mut lines = HEADERS.into_iter().flat_map(str::lines);
    let defined = lines.find_map(|line| line.strip_prefix(&define));
    let kind = || enumeration("fw_kind").into_iter().find(|(name, _)| name == text);
    match defined.unwrap_or(text).parse() {
        Ok(number) => number,
        Err(_) => kind().expect("a number, or a kind of entry").1 as usize,
    }
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
        ("FW_HANDED_OVER", u32::from(outcome::HANDED_OVER)),
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
        ("FW_MAX_PODS", MAX_PODS as usize),
        ("FW_POD_NAME", POD_NAME),
        ("FW_TRACE_SNAP", TRACE_SNAP),
        ("FW_MAX_POOL4", MAX_POOL4),
        ("FW_MAX_SHARDS", MAX_SHARDS),
        ("FW_CHANGED_WORDS", fordway_xlat::nat64::CHANGED_WORDS),
        ("FW_CELL4", CELL4.into()),
        ("FW_CELL6", CELL6.into()),
        ("FW_FINE_BITS", FINE_BITS as usize),
        ("FW_FINE_WORDS", FINE_WORDS),
        ("FW_PAIRS_BITS", PAIRS_BITS.into()),
        ("FW_LEFT_PORTS", LEFT_PORTS),
        ("FW_NAT64_LAYOUT", layout::LAYOUT as usize),
        ("FW_NAT64_LAYOUT_PERMISSIONS", layout::LAYOUT_PERMISSIONS as usize),
        ("FW_PERMISSION", layout::PERMISSION.into()),
        ("FW_TICK_SHIFT", layout::TICK_SHIFT as usize),
        ("FW_MAX_BLOCKS", layout::MAX_BLOCKS),
        ("FW_FREE_SHARDS", layout::FREE_SHARDS),
        ("FW_PORT_TRIES", layout::PORT_TRIES as usize),
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
    let body = behind(&format!("enum {name} {{")).expect("the enumeration");
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
