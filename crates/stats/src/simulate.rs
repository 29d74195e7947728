//! A discrete-event simulation of work that arrives at processors: open, by a network card's hash, and closed, by
//! clients that wait for their answers. Times are in seconds outside and in picoseconds inside; a seed gives the same
//! course again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::weighted::WeightedAliasIndex;
use rand_distr::{Distribution, Exp1, LogNormal};

/// Picoseconds of a second.
const PS: f64 = 1e12;

/// Times of one kind of work: drawn from what was measured.
#[derive(Debug, Clone)]
pub struct Service {
    /// Measured times, s.
    pub measured: Vec<f64>,
    /// Whether single pieces of work spread around the drawn time as an exponential distribution does. What was
    /// measured are means over many pieces; the true spread lies between none and, mostly, this.
    pub exponential: bool,
}

impl Service {
    /// Work that takes this long, each time.
    #[cfg(test)]
    pub fn fixed(seconds: f64) -> Self {
        Self { measured: vec![seconds], exponential: false }
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        let mean = match self.measured.len() {
            0 => 0.0,
            n => self.measured[rng.random_range(0..n)],
        };
        let share: f64 = if self.exponential { Exp1.sample(rng) } else { 1.0 };
        (mean * share * PS) as u64
    }

    /// Mean, s.
    pub fn mean(&self) -> f64 {
        crate::describe::mean(&self.measured)
    }
}

/// Packets of many flows at a machine whose network card spreads flows over processors by a hash.
#[derive(Debug, Clone)]
pub struct Open {
    /// Packets per second.
    pub rate: f64,
    /// Flows.
    pub flows: usize,
    /// Spread of the flows' rates: sigma of a log-normal distribution; 0: all alike.
    pub skew: f64,
    /// Processors, each with a queue of its own.
    pub cores: usize,
    /// Places of a queue, the one that is served included.
    pub places: usize,
    /// Time per packet.
    pub service: Service,
}

/// What a simulation of [`Open`] shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Share of the packets that found no place.
    pub lost: f64,
    /// Share of the time that the busiest processor worked.
    pub busiest: f64,
    /// The same, mean of all.
    pub busy: f64,
    /// Waiting before service, s: median and 99th percentile.
    pub wait: [f64; 2],
}

/// Lets `packets` packets arrive.
pub fn open(load: &Open, packets: usize, seed: u64) -> Seen {
    let mut passed = pass(load, packets, seed);
    let waits = &mut passed.waits;
    waits.sort_by(f64::total_cmp);
    let quantile = |p| if waits.is_empty() { 0.0 } else { crate::describe::quantile(waits, p) };
    let share = |ps: u64| ps as f64 / passed.end.max(1.0);
    Seen {
        lost: passed.lost,
        busiest: passed.worked.iter().copied().map(share).fold(0.0, f64::max),
        busy: passed.worked.iter().copied().map(share).sum::<f64>() / passed.worked.len() as f64,
        wait: [quantile(0.5), quantile(0.99)],
    }
}

/// What passed a simulation of [`Open`].
struct Passed {
    /// Share of the packets that found no place.
    lost: f64,
    /// Time that each processor worked, ps.
    worked: Vec<u64>,
    /// Waiting before service of each packet, s.
    waits: Vec<f64>,
    /// When the last work ended, ps.
    end: f64,
}

fn pass(load: &Open, packets: usize, seed: u64) -> Passed {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let home: Vec<usize> =
        (0..load.flows.max(1)).map(|_| rng.random_range(0..load.cores.max(1))).collect();
    // A spread of rates that makes no distribution is none.
    let weight = LogNormal::new(0.0, load.skew).ok();
    let weights =
        (0..home.len()).map(|_| weight.map_or(1.0, |w| w.sample(&mut rng))).collect::<Vec<f64>>();
    let pick = WeightedAliasIndex::new(weights).ok();
    let mut queues: Vec<VecDeque<u64>> = vec![VecDeque::new(); load.cores.max(1)];
    let mut worked = vec![0u64; load.cores.max(1)];
    let mut waits: Vec<f64> = Vec::with_capacity(packets);
    let (mut now, mut lost) = (0.0f64, 0usize);
    for _ in 0..packets {
        let gap: f64 = Exp1.sample(&mut rng);
        now += gap / load.rate * PS;
        let at = now as u64;
        let flow = pick.as_ref().map_or(0, |pick| pick.sample(&mut rng));
        let core = home[flow];
        let queue = &mut queues[core];
        while queue.front().is_some_and(|end| *end <= at) {
            queue.pop_front();
        }
        if queue.len() >= load.places {
            lost += 1;
            continue;
        }
        let start = queue.back().copied().unwrap_or(0).max(at);
        let takes = load.service.draw(&mut rng);
        queue.push_back(start + takes);
        worked[core] += takes;
        waits.push((start - at) as f64 / PS);
    }
    let end = queues.iter().filter_map(|q| q.back()).max().map_or(now, |end| now.max(*end as f64));
    Passed { lost: lost as f64 / packets.max(1) as f64, worked, waits, end }
}

/// The highest rate at which at most `bearable` of the packets are lost, within one in a hundred.
pub fn capacity(load: &Open, bearable: f64, packets: usize, seed: u64) -> f64 {
    let mean = load.service.mean();
    if mean <= 0.0 {
        return 0.0;
    }
    // No more than all processors at work all the time.
    let most = load.cores as f64 / mean;
    let (mut low, mut high) = (0.0, most);
    while high - low > 0.01 * most {
        let rate = 0.5 * (low + high);
        let passed = pass(&Open { rate, ..load.clone() }, packets, seed);
        if passed.lost <= bearable { low = rate } else { high = rate }
    }
    low
}

/// A piece of work on the way of a request.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Time that it takes.
    pub service: Service,
    /// Which group of processors does it.
    pub group: usize,
}

/// Clients each of which sends the next request when the last one is answered.
#[derive(Debug, Clone)]
pub struct Closed {
    /// Requests under way.
    pub clients: usize,
    /// What a request goes through.
    pub stages: Vec<Stage>,
    /// Processors in each group; who comes first is served first, by any that is free.
    pub groups: Vec<usize>,
}

/// What a simulation of [`Closed`] shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answered {
    /// Requests per second.
    pub rate: f64,
    /// Time of a request, median, s.
    pub response: f64,
}

/// Lets `requests` requests be answered.
pub fn closed(load: &Closed, requests: usize, seed: u64) -> Answered {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut free: Vec<BinaryHeap<Reverse<u64>>> =
        load.groups.iter().map(|n| (0..(*n).max(1)).map(|_| Reverse(0)).collect()).collect();
    // (time, order, client, stage): ties are served in the order in which they came.
    let mut coming: BinaryHeap<Reverse<(u64, u64, usize, usize)>> = BinaryHeap::new();
    let mut began = vec![0u64; load.clients];
    for client in 0..load.clients {
        coming.push(Reverse((0, client as u64, client, 0)));
    }
    let mut order = load.clients as u64;
    // The first tenth fills the queues and is not counted.
    let warm = requests / 10;
    let (mut done, mut from, mut end) = (0usize, 0u64, 0u64);
    let mut times = Vec::with_capacity(requests);
    while let Some(Reverse((at, _, client, stage))) = coming.pop() {
        let Some(work) = load.stages.get(stage) else {
            done += 1;
            if done > warm {
                times.push((at - began[client]) as f64 / PS);
            } else {
                from = at;
            }
            end = at;
            if done >= requests {
                break;
            }
            began[client] = at;
            order += 1;
            coming.push(Reverse((at, order, client, 0)));
            continue;
        };
        let takes = work.service.draw(&mut rng);
        let mut ends = at + takes;
        if let Some(servers) = free.get_mut(work.group)
            && let Some(Reverse(earliest)) = servers.pop()
        {
            ends = earliest.max(at) + takes;
            servers.push(Reverse(ends));
        }
        order += 1;
        coming.push(Reverse((ends, order, client, stage + 1)));
    }
    let took = end.saturating_sub(from) as f64 / PS;
    Answered {
        rate: if took > 0.0 { times.len() as f64 / took } else { 0.0 },
        response: if times.is_empty() { 0.0 } else { crate::describe::median(&times) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_core(rate: f64, exponential: bool, places: usize) -> Open {
        let service = Service { measured: vec![1e-6], exponential };
        Open { rate, flows: 1, skew: 0.0, cores: 1, places, service }
    }

    #[test]
    fn one_queue_waits_as_the_textbook_says() {
        // M/M/1 at 0.8: P(wait > t) = 0.8 exp(-0.2 t / s), so that the median is 5 ln 1.6 and P99 5 ln 80 services.
        let seen = open(&one_core(0.8e6, true, usize::MAX), 2_000_000, 1);
        let want = [5.0 * 1.6f64.ln() * 1e-6, 5.0 * 80f64.ln() * 1e-6];
        for (is, want) in seen.wait.iter().zip(want) {
            assert!((is / want - 1.0).abs() < 0.05, "{is} {want}");
        }
        assert!((seen.busy - 0.8).abs() < 0.01 && seen.lost == 0.0);
    }

    #[test]
    fn few_places_lose_as_the_textbook_says() {
        // M/M/1/4 at 0.9: (1 - r) r^4 / (1 - r^5) = 0.1602.
        let seen = open(&one_core(0.9e6, true, 4), 1_000_000, 2);
        assert!((seen.lost - 0.1602).abs() < 0.003, "{seen:?}");
    }

    #[test]
    fn a_hash_loads_processors_unevenly_and_many_flows_even_that_out() {
        let of = |flows, skew| {
            let service = Service::fixed(1e-6);
            open(&Open { rate: 4e6, flows, skew, cores: 8, places: 512, service }, 300_000, 3)
        };
        let (few, many) = (of(32, 0.0), of(30_000, 0.0));
        assert!(few.busiest > 1.3 * few.busy, "{few:?}");
        assert!(many.busiest < 1.1 * many.busy, "{many:?}");
        assert!(of(2000, 2.0).busiest > of(2000, 0.0).busiest);
        assert_eq!(of(32, 1.0), of(32, 1.0));
    }

    #[test]
    fn capacity_grows_with_processors_and_not_beyond_them() {
        let of = |cores, flows| {
            let service = Service::fixed(1e-6);
            let load = Open { rate: 0.0, flows, skew: 0.0, cores, places: 512, service };
            capacity(&load, 1e-4, 200_000, 4)
        };
        let (one, four) = (of(1, 1000), of(4, 20_000));
        assert!(one > 0.95e6 && one <= 1e6, "{one}");
        assert!(four > 3.3 * one && four <= 4e6, "{four}");
        assert!(of(4, 8) < four);
    }

    #[test]
    fn clients_that_wait_are_bound_by_their_number_or_by_the_processors() {
        let of = |clients, cores| {
            let stages = vec![Stage { service: Service::fixed(1e-3), group: 0 }];
            closed(&Closed { clients, stages, groups: vec![cores] }, 5000, 5)
        };
        // One client: 1000/s; two on two processors 2000/s; ten on two as many, each waiting five services.
        for (clients, cores, rate, response) in
            [(1, 2, 1e3, 1e-3), (2, 2, 2e3, 1e-3), (10, 2, 2e3, 5e-3)]
        {
            let seen = of(clients, cores);
            assert!((seen.rate / rate - 1.0).abs() < 0.01, "{seen:?}");
            assert!((seen.response / response - 1.0).abs() < 0.01, "{seen:?}");
        }
    }

    #[test]
    fn a_pipeline_is_as_fast_as_its_slowest_stage() {
        let stage = |ms: f64, group| Stage { service: Service::fixed(ms * 1e-3), group };
        let stages = vec![stage(1.0, 0), stage(4.0, 1)];
        let seen =
            closed(&Closed { clients: 50, stages: stages.clone(), groups: vec![1, 1] }, 5000, 6);
        assert!((seen.rate / 250.0 - 1.0).abs() < 0.01, "{seen:?}");
        // The same work on two processors that take either: 2 / 5 ms.
        let stages = vec![stage(1.0, 0), stage(4.0, 0)];
        let seen = closed(&Closed { clients: 50, stages, groups: vec![2] }, 5000, 6);
        assert!((seen.rate / 400.0 - 1.0).abs() < 0.02, "{seen:?}");
    }
}
