//! A configuration as TOML, every key written out.

use std::fmt;

use fordway_xlat::addr::Eam;
use fordway_xlat::{IcmpErrors, TrafficClass};
use serde::Serialize;

use crate::engine::{ATTACHES, ENGINES};
use crate::keys::{self, Written};
use crate::nat44::emit::{DualStackTable, Nat44Table};
use crate::nat64::emit::{Keys, Tables};
use crate::nat64::nat_pt::Keys as NatPtKeys;
use crate::softwire::{self, Softwire};
use crate::translator::UDP_CHECKSUM_ZERO;
use crate::types::{Attach, Config, Mode, Source6, Translator};

/// Displays as a configuration file that parses to the same configuration.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = File {
            translator: self
                .translators
                .iter()
                .map(|it| Entry::Translator(Box::new(TranslatorTable::of(it))))
                .chain(self.nat44.iter().map(|it| Entry::Nat44(Box::new(Nat44Table::of(it)))))
                .chain(self.dual_stack.iter().map(|it| Entry::DualStack(DualStackTable::of(it))))
                .collect(),
            dns64: self.dns64.as_ref().map(keys::write),
            advertise: self.advertise.iter().map(keys::write).collect(),
            trt: self.trt.iter().map(keys::write).collect(),
            proxy: self.proxies.iter().map(keys::write).collect(),
            dstm_server: self.dstm_server.as_ref().map(keys::write),
            dstm_tep: self.dstm_tep.as_ref().map(keys::write),
            dstm_client: self.dstm_clients.iter().map(keys::write).collect(),
            control: keys::write(&self.control),
            metrics: keys::write(&self.metrics),
            log: keys::write(&self.log),
        };
        f.write_str(&toml::to_string(&file).map_err(|_| fmt::Error)?)
    }
}

/// Absent options are left out; all other keys are always written.
#[derive(Serialize)]
struct TranslatorTable {
    name: String,
    mode: &'static str,
    engine: &'static str,
    attach: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<String>>,
    measure: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass_rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool6: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pref64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    always: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v4: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v6: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink: Option<String>,
    #[serde(flatten)]
    softwire: softwire::emit::Keys,
    #[serde(flatten)]
    nat64: Keys,
    #[serde(flatten)]
    nat_pt: NatPtKeys,
    #[serde(skip_serializing_if = "Option::is_none")]
    eam: Option<Vec<[String; 2]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routes4: Option<Vec<String>>,
    metric: u32,
    icmp_source4: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_node_id: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_source6: Option<String>,
    icmp_errors: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp_errors_burst: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    udp_checksum_zero: Option<&'static str>,
    traffic_class: WordOrNumber,
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_private: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4_translatable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hairpin: Option<bool>,
    mss_clamp: bool,
    mtu: WordOrNumber,
    #[serde(skip_serializing_if = "Option::is_none")]
    lowest_ipv6_mtu: Option<u32>,
    queues: WordOrNumber,
    queue_length: u32,
    pin_queues: bool,
    manage: bool,
    #[serde(flatten)]
    nat64_tables: Tables,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bindings: Vec<softwire::emit::BindingTable>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum WordOrNumber {
    Word(&'static str),
    Number(u32),
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum WordOrBool {
    Word(&'static str),
    Bool(bool),
}

/// A `[[translator]]`.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry {
    Translator(Box<TranslatorTable>),
    Nat44(Box<Nat44Table>),
    DualStack(DualStackTable),
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum WordOrList {
    Word(&'static str),
    List(Vec<String>),
}

#[derive(Serialize)]
struct File {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    translator: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns64: Option<Written>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advertise: Vec<Written>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trt: Vec<Written>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    proxy: Vec<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dstm_server: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dstm_tep: Option<Written>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dstm_client: Vec<Written>,
    control: Written,
    metrics: Written,
    log: Written,
}

impl TranslatorTable {
    fn of(t: &Translator) -> TranslatorTable {
        let clat = t.clat();
        let stateless = t.nat64().is_none();
        let translates = t.softwire().is_none();
        let client = t.softwire().and_then(Softwire::client);
        let auto = || "auto".to_owned();
        let (icmp_errors, icmp_errors_burst) = icmp_errors(t.icmp_errors);
        TranslatorTable {
            name: t.name.to_string(),
            mode: t.mode_name(),
            engine: word(&ENGINES, t.engine),
            attach: word(&ATTACHES, t.attach),
            devices: matches!(t.attach, Attach::Ingress | Attach::Xdp).then(|| strings(&t.devices)),
            measure: t.measure,
            pass_rate: (clat.is_none() && client.is_none()).then(|| rate(t.pass_rate)),
            pool6: match &t.mode {
                Mode::Siit { pool6, .. } => Some(strings(pool6)),
                Mode::Nat64(nat64) => Some(strings(&nat64.pool6)),
                Mode::Clat(_) | Mode::Softwire(_) => None,
            },
            pref64: clat.map(|clat| clat.pref64.fixed().map_or_else(auto, ToString::to_string)),
            always: clat.filter(|_| t.is_automatic()).map(|clat| clat.always),
            v4: clat.map(|clat| clat.v4).or(client.and_then(|it| it.v4)).map(|v4| v4.to_string()),
            v6: clat.map(|clat| clat.v6.map_or_else(auto, |v6| v6.to_string())),
            uplink: clat
                .map(|clat| &clat.uplink)
                .or(client.map(|client| &client.uplink))
                .map(|uplink| uplink.as_ref().map_or_else(auto, ToString::to_string)),
            softwire: softwire::emit::Keys::of(t.softwire()),
            nat64: Keys::of(t.nat64(), t.dynamic4()),
            nat_pt: NatPtKeys::of(t.nat_pt()),
            eam: (stateless && translates).then(|| t.eam.iter().map(eam).collect()),
            routes4: stateless.then(|| strings(&t.routes4)),
            metric: t.metric,
            icmp_source4: t.icmp_source4.map_or("off".to_owned(), |source| source.to_string()),
            icmp_node_id: translates.then_some(t.icmp_node_id),
            icmp_source6: translates.then(|| match t.icmp_source6 {
                Source6::Auto => auto(),
                Source6::Off => "off".to_owned(),
                Source6::Address(address) => address.to_string(),
            }),
            icmp_errors,
            icmp_errors_burst,
            udp_checksum_zero: translates.then(|| word(&UDP_CHECKSUM_ZERO, t.udp_checksum_zero)),
            traffic_class: match t.traffic_class {
                TrafficClass::Copy => WordOrNumber::Word("copy"),
                TrafficClass::Set(octet) => WordOrNumber::Number(octet.into()),
            },
            allow_private: translates.then_some(t.allow_private),
            ipv4_translatable: (stateless && translates).then_some(t.ipv4_translatable),
            hairpin: client.is_none().then_some(t.hairpin),
            mss_clamp: t.mss_clamp,
            mtu: t.mtu.map_or(WordOrNumber::Word("auto"), WordOrNumber::Number),
            lowest_ipv6_mtu: translates.then_some(t.lowest_ipv6_mtu),
            queues: t
                .queues
                .and_then(|queues| u32::try_from(queues).ok())
                .map_or(WordOrNumber::Word("auto"), WordOrNumber::Number),
            queue_length: t.queue_length,
            pin_queues: t.pin_queues,
            manage: t.manage,
            nat64_tables: Tables::of(t.nat64()),
            bindings: softwire::emit::bindings(t.softwire()),
        }
    }
}

/// A rate, or that there is none.
pub(crate) fn rate(per_second: Option<u32>) -> String {
    per_second.map_or("unlimited".to_owned(), |rate| format!("{rate}/s"))
}

/// `icmp_errors` and its burst.
pub(crate) fn icmp_errors(errors: IcmpErrors) -> (String, Option<u32>) {
    match errors {
        IcmpErrors::Off => ("off".to_owned(), None),
        IcmpErrors::Unlimited => ("unlimited".to_owned(), None),
        IcmpErrors::Limited { per_second, burst } => (format!("{per_second}/s"), Some(burst)),
    }
}

fn eam(eam: &Eam) -> [String; 2] {
    [eam.v4().to_string(), eam.v6().to_string()]
}

pub(crate) fn strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// The word that stands for a value; the tables hold every value.
pub(crate) fn word<T: Copy + PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, known)| *known == value).map_or("", |(word, _)| word)
}
