//! `[[trt]]` as TOML.

use fordway_xlat::TrafficClass;
use serde::Serialize;

use super::Trt;
use super::read::URGENT;
use crate::emit::{WordOrList, WordOrNumber, icmp_errors, strings, word};

/// All keys are always written.
#[derive(Serialize)]
pub(crate) struct TrtTable {
    name: String,
    pool6: Vec<String>,
    threads: WordOrNumber,
    tcp: bool,
    udp: bool,
    own_traffic: bool,
    allow: WordOrList,
    refuse4: Vec<String>,
    allow_private: bool,
    allow_own: bool,
    source4: Vec<String>,
    traffic_class: WordOrNumber,
    urgent: &'static str,
    keepalive: String,
    icmp_errors: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_errors_burst: Option<u32>,
    max_connections: u32,
    max_sessions: u32,
    max_per_client: u32,
    client_len: u8,
    connect_timeout: String,
    tcp_idle: String,
    half_closed_idle: String,
    udp_idle: String,
    mark: u32,
    table: u32,
}

impl TrtTable {
    pub(crate) fn of(trt: &Trt) -> TrtTable {
        let time = |time| humantime::format_duration(time).to_string();
        let (icmp_errors, icmp_errors_burst) = icmp_errors(trt.icmp_errors);
        TrtTable {
            name: trt.name.to_string(),
            pool6: strings(&trt.pool6),
            threads: trt
                .threads
                .and_then(|threads| u32::try_from(threads).ok())
                .map_or(WordOrNumber::Word("auto"), WordOrNumber::Number),
            tcp: trt.tcp,
            udp: trt.udp,
            own_traffic: trt.own_traffic,
            allow: match &trt.allow {
                None => WordOrList::Word("local"),
                Some(allow) => WordOrList::List(strings(allow)),
            },
            refuse4: strings(&trt.refuse4),
            allow_private: trt.allow_private,
            allow_own: trt.allow_own,
            source4: strings(&trt.source4),
            traffic_class: match trt.traffic_class {
                TrafficClass::Copy => WordOrNumber::Word("copy"),
                TrafficClass::Set(octet) => WordOrNumber::Number(octet.into()),
            },
            urgent: word(&URGENT, trt.urgent),
            keepalive: trt.keepalive.map_or("off".to_owned(), time),
            icmp_errors,
            icmp_errors_burst,
            max_connections: trt.max_connections,
            max_sessions: trt.max_sessions,
            max_per_client: trt.max_per_client,
            client_len: trt.client_len,
            connect_timeout: time(trt.connect_timeout),
            tcp_idle: time(trt.tcp_idle),
            half_closed_idle: time(trt.half_closed_idle),
            udp_idle: time(trt.udp_idle),
            mark: trt.mark,
            table: trt.table,
        }
    }
}
