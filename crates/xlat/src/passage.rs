//! The shards of a cluster that a packet has entered (docs/cluster.md).

/// What a packet has that is translated in a shard: the shard's state when translation began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    pub(crate) shard: u16,
    /// How often a lease had been taken back.
    pub(crate) lease: u64,
    /// Sessions may be missing: what the tables do not know is dropped without an answer.
    pub(crate) is_quiet: bool,
}

/// The shards that a packet has entered: of one that hairpins two.
pub(crate) type Entered = [Option<Passage>; 2];
