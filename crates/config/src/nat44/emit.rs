//! Entries of mode `nat44` and `dual-stack` as TOML.

use serde::Serialize;

use super::read::{INBOUNDS, PROTOCOLS};
use super::{DualStack, Forward, Nat44};
use crate::emit::{strings, word};

/// Absent options are left out; all other keys are always written.
#[derive(Serialize)]
pub(crate) struct Nat44Table {
    name: String,
    mode: &'static str,
    clients: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<String>,
    uplink: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pool4: Vec<String>,
    assign: bool,
    persistent: bool,
    random_ports: bool,
    netmap: Vec<[String; 2]>,
    forward: Vec<[String; 3]>,
    hairpin: bool,
    inbound: &'static str,
    mss_clamp: bool,
    allow_short_lifetimes: bool,
    log: bool,
    lifetimes: Lifetimes,
    quotas: Quotas,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Lifetimes {
    Word(&'static str),
    Table { udp: String, icmp: String, tcp_est: String, tcp_trans: String },
}

#[derive(Serialize)]
struct Quotas {
    sessions: u32,
    new_per_second: u32,
}

impl Nat44Table {
    pub(crate) fn of(nat44: &Nat44) -> Nat44Table {
        let time = |time| humantime::format_duration(time).to_string();
        Nat44Table {
            name: nat44.name.to_string(),
            mode: "nat44",
            clients: strings(&nat44.clients),
            devices: strings(&nat44.devices),
            uplink: strings(&nat44.uplinks),
            pool4: strings(&nat44.pool4),
            assign: nat44.assign,
            persistent: nat44.persistent,
            random_ports: nat44.random_ports,
            netmap: nat44.netmap.iter().map(|(a, b)| [a.to_string(), b.to_string()]).collect(),
            forward: nat44.forwards.iter().map(forward).collect(),
            hairpin: nat44.hairpin,
            inbound: word(&INBOUNDS, nat44.inbound),
            mss_clamp: nat44.mss_clamp,
            allow_short_lifetimes: nat44.allow_short_lifetimes,
            log: nat44.log,
            lifetimes: nat44.lifetimes.map_or(Lifetimes::Word("host"), |it| Lifetimes::Table {
                udp: time(it.udp),
                icmp: time(it.icmp),
                tcp_est: time(it.tcp_est),
                tcp_trans: time(it.tcp_trans),
            }),
            quotas: Quotas {
                sessions: nat44.quotas.sessions,
                new_per_second: nat44.quotas.new_per_second,
            },
        }
    }
}

fn forward(it: &Forward) -> [String; 3] {
    let outside = it.address.map_or(it.port.to_string(), |ip| format!("{ip}:{}", it.port));
    [word(&PROTOCOLS, it.protocol).to_owned(), outside, format!("{}:{}", it.to.0, it.to.1)]
}

#[derive(Serialize)]
pub(crate) struct DualStackTable {
    name: String,
    mode: &'static str,
    devices: Vec<String>,
    addresses: Vec<[String; 2]>,
}

impl DualStackTable {
    pub(crate) fn of(dual_stack: &DualStack) -> DualStackTable {
        let addresses = dual_stack.addresses.iter();
        DualStackTable {
            name: dual_stack.name.to_string(),
            mode: "dual-stack",
            devices: strings(&dual_stack.devices),
            addresses: addresses
                .map(|(device, net)| [device.to_string(), net.to_string()])
                .collect(),
        }
    }
}
