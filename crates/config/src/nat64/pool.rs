//! Pools: the keys `pool4`, `port_blocks` and `deterministic`, and each `[[translator.pool]]`.

use std::ops::Range;

use fordway_xlat::nat64::Allocation;
use fordway_xlat::nat64::layout::MAX_BLOCKS;
use ipnet::Ipv6Net;
use toml::Spanned;

use super::Pool4;
use crate::diagnostic::Sink;
use crate::keys::common::PREFIX6;
use crate::keys::form::{Form, Given, Integer, List, Plain, integer, list, some, text};
use crate::keys::{Key, Keys, Places, Section, Written, keys};
use crate::problem::{Problem, Problems, Value};
use crate::value;

/// Blocks that a subscriber has at most unless the file says otherwise.
const MOST_BLOCKS: u8 = 4;

const POOL4_HELP: &str = "write a list such as [\"192.0.2.1:1024-65535\"], [\"198.51.100.0/24\"] or \
                          [\"interface:eth0:61000-65535\"]";
const CLIENTS_HELP: &str = "write a list of IPv6 prefixes such as [\"2001:db8:1::/48\"]";
const SIZE_HELP: &str = "write the number of ports of a block, such as size = 512";

/// `pool4`.
pub(crate) const POOL4: List<Plain<Pool4>> = list(
    text(
        |v| value::parsed(v, "an address", POOL4_HELP, str::parse),
        ("address with ports", "addresses with ports", "ADDR[:LO-HI]"),
    ),
    POOL4_HELP,
);

/// IPv6 prefixes; an empty list would mean everybody.
pub(crate) const CLIENTS: List<Plain<Ipv6Net>> = some(PREFIX6, CLIENTS_HELP);

const TITLE: &str = "[[translator.pool]]";

/// Ports of a block. Even numbers only (see [`block_size`]).
const BLOCK: Plain<u16> = Plain {
    read: block_size,
    write: |size| toml::Value::Integer((*size).into()),
    named: ("8 to 32768, even", "", "PORTS"),
    schema: || serde_json::json!({"type": "integer", "minimum": 8, "maximum": 32_768, "multipleOf": 2}),
};
const MARK: Integer<u32> = integer(0..=u32::MAX as i64, "");
const MOST: Integer<u8> = integer(1..=MAX_BLOCKS as i64, "blocks");

/// RFC 4787 REQ-4 (port parity) asks for even and odd ports in equal number.
fn block_size(v: &Value<'_>) -> Result<u16, Problems> {
    let size = value::integer(v, 8..=32_768, "ports")?;
    if size % 2 == 0 {
        return Ok(size as u16);
    }
    let message = "an odd number of ports: even and odd ones are given in pairs (RFC 4787 REQ-4)";
    Err(Problem::new(v.span(), message, format!("write {}", size + 1)).into())
}

/// A pool: the key `pool4`, or a `[[translator.pool]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Addresses and ports.
    pub pool4: Vec<Pool4>,
    /// Hosts that get them; empty: all.
    pub clients: Vec<Ipv6Net>,
    /// Packets that get them: those with this mark; `None`: all.
    pub mark: Option<u32>,
    /// How ports are given.
    pub allocation: Allocation,
}

impl Pool {
    /// Whether it is for every host: the key `pool4`.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        self.clients.is_empty() && self.mark.is_none()
    }
}

keys! {
    /// `port_blocks`.
    #[derive(Clone, Debug)]
    pub(crate) struct Blocks {
        /// Ports of a block
        size: u16 = BLOCK, needed(8, SIZE_HELP);
        /// Blocks that a subscriber can have: one at first, another when it is used up
        most: u8 = MOST, or(MOST_BLOCKS);
    }
}

keys! {
    /// `deterministic`.
    #[derive(Clone, Debug)]
    pub(crate) struct Deterministic {
        /// Ports of a block
        size: u16 = BLOCK, needed(8, SIZE_HELP);
    }
}

impl Keys for Allocation {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Allocation, bool) {
        let (blocks, whole) = section.table::<Blocks>(sink, "port_blocks", "port_blocks");
        let (fixed, also) = section.table::<Deterministic>(sink, "deterministic", "deterministic");
        let allocation = match (blocks, fixed) {
            (Some(Blocks { size, most }), _) if whole => Allocation::Blocks { size, most },
            (None, Some(Deterministic { size })) if also => Allocation::Deterministic { size },
            _ => Allocation::Shared,
        };
        (allocation, whole && also)
    }

    fn write(&self, to: &mut Written) {
        match *self {
            Allocation::Shared => {}
            Allocation::Blocks { size, most } => {
                to.table("port_blocks", crate::keys::write(&Blocks { size, most }));
            }
            Allocation::Deterministic { size } => {
                to.table("deterministic", crate::keys::write(&Deterministic { size }));
            }
        }
    }

    fn keys() -> Vec<Key> {
        vec![
            Key::table::<Blocks>(
                "port_blocks",
                "Ports of `pool4` are given to subscribers in blocks of their own",
            ),
            Key::table::<Deterministic>(
                "deterministic",
                "Each subscriber has the block that its place in `clients` gives it (RFC 7422); for pools with one client prefix and written addresses, which have to be enough",
            ),
        ]
    }
}

keys! {
    /// `[[translator.pool]]`: a pool for some of the hosts.
    #[derive(Clone, Debug)]
    pub(crate) struct SomePool {
        /// As in the translator
        pool4: Vec<Pool4> = POOL4, needed(Vec::new(), POOL4_HELP);
        /// IPv6 hosts that get this pool; not longer than `subscriber_len`
        clients: Option<Vec<Ipv6Net>> = Given(CLIENTS), or(None, "(all hosts)");
        /// Packets that get this pool: those with this mark, set by nftables or by a policy
        mark: Option<u32> = Given(MARK), or(None, "(all packets)");
        /// How ports are given
        allocation: Allocation, flat();
    }
}

/// All pools: those for some hosts, in the order of the file, then the one for every host.
impl Keys for Vec<Pool> {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Vec<Pool>, bool) {
        let (some, whole) = section.tables::<SomePool>(sink, "pool", TITLE, [TITLE]);
        let mut pools: Vec<Pool> = some
            .into_iter()
            .map(|SomePool { pool4, clients, mark, allocation }| Pool {
                pool4,
                clients: clients.unwrap_or_default(),
                mark,
                allocation,
            })
            .collect();
        let pool4 = section.read(sink, "pool4", |v| POOL4.read(v)).map(Spanned::into_inner);
        let (allocation, also) = Allocation::read(section, sink);
        if let Some(pool4) = pool4.filter(|pool4| !pool4.is_empty()) {
            pools.push(Pool { pool4, clients: Vec::new(), mark: None, allocation });
        }
        (pools, whole && also)
    }

    fn write(&self, to: &mut Written) {
        if let Some(pool) = self.iter().find(|pool| pool.is_for_all()) {
            to.put_some("pool4", POOL4.write(&pool.pool4));
            pool.allocation.write(to);
        }
        let some = self.iter().filter(|pool| !pool.is_for_all());
        to.tables(
            "pool",
            some.map(|pool| {
                let Pool { pool4, clients, mark, allocation } = pool.clone();
                let clients = Some(clients).filter(|clients| !clients.is_empty());
                crate::keys::write(&SomePool { pool4, clients, mark, allocation })
            }),
        );
    }

    fn keys() -> Vec<Key> {
        let doc = "IPv4 addresses and ports that IPv6 hosts get. Each is `\"ADDR\"`, `\"ADDR/LEN\"` or `\"ADDR-ADDR\"`, all addresses of which are used, with `\":LO-HI\"` behind it for other ports than 1024-65535; or `\"interface:DEV\"`, the addresses that a device has, followed when they change, with ports 61000-65535 unless written. Addresses that are not the host's own are routed into the interface";
        let mut keys = vec![Key::new("pool4", &POOL4, "(needed, or a `pool`)".to_owned(), doc)];
        keys.extend(Allocation::keys());
        keys.push(Key::tables::<SomePool>(
            "pool",
            "[[translator.pool]]",
            "Further pools, for some of the hosts",
        ));
        keys
    }
}

/// A pool, and where its parts stand.
pub(crate) struct PoolAt<'a> {
    pub(crate) pool: &'a Pool,
    /// Where it begins.
    pub(crate) span: Range<usize>,
    pub(crate) pool4: Vec<Spanned<Pool4>>,
    pub(crate) clients: Vec<Spanned<Ipv6Net>>,
    /// How ports are given.
    pub(crate) allocation: Range<usize>,
}

/// The pools of a translator with their places.
pub(crate) fn places_of<'a>(pools: &'a [Pool], at: &Places) -> Vec<PoolAt<'a>> {
    let all = at.tables("pool").iter().chain(std::iter::once(at));
    let place = |(pool, place): (&'a Pool, &Places)| {
        // The one for every host begins with its key.
        let own = if pool.is_for_all() { place.key("pool4") } else { None };
        let allocation = place.key("port_blocks").or_else(|| place.key("deterministic"));
        let span = own.unwrap_or_else(|| place.span.clone());
        PoolAt {
            pool,
            allocation: allocation.unwrap_or_else(|| span.clone()),
            span,
            pool4: place.each("pool4", &pool.pool4),
            clients: place.each("clients", &pool.clients),
        }
    };
    pools.iter().zip(all).map(place).collect()
}

/// What has to go together in the keys of pools. `is_nat_pt`: hosts may have addresses of their own.
pub(super) fn check(at: &Places, pools: &[Pool], is_nat_pt: bool, sink: &mut Sink) {
    for place in std::iter::once(at).chain(at.tables("pool")) {
        if let (Some(blocks), Some(fixed)) = (place.key("port_blocks"), place.key("deterministic"))
        {
            let message = "`deterministic`: the ports of a pool are given in one way";
            sink.error(fixed, message, "leave one of the two out").beside(blocks, "the other way");
        }
    }
    for place in at.tables("pool").iter().filter(|it| !it.has("clients") && !it.has("mark")) {
        let message = "this pool has neither `clients` nor `mark`, so it would be for every host";
        let help = "say whose it is, or write its addresses as the translator's pool4";
        sink.error(place.span.clone(), message, help);
    }
    let written = at.has("pool4");
    if let Some(span) = at.key("pool4").filter(|_| !pools.iter().any(Pool::is_for_all)) {
        let help = "write pool4 = [\"192.0.2.1\"], or leave it out where there are pools";
        sink.error(span, "`pool4`: the list is empty", help);
    }
    let allocation = at.key("port_blocks").or_else(|| at.key("deterministic"));
    if let Some(span) = allocation.filter(|_| !written) {
        let message = "how ports are given belongs to `pool4`, which is not there";
        sink.error(span, message, "write it in the [[translator.pool]] that is meant");
    }
    if !pools.is_empty() || written {
        return;
    }
    if is_nat_pt && !at.has("addresses") && !at.has("address_bindings") {
        let message = "neither `addresses` nor `pool4` is there: no address could be given";
        let help = "write addresses = [\"192.0.2.0/26\"], or pool4 = [\"192.0.2.1\"], or both";
        sink.error(at.span.clone(), message, help);
    } else if !is_nat_pt && !at.has("pool") {
        let message =
            "neither `pool4` nor a [[translator.pool]] is there: no address could be given";
        let help = "write pool4 = [\"192.0.2.1\"], or pool4 = [\"interface:eth0\"]";
        sink.error(at.span.clone(), message, help);
    }
}
