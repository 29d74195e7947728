//! What a member is told, and what it wants done.

use crate::record::{Key, Member, Message, Nanos, Record, RecordKey, Revision, Value};
use crate::shard::Shard;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// Records of a shard that the data path of this host has from an earlier process; before [`Input::Synced`].
    Loaded {
        /// Which shard.
        shard: Shard,
        /// The epoch in which that process owned it; 0: it did not, or the records were changed for another owner.
        epoch: u64,
        /// Its records.
        records: Vec<Record>,
    },
    /// Every key that the store had at the start was given.
    Synced,
    /// What the store has told can't be relied upon: it is told anew, until [`Input::Synced`].
    Forget,
    /// What the store has, by a watch, as the answer to a read, or because a write of one's own has succeeded.
    Entry {
        /// Which key.
        key: Key,
        /// Its revision; 0: it was never written.
        revision: Revision,
        /// Its value; `None`: it is absent.
        value: Option<Value>,
    },
    /// A write was refused: the key has another revision. A write whose outcome is unknown is told by nothing.
    Refused {
        /// Which key.
        key: Key,
    },
    /// A message of another gateway, which the channel has authenticated.
    Received {
        /// Whose.
        from: Member,
        /// What.
        message: Message,
    },
    /// [`Action::Stop`] is done: no packet is in translation, and all changes before were given.
    Stopped {
        /// Which shard.
        shard: Shard,
        /// The action's.
        ticket: u64,
    },
    /// Records of a shard have changed in the data path's tables.
    Changed {
        /// Which shard.
        shard: Shard,
        /// The records, in the order of their changes.
        records: Vec<Record>,
    },
    /// Records that [`Action::ReadRecords`] asked for, read after all changes given before and before all given later.
    Chunk {
        /// Which shard.
        shard: Shard,
        /// The action's key.
        after: Option<RecordKey>,
        /// Records, in the order of their keys.
        records: Vec<Record>,
        /// There are no more.
        is_last: bool,
    },
    /// The operator wants something.
    Command(Command),
}

/// What an operator can want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Own shards (again).
    Join,
    /// Give all shards away, and stay.
    Drain,
    /// Give all shards away, and end the lease.
    Leave,
    /// A gateway is off, certainly: its lease may be ended without votes.
    Declare(Member),
    /// Where a shard of this gateway's is wanted; `None`: where placement wants it.
    Wish(Shard, Option<Member>),
}

/// What is to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Write a value, if the key has the expected revision (0: if it is absent).
    Write {
        /// Which key.
        key: Key,
        /// Its revision.
        expected: Revision,
        /// The new value.
        value: Value,
    },
    /// Read a key.
    Read {
        /// Which key.
        key: Key,
    },
    /// Send a message to a gateway.
    Send {
        /// To whom.
        to: Member,
        /// What.
        message: Message,
    },
    /// The data path translates nothing after this time, of this host's clock; done before the next action.
    Lease {
        /// The time; 0: nothing from now on.
        until: Nanos,
    },
    /// The data path translates a shard while the lease lasts. It remembers the epoch with the shard's table.
    Translate {
        /// Which shard.
        shard: Shard,
        /// The ownership's number.
        epoch: u64,
        /// Sessions may be missing: drop unknown packets silently for a second.
        is_quiet: bool,
    },
    /// The data path begins to translate no packet of a shard any more, from this action on. [`Input::Stopped`] when
    /// those that it had begun have left.
    Stop {
        /// Which shard.
        shard: Shard,
        /// For the answer.
        ticket: u64,
    },
    /// The next owner of a shard knows that it is: packets may be handed over to it.
    Known {
        /// Which shard.
        shard: Shard,
        /// Its owner.
        owner: Member,
    },
    /// Remove all records of a shard from the data path's tables, and forget their epoch; done before the next action.
    Clear {
        /// Which shard.
        shard: Shard,
    },
    /// Change the data path's tables of a shard, in order, and forget their epoch; done before the next action.
    Apply {
        /// Which shard.
        shard: Shard,
        /// Changed records.
        records: Vec<Record>,
    },
    /// Give records of a shard by [`Input::Chunk`].
    ReadRecords {
        /// Which shard.
        shard: Shard,
        /// After this key; `None`: from the first.
        after: Option<RecordKey>,
        /// So many at most.
        most: usize,
    },
}
