//! A rate limit.

use std::time::{Duration, Instant};

/// A token bucket, full at first.
///
/// The generic cell rate algorithm: all that is kept is the time at which the bucket is full again.
#[derive(Debug, Default)]
pub struct Bucket {
    full_at: Option<Instant>,
}

impl Bucket {
    /// Takes a token if there is one: `burst` at once after a pause, and `per_second` in the long run.
    pub fn take(&mut self, per_second: u32, burst: u32, now: Instant) -> bool {
        let each = Duration::from_secs(1) / per_second.max(1);
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + each;
        let has_token = full_at - now <= each * burst;
        if has_token {
            self.full_at = Some(full_at);
        }
        has_token
    }
}
