//! Talking to nftables over netlink.
//!
//! A table is put together first and then given to the kernel as one batch, of which it takes all or nothing.

mod chain;
#[cfg(feature = "nat44")]
pub(crate) mod connection;
pub(crate) mod expression;
mod message;
mod object;
mod policy;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io;

use libc::c_int;
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NetlinkPayload,
};
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use serde::{Deserialize, Serialize};

use crate::namespace::NamespaceId;
use crate::netlink::{connect, explanation_of, next, receive, serialize};
use crate::{Error, Result};
use expression::Expression;
use message::{Message, long, nested, number, text};
pub(crate) use object::Count;
pub(crate) use policy::Policy;

const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_USERDATA: u16 = 6;

const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;

const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;

const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_TIMEOUT: u16 = 11;
const NFTA_SET_DESC_SIZE: u16 = 1;

/// How a translation chooses addresses and ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// A host has the same address towards all peers (RFC 4787 REQ-2).
    pub persistent: bool,
    /// Ports are drawn. Else they are kept where they are free.
    pub random: bool,
}

/// An IP version: the family of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    V4 = libc::NFPROTO_IPV4 as isize,
    V6 = libc::NFPROTO_IPV6 as isize,
}

impl fmt::Display for Ip {
    /// As `nft` calls the family.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Ip::V6 { "ip6" } else { "ip" })
    }
}

/// A table of family `ip` or `ip6`, while it is put together.
pub(crate) struct Table {
    family: c_int,
    name: String,
    parts: Vec<(Message, u16)>,
    counters: Vec<String>,
    rules: usize,
}

/// A set that packets put entries into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    /// A number that no other set of the table has.
    pub(crate) id: u32,
    /// Types of the key's parts, as `nft` shows them ([`Set::IPV4_ADDRESS`]), six bits each.
    pub(crate) key_type: u32,
    /// Octets of the key.
    pub(crate) key_len: u32,
    /// Milliseconds after which an entry that no packet has renewed is removed; `None`: it stays.
    pub(crate) timeout: Option<u64>,
}

impl Set {
    pub(crate) const IPV4_ADDRESS: u32 = 7;
    pub(crate) const PORT_NUMBER: u32 = 13;

    /// Entries of a set at most: packets of strangers make them. For further ones none is made.
    const SIZE: u32 = 65_535;
}

impl Table {
    /// An empty table.
    pub(crate) fn new(ip: Ip, name: &str) -> Self {
        let (parts, counters) = (Vec::new(), Vec::new());
        Self { family: ip as c_int, name: name.to_owned(), parts, counters, rules: 0 }
    }

    fn add(&mut self, kind: c_int, attributes: &[DefaultNla], flags: u16) {
        self.parts.push((Message::new(self.family, kind, attributes), NLM_F_CREATE | flags));
    }

    /// Adds a chain that others jump to.
    pub(crate) fn chain(&mut self, name: &str) {
        let attributes = [text(NFTA_CHAIN_TABLE, &self.name), text(NFTA_CHAIN_NAME, name)];
        self.add(libc::NFT_MSG_NEWCHAIN, &attributes, 0);
    }

    /// Adds a chain of the type "filter", which the kernel calls at a hook (`NF_INET_*`). What no rule decides is
    /// accepted.
    pub(crate) fn base_chain(&mut self, name: &str, hook: c_int, priority: i32) {
        self.add_base_chain(name, "filter", hook, priority);
    }

    fn add_base_chain(&mut self, name: &str, kind: &str, hook: c_int, priority: i32) {
        let hook = [
            number(NFTA_HOOK_HOOKNUM, hook.cast_unsigned()),
            number(NFTA_HOOK_PRIORITY, priority.cast_unsigned()),
        ];
        let attributes = [
            text(NFTA_CHAIN_TABLE, &self.name),
            text(NFTA_CHAIN_NAME, name),
            nested(NFTA_CHAIN_HOOK, &hook),
            text(NFTA_CHAIN_TYPE, kind),
        ];
        self.add(libc::NFT_MSG_NEWCHAIN, &attributes, 0);
    }

    /// Adds a rule at the end of a chain, which must have been added, as must the chains that the rule leads to.
    pub(crate) fn rule(
        &mut self,
        chain: &str,
        expressions: impl IntoIterator<Item = Vec<Expression>>,
    ) {
        let expressions: Vec<Expression> = expressions.into_iter().flatten().collect();
        let attributes = [
            text(NFTA_RULE_TABLE, &self.name),
            text(NFTA_RULE_CHAIN, chain),
            nested(NFTA_RULE_EXPRESSIONS, &expressions),
        ];
        self.add(libc::NFT_MSG_NEWRULE, &attributes, NLM_F_APPEND);
        self.rules += 1;
    }

    /// Adds a set.
    pub(crate) fn set(&mut self, name: &str, set: Set) {
        let timeout = if set.timeout.is_some() { libc::NFT_SET_TIMEOUT } else { 0 };
        let mut attributes = vec![
            text(NFTA_SET_TABLE, &self.name),
            text(NFTA_SET_NAME, name),
            number(NFTA_SET_FLAGS, (libc::NFT_SET_EVAL | timeout) as u32),
            number(NFTA_SET_KEY_TYPE, set.key_type),
            number(NFTA_SET_KEY_LEN, set.key_len),
            number(NFTA_SET_ID, set.id),
            nested(NFTA_SET_DESC, &[number(NFTA_SET_DESC_SIZE, Set::SIZE)]),
        ];
        attributes.extend(set.timeout.map(|it| long(NFTA_SET_TIMEOUT, it)));
        self.add(libc::NFT_MSG_NEWSET, &attributes, 0);
    }

    /// Its comment: who has made it, and what is in it.
    pub(crate) fn comment(&self) -> String {
        format!("{MAKER} {:016x}", self.digest())
    }

    /// A number that another content hardly has.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (message, flags) in &self.parts {
            hasher.write(&serialize(message.clone(), *flags, 0));
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
        self.comment == Some(table.comment()) && self.rules == table.rules
    }
}

/// Octets of a batch at most.
const BATCH_MOST: usize = 16 << 20;

/// A connection to nftables of the network namespace of the thread that opened it.
pub(crate) struct Netfilter {
    family: c_int,
    socket: Socket,
}

thread_local! {
    /// The last one, and where it was opened. Closing it would wait until the kernel has freed what the last change
    /// replaced: an RCU grace period, tens of milliseconds.
    static KEPT: Cell<Option<(NamespaceId, Netfilter)>> = const { Cell::new(None) };
}

impl Netfilter {
    /// Asks about tables of an IP version, or changes them.
    pub(crate) fn open<T>(ip: Ip, ask: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let here = NamespaceId::current()?;
        let kept = KEPT.take().filter(|(there, _)| *there == here);
        let mut netfilter = kept.map_or_else(Self::connect, |(_, netfilter)| Ok(netfilter))?;
        netfilter.family = ip as c_int;
        let answer = ask(&mut netfilter);
        // After an error, answers may be left in the socket.
        if answer.is_ok() {
            KEPT.set(Some((here, netfilter)));
        }
        answer
    }

    fn connect() -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let socket = connect(NETLINK_NETFILTER)?;
            // A batch is one message, however long. A process that may not ask for more room, as in some containers,
            // has enough for a few addresses.
            let _ = set_socket_send_buffer_size_force(&socket, BATCH_MOST);
            // The kernel has answered when sending returns.
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let failed = |source| Error::netfilter("open a netfilter socket", source, None);
        Ok(Self { family: libc::NFPROTO_IPV4, socket: open().map_err(failed)? })
    }

    /// Puts `table` in the place of an earlier one of this program.
    pub(crate) fn replace_own(&mut self, table: &Table) -> Result<()> {
        if self.find(&table.name)?.is_some_and(|present| !present.is_ours()) {
            let operation = format!("set up nftables table {} {}", self.family_name(), table.name);
            let exists = io::Error::from_raw_os_error(libc::EEXIST);
            return Err(Error::netfilter(operation, exists, None));
        }
        self.replace(table, &table.comment())
    }

    /// Puts `table`, with this comment, in the place of whatever has its name.
    pub(crate) fn replace(&mut self, table: &Table, comment: &str) -> Result<()> {
        let name = text(NFTA_TABLE_NAME, &table.name);
        let message = |kind, attributes: &[DefaultNla]| Message::new(self.family, kind, attributes);
        let noted = DefaultNla::new(NFTA_TABLE_USERDATA, noted(comment));
        // It is made first, because deleting one that is not there is an error.
        let mut parts = vec![
            (message(libc::NFT_MSG_NEWTABLE, std::slice::from_ref(&name)), NLM_F_CREATE),
            (message(libc::NFT_MSG_DELTABLE, std::slice::from_ref(&name)), 0),
            (message(libc::NFT_MSG_NEWTABLE, &[name, noted]), NLM_F_CREATE),
        ];
        let earlier: HashMap<String, Count> = match table.counters.as_slice() {
            [] => HashMap::new(),
            _ => self.counters(&table.name)?.into_iter().collect(),
        };
        let counters = table.counters.iter().map(|name| {
            let earlier = earlier.get(name).copied().unwrap_or_default();
            (object::new_counter(self.family, &table.name, name, earlier), NLM_F_CREATE)
        });
        parts.extend(counters);
        parts.extend(table.parts.iter().cloned());
        self.batch(parts, &format!("set up nftables table {} {}", self.family_name(), table.name))
    }

    /// Deletes a table and all that is in it.
    pub(crate) fn delete(&mut self, name: &str) -> Result<()> {
        let operation = format!("delete nftables table {} {name}", self.family_name());
        let attributes = [text(NFTA_TABLE_NAME, name)];
        let message = Message::new(self.family, libc::NFT_MSG_DELTABLE, &attributes);
        self.batch(vec![(message, 0)], &operation)
    }

    /// Looks for a table.
    pub(crate) fn find(&mut self, name: &str) -> Result<Option<Present>> {
        let operation = format!("look for nftables table {} {name}", self.family_name());
        let attributes = [text(NFTA_TABLE_NAME, name)];
        let question = Message::new(self.family, libc::NFT_MSG_GETTABLE, &attributes);
        let answers = match self.ask(question, NLM_F_ACK, &operation) {
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
            answers => answers?,
        };
        let note = answers.iter().find_map(|answer| answer.attribute(NFTA_TABLE_USERDATA));
        let comment = note.and_then(|octets| read_note(&octets));
        let attributes = [text(NFTA_RULE_TABLE, name)];
        let question = Message::new(self.family, libc::NFT_MSG_GETRULE, &attributes);
        let rules = self.ask(question, NLM_F_DUMP, &operation)?.len();
        Ok(Some(Present { comment, rules }))
    }

    fn family_name(&self) -> &'static str {
        if self.family == libc::NFPROTO_IPV6 { "ip6" } else { "ip" }
    }

    /// The counters of a table, by name; none if there is no such table.
    pub(crate) fn counters(&mut self, table: &str) -> Result<Vec<(String, Count)>> {
        let operation =
            format!("read the counters of nftables table {} {table}", self.family_name());
        let answers =
            match self.ask(object::get_counters(self.family, table), NLM_F_DUMP, &operation) {
                Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(Vec::new()),
                answers => answers?,
            };
        Ok(answers.iter().filter_map(object::read_counter).collect())
    }

    fn batch(&mut self, parts: Vec<(Message, u16)>, operation: &str) -> Result<()> {
        let count = parts.len() as u32;
        let mut all = serialize(Message::control(libc::NFNL_MSG_BATCH_BEGIN), 0, 0);
        for (sequence, (message, flags)) in (1..).zip(parts) {
            let flags = if sequence == count { flags | NLM_F_ACK } else { flags };
            all.extend(serialize(message, flags, sequence));
        }
        all.extend(serialize(Message::control(libc::NFNL_MSG_BATCH_END), 0, 0));
        self.exchange(&all, count, operation).map(drop)
    }

    fn ask(&mut self, question: Message, flags: u16, operation: &str) -> Result<Vec<Message>> {
        self.exchange(&serialize(question, flags, 1), 1, operation)
    }

    /// Sends messages, and collects the answers up to the one that ends those to the message `last`. Of several
    /// errors it returns the first.
    fn exchange(&mut self, all: &[u8], last: u32, operation: &str) -> Result<Vec<Message>> {
        let failed = |source, detail| Error::netfilter(operation, source, detail);
        let unexpected = |reason: String| Error::Answer { operation: operation.to_owned(), reason };
        self.socket.send(all, 0).map_err(|error| failed(error, None))?;
        let mut answers = Vec::new();
        let mut refused = None;
        let mut datagram = Vec::new();
        loop {
            // After an error the kernel may leave the acknowledgement out.
            if let Err(error) = receive(&self.socket, &mut datagram) {
                return Err(refused.unwrap_or_else(|| failed(error, None)));
            }
            let mut rest = datagram.as_slice();
            while let Some(message) = next(&mut rest, false) {
                let message = message.map_err(unexpected)?;
                let is_last = message.header.sequence_number == last;
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Error(error) if error.raw_code() != 0 => {
                        refused.get_or_insert(failed(error.to_io(), explanation_of(&error)));
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

/// A comment in the form in which `nft` keeps it with a table: type 0, length, text with a final NUL.
fn noted(comment: &str) -> Vec<u8> {
    let text: Vec<u8> = comment.bytes().take(NOTE_MOST).chain([0]).collect();
    [&[0, text.len() as u8], text.as_slice()].concat()
}

/// Octets of a comment that `nft` shows at most.
const NOTE_MOST: usize = 127;

fn read_note(octets: &[u8]) -> Option<String> {
    let [0, length, rest @ ..] = octets else { return None };
    message::read_text(rest.get(..usize::from(*length))?)
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
