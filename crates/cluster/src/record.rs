//! What the store holds, and what gateways tell each other.

mod octets;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::shard::Shard;

pub use octets::Octets;

/// Nanoseconds of a clock that counts suspended time (CLOCK_BOOTTIME). Clocks of different hosts have nothing in common
/// but their rate, roughly.
pub type Nanos = u64;

/// A gateway's number in the cluster's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member(pub u16);

/// What a key has in the store: a higher one is later. 0: the key is absent.
pub type Revision = u64;

/// Incarnations of a gateway, counted by the store from 1.
pub type Incarnation = u64;

/// Gateways with their incarnations.
pub type Peers = BTreeMap<Member, Incarnation>;

/// Where in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Key {
    /// The hash of the configuration.
    Config,
    /// A gateway's lease.
    Lease(Member),
    /// Who owns a shard.
    Shard(Shard),
}

/// What a key's value is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Value {
    /// Of [`Key::Config`].
    Config(u64),
    /// Of [`Key::Lease`].
    Lease(LeaseRecord),
    /// Of [`Key::Shard`].
    Shard(ShardRecord),
}

/// What a gateway wants, or that its lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// It owns shards.
    Active,
    /// It gives its shards away.
    Draining,
    /// The incarnation translates nothing any more, for ever: it has left, or was fenced.
    Ended,
}

/// A gateway's lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Which of the gateway's incarnations.
    pub incarnation: Incarnation,
    /// Drawn at random by each process: whether a record is one's own.
    pub process: u64,
    /// The host's identity. A new process of the same host has stopped the data path of the one before.
    pub host: u128,
    /// Status.
    pub status: Status,
    /// When the record was sent, by the gateway's own clock.
    pub sent: Nanos,
    /// Share of shards, in comparison with others'.
    pub weight: u32,
    /// Who can vote to end this lease.
    pub peers: Peers,
}

impl LeaseRecord {
    /// What placement and shards depend on.
    pub(crate) fn standing(&self) -> (Incarnation, Status, u32) {
        (self.incarnation, self.status, self.weight)
    }
}

/// Who owns a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShardRecord {
    /// One more with each owner.
    pub epoch: u64,
    /// The owner.
    pub owner: Member,
    /// The owner's incarnation.
    pub incarnation: Incarnation,
    /// Where the operator wants the shard.
    pub wish: Option<Member>,
}

/// Names a replicated record, unique in its shard.
pub type RecordKey = [u8; 24];

/// A replicated record of a shard, or its removal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// Key.
    #[serde(with = "serde_bytes")]
    pub key: RecordKey,
    /// Value; `None`: removed.
    pub value: Option<Octets>,
}

/// Number and sum of keyed hashes of a shard's records, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digest {
    /// How many records.
    pub count: u64,
    /// Sum of their hashes, modulo 2^64.
    pub sum: u64,
}

/// A step of a shard's stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// The stream begins, or begins anew: records follow that the owner has already.
    Begin,
    /// Records that have changed, or that the owner has.
    Records(Vec<Record>),
    /// Every record that the owner has was sent since [`Step::Begin`].
    End,
    /// Nothing has changed.
    Idle,
    /// The receiver is the standby no longer: others have the records from now on. Of no number.
    Release,
}

/// From one gateway to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Asks for a promise for the sender's lease.
    Ask {
        /// The sender's incarnation.
        incarnation: Incarnation,
        /// When it asked, by its own clock.
        sent: Nanos,
    },
    /// The sender does not vote against the receiver's lease for `ttl`.
    Promise {
        /// The sender's incarnation.
        by: Incarnation,
        /// The receiver's incarnation.
        incarnation: Incarnation,
        /// [`Message::Ask`]'s.
        sent: Nanos,
    },
    /// Asks for a vote to end a lease.
    VoteRequest {
        /// Whose lease.
        member: Member,
        /// Which revision of it.
        revision: Revision,
    },
    /// The sender promises that lease nothing, as long as its revision is this one.
    Vote {
        /// Whose lease.
        member: Member,
        /// Which revision of it.
        revision: Revision,
        /// The sender's incarnation.
        by: Incarnation,
    },
    /// The sender has written this successfully: it says so before the store does.
    Written {
        /// Which shard.
        shard: Shard,
        /// Its revision.
        revision: Revision,
        /// What was written.
        record: ShardRecord,
    },
    /// From a shard's owner to its standby.
    Replicate {
        /// Which shard.
        shard: Shard,
        /// The owner's epoch.
        epoch: u64,
        /// The message's number in the epoch.
        number: u64,
        /// Of the owner's records, with this message applied and nothing that is sent later.
        digest: Digest,
        /// What to do.
        step: Step,
    },
    /// From a shard's standby to its owner.
    Acknowledge {
        /// Which shard.
        shard: Shard,
        /// The owner's epoch.
        epoch: u64,
        /// All messages before this number are applied.
        next: u64,
        /// The standby has what the owner had then.
        ready: bool,
    },
    /// The sender knows [`Message::Written`]: packets of the shard may be handed over to it.
    Known {
        /// Which shard.
        shard: Shard,
        /// Its revision.
        revision: Revision,
    },
}

/// What is encoded.
pub trait Encoded: Serialize {
    /// Version of its layout.
    const VERSION: u8;
}

impl Encoded for Value {
    const VERSION: u8 = 1;
}

impl Encoded for Message {
    const VERSION: u8 = 2;
}

/// Octets that are none of this version's messages or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed, or of another version")]
pub struct Malformed;

/// A message or a value as octets: the version, then postcard's encoding.
pub fn encode<T: Encoded>(what: &T) -> Vec<u8> {
    // Nothing that is written to memory, and has no foreign types in it, fails.
    postcard::to_extend(what, vec![T::VERSION]).unwrap_or_default()
}

/// A message or a value from octets, all of which it needs.
pub fn decode<T: Encoded + for<'a> Deserialize<'a>>(octets: &[u8]) -> Result<T, Malformed> {
    let (version, rest) = octets.split_first().ok_or(Malformed)?;
    let (found, rest) = postcard::take_from_bytes(rest).map_err(|_| Malformed)?;
    (*version == T::VERSION && rest.is_empty()).then_some(found).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replicate(records: Vec<Record>) -> Message {
        let digest = Digest { count: 1, sum: 2 };
        Message::Replicate {
            shard: Shard(3),
            epoch: 4,
            number: 5,
            digest,
            step: Step::Records(records),
        }
    }

    proptest! {
        #[test]
        fn messages_come_back(values in proptest::collection::vec(proptest::option::of(".*"), 0..9), key in any::<RecordKey>()) {
            let record = |value: Option<String>| Record { key, value: value.map(|v| v.as_bytes().into()) };
            let message = replicate(values.into_iter().map(record).collect());
            prop_assert_eq!(decode(&encode(&message)), Ok(message));
        }

        #[test]
        fn octets_of_any_kind_are_refused_or_read(octets in proptest::collection::vec(any::<u8>(), 0..99)) {
            if let Ok(message) = decode::<Message>(&octets) {
                prop_assert_eq!(decode(&encode(&message)), Ok(message));
            }
            let _: Result<Value, _> = decode(&octets);
        }

        #[test]
        fn a_shortened_message_is_refused(cut in 1_usize..40) {
            let octets = encode(&replicate(vec![Record { key: [7; 24], value: Some([1; 9].into()) }]));
            prop_assert_eq!(decode::<Message>(&octets[..octets.len().saturating_sub(cut)]), Err(Malformed));
        }
    }

    /// A change of any of these needs another version: gateways are upgraded one after the other.
    #[test]
    fn gateways_of_other_builds_read_the_same() {
        let record = Record { key: [7; 24], value: Some([9, 8].into()) };
        let expected = [&[2, 5, 3, 4, 5, 1, 2, 1, 1, 24][..], &[7; 24], &[1, 2, 9, 8]].concat();
        assert_eq!(encode(&replicate(vec![record])), expected);
        let (shard, revision, member) = (Shard(300), 200, Member(7));
        let record = ShardRecord { epoch: 4, owner: member, incarnation: 5, wish: Some(member) };
        let messages = [
            (Message::Ask { incarnation: 5, sent: 6 }, vec![2, 0, 5, 6]),
            (Message::Promise { by: 4, incarnation: 5, sent: 6 }, vec![2, 1, 4, 5, 6]),
            (Message::VoteRequest { member, revision }, vec![2, 2, 7, 200, 1]),
            (Message::Vote { member, revision, by: 4 }, vec![2, 3, 7, 200, 1, 4]),
            (
                Message::Written { shard, revision, record },
                vec![2, 4, 172, 2, 200, 1, 4, 7, 5, 1, 7],
            ),
            (
                Message::Acknowledge { shard, epoch: 4, next: 6, ready: true },
                vec![2, 6, 172, 2, 4, 6, 1],
            ),
            (Message::Known { shard, revision }, vec![2, 7, 172, 2, 200, 1]),
        ];
        for (message, octets) in messages {
            assert_eq!(encode(&message), octets, "{message:?}");
        }
        let lease = LeaseRecord {
            incarnation: 5,
            process: 6,
            host: 300,
            status: Status::Draining,
            sent: 8,
            weight: 9,
            peers: BTreeMap::from([(member, 3)]),
        };
        let values = [
            (Value::Config(5), vec![1, 0, 5]),
            (Value::Lease(lease), vec![1, 1, 5, 6, 172, 2, 1, 8, 9, 1, 7, 3]),
            (Value::Shard(record), vec![1, 2, 4, 7, 5, 1, 7]),
        ];
        for (value, octets) in values {
            assert_eq!(encode(&value), octets, "{value:?}");
        }
    }

    #[test]
    fn another_version_is_refused() {
        let mut octets = encode(&Value::Config(5));
        octets[0] = 2;
        assert_eq!(decode::<Value>(&octets), Err(Malformed));
        let mut octets = encode(&Message::Ask { incarnation: 1, sent: 2 });
        octets[0] = 1;
        assert_eq!(decode::<Message>(&octets), Err(Malformed));
    }
}
