//! Tables with many entries: what a gateway is told over its control socket once it runs.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_data::addresses::{
    BOUND_V4, CLAT_V6, ENTRIES_V4, ENTRIES_V6, HOST_V4, MANY_V6, POOL4_FIRST, SIIT_MAPPING,
};
use fordway_data::spec::{Entries, Table};
use serde_json::{Value, json};

use super::{ask, missing, socket};
use crate::backend::{Place, must};
use crate::error::{LabError, Result};
use crate::mechanism::{Context, Deployed};
use crate::process::{poll, run_all};

/// Bits of the prefix of all addresses that entries are about.
const SHARED: u32 = 15;
/// The first port of BIB entries that are made by hand.
const FIRST_PORT: u32 = 2048;
/// Addresses of the pool that they take turns at.
const ADDRESSES: u32 = 64;
/// The first of the hosts that have them, none of which sends anything.
const HOSTS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf00, 0xfffe, 0, 0, 0, 0);
/// How many these are: each is a subscriber.
const SUBSCRIBERS: u32 = 1024;

/// Gives the gateway, which has been started in a place, the entries of its arm.
pub(in crate::mechanism) fn fill(
    context: Context<'_>,
    place: &Place,
    deployed: &Deployed,
) -> Result<()> {
    let Some(entries) = context.spec.entries else { return Ok(()) };
    let all = format!("{ENTRIES_V4}/{SHARED}");
    match entries.table {
        // Elsewhere these are the sources of flows.
        Table::Eam => drop(must(context.backend, place, &["ip", "route", "del", &all])?),
        Table::Pool4 => {
            let route = ["ip", "route", "add", &all, "via", HOST_V4];
            must(context.backend, &context.network.server, &route)?;
        }
        Table::Bib | Table::Bindings => {}
    }
    let keys = document(entries).to_string();
    let name = format!("{}-entries.json", context.name);
    let file = context.backend.deploy(&name, keys.as_bytes())?.display().to_string();
    let runs = poll(Duration::from_secs(10), || ask(deployed, "status"))?;
    runs.ok_or_else(|| LabError::NotReady {
        mechanism: context.spec.name.clone(),
        why: "it takes no orders on its control socket".into(),
    })?;
    let program = deployed.program.as_ref().ok_or_else(missing)?.display().to_string();
    let at = socket(deployed.run_dir.as_ref().ok_or_else(missing)?).display().to_string();
    run_all(&[[&program, "apply", &file, "--socket", &at].map(str::to_owned).into()])
}

/// The keys that hold the entries, as `fordway apply` takes them: each with its whole value.
fn document(entries: Entries) -> Value {
    let Entries { table, count } = entries;
    let numbers = 0..count;
    // Prefixes of equal length share the addresses.
    let bits = count.trailing_zeros();
    let first = |number: u32| number << (32 - SHARED - bits);
    let length = SHARED + bits;
    match table {
        Table::Eam => {
            let (v4, v6) = SIIT_MAPPING.split_once('=').unwrap_or_default();
            let mapped = numbers.map(|number| {
                let (v4, v6) = (shifted_v4(first(number)), shifted_v6(ENTRIES_V6, first(number)));
                json!([format!("{v4}/{length}"), format!("{v6}/{}", 96 + length)])
            });
            let all: Vec<Value> = std::iter::once(json!([v4, v6])).chain(mapped).collect();
            json!({ "translator.siit0.eam": all })
        }
        Table::Pool4 => {
            let all = numbers.map(|number| format!("{}/{length}", shifted_v4(first(number))));
            json!({ "translator.nat64.pool4": all.collect::<Vec<_>>() })
        }
        Table::Bib => {
            let pool: u32 = POOL4_FIRST.parse().map_or(0, Ipv4Addr::to_bits);
            let all = numbers.map(|number| {
                let v4 = Ipv4Addr::from_bits(pool + number % ADDRESSES);
                let port = FIRST_PORT + number / ADDRESSES;
                let host = shifted_v6(HOSTS, number % SUBSCRIBERS);
                json!(["udp", format!("{v4}:{port}"), format!("[{host}]:{port}")])
            });
            json!({ "translator.nat64.bib": all.collect::<Vec<_>>() })
        }
        Table::Bindings => {
            let binding = |v4: &str, remote: &str| json!({ "v4": v4, "remote": remote });
            let others = numbers.map(|number| {
                let remote = shifted_v6(MANY_V6, number).to_string();
                binding(&shifted_v4(number).to_string(), &remote)
            });
            let all: Vec<Value> =
                std::iter::once(binding(BOUND_V4, CLAT_V6)).chain(others).collect();
            json!({ "translator.softwire0.bindings": all })
        }
    }
}

fn shifted_v4(by: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(ENTRIES_V4.to_bits() + by)
}

fn shifted_v6(first: Ipv6Addr, by: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(first.to_bits() + u128::from(by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_equal_length_share_the_same_addresses() {
        let list = |table, count| {
            let document = document(Entries { table, count });
            let (_, value) = document.as_object().unwrap().iter().next().unwrap();
            value.as_array().unwrap().clone()
        };
        let own = json!(["198.51.100.2", "2001:db8:5::5"]);
        let one = list(Table::Eam, 1);
        assert_eq!(one, [own.clone(), json!(["198.18.0.0/15", "2001:db8:5:0:1::/111"])]);
        let most = list(Table::Eam, 1 << 17);
        assert_eq!((most.len(), &most[0]), ((1 << 17) + 1, &own));
        let last = json!(["198.19.255.255/32", "2001:db8:5:0:1:0:1:ffff/128"]);
        assert_eq!(most.last(), Some(&last));
        assert_eq!(list(Table::Pool4, 2), [json!("198.18.0.0/16"), json!("198.19.0.0/16")]);
        let bib = list(Table::Bib, 128);
        assert_eq!(bib[0], json!(["udp", "203.0.113.64:2048", "[2001:db8:f00:fffe::]:2048"]));
        assert_eq!(bib[65], json!(["udp", "203.0.113.65:2049", "[2001:db8:f00:fffe::41]:2049"]));
        let bindings = list(Table::Bindings, 2);
        assert_eq!(bindings[0], json!({"v4": "203.0.113.65", "remote": "2001:db8:1::c"}));
        assert_eq!(bindings[2], json!({"v4": "198.18.0.1", "remote": "2001:db8:f00:ffff::1"}));
    }
}
