use alloc::string::ToString;

use super::*;
use crate::addr::Eam;

fn config() -> Config {
    Config { pool6: alloc::vec![Pool6::WELL_KNOWN], ..Config::default() }
}

#[test]
fn what_makes_no_translator_is_refused() {
    let small = |mtu, least| Err(ConfigError::MtuTooSmall { mtu, least });
    let eam = Eam::new("192.0.2.1/32".parse().unwrap(), "2001:db8::1/128".parse().unwrap());
    let eam = EamTable::new(eam).unwrap();
    let twice = alloc::vec![Pool6::WELL_KNOWN, Pool6::WELL_KNOWN];
    for (config, result) in [
        (Config::default(), Err(ConfigError::NoMapping)),
        (config(), Ok(())),
        (Config { eam, ..Config::default() }, Ok(())),
        (Config { pool6: twice, ..config() }, Err(ConfigError::DuplicatePool6(Pool6::WELL_KNOWN))),
        (Config { mtu4: 67, ..config() }, small(67, 68)),
        (Config { mtu6: 1279, ..config() }, small(1279, 1280)),
        (Config { lowest_ipv6_mtu: 1279, ..config() }, small(1279, 1280)),
        (Config { mtu4: 68, mtu6: 1280, ..config() }, Ok(())),
    ] {
        assert_eq!(config.check(), result);
        assert_eq!(crate::Translator::new(config).map(|_| ()), result);
    }
}

#[test]
fn errors_name_the_value() {
    let text = ConfigError::DuplicatePool6(Pool6::WELL_KNOWN).to_string();
    assert_eq!(text, "pool6 64:ff9b::/96 is listed twice");
    let text = ConfigError::MtuTooSmall { mtu: 67, least: 68 }.to_string();
    assert_eq!(text, "an MTU of 67 octets is below the least allowed, 68");
}

#[test]
fn hops_are_counted_by_direction() {
    let one = HopCount { v4_to_v6: true, v6_to_v4: false };
    for (hops, there, back) in
        [(HopCount::BOTH, true, true), (HopCount::NONE, false, false), (one, true, false)]
    {
        assert_eq!(hops.counts(Direction::V4ToV6), there);
        assert_eq!(hops.counts(Direction::V6ToV4), back);
    }
}
