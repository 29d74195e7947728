//! `[dns64]` as TOML.

use fordway_xlat::addr::Pool6;
use ipnet::Ipv4Net;
use serde::Serialize;

use super::read::REVERSES;
use super::{Dns64, Dns64Policy};
use crate::emit::{WordOrBool, WordOrList, WordOrNumber, rate, strings, word};
use crate::value::{memory_text, name_text};

/// Absent options are left out; all other keys are always written.
#[derive(Serialize)]
pub(crate) struct Dns64Table {
    listen: Vec<String>,
    upstream: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    threads: WordOrNumber,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool6: Option<Vec<String>>,
    ranges: Vec<[String; 2]>,
    exclude: Vec<String>,
    exclude_a: Vec<String>,
    exempt: Vec<String>,
    reverse: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reverse_domain: Option<String>,
    nat64_names: Vec<String>,
    allow_private: WordOrBool,
    allow: WordOrList,
    validate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_anchor: Option<String>,
    cache: String,
    timeout: String,
    deadline: String,
    attempts: u8,
    rate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    udp_size: u16,
    tcp_clients: u32,
    tcp_idle: String,
    client_len: u8,
    client_len4: u8,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policy: Vec<PolicyTable>,
}

#[derive(Serialize)]
struct PolicyTable {
    client: Vec<String>,
    enable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool6: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Vec<[String; 2]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exclude: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exclude_a: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exempt: Option<Vec<String>>,
}

impl Dns64Table {
    pub(crate) fn of(dns64: &Dns64) -> Dns64Table {
        let path = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
        let time = |time| humantime::format_duration(time).to_string();
        Dns64Table {
            listen: strings(&dns64.listen),
            upstream: strings(&dns64.upstream),
            ca: dns64.ca.as_ref().map(path),
            threads: dns64
                .threads
                .and_then(|threads| u32::try_from(threads).ok())
                .map_or(WordOrNumber::Word("auto"), WordOrNumber::Number),
            pool6: dns64.pool6.as_ref().map(|pool6| strings(pool6)),
            ranges: pairs(&dns64.ranges),
            exclude: strings(&dns64.exclude),
            exclude_a: strings(&dns64.exclude_a),
            exempt: dns64.exempt.iter().map(name_text).collect(),
            reverse: word(&REVERSES, dns64.reverse),
            reverse_domain: dns64.reverse_domain.as_ref().map(name_text),
            nat64_names: dns64.nat64_names.iter().map(name_text).collect(),
            allow_private: dns64.allow_private.map_or(WordOrBool::Word("auto"), WordOrBool::Bool),
            allow: match &dns64.allow {
                None => WordOrList::Word("local"),
                Some(allow) => WordOrList::List(strings(allow)),
            },
            validate: dns64.validate,
            trust_anchor: dns64.trust_anchor.as_ref().map(path),
            // The greatest cache has far fewer octets than the type holds.
            cache: memory_text(&i64::try_from(dns64.cache).unwrap_or(i64::MAX)),
            timeout: time(dns64.timeout),
            deadline: time(dns64.deadline),
            attempts: dns64.attempts,
            rate: rate(dns64.rate),
            burst: dns64.rate.map(|_| dns64.burst),
            udp_size: dns64.udp_size,
            tcp_clients: dns64.tcp_clients,
            tcp_idle: time(dns64.tcp_idle),
            client_len: dns64.client_len,
            client_len4: dns64.client_len4,
            policy: dns64.policies.iter().map(PolicyTable::of).collect(),
        }
    }
}

fn pairs(ranges: &[(Ipv4Net, Pool6)]) -> Vec<[String; 2]> {
    ranges.iter().map(|(v4, pool6)| [v4.to_string(), pool6.to_string()]).collect()
}

impl PolicyTable {
    fn of(policy: &Dns64Policy) -> PolicyTable {
        let names = |names: &Vec<_>| names.iter().map(name_text).collect();
        PolicyTable {
            client: strings(&policy.clients),
            enable: policy.enable,
            pool6: policy.pool6.as_ref().map(|pool6| strings(pool6)),
            ranges: policy.ranges.as_ref().map(|ranges| pairs(ranges)),
            exclude: policy.exclude.as_ref().map(|exclude| strings(exclude)),
            exclude_a: policy.exclude_a.as_ref().map(|exclude_a| strings(exclude_a)),
            exempt: policy.exempt.as_ref().map(names),
        }
    }
}
