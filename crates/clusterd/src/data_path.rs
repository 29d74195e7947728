//! What translates, as a member sees it.

use fordway_cluster::{Member, Nanos, Record, RecordKey, Shard};

/// What has happened in a data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Records of a shard have changed in its tables; in the order of their changes.
    Records(Shard, Vec<Record>),
    /// [`DataPath::stop`] is done: packets that had begun have left, and all changes before were given.
    Stopped(Shard, u64),
}

/// Tables and programs that translate, by shard.
///
/// All calls take effect before they return. Times are of CLOCK_BOOTTIME, in ns, which the data path compares with by itself:
/// it has to stop at the deadline also if the process that has set it stands still. Until [`DataPath::lease`] is called for the
/// first time, nothing is translated, whatever an earlier process was allowed to.
pub trait DataPath: Send {
    /// What an earlier process has left: records of a shard, and the epoch in which it owned the shard, 0 if it did not, or if the
    /// records were changed by [`DataPath::apply`] or [`DataPath::clear`] since.
    fn loaded(&mut self) -> Vec<(Shard, u64, Vec<Record>)>;

    /// Nothing is translated after this time; 0: nothing from now on.
    fn lease(&mut self, until: Nanos);

    /// A shard is translated while the lease lasts. Its epoch is remembered with its records. `is_quiet`: sessions may be missing,
    /// so unknown packets are dropped without an answer for a second.
    fn translate(&mut self, shard: Shard, epoch: u64, is_quiet: bool);

    /// Who owns a shard, as far as is known: its packets are to be handed over to that gateway, if it is another one, as soon as
    /// that one can be supposed to know it.
    fn owner(&mut self, shard: Shard, owner: Member);

    /// The owner of a shard knows that it is.
    fn known(&mut self, shard: Shard, owner: Member);

    /// What has happened since the last call, in order. The [`Notify`](tokio::sync::Notify) that the member was given is notified when
    /// there is something, at most a few milliseconds later.
    fn changes(&mut self) -> Vec<Change>;

    /// No packet of a shard begins translation any more. [`Change::Stopped`] follows, with the ticket.
    fn stop(&mut self, shard: Shard, ticket: u64);

    /// Removes all records of a shard, and forgets its epoch.
    fn clear(&mut self, shard: Shard);

    /// Changes records of a shard, in order, and forgets its epoch.
    fn apply(&mut self, shard: Shard, records: &[Record]);

    /// What [`DataPath::changes`] would give; and records of a shard as these changes have left them, in the order of their keys, at
    /// most so many after a key, and whether they are the last.
    fn read(
        &mut self,
        shard: Shard,
        after: Option<RecordKey>,
        most: usize,
    ) -> (Vec<Change>, Vec<Record>, bool);
}
