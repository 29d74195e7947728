//! Maps of the kernel: made and written, with errors that name the map.

use libbpf_rs::libbpf_sys::{self, bpf_map_create_opts};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::error::io_error;
use crate::{Error, Result};

macro_rules! state_maps {
    ($($map:ident = $name:literal;)*) => {
        /// One of the maps.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum StateMap {
            $($map,)*
        }

        impl StateMap {
            pub(crate) const ALL: [StateMap; 9] = [$(StateMap::$map,)*];

            /// Its name in the object.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(StateMap::$map => $name,)* }
            }
        }
    };
}

state_maps! {
    Meta = "nat64_meta";
    Bibs = "nat64_bibs";
    Sessions = "nat64_sessions";
    Subscribers = "nat64_subscribers";
    Free = "nat64_free";
    Bib6 = "nat64_bib6";
    Bib4 = "nat64_bib4";
    SessionHeads = "nat64_session";
    SubscriberHeads = "nat64_subscriber";
}

/// Name of the map of a cluster's gates.
pub(crate) const GATES: &str = "nat64_gates";

/// Name of the map that tells programs whether the kernel's routing has changed.
pub(crate) const ROUTING: &str = "routing";

/// Makes of libbpf's error about a map this crate's.
pub(crate) fn failed(
    operation: &'static str,
    map: &'static str,
) -> impl Fn(libbpf_rs::Error) -> Error {
    move |error| Error::Map { operation, map, source: io_error(&error) }
}

/// Makes a map. `sizes`: octets of a key and of a value.
pub(crate) fn make(
    kind: MapType,
    name: &'static str,
    sizes: [usize; 2],
    entries: u32,
    options: bpf_map_create_opts,
) -> Result<MapHandle> {
    let sz = size_of::<bpf_map_create_opts>() as libbpf_sys::size_t;
    let options = bpf_map_create_opts { sz, ..options };
    let [key, value] = sizes.map(|octets| octets as u32);
    MapHandle::create(kind, Some(name), key, value, entries, &options).map_err(failed("make", name))
}

/// Options with these `BPF_F_*`.
pub(crate) fn flags(map_flags: u32) -> bpf_map_create_opts {
    bpf_map_create_opts { map_flags, ..Default::default() }
}

/// Writes an entry.
pub(crate) fn put(map: &MapHandle, name: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
    map.update(key, value, MapFlags::ANY).map_err(failed("write", name))
}
