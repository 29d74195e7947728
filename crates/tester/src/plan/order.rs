//! A plan as the program reads it that sends by itself: `struct order`, `templates` and `tuples` of `c/live.bpf.c`.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Plan;
use crate::frame::{Template, Tuple};
use crate::{Class, Direction, Enumeration, Result};

/// Stretches for which the program has room.
const STRETCHES: usize = 8;
/// Words of a template: its front, length, place of the UDP header, sum.
pub(crate) const TEMPLATE: usize = 13;

/// What the program looks up for each frame.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The fronts of translated frames, then those of native ones: [`TEMPLATE`] words for each.
    pub(crate) templates: Vec<u64>,
    /// Number of the first native template.
    natives: u64,
    /// Enumerated tuples in the order in which they are sent. None: ports are random, or the tuples of [`Tables::key`] are
    /// at their place already.
    pub(crate) tuples: Option<Vec<u64>>,
    /// Number of enumerated tuples.
    count: u64,
    /// What the tuples follow from, if they are not the noted ones.
    pub(crate) key: Option<Key>,
}

/// What the order of enumerated tuples follows from: themselves and a seed.
pub(crate) type Key = (Enumeration, u64);

impl Plan {
    /// So many frames that end at the next hop, one after the other.
    pub(crate) fn probe(macs: [[u8; 6]; 2], total: u64) -> Self {
        Self {
            direction: Direction::Forward,
            trial: 0,
            seed: 0,
            order_seed: 0,
            share: 100,
            macs,
            payload: 0,
            templates: [vec![Template::unknown(macs)], Vec::new()],
            enumerated: None,
            noted: None,
            stretches: Vec::new(),
            burst: true,
            total,
            length: 0,
        }
    }

    /// Whether the program can send this plan: it has room for its stretches, and all pairs of networks start at once.
    pub(crate) fn fits_program(&self) -> bool {
        let networks = self.templates.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let rises = self.stretches.iter().any(|it| u64::from(it.networks) < networks);
        self.stretches.len() <= STRETCHES && !rises
    }

    /// The tables of this plan. `known`: whose tuples are at their place already.
    pub(crate) fn tables(&self, known: Option<Key>) -> Result<Tables> {
        let mut tables = Tables::default();
        let [translated, native] = &self.templates;
        if let (Some(noted), true) = (&self.noted, self.share > 0) {
            let (templates, tuples) = self.answers(noted)?;
            tables.put(&templates);
            (tables.count, tables.tuples) = (tuples.len() as u64, Some(tuples));
        } else {
            tables.put(translated);
            if let Some((enumeration, permutation)) = &self.enumerated {
                let key = (*enumeration, self.order_seed);
                let tuple = |number| {
                    let (pair, ports) = enumeration.tuple(permutation.at(number) as u32);
                    tuple(pair.into(), ports)
                };
                let flows = u64::from(enumeration.flows);
                let made = || (0..flows).map(tuple).collect();
                (tables.count, tables.key) = (flows, Some(key));
                tables.tuples = (known != Some(key)).then(made);
            }
        }
        tables.natives = (tables.templates.len() / TEMPLATE) as u64;
        tables.put(native);
        Ok(tables)
    }

    /// Answers to noted tuples: a template for each two addresses, and what the program reads of each tuple.
    fn answers(&self, noted: &[Tuple]) -> Result<(Vec<Template>, Vec<u64>)> {
        let mut templates = Vec::new();
        let mut numbers = HashMap::<[IpAddr; 2], u64>::new();
        let mut tuples = Vec::with_capacity(noted.len());
        // Nearly all have the addresses of the one before.
        let mut last = None;
        for to in noted {
            let Tuple { source, source_port, target, target_port } = to.reversed();
            let known =
                last.filter(|(pair, _)| *pair == [source, target]).map(|(_, number)| number);
            let number = match known.or_else(|| numbers.get(&[source, target]).copied()) {
                Some(number) => number,
                None => {
                    templates.push(Template::new(self.macs, [source, target], self.payload)?);
                    let number = numbers.len() as u64;
                    numbers.insert([source, target], number);
                    number
                }
            };
            last = Some(([source, target], number));
            tuples.push(tuple(number, [source_port, target_port]));
        }
        Ok((templates, tuples))
    }

    /// Words of the order, with these tables, for a start and a batch.
    pub(crate) fn order(&self, tables: &Tables, start: u64, batch: u32) -> Vec<u64> {
        let mut words = vec![
            start,
            self.total,
            self.burst.into(),
            self.share,
            self.seed,
            self.trial.into(),
            self.direction as u64,
            self.templates[Class::Translated as usize].len() as u64,
            batch.into(),
            tables.count,
            self.noted.is_some().into(),
            tables.natives,
            self.stretches.len() as u64,
        ];
        for stretch in &self.stretches {
            words.extend([stretch.first, stretch.start, stretch.period, stretch.fraction]);
        }
        words.extend(vec![0; STRETCHES.saturating_sub(self.stretches.len()) * 4]);
        words
    }

    /// Octets of the longest frame, without its check sequence.
    pub(crate) fn longest(&self, tables: &Tables) -> usize {
        let lengths = tables.templates.chunks(TEMPLATE).map(|words| words[TEMPLATE - 3] as usize);
        lengths.max().unwrap_or(0)
    }
}

impl Tables {
    fn put(&mut self, templates: &[Template]) {
        for template in templates {
            let (front, udp, sum) = template.parts();
            let word =
                |octets: &[u8]| octets.iter().rev().fold(0, |sum, it| sum << 8 | u64::from(*it));
            // Octets keep their places in memory.
            self.templates.extend(front.chunks(8).map(|octets| u64::from_le(word(octets))));
            self.templates.extend([template.length() as u64, udp, sum]);
        }
    }
}

/// What the program reads of a tuple.
fn tuple(template: u64, [source, target]: [u16; 2]) -> u64 {
    template << 32 | u64::from(source) << 16 | u64::from(target)
}
