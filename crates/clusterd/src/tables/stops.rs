//! Shards that are stopped in a planned way: from the last packet that begins to the last record that is told.

use fordway_cluster::Shard;
use fordway_engine::Grace;

/// Whole scans at most, if a changed session can't be told before.
const SCANS: u8 = 2;

/// A shard in which no packet begins translation any more.
struct Stop {
    shard: Shard,
    ticket: u64,
    stage: Stage,
}

/// What a stop waits for.
enum Stage {
    /// Packets that had begun in the engine's threads.
    Bursts(Grace),
    /// Packets that had begun in programs.
    Programs,
    /// The rest of a round of looking at changed sessions that had begun before that.
    Rest,
    /// A round that tells all of them; how many whole scans there were meanwhile.
    Round(u8),
    /// The thread, for a moment.
    Done,
}

/// All of them.
#[derive(Default)]
pub(super) struct Stops(Vec<Stop>);

impl Stops {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn begin(&mut self, shard: Shard, ticket: u64, grace: Grace) {
        self.0.push(Stop { shard, ticket, stage: Stage::Bursts(grace) });
    }

    /// Forgets a stop. Its ticket, and whether packets that had begun have left.
    pub(super) fn take(&mut self, shard: Shard) -> Option<(u64, bool)> {
        let at = self.0.iter().position(|stop| stop.shard == shard)?;
        let stop = self.0.swap_remove(at);
        let have_left = !matches!(stop.stage, Stage::Bursts(_) | Stage::Programs);
        Some((stop.ticket, have_left))
    }

    /// One of which everything is told.
    pub(super) fn take_done(&mut self) -> Option<(Shard, u64)> {
        let at = self.0.iter().position(|stop| matches!(stop.stage, Stage::Done))?;
        let stop = self.0.swap_remove(at);
        Some((stop.shard, stop.ticket))
    }

    /// What waited for bursts of packets that are over goes on.
    pub(super) fn look_at_bursts(&mut self) {
        for stop in &mut self.0 {
            if let Stage::Bursts(grace) = &mut stop.stage
                && grace.is_over()
            {
                stop.stage = Stage::Programs;
            }
        }
    }

    /// Whether packets that had begun in programs have not left yet.
    pub(super) fn waits_for_programs(&self) -> bool {
        self.0.iter().any(|stop| matches!(stop.stage, Stage::Programs))
    }

    /// Programs have ended that had begun when [`Stops::look_at_bursts`] was called last. `is_looking`: a round is under way.
    pub(super) fn end_programs(&mut self, is_looking: bool) {
        for stop in &mut self.0 {
            if let Stage::Programs = stop.stage {
                stop.stage = if is_looking { Stage::Rest } else { Stage::Round(0) };
            }
        }
    }

    /// A round of looking at changed sessions is complete. `waits`: one of them could not be told.
    pub(super) fn end_round(&mut self, waits: bool) {
        for stop in &mut self.0 {
            match stop.stage {
                Stage::Rest => stop.stage = Stage::Round(0),
                Stage::Round(scans) if !waits || scans >= SCANS => stop.stage = Stage::Done,
                _ => {}
            }
        }
    }

    /// A scan of everything is complete.
    pub(super) fn end_scan(&mut self) {
        for stop in &mut self.0 {
            if let Stage::Round(scans) = &mut stop.stage {
                *scans += 1;
            }
        }
    }
}
