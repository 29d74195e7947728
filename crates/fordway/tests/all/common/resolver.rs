//! A gateway with a DNS64 server between clients and the name server of [`super::dns`].
//!
//! ```text
//! client c0 2001:db8:1::2/64 ──── 2001:db8:1::1/64 g0 gateway g1 203.0.113.2/24 ──── 203.0.113.53/24 u0 isp
//!           2001:db8:5::2/64      2001:db8:5::1/64
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};

use super::daemon::{Daemon, RunDir};
use super::dns::{self, Upstream, Zone, ask_tcp, ask_udp};
use super::netns::Netns;

/// Where the server listens.
pub(crate) const SERVER: &str = "[2001:db8:1::1]:53";

/// The name server that it asks.
const UPSTREAM: &str = "203.0.113.53:53";

/// The prefix of most tests.
pub(crate) const PREFIX: &str = "2001:db8:64::";

pub(crate) struct Site {
    pub(crate) client: Netns,
    pub(crate) gateway: Netns,
    pub(crate) isp: Netns,
    pub(crate) run: RunDir,
}

impl Site {
    pub(crate) fn new() -> Site {
        let [client, gateway, isp] = ["client", "gw", "isp"].map(Netns::new);
        gateway.link("g0", &client, "c0");
        gateway.link("g1", &isp, "u0");
        client.configure(&["addr add 2001:db8:1::2/64 dev c0", "addr add 2001:db8:5::2/64 dev c0"]);
        gateway.configure(&[
            "addr add 2001:db8:1::1/64 dev g0",
            "addr add 2001:db8:5::1/64 dev g0",
            "addr add 203.0.113.2/24 dev g1",
        ]);
        isp.ip("addr add 203.0.113.53/24 dev u0");
        Site { client, gateway, isp, run: RunDir::new() }
    }

    /// Starts the name server.
    pub(crate) fn upstream(&self, zone: Zone) -> Upstream {
        Upstream::start(&self.isp, UPSTREAM, zone)
    }

    /// Writes the gateway's file; `rest` follows in `[dns64]`.
    pub(crate) fn configure(&self, prefix: &str, rest: &str) -> PathBuf {
        let text = format!(
            "[dns64]\nlisten = [\"{SERVER}\"]\nupstream = [\"203.0.113.53\"]\npool6 = [\"{prefix}/96\"]\n\
             timeout = \"1s\"\nattempts = 2\n{rest}\n"
        );
        self.run.file("gateway.toml", &text)
    }

    /// Starts the gateway with such a file.
    pub(crate) fn start(&self, prefix: &str, rest: &str) -> Daemon<'_> {
        let file = self.configure(prefix, rest);
        Daemon::start(&self.run, &self.gateway, &format!("run {}", file.display()))
    }

    /// Has the gateway read its file again.
    pub(crate) fn reload(&self) {
        let output = self.run.output(&self.gateway, "reload");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Asks by UDP, with EDNS, as the client.
    pub(crate) fn ask(&self, kind: &str, owner: &str) -> Message {
        self.send(&dns::query(owner, record_type(kind), Some(1232)), false)
    }

    pub(crate) fn send(&self, query: &Message, tcp: bool) -> Message {
        let server: SocketAddr = SERVER.parse().unwrap();
        let octets = match tcp {
            true => ask_tcp(&self.client, server, query),
            false => ask_udp(&self.client, None, server, query),
        };
        let response = Message::from_vec(&octets).unwrap();
        assert_eq!(response.metadata.id, query.metadata.id);
        assert_eq!(response.queries, query.queries);
        assert!(response.queries[0].name.eq_case(&query.queries[0].name));
        assert_eq!(response.edns.is_some(), query.edns.is_some());
        assert!(response.metadata.recursion_available);
        response
    }

    /// Asks by UDP from one of the client's addresses.
    pub(crate) fn ask_from(&self, from: &str, kind: &str, owner: &str) -> Message {
        let query = dns::query(owner, record_type(kind), Some(1232));
        let from: IpAddr = from.parse().unwrap();
        let octets = ask_udp(&self.client, Some(from), SERVER.parse().unwrap(), &query);
        Message::from_vec(&octets).unwrap()
    }
}

pub(crate) fn record_type(kind: &str) -> RecordType {
    match kind.strip_prefix("TYPE") {
        Some(code) => RecordType::from(code.parse::<u16>().unwrap()),
        None => kind.parse().unwrap(),
    }
}

/// The answer section, a line a record, without TTLs, in lower case.
pub(crate) fn answers(message: &Message) -> Vec<String> {
    message.answers.iter().map(line).collect()
}

fn line(record: &Record) -> String {
    let data = match &record.data {
        RData::Unknown { rdata, .. } => {
            rdata.anything.iter().map(|octet| format!("{octet:02x}")).collect()
        }
        data => data.to_string(),
    };
    let kind = match record.record_type() {
        RecordType::Unknown(code) => format!("TYPE{code}"),
        known => known.to_string(),
    };
    // A DNAME carries the letters in which the server has asked on into the name that it makes.
    let (owner, data) = (record.name.to_ascii().to_lowercase(), data.to_lowercase());
    format!("{owner} {kind} {data}")
}

/// The extended errors (RFC 8914) of a response.
pub(crate) fn reasons(message: &Message) -> Vec<u16> {
    fordway_dns64::Ede::of(message).iter().map(|ede| ede.code).collect()
}

pub(crate) fn code(message: &Message) -> ResponseCode {
    message.metadata.response_code
}
