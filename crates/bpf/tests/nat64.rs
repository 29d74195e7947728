//! The tables of stateful translation as maps, and what the programs do to them. Needs root.

mod common;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use fordway_bpf::{Action, Loaded, Outcome, PassReason, Program, StateMaps, Stateful, TestOptions};
use fordway_xlat::nat64::{Nat64, Pool, Range, Settings, Sizes};
use fordway_xlat::{Config, DropReason, Packet, State, Translator, Verdict};

fn settings() -> Settings {
    let range = Range {
        first: Ipv4Addr::new(192, 0, 2, 1),
        last: Ipv4Addr::new(192, 0, 2, 4),
        low: 1024,
        high: 65_535,
    };
    Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        sizes: Sizes { bibs: 1000, sessions: 2000, subscribers: 100 },
        ..Settings::default()
    }
}

#[test]
fn a_program_is_loaded_with_tables() {
    let settings = settings();
    let maps = Arc::new(StateMaps::make(&settings.sizes, [1, 2]).unwrap());
    let config = Config { pool6: vec!["64:ff9b::/96".parse().unwrap()], ..Config::default() };
    let options = TestOptions {
        stateful: Some(Stateful { settings, maps: Arc::clone(&maps) }),
        ..TestOptions::default()
    };
    let loaded = Loaded::load(&config, &[Program::Interface], &options).unwrap();
    drop(loaded);
}
