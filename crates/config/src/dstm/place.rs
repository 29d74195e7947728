//! Where a server's tunnel end point is: the name of a translator here, or three keys for another host's.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::PathBuf;

use toml::Spanned;

use super::{KEY_FILE, LISTEN};
use crate::diagnostic::Sink;
use crate::keys::common::{HOST6, INTERFACE};
use crate::keys::form::Form;
use crate::keys::{Key, Keys, Written};
use crate::name::InterfaceName;
use crate::section::Section;

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

impl Keys for DstmTepPlace {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (DstmTepPlace, bool) {
        let elsewhere = ["tep_address", "tep_control", "tep_key_file"];
        if elsewhere.into_iter().any(|key| section.has(key)) {
            section.refuse(sink, "tep", "the tunnel end point can't be here and elsewhere", HELP);
            let address = section.require(sink, elsewhere[0], HELP, |v| HOST6.read(v));
            let control = section.require(sink, elsewhere[1], HELP, |v| LISTEN.read(v));
            let key_file = section.require(sink, elsewhere[2], HELP, |v| KEY_FILE.read(v));
            if let (Some(address), Some(control), Some(key_file)) = (address, control, key_file) {
                let (address, control) = (address.into_inner(), control.into_inner());
                return (
                    DstmTepPlace::There { address, control, key_file: key_file.into_inner() },
                    true,
                );
            }
            return (DstmTepPlace::Here(InterfaceName::placeholder()), false);
        }
        let tep =
            section.require(sink, "tep", HELP, |v| INTERFACE.read(v)).map(Spanned::into_inner);
        section.know(&elsewhere);
        let complete = tep.is_some();
        (DstmTepPlace::Here(tep.unwrap_or_else(InterfaceName::placeholder)), complete)
    }

    fn write(&self, to: &mut Written) {
        match self {
            DstmTepPlace::Here(tep) => to.put_some("tep", INTERFACE.write(tep)),
            DstmTepPlace::There { address, control, key_file } => {
                to.put_some("tep_address", HOST6.write(address));
                to.put_some("tep_control", LISTEN.write(control));
                to.put_some("tep_key_file", KEY_FILE.write(key_file));
            }
        }
    }

    fn keys() -> Vec<Key> {
        let here = "The tunnel end point on this host: the name of a translator with mode softwire and role tep. The \
                    pool is routed into its interface";
        let one = "(needed, or the next three)".to_owned();
        let none = || "(none)".to_owned();
        vec![
            Key::new("tep", &INTERFACE, one, here),
            Key::new(
                "tep_address",
                &HOST6,
                none(),
                "The tunnel's address of an end point on another host",
            ),
            Key::new("tep_control", &LISTEN, none(), "Where its `[dstm_tep]` listens"),
            Key::new("tep_key_file", &KEY_FILE, none(), "The file of the key that both share"),
        ]
    }
}
