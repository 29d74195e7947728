//! A plan as the program reads it that sends by itself: `struct order` of `c/live.bpf.c`.

use super::Plan;

/// Pairs of networks, and stretches, for which the program has room.
const NETWORKS: usize = 256;
const STRETCHES: usize = 8;
/// Words of a template: its front, length, place of the UDP header, sum.
const TEMPLATE: usize = 13;

impl Plan {
    /// Words of the order, for a start and a batch. `None` if the program can't send this plan: enumerated tuples, too many
    /// stretches, and pairs of networks that start one after the other.
    pub(crate) fn order(&self, start: u64, batch: u32) -> Option<Vec<u64>> {
        let networks = self.templates.iter().map(Vec::len).max()? as u64;
        let rises = self.stretches.iter().any(|it| u64::from(it.networks) < networks);
        if self.enumerated.is_some() || self.stretches.len() > STRETCHES || rises {
            return None;
        }
        let mut words = vec![
            start,
            self.total,
            self.burst.into(),
            self.share,
            self.seed,
            self.trial.into(),
            self.direction as u64,
            networks,
            batch.into(),
            self.stretches.len() as u64,
        ];
        for stretch in &self.stretches {
            words.extend([stretch.first, stretch.start, stretch.period, stretch.fraction]);
        }
        words.extend(vec![0; (STRETCHES - self.stretches.len()) * 4]);
        for templates in &self.templates {
            for template in templates {
                let (front, udp, sum) = template.parts();
                let word = |octets: &[u8]| {
                    octets.iter().rev().fold(0, |sum, it| sum << 8 | u64::from(*it))
                };
                // Octets keep their places in memory.
                words.extend(front.chunks(8).map(|octets| u64::from_le(word(octets))));
                words.extend([template.length() as u64, udp, sum]);
            }
            words.extend(vec![0; (NETWORKS - templates.len()) * TEMPLATE]);
        }
        Some(words)
    }

    /// Octets of the longest frame, without its check sequence.
    pub(crate) fn longest(&self) -> usize {
        let templates = self.templates.iter().flatten();
        templates.map(super::Template::length).max().unwrap_or(0)
    }
}
