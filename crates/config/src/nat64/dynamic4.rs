//! Dynamic 1:1 mappings of mode `siit`: `dynamic4` and what belongs to it.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use fordway_xlat::addr::{Eam, classify};
use fordway_xlat::nat64::{Lifetimes, Sizes};
use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::pool::CLIENTS;
use crate::diagnostic::Sink;
use crate::findings::clashing;
use crate::keys::common::{PREFIX4, file};
use crate::keys::form::{List, Or, Plain, Time, list, or, time};
use crate::keys::{Key, Keys, Places, Section, Written, keys};
use crate::value;

const HELP: &str = "write a list of IPv4 networks such as [\"192.0.2.0/24\"]";
const POOL: List<Plain<Ipv4Net>> = list(PREFIX4, HELP);
const IDLE: Time = time(60_000, 30 * 86_400_000);
const FILE: Or<Plain<PathBuf>> =
    or("off", file(|v| value::file(v, "/var/lib/fordway/siit0.dynamic4")));

keys! {
    /// Dynamic 1:1 mappings of mode `siit`: `dynamic4`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Dynamic4 {
        /// IPv4 addresses for IPv6 hosts without a mapping, one each. Routed into the interface. Needs `pool6`
        pool("dynamic4"): Vec<Ipv4Net> = POOL, or(Vec::new(), "(off)"),
            reload(But("another number of addresses"));
        /// Which IPv6 hosts get one
        clients("dynamic4_clients"): Vec<Ipv6Net> = CLIENTS, or(Vec::new(), "(all hosts)"), if(!clients.is_empty());
        /// Time without a packet after which an address is free again
        idle("dynamic4_idle"): Duration = IDLE, or(Lifetimes::default().dynamic4);
        /// Where the mappings are kept across restarts
        file("dynamic4_file"): Option<PathBuf> = FILE, or(None, "`\"/var/lib/fordway/NAME.dynamic4\"`"), reload(Down);
    }
}

impl Keys for Option<Dynamic4> {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Option<Dynamic4>, bool) {
        if !section.has("dynamic4") {
            let why = "this key belongs to `dynamic4`, which is not there";
            for key in Dynamic4::keys().into_iter().skip(1) {
                section.refuse(sink, key.name, why, "leave it out, or write dynamic4 = [...]");
            }
            section.know(&["dynamic4"]);
            return (None, true);
        }
        let (mut dynamic4, complete) = Dynamic4::read(section, sink);
        if !section.has("dynamic4_file") {
            let name = section.word("name").unwrap_or("siit");
            dynamic4.file = Some(PathBuf::from(format!("/var/lib/fordway/{name}.dynamic4")));
        }
        (Some(dynamic4), complete)
    }

    fn write(&self, to: &mut Written) {
        if let Some(dynamic4) = self {
            dynamic4.write(to);
        }
    }

    fn keys() -> Vec<Key> {
        Dynamic4::keys()
    }
}

/// Checks it against itself and the explicit mappings. `has_prefix`: there is a `pool6`.
pub(crate) fn check(
    at: &Places,
    dynamic4: &Dynamic4,
    has_prefix: bool,
    eam: &[Spanned<Eam>],
    sink: &mut Sink,
) {
    let Some(span) = at.key("dynamic4") else { return };
    if !has_prefix {
        let message = "`dynamic4` needs `pool6`: what else would IPv4 hosts be to IPv6 hosts";
        sink.error(span.clone(), message, "write pool6 = [\"64:ff9b::/96\"]");
    }
    if dynamic4.pool.is_empty() {
        sink.error(span.clone(), "`dynamic4`: the list is empty", HELP);
    }
    let addresses: u64 = dynamic4.pool.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
    if addresses > u64::from(Sizes::MAX) {
        let message = format!("`dynamic4`: {addresses} addresses are more than a table holds");
        let help = format!("write networks of at most {} addresses together", Sizes::MAX);
        sink.error(span, message, help);
    }
    let pool = at.each("dynamic4", &dynamic4.pool);
    let overlap = |one: &Ipv4Net, other: &Ipv4Net| one.contains(other) || other.contains(one);
    for (first, second) in clashing(&pool, overlap) {
        let message = format!("`dynamic4`: {} overlaps {}", second.get_ref(), first.get_ref());
        sink.error(second.span(), message, "leave one out").beside(first.span(), "the other one");
    }
    for net in &pool {
        let ends = [net.get_ref().network(), net.get_ref().broadcast()];
        let illegal =
            |address: Ipv4Addr| classify::illegal_v4(address).map(|reason| (address, reason));
        if let Some((address, reason)) = ends.into_iter().find_map(illegal) {
            let message = format!("`dynamic4`: {address} can't be a host's address on a wire");
            sink.error(net.span(), message, reason.text());
        }
        if let Some(eam) = eam.iter().find(|eam| overlap(&eam.get_ref().v4(), net.get_ref())) {
            let (net_of, mapped) = (net.get_ref(), eam.get_ref().v4());
            let message = format!("`dynamic4`: {net_of} overlaps an explicit mapping, {mapped}");

            let help = "give dynamic mappings addresses of their own";
            sink.error(net.span(), message, help).beside(eam.span(), "this mapping");
        }
    }
}
