//! Talking to nftables over netlink.
//!
//! A table is put together first and then given to the kernel as one batch, of
//! which it takes all or nothing.

mod chain;
pub(crate) mod connection;
pub(crate) mod expression;
mod object;
mod policy;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, ParseableParametrized,
};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Hook, InetHookNumber, NfTablesMessage, RuleAttribute,
    RuleMessage, SetAttribute, SetMessage, TableAttribute, TableMessage,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use rustix::net::sockopt::set_socket_send_buffer_size_force;

use crate::namespace::NamespaceId;
use crate::netlink::{NETLINK_HEADER, explanation};
use crate::{Error, Result};
use expression::Expression;
pub(crate) use object::Count;
pub(crate) use policy::Policy;

/// An IP version: the family of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    V4,
    V6,
}

impl Ip {
    fn family(self) -> NetfilterProtoFamily {
        match self {
            Ip::V4 => NetfilterProtoFamily::IPv4,
            Ip::V6 => NetfilterProtoFamily::IPv6,
        }
    }
}

impl fmt::Display for Ip {
    /// As `nft` calls the family.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Ip::V6 { "ip6" } else { "ip" })
    }
}

/// A table of family `ip` or `ip6`, while it is put together.
pub(crate) struct Table {
    family: NetfilterProtoFamily,
    name: String,
    parts: Vec<(NfTablesMessage, u16)>,
    counters: Vec<String>,
    rules: usize,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(ip: Ip, name: &str) -> Self {
        let (parts, counters) = (Vec::new(), Vec::new());
        Self { family: ip.family(), name: name.to_owned(), parts, counters, rules: 0 }
    }

    /// Adds a chain that others jump to.
    pub(crate) fn chain(&mut self, name: &str) {
        self.add_chain(name, Vec::new());
    }

    /// Adds a chain that the kernel calls, of the type "filter". What it says
    /// nothing about is accepted.
    pub(crate) fn base_chain(&mut self, name: &str, hook: InetHookNumber, priority: i32) {
        self.add_base_chain(name, "filter", hook, priority);
    }

    /// Adds a chain of the type "nat", which the kernel calls with the first packet of
    /// each connection.
    pub(crate) fn nat_chain(&mut self, name: &str, hook: InetHookNumber, priority: i32) {
        self.add_base_chain(name, "nat", hook, priority);
    }

    fn add_base_chain(&mut self, name: &str, kind: &str, hook: InetHookNumber, priority: i32) {
        let hook = vec![Hook::Number(hook.into()), Hook::Priority(priority.cast_unsigned())];
        let attributes = vec![ChainAttribute::Hook(hook), ChainAttribute::Type(kind.to_owned())];
        self.add_chain(name, attributes);
    }

    fn add_chain(&mut self, name: &str, more: Vec<ChainAttribute>) {
        let mut attributes =
            vec![ChainAttribute::Table(self.name.clone()), ChainAttribute::Name(name.to_owned())];
        attributes.extend(more);
        let message = NfTablesMessage::NewChain(ChainMessage { attributes });
        self.parts.push((message, NLM_F_CREATE));
    }

    /// Adds a rule at the end of a chain, which must have been added, as must the
    /// chains that the rule leads to.
    pub(crate) fn rule(
        &mut self,
        chain: &str,
        expressions: impl IntoIterator<Item = Vec<Expression>>,
    ) {
        let attributes = vec![
            RuleAttribute::Table(self.name.clone()),
            RuleAttribute::Chain(chain.to_owned()),
            RuleAttribute::Expressions(expressions.into_iter().flatten().collect()),
        ];
        let message = NfTablesMessage::NewRule(RuleMessage { attributes });
        self.parts.push((message, NLM_F_CREATE | NLM_F_APPEND));
        self.rules += 1;
    }

    /// Adds a set, whose name and table are added to `attributes`.
    pub(crate) fn set(&mut self, name: &str, attributes: Vec<SetAttribute>) {
        let mut all =
            vec![SetAttribute::Table(self.name.clone()), SetAttribute::Name(name.to_owned())];
        all.extend(attributes);
        let message = NfTablesMessage::NewSet(SetMessage { attributes: all });
        self.parts.push((message, NLM_F_CREATE));
    }

    /// Adds a counter. Where the table takes another's place, it goes on counting.
    pub(crate) fn counter(&mut self, name: &str) {
        self.counters.push(name.to_owned());
    }

    /// How many rules it has.
    pub(crate) fn rules(&self) -> usize {
        self.rules
    }

    /// Its comment: who has made it, and what is in it.
    pub(crate) fn comment(&self) -> String {
        format!("{MAKER} {:016x}", self.digest())
    }

    /// A number that another content hardly has.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (message, flags) in &self.parts {
            hasher.write(&octets(self.family, message.clone(), *flags, 0));
        }
        hasher.finish()
    }
}

/// A table as the kernel has it.
#[derive(Debug)]
pub(crate) struct Present {
    /// The comment that `nft` shows.
    pub(crate) comment: Option<String>,
    /// How many rules it has.
    pub(crate) rules: usize,
}

/// What the comment of this program's tables begins with.
pub(crate) const MAKER: &str = "fordway";

impl Present {
    /// Whether this program has made it.
    pub(crate) fn is_ours(&self) -> bool {
        self.comment.as_ref().is_some_and(|comment| comment.starts_with(MAKER))
    }

    /// Whether it is this one, as this program makes it.
    pub(crate) fn is(&self, table: &Table) -> bool {
        self.comment == Some(table.comment()) && self.rules == table.rules()
    }
}

/// Octets of a batch at most.
const BATCH_MOST: usize = 16 << 20;

/// A connection to nftables of the network namespace of the thread that opened it.
pub(crate) struct Netfilter {
    family: NetfilterProtoFamily,
    socket: Socket,
}

thread_local! {
    /// The last one, and where it was opened. Closing it waits until the kernel has let go what the last change replaced:
    /// a grace period of RCU, tens of milliseconds.
    static KEPT: Cell<Option<(NamespaceId, Netfilter)>> = const { Cell::new(None) };
}

impl Netfilter {
    /// Asks about tables of an IP version, or changes them.
    pub(crate) fn open<T>(ip: Ip, ask: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let here = NamespaceId::current()?;
        let kept = KEPT.take().filter(|(there, _)| *there == here);
        let mut netfilter = kept.map_or_else(Self::connect, |(_, netfilter)| Ok(netfilter))?;
        netfilter.family = ip.family();
        let answer = ask(&mut netfilter);
        // After an error nobody knows what is still to be read.
        if answer.is_ok() {
            KEPT.set(Some((here, netfilter)));
        }
        answer
    }

    fn connect() -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_NETFILTER)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            socket.set_ext_ack(true)?;
            socket.set_cap_ack(true)?;
            // A batch is one message, however long. Whoever may not ask for more room, as in
            // some containers, has enough for a few addresses.
            let _ = set_socket_send_buffer_size_force(&socket, BATCH_MOST);
            // The kernel has answered when sending returns.
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::Netfilter {
            operation: "open a netfilter socket".to_owned(),
            source,
            detail: None,
        })?;
        Ok(Self { family: NetfilterProtoFamily::IPv4, socket })
    }

    /// Puts `table` in the place of an earlier one of this program.
    pub(crate) fn replace_own(&mut self, table: &Table) -> Result<()> {
        if self.find(&table.name)?.is_some_and(|present| !present.is_ours()) {
            return Err(Error::Netfilter {
                operation: format!("set up nftables table {} {}", self.family_name(), table.name),
                source: io::Error::from_raw_os_error(libc::EEXIST),
                detail: None,
            });
        }
        self.replace(table, &table.comment())
    }

    /// Puts `table`, with this comment, in the place of whatever has its name.
    pub(crate) fn replace(&mut self, table: &Table, comment: &str) -> Result<()> {
        let named = |more: Vec<TableAttribute>| {
            let mut attributes = vec![TableAttribute::Name(table.name.clone())];
            attributes.extend(more);
            TableMessage { attributes }
        };
        // Deleting one that is not there is an error.
        let mut parts = vec![
            (NfTablesMessage::NewTable(named(Vec::new())), NLM_F_CREATE),
            (NfTablesMessage::DeleteTable(named(Vec::new())), 0),
            (
                NfTablesMessage::NewTable(named(vec![TableAttribute::UserData(noted(comment))])),
                NLM_F_CREATE,
            ),
        ];
        let earlier: HashMap<String, Count> = match table.counters.as_slice() {
            [] => HashMap::new(),
            _ => self.counters(&table.name)?.into_iter().collect(),
        };
        let counters = table.counters.iter().map(|name| {
            let earlier = earlier.get(name).copied().unwrap_or_default();
            (object::new_counter(&table.name, name, earlier), NLM_F_CREATE)
        });
        parts.extend(counters);
        parts.extend(table.parts.iter().cloned());
        self.batch(parts, &format!("set up nftables table {} {}", self.family_name(), table.name))
    }

    /// Deletes a table and all that is in it.
    pub(crate) fn delete(&mut self, name: &str) -> Result<()> {
        let attributes = vec![TableAttribute::Name(name.to_owned())];
        let message = NfTablesMessage::DeleteTable(TableMessage { attributes });
        self.batch(
            vec![(message, 0)],
            &format!("delete nftables table {} {name}", self.family_name()),
        )
    }

    /// Looks for a table.
    pub(crate) fn find(&mut self, name: &str) -> Result<Option<Present>> {
        let operation = format!("look for nftables table {} {name}", self.family_name());
        let attributes = vec![TableAttribute::Name(name.to_owned())];
        let question = NfTablesMessage::GetTable(TableMessage { attributes });
        let answers = match self.ask(&octets(self.family, question, NLM_F_ACK, 1), 1, &operation) {
            Ok(answers) => answers,
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        let attributes = answers.iter().find_map(Answer::table).unwrap_or_default();
        let comment = attributes.iter().find_map(|attribute| match attribute {
            TableAttribute::UserData(octets) => read_note(octets),
            _ => None,
        });
        let attributes = vec![RuleAttribute::Table(name.to_owned())];
        let question = NfTablesMessage::GetRule(RuleMessage { attributes });
        let rules = self.ask(&octets(self.family, question, NLM_F_DUMP, 1), 1, &operation)?.len();
        Ok(Some(Present { comment, rules }))
    }

    fn family_name(&self) -> &'static str {
        if self.family == NetfilterProtoFamily::IPv6 { "ip6" } else { "ip" }
    }

    /// The counters of a table, by name; none if there is no such table.
    pub(crate) fn counters(&mut self, table: &str) -> Result<Vec<(String, Count)>> {
        let operation =
            format!("read the counters of nftables table {} {table}", self.family_name());
        let question = octets(self.family, object::get_counters(table), NLM_F_DUMP, 1);
        let answers = match self.ask(&question, 1, &operation) {
            Ok(answers) => answers,
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(answers.iter().filter_map(|answer| object::read_counter(&answer.octets)).collect())
    }

    fn batch(&mut self, parts: Vec<(NfTablesMessage, u16)>, operation: &str) -> Result<()> {
        let count = parts.len() as u32;
        let mut all = control(ControlMessage::BatchBegin);
        for (sequence, (message, flags)) in (1..).zip(parts) {
            let flags = if sequence == count { flags | NLM_F_ACK } else { flags };
            all.extend(octets(self.family, message, flags, sequence));
        }
        all.extend(control(ControlMessage::BatchEnd));
        self.ask(&all, count, operation).map(drop)
    }

    /// Sends a question, and collects the answers up to the one that ends those to
    /// the message `last`. The first error is the one that tells.
    fn ask(&mut self, all: &[u8], last: u32, operation: &str) -> Result<Vec<Answer>> {
        let failed =
            |source, detail| Error::Netfilter { operation: operation.to_owned(), source, detail };
        let unexpected = |reason: String| Error::Answer { operation: operation.to_owned(), reason };
        self.socket.send(all, 0).map_err(|error| failed(error, None))?;
        let mut answers = Vec::new();
        let mut refused = None;
        loop {
            let (datagram, _) = match self.socket.recv_from_full() {
                Ok(received) => received,
                // After an error the kernel may leave the acknowledgement out.
                Err(error) => return Err(refused.unwrap_or_else(|| failed(error, None))),
            };
            let mut rest = datagram.as_slice();
            while rest.len() >= NETLINK_HEADER {
                let length = NetlinkBuffer::new(&rest).length() as usize;
                let message = NetlinkMessage::<Answer>::deserialize(rest)
                    .map_err(|error| unexpected(error.to_string()))?;
                let next = length.next_multiple_of(4).max(NETLINK_HEADER);
                rest = rest.get(next..).unwrap_or_default();
                let is_last = message.header.sequence_number == last;
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Error(error) if error.raw_code() != 0 => {
                        let attributes = error.header.get(NETLINK_HEADER..).unwrap_or_default();
                        let error = failed(error.to_io(), explanation(attributes));
                        refused.get_or_insert(error);
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) if is_last => {
                        return refused.map_or(Ok(answers), Err);
                    }
                    _ => {}
                }
                if is_last && let Some(error) = refused.take() {
                    return Err(error);
                }
            }
        }
    }
}

/// An answer of nftables, unread.
struct Answer {
    kind: u16,
    octets: Vec<u8>,
}

impl Answer {
    /// The attributes, if it tells of a table.
    fn table(&self) -> Option<Vec<TableAttribute>> {
        let read = NetfilterMessage::parse_with_param(self.octets.as_slice(), self.kind);
        match read.ok()?.inner {
            NetfilterMessageInner::NfTables(NfTablesMessage::NewTable(it)) => Some(it.attributes),
            _ => None,
        }
    }
}

impl NetlinkDeserializable for Answer {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { kind: header.message_type, octets: payload.to_vec() })
    }
}

/// A message as the kernel reads it.
fn octets(
    family: NetfilterProtoFamily,
    message: NfTablesMessage,
    flags: u16,
    sequence: u32,
) -> Vec<u8> {
    let header = NetfilterHeader::new(family, 0, 0);
    finish(NetfilterMessage::new(header, message), flags, sequence)
}

/// Begin or end of a batch.
fn control(message: ControlMessage) -> Vec<u8> {
    let subsystem = libc::NFNL_SUBSYS_NFTABLES as u16;
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, subsystem);
    finish(NetfilterMessage::new(header, message), 0, 0)
}

fn finish(message: NetfilterMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | flags;
    message.header.sequence_number = sequence;
    message.finalize();
    let mut octets = vec![0; message.buffer_len().next_multiple_of(4)];
    message.serialize(&mut octets);
    octets
}

/// A comment in the form in which `nft` keeps it with a table: type 0, length,
/// text with a final NUL.
fn noted(comment: &str) -> Vec<u8> {
    let text: Vec<u8> = comment.bytes().take(NOTE_MOST).chain([0]).collect();
    [&[0, text.len() as u8], text.as_slice()].concat()
}

/// Octets of a comment that `nft` shows at most.
const NOTE_MOST: usize = 127;

fn read_note(octets: &[u8]) -> Option<String> {
    let [0, length, rest @ ..] = octets else { return None };
    let text = rest.get(..usize::from(*length))?.split(|octet| *octet == 0).next()?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read_as_they_were_noted() {
        for comment in ["", "fordway", "fordway nat64 0123456789abcdef"] {
            assert_eq!(read_note(&noted(comment)).as_deref(), Some(comment));
        }
        assert_eq!(noted(&"x".repeat(400)).len(), NOTE_MOST + 3);
        for broken in [&[][..], &[0], &[0, 5, b'a'], &[1, 1, 0]] {
            assert_eq!(read_note(broken), None);
        }
    }

    #[test]
    fn a_table_with_another_content_has_another_digest() {
        let table = |chains: &[&str]| {
            let mut table = Table::new(Ip::V4, "t");
            chains.iter().for_each(|chain| table.chain(chain));
            table.digest()
        };
        assert_eq!(table(&["a", "b"]), table(&["a", "b"]));
        assert_ne!(table(&["a", "b"]), table(&["a", "c"]));
        assert_ne!(table(&["a", "b"]), table(&["b", "a"]));
    }
}
