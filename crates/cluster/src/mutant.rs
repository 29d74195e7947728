//! Faults of the protocol itself, for tests of the model.

/// Faults of the protocol itself, each of which an invariant must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// The deadline is counted from the acknowledgement.
    FromAcknowledgement,
    /// Others don't wait for `ttl`.
    NoWait,
    /// A planned move does not stop the data path.
    NoStop,
    /// A standby does not tell epochs apart.
    AnyEpoch,
    /// A peer that has voted promises.
    PromiseAfterVote,
    /// A peer that has promised votes.
    VoteAfterPromise,
    /// One vote is always enough.
    FewVotes,
    /// Promises of a peer's later incarnation count.
    AnyIncarnation,
    /// Clocks are taken to be equal.
    NoDrift,
    /// A standby neither sees gaps nor compares digests.
    NoGaps,
    /// A take-over raises no epoch.
    SameEpoch,
    /// Peers of a write that may still succeed are not asked.
    OneSet,
    /// Promises extend a lease for ever.
    NoBound,
    /// A stream goes on to a standby that was restarted.
    SameStream,
}
