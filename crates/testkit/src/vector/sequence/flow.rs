//! Flows: what most steps send, and what comes of it, in a word.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use toml::{Table, Value};

use crate::packet::Payload;

/// A flow as it stands in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowSpec {
    protocol: Transport,
    /// (X',x).
    v6: [Value; 2],
    /// (T,t).
    v4: [Value; 2],
    /// (Z,z); of ICMP, the address alone counts.
    remote: [Value; 2],
    /// The prefix of length 96, if it is not the first of the configuration.
    pool6: Option<String>,
}

/// The transport protocols of RFC 6146.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Transport {
    Tcp,
    Udp,
    Icmp,
}

impl Transport {
    pub(super) fn label(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Icmp => "icmp",
        }
    }
}

/// A flow, ready to be written as packets.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) protocol: Transport,
    pub(super) v6: [Value; 2],
    pub(super) v4: [Value; 2],
    pub(super) remote: [Value; 2],
    embedded: Value,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The IPv6 host.
    V6,
    /// The IPv4 host.
    V4,
}

impl Flow {
    pub(super) fn new(spec: FlowSpec, pool6: &str) -> Result<Flow, &'static str> {
        let pool6 = spec.pool6.as_deref().unwrap_or(pool6);
        let prefix = pool6.strip_suffix("/96").and_then(|prefix| prefix.parse::<Ipv6Addr>().ok());
        let prefix = prefix.ok_or("pool6 of a flow must be of length 96")?;
        let remote = spec.remote[0].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
        let remote = remote.ok_or("the remote address of a flow must be an IPv4 address")?;
        let embedded = Ipv6Addr::from_bits(prefix.to_bits() | u128::from(remote.to_bits()));
        Ok(Flow {
            protocol: spec.protocol,
            v6: spec.v6,
            v4: spec.v4,
            remote: spec.remote,
            embedded: Value::String(embedded.to_string()),
        })
    }

    /// What is sent, and what comes out on the other side.
    pub(super) fn packets(
        &self,
        from: From,
        word: &str,
        payload: Option<&Payload>,
    ) -> Result<(Table, Table), &'static str> {
        let (v6_ends, v4_ends, ports6, ports4) = match from {
            From::V6 => (
                (&self.v6[0], &self.embedded),
                (&self.v4[0], &self.remote[0]),
                (&self.v6[1], &self.remote[1]),
                (&self.v4[1], &self.remote[1]),
            ),
            From::V4 => (
                (&self.embedded, &self.v6[0]),
                (&self.remote[0], &self.v4[0]),
                (&self.remote[1], &self.v6[1]),
                (&self.remote[1], &self.v4[1]),
            ),
        };
        let mut v6 = self.packet("v6", v6_ends, ports6, &self.v6[1], word)?;
        let mut v4 = self.packet("v4", v4_ends, ports4, &self.v4[1], word)?;
        if let Some(payload) = payload {
            let value = match payload {
                Payload::Pattern(len) => Value::Integer(*len as i64),
                Payload::Hex(hex) => Value::String(hex.clone()),
            };
            v6.insert("payload".into(), value.clone());
            v4.insert("payload".into(), value);
        }
        let (incoming, outgoing, hops) = match from {
            From::V6 => (v6, &mut v4, ("v4", "ttl")),
            From::V4 => (v4, &mut v6, ("v6", "hop")),
        };
        if let Some(Value::Table(header)) = outgoing.get_mut(hops.0) {
            header.insert(hops.1.into(), Value::Integer(63));
        }
        Ok((incoming, outgoing.clone()))
    }

    fn packet(
        &self,
        family: &str,
        (src, dst): (&Value, &Value),
        (sport, dport): (&Value, &Value),
        identifier: &Value,
        word: &str,
    ) -> Result<Table, &'static str> {
        let mut packet = Table::new();
        packet.insert(family.into(), table([("src", src.clone()), ("dst", dst.clone())]));
        let ports = [("sport", sport.clone()), ("dport", dport.clone())];
        let header = match self.protocol {
            Transport::Tcp => {
                let flags = Value::String(word.replace('.', ""));
                table(ports.into_iter().chain([("flags", flags)]))
            }
            Transport::Udp if word == "data" => table(ports),
            Transport::Udp => return Err("of UDP there is only `data`"),
            Transport::Icmp => {
                let kind = match (word, family) {
                    ("request", "v6") => 128,
                    ("reply", "v6") => 129,
                    ("request", _) => 8,
                    ("reply", _) => 0,
                    _ => return Err("of ICMP there are only `request` and `reply`"),
                };
                table([("type", Value::Integer(kind)), ("id", identifier.clone())])
            }
        };
        packet.insert(self.protocol.label().into(), header);
        Ok(packet)
    }
}

pub(super) fn table<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Table(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}
