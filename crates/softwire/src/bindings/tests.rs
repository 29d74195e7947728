//! The table against a list that is searched from end to end.

use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::*;
use crate::PortSet;

/// What somebody does with the table.
#[derive(Clone, Debug)]
enum Deed {
    Insert(Binding),
    Remove(Binding),
}

fn binding() -> impl Strategy<Value = Binding> {
    let ports = prop_oneof![
        1 => Just(None),
        6 => (prop_oneof![Just((0u8, 3u8)), Just((4, 3)), Just((0, 2))], 0u16..8).prop_map(
            |((a, k), psid)| PortSet::new(a, k, psid & ((1 << k) - 1)).ok()
        ),
    ];
    // Few addresses, of which two are in one shard.
    let v4 = prop_oneof![Just(0u8), Just(1), Just(2)];
    (v4, ports, 0u16..3, 0u16..2).prop_map(|(v4, ports, remote, local)| Binding {
        v4: Ipv4Addr::new(192, 0, 2 + v4 / 2, 1 - v4 % 2),
        ports,
        remote: Ipv6Addr::new(0x2001, 0xdb8, 1, remote, 0, 0, 0, 1),
        local: Ipv6Addr::new(0x2001, 0xdb8, 2, local, 0, 0, 0, 1),
    })
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![3 => binding().prop_map(Deed::Insert), 1 => binding().prop_map(Deed::Remove)]
}

/// The model: bindings in a list.
#[derive(Default)]
struct Model(Vec<Binding>);

impl Model {
    fn insert(&mut self, new: Binding) -> Result<Option<Binding>, ()> {
        let alike = |ports: PortSet| (ports.offset_bits(), ports.psid_len());
        let same_address = self.0.iter().filter(|old| old.v4 == new.v4);
        for old in same_address {
            if old.ports.map(alike) != new.ports.map(alike) {
                return Err(());
            }
        }
        let same = self.0.iter_mut().find(|old| (old.v4, old.ports) == (new.v4, new.ports));
        match same {
            Some(old) => Ok(Some(std::mem::replace(old, new))),
            None => {
                self.0.push(new);
                Ok(None)
            }
        }
    }

    fn find(&self, v4: Ipv4Addr, port: u16) -> Option<Binding> {
        let has = |ports: Option<PortSet>| ports.is_none_or(|ports| ports.contains(port));
        self.0.iter().find(|it| it.v4 == v4 && has(it.ports)).copied()
    }
}

fn find(bindings: &Bindings, v4: Ipv4Addr, port: u16) -> Option<Binding> {
    let entry = match bindings.address(v4)? {
        Address::Whole(entry) => entry,
        Address::Shared(shared) => shared.of_port(port)?,
    };
    Some(entry.binding)
}

proptest! {
    #[test]
    fn the_table_is_the_list(
        deeds in prop::collection::vec(deed(), 1..60),
        ports in prop::collection::vec(any::<u16>(), 20),
    ) {
        let (mut table, mut model) = (Bindings::default(), Model::default());
        for deed in deeds {
            let before = table.clone();
            let had = model.0.clone();
            match deed {
                Deed::Insert(binding) => {
                    let inserted = table.insert(binding).map_err(|_| ());
                    prop_assert_eq!(inserted, model.insert(binding));
                }
                Deed::Remove(binding) => {
                    let place = model.0.iter().position(|it| *it == binding);
                    prop_assert_eq!(table.remove(&binding), place.is_some());
                    place.map(|place| model.0.remove(place));
                }
            }
            let sorted = |mut list: Vec<Binding>| { list.sort(); list };
            let all = |table: &Bindings| sorted(table.iter().map(|it| it.binding).collect());
            prop_assert_eq!(all(&table), sorted(model.0.clone()));
            prop_assert_eq!(table.len(), model.0.len());
            prop_assert_eq!(table.is_empty(), model.0.is_empty());
            // Whoever has the old table does not see the new one.
            prop_assert_eq!(all(&before), sorted(had));
            for port in &ports {
                for v4 in ["192.0.2.1", "192.0.2.0", "192.0.3.1", "192.0.3.0"] {
                    let v4 = v4.parse().unwrap();
                    prop_assert_eq!(find(&table, v4, *port), model.find(v4, *port));
                }
            }
        }
    }
}

fn one(psid: u16, remote: u16) -> Binding {
    Binding {
        v4: Ipv4Addr::new(192, 0, 2, 1),
        ports: Some(PortSet::new(0, 4, psid).unwrap()),
        remote: Ipv6Addr::new(0x2001, 0xdb8, 1, remote, 0, 0, 0, 1),
        local: "2001:db8:2::1".parse().unwrap(),
    }
}

#[test]
fn what_is_known_of_a_path_stays_with_the_tunnel() {
    let now = std::time::Duration::from_secs(5);
    let known =
        |table: &Bindings| -> Vec<_> { table.iter().map(|entry| entry.path.known(now)).collect() };
    let mut table = Bindings::default();
    table.extend([one(1, 1), one(2, 2)]);
    for entry in table.iter() {
        assert!(entry.path.learn(1400, 1500, now).is_some());
    }
    // Renewed, and read anew with another binding beside it.
    table.insert(one(1, 1)).unwrap();
    let mut read = Bindings::default();
    read.extend([one(1, 1), one(2, 3), one(3, 3)]);
    read.keep_paths(&table);
    assert_eq!(known(&read), [Some(1400), None, None]);
    // Another tunnel has another path.
    table.insert(one(2, 4)).unwrap();
    assert_eq!(known(&table), [Some(1400), None]);
}
