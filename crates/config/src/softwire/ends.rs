//! The two ends of softwires, each with keys of its own: `role = "tep"` and `role = "client"`.

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_softwire::{Binding, PortSet};
use toml::Spanned;

use super::{HOP_LIMIT, Softwire, SoftwireClient, SoftwireEnd};
use crate::diagnostic::Sink;
use crate::keys::common::{HOST4, HOST6, INTERFACE};
use crate::keys::form::{Choice, Form, Given, Integer, integer, or};
use crate::keys::{Key, Keys, NEEDED, Reload, Section, Written, keys};
use crate::name::InterfaceName;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Tep,
    Client,
}

const ROLE: Choice<Role> = Choice(&[("tep", Role::Tep), ("client", Role::Client)]);
const HOPS: Integer<u8> = integer(1..=255, "");

const ROLE_HELP: &str = "write role = \"tep\" for the tunnel end point, or role = \"client\"";
const LOCAL: &str = "write the address that clients send to, such as local = \"2001:db8:2::1\"; it must not be an \
                     address of the host itself";
const V4: &str = "write the client's IPv4 address such as v4 = \"192.0.2.1\"";
const CLIENT: &str = "write the client's IPv6 address such as remote = \"2001:db8:1::1\"";
const REMOTE: &str = "write the tunnel end point's address such as remote = \"2001:db8:2::1\"";

keys! {
    /// The keys of role `tep`.
    #[derive(Clone, Debug)]
    pub(crate) struct Tep {
        /// This end's own IPv6 address, which clients send to and which is on no device
        local: Ipv6Addr = HOST6, needed(Ipv6Addr::UNSPECIFIED, LOCAL);
        /// The clients that the file has
        bindings: Vec<Bound>, tables("[[translator.bindings]]", "a binding");
    }
}

keys! {
    /// A binding: an IPv4 address, or ports of one, and whose they are.
    #[derive(Clone, Debug)]
    pub(crate) struct Bound {
        /// The client's IPv4 address
        v4: Ipv4Addr = HOST4, needed(Ipv4Addr::UNSPECIFIED, V4);
        /// The client's IPv6 address
        remote: Ipv6Addr = HOST6, needed(Ipv6Addr::UNSPECIFIED, CLIENT);
        /// Its ports, if it shares the address
        ports: Option<PortSet>, flat();
        /// This end's address, if it is another than the end point's
        local: Option<Ipv6Addr> = Given(HOST6), or(None, "the end point's");
    }
}

keys! {
    /// The keys of role `client`.
    #[derive(Clone, Debug)]
    pub(crate) struct Client {
        /// The client's IPv4 address
        v4: Ipv4Addr = HOST4, needed(Ipv4Addr::UNSPECIFIED, V4);
        /// The tunnel end point's IPv6 address
        remote: Ipv6Addr = HOST6, needed(Ipv6Addr::UNSPECIFIED, REMOTE);
        /// Its ports, if it shares the address
        ports: Option<PortSet>, flat();
        /// This end's own IPv6 address, on no device. `auto`: a stable address in the uplink's /64
        local: Option<Ipv6Addr> = or("auto", HOST6), or(None);
        /// Device towards the IPv6 network. `auto`: that of the route to `remote`
        uplink: Option<InterfaceName> = or("auto", INTERFACE), or(None), reload(Down);
    }
}

impl Keys for Softwire {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Softwire, bool) {
        let role =
            section.require(sink, "role", ROLE_HELP, |v| ROLE.read(v)).map(Spanned::into_inner);
        let hop_limit = section.read(sink, "hop_limit", |v| HOPS.read(v));
        let hop_limit = hop_limit.map_or(HOP_LIMIT, Spanned::into_inner);
        let (end, complete) = match role {
            Some(Role::Client) => {
                let help = "write v4, remote and, for a shared address, psid and psid_len";
                let why = "this key belongs to role tep; a client has one binding";
                section.refuse(sink, "bindings", why, help);
                let (client, complete) = Client::read(section, sink);
                (SoftwireEnd::Client(client.public()), complete)
            }
            Some(Role::Tep) => {
                for key in ["remote", "v4", "psid", "psid_len", "psid_offset"] {
                    let help = "write it in an entry of bindings = [{ v4 = \"192.0.2.1\", remote = \"2001:db8:1::1\" }]";
                    section.refuse(
                        sink,
                        key,
                        "this key belongs to role client, or to a binding",
                        help,
                    );
                }
                let why = "this key belongs to role client";
                section.refuse(sink, "uplink", why, "leave it out; routes decide");
                let (tep, complete) = Tep::read(section, sink);
                (tep.public(), complete)
            }
            None => {
                // Without a role the other keys mean nothing; they are not unknown for that.
                let keys = Tep::keys().into_iter().chain(Client::keys());
                section.know(&keys.map(|key| key.name).collect::<Vec<_>>());
                let (local, bindings) = (Ipv6Addr::UNSPECIFIED, Vec::new());
                (SoftwireEnd::Tep { local, bindings }, false)
            }
        };
        (Softwire { end, hop_limit }, complete)
    }

    fn write(&self, to: &mut Written) {
        match &self.end {
            SoftwireEnd::Tep { local, bindings } => {
                to.put_some("role", ROLE.write(&Role::Tep));
                Tep { local: *local, bindings: bindings.iter().map(Bound::of).collect() }.write(to);
            }
            SoftwireEnd::Client(client) => {
                to.put_some("role", ROLE.write(&Role::Client));
                Client::of(client).write(to);
            }
        }
        to.put_some("hop_limit", HOPS.write(&self.hop_limit));
    }

    fn keys() -> Vec<Key> {
        let role =
            "Which end this is. `tep`: the tunnel end point of many clients. `client`: one client";
        let mut keys = vec![Key::new("role", &ROLE, NEEDED.to_owned(), role).reload(Reload::Down)];
        keys.push(Key::usual("hop_limit", &HOPS, &HOP_LIMIT, "Hop Limit of tunnel packets"));
        keys
    }
}

impl Tep {
    fn public(self) -> SoftwireEnd {
        let Tep { local, bindings } = self;
        let binding = |it: Bound| Binding {
            v4: it.v4,
            ports: it.ports,
            remote: it.remote,
            local: it.local.unwrap_or(local),
        };
        SoftwireEnd::Tep { local, bindings: bindings.into_iter().map(binding).collect() }
    }
}

impl Bound {
    fn of(binding: &Binding) -> Bound {
        let Binding { v4, ports, remote, local } = *binding;
        Bound { v4, remote, ports, local: Some(local) }
    }
}

impl Client {
    fn public(self) -> SoftwireClient {
        let Client { v4, remote, ports, local, uplink } = self;
        SoftwireClient { v4: Some(v4), ports, local, remote, uplink, early: None }
    }

    /// One without an address is no entry of a file.
    fn of(client: &SoftwireClient) -> Client {
        let SoftwireClient { v4, ports, local, remote, uplink, .. } = client.clone();
        Client { v4: v4.unwrap_or(Ipv4Addr::UNSPECIFIED), remote, ports, local, uplink }
    }
}
