//! Where a server's tunnel end point is: the name of a translator here, or three keys for another host's.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::PathBuf;

use toml::Spanned;

use super::{KEY_FILE, LISTEN};
use crate::diagnostic::Sink;
use crate::keys::common::{HOST6, INTERFACE};
use crate::keys::form::Form;
use crate::keys::{Key, Keys, Section, Written, keys};
use crate::name::InterfaceName;

/// Where a server's tunnel end point is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DstmTepPlace {
    /// A translator of this file, with mode softwire and role tep.
    Here(InterfaceName),
    /// Another host's `[dstm_tep]`.
    There {
        /// The tunnel end point's IPv6 address.
        address: Ipv6Addr,
        /// Where it listens to the server.
        control: SocketAddrV6,
        /// The file of the key that both share.
        key_file: PathBuf,
    },
}

const HELP: &str = "write the name of a translator with mode = \"softwire\" and role = \"tep\", such as tep = \
                    \"tep0\"; or, of another host's, tep_address, tep_control and tep_key_file";

keys! {
    /// The keys of an end point on another host.
    #[derive(Clone, Debug)]
    pub(crate) struct There {
        /// The tunnel's address of an end point on another host
        address("tep_address"): Ipv6Addr = HOST6, needed(Ipv6Addr::UNSPECIFIED, HELP, "(none)");
        /// Where its `[dstm_tep]` listens
        control("tep_control"): SocketAddrV6 = LISTEN,
            needed(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0), HELP, "(none)");
        /// The file of the key that both share
        key_file("tep_key_file"): PathBuf = KEY_FILE, needed(PathBuf::new(), HELP, "(none)");
    }
}

impl Keys for DstmTepPlace {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (DstmTepPlace, bool) {
        let elsewhere: Vec<_> = There::keys().into_iter().map(|key| key.name).collect();
        if elsewhere.iter().any(|key| section.has(key)) {
            section.refuse(sink, "tep", "the tunnel end point can't be here and elsewhere", HELP);
            let (There { address, control, key_file }, complete) = There::read(section, sink);
            return (DstmTepPlace::There { address, control, key_file }, complete);
        }
        let tep = section.require(sink, "tep", HELP, |v| INTERFACE.read(v));
        section.know(&elsewhere);
        let complete = tep.is_some();
        let tep = tep.map_or_else(InterfaceName::placeholder, Spanned::into_inner);
        (DstmTepPlace::Here(tep), complete)
    }

    fn write(&self, to: &mut Written) {
        match self.clone() {
            DstmTepPlace::Here(tep) => to.put_some("tep", INTERFACE.write(&tep)),
            DstmTepPlace::There { address, control, key_file } => {
                There { address, control, key_file }.write(to);
            }
        }
    }

    fn keys() -> Vec<Key> {
        let here = "The tunnel end point on this host: the name of a translator with mode softwire and role tep. The \
                    pool is routed into its interface";
        let one = "(needed, or the next three)".to_owned();
        [Key::new("tep", &INTERFACE, one, here)].into_iter().chain(There::keys()).collect()
    }
}
