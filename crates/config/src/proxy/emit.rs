//! `[[proxy]]` as TOML.

use serde::Serialize;

use super::read::{ACTIONS, BALANCES, FORMATS, FORWARDED};
use super::{Proxy, ProxyLog, ProxyMode, ProxyRule};
use crate::emit::{WordOrList, WordOrNumber, strings, word};
use crate::value::memory_text;

/// Absent options are left out; all other keys are always written.
#[derive(Serialize)]
pub(crate) struct ProxyTable {
    name: String,
    mode: &'static str,
    listen: Vec<String>,
    threads: WordOrNumber,
    allow: WordOrList,
    #[serde(flatten)]
    of_mode: OfMode,
    resolver: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    pref64: Vec<String>,
    attempt_delay: String,
    resolution_delay: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    http2: bool,
    via: String,
    forwarded: &'static str,
    upgrade: Vec<String>,
    header: u32,
    target: u32,
    fields: u32,
    body: String,
    header_time: String,
    connect_time: String,
    response_time: String,
    idle_time: String,
    keep_alive: String,
    requests: u32,
    connections: u32,
    connections_per_client: u32,
    client_len: u8,
    client_len4: u8,
    streams: u32,
    server_connections: u32,
    pool: u32,
    pool_time: String,
    drain: String,
    log: String,
    log_format: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rule: Vec<RuleTable>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OfMode {
    Forward { connect_ports: Vec<String>, ports: Vec<String>, default: &'static str },
    Reverse { upstream: Vec<String>, balance: &'static str, host: String, pause: String },
}

#[derive(Serialize)]
struct RuleTable {
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    to: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<Vec<String>>,
    action: &'static str,
}

impl ProxyTable {
    pub(crate) fn of(proxy: &Proxy) -> ProxyTable {
        let path = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
        let time = |time| humantime::format_duration(time).to_string();
        let limits = &proxy.limits;
        let (mode, all, of_mode, rule) = match &proxy.mode {
            ProxyMode::Forward { connect_ports, ports, rules, default } => {
                let keys = OfMode::Forward {
                    connect_ports: strings(connect_ports),
                    ports: strings(ports),
                    default: word(&ACTIONS, *default),
                };
                ("forward", "local", keys, rules.iter().map(RuleTable::of).collect())
            }
            ProxyMode::Reverse { upstream, balance, host, pause } => {
                let keys = OfMode::Reverse {
                    upstream: strings(upstream),
                    balance: word(&BALANCES, *balance),
                    host: host.clone().unwrap_or_else(|| "keep".to_owned()),
                    pause: time(*pause),
                };
                ("reverse", "all", keys, Vec::new())
            }
        };
        ProxyTable {
            name: proxy.name.to_string(),
            mode,
            listen: strings(&proxy.listen),
            threads: proxy
                .threads
                .and_then(|threads| u32::try_from(threads).ok())
                .map_or(WordOrNumber::Word("auto"), WordOrNumber::Number),
            allow: match &proxy.allow {
                None => WordOrList::Word(all),
                Some(allow) => WordOrList::List(strings(allow)),
            },
            of_mode,
            resolver: strings(&proxy.resolver),
            ca: proxy.ca.as_ref().map(path),
            pref64: strings(&proxy.pref64),
            attempt_delay: time(proxy.attempt_delay),
            resolution_delay: time(proxy.resolution_delay),
            certificate: proxy.tls.as_ref().map(|(certificate, _)| path(certificate)),
            key: proxy.tls.as_ref().map(|(_, key)| path(key)),
            http2: proxy.http2,
            via: proxy.via.clone().unwrap_or_else(|| "auto".to_owned()),
            forwarded: word(&FORWARDED, proxy.forwarded),
            upgrade: proxy.upgrade.clone(),
            header: limits.header,
            target: limits.target,
            fields: limits.fields,
            body: limits.body.map_or("unlimited".to_owned(), |body| {
                // The file has at most 1 PiB.
                memory_text(&i64::try_from(body).unwrap_or(i64::MAX))
            }),
            header_time: time(limits.header_time),
            connect_time: time(limits.connect_time),
            response_time: time(limits.response_time),
            idle_time: time(limits.idle_time),
            keep_alive: time(limits.keep_alive),
            requests: limits.requests,
            connections: limits.connections,
            connections_per_client: limits.connections_per_client,
            client_len: limits.client_len,
            client_len4: limits.client_len4,
            streams: limits.streams,
            server_connections: limits.server_connections,
            pool: limits.pool,
            pool_time: time(limits.pool_time),
            drain: time(limits.drain),
            log: match &proxy.log {
                None => "off".to_owned(),
                Some(ProxyLog::Stdout) => "stdout".to_owned(),
                Some(ProxyLog::File(file)) => path(file),
            },
            log_format: word(&FORMATS, proxy.log_format),
            rule,
        }
    }
}

impl RuleTable {
    fn of(rule: &ProxyRule) -> RuleTable {
        RuleTable {
            client: rule.clients.as_ref().map(|clients| strings(clients)),
            to: strings(&rule.to),
            ports: rule.ports.as_ref().map(|ports| strings(ports)),
            action: word(&ACTIONS, rule.allow),
        }
    }
}
