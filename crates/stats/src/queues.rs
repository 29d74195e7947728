//! Formulas of queues: packets at processors among which a network card spreads flows by a hash, and clients that wait for
//! answers. Times are in seconds. Sources are named with each formula; `docs/decision-model.md` has them in one place.

use statrs::distribution::{ContinuousCDF, Normal};

/// Times of one kind of work, by two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// Mean, s.
    pub mean: f64,
    /// Squared coefficient of variation: variance over squared mean.
    pub scv: f64,
}

impl Service {
    /// Of measured means over many pieces of work. `exponential`: single pieces spread around them as an exponential
    /// distribution does; the true spread lies between none and, mostly, this.
    pub fn measured(times: &[f64], exponential: bool) -> Self {
        let mean = crate::describe::mean(times);
        let squares: Vec<f64> = times.iter().map(|t| t * t).collect();
        let second = crate::describe::mean(&squares) * if exponential { 2.0 } else { 1.0 };
        let scv = if mean > 0.0 { (second / (mean * mean) - 1.0).max(0.0) } else { 0.0 };
        Self { mean, scv }
    }
}

/// Packets of many flows, arriving at random (Poisson), at a machine whose network card spreads flows over processors by a
/// hash. Each processor has a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Card {
    /// Flows.
    pub flows: usize,
    /// Spread of the flows' rates: sigma of a log-normal distribution; 0: all alike.
    pub skew: f64,
    /// Processors.
    pub cores: usize,
    /// Places of a queue, the one that is served included.
    pub places: usize,
    /// Time per packet.
    pub service: Service,
}

impl Card {
    /// Share of the packets that each processor gets, in ascending order: what is expected of the least, the next, and so on.
    ///
    /// A share is a sum over flows, each of which is there with probability 1/k; with n flows whose rates have the squared
    /// coefficient of variation exp(sigma^2) - 1 its variance is exp(sigma^2) (1 - 1/k) / (n k), and any two are correlated by
    /// -1/(k - 1). So they deviate as independent normal values with variance exp(sigma^2) / (n k) do from their own mean. The
    /// expected order of such values is Blom's (1958).
    pub fn shares(&self) -> Vec<f64> {
        let cores = self.cores.max(1) as f64;
        let deviation = (self.skew.powi(2).exp() / (self.flows.max(1) as f64 * cores)).sqrt();
        let normal = Normal::standard();
        let share = |rank: usize| {
            let score = normal.inverse_cdf((rank as f64 - 0.375) / (cores + 0.25));
            (1.0 / cores + deviation * score).max(0.0)
        };
        let all: Vec<f64> = (1..=self.cores.max(1)).map(share).collect();
        let sum: f64 = all.iter().sum();
        all.iter().map(|share| share / sum).collect()
    }

    /// Share of the packets that find no place at so many packets per second.
    pub fn lost(&self, rate: f64) -> f64 {
        let lost = |share: f64| share * self.lost_of_queue(rate * share * self.service.mean);
        self.shares().into_iter().map(lost).sum()
    }

    /// M/G/1/K at utilisation r: the loss of M/M/1/K, (1 - r) r^K / (1 - r^(K + 1)), with 2 K / (1 + scv) for K, which is exact for
    /// exponential times, and else where r is near 1 (heavy traffic).
    fn lost_of_queue(&self, utilisation: f64) -> f64 {
        let places = 2.0 * self.places as f64 / (1.0 + self.service.scv);
        if (utilisation - 1.0).abs() < 1e-9 {
            return 1.0 / (places + 1.0);
        }
        // Of an overloaded queue, in powers that stay below 1.
        if utilisation > 1.0 {
            let low = 1.0 / utilisation;
            return (1.0 - low) / (1.0 - low.powf(places + 1.0));
        }
        (1.0 - utilisation) * utilisation.powf(places) / (1.0 - utilisation.powf(places + 1.0))
    }

    /// The highest rate at which at most `bearable` of the packets are lost, packets per second.
    pub fn capacity(&self, bearable: f64) -> f64 {
        if self.service.mean <= 0.0 {
            return 0.0;
        }
        // No more than all processors at work all the time.
        let most = self.cores.max(1) as f64 / self.service.mean;
        bisect(most, |rate| self.lost(rate) <= bearable)
    }

    /// The time that a share `p` of the packets does not exceed waiting before service, at so many packets per second; s.
    ///
    /// M/G/1: a packet waits with probability r, and then as an exponential distribution does whose mean is Pollaczek's and
    /// Khinchine's over r: (1 + scv) s / (2 (1 - r)). That is exact for exponential times. Nobody waits longer than for a full queue.
    pub fn wait(&self, rate: f64, p: f64) -> f64 {
        let shares = self.shares();
        let full = self.places as f64 * self.service.mean;
        let longer = |time: f64| {
            let of = |share: &f64| {
                let utilisation = rate * share * self.service.mean;
                let mean = 0.5 * (1.0 + self.service.scv) * self.service.mean / (1.0 - utilisation);
                share * if utilisation < 1.0 { utilisation * (-time / mean).exp() } else { 1.0 }
            };
            shares.iter().map(of).sum::<f64>()
        };
        bisect(full, |time| longer(time) > 1.0 - p)
    }
}

/// The end of what holds from 0 on, at most `high`, to a ten millionth of it.
fn bisect(high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut above) = (0.0, high);
    while above - low > 1e-7 * high {
        let middle = 0.5 * (low + above);
        if holds(middle) { low = middle } else { above = middle }
    }
    low
}

/// A group of processors through which a request goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Station {
    /// Work of a request there, s.
    pub demand: f64,
    /// Processors; who waits is served by any. `None`: as many as there are clients, so that nobody waits.
    pub servers: Option<usize>,
}

/// What clients get, each of which sends the next request when the last one is answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answered {
    /// Requests per second.
    pub rate: f64,
    /// Mean time of a request, s.
    pub response: f64,
}

/// Mean value analysis (Reiser and Lavenberg 1980), exact for one processor with exponential times or shared time. A group of
/// m processors is one that is m times as fast, and a delay of (m - 1)/m of the work (Seidmann and others 1987), exact for one client
/// and for very many.
pub fn closed(clients: usize, stations: &[Station]) -> Answered {
    let mut queued = vec![0.0; stations.len()];
    let mut answered = Answered { rate: 0.0, response: 0.0 };
    for number in 1..=clients {
        let times: Vec<f64> = stations.iter().zip(&queued).map(|(s, q)| s.time(*q)).collect();
        let response: f64 = times.iter().sum();
        let rate = if response > 0.0 { number as f64 / response } else { 0.0 };
        for ((queued, time), station) in queued.iter_mut().zip(times).zip(stations) {
            *queued = rate * (time - station.delay());
        }
        answered = Answered { rate, response };
    }
    answered
}

impl Station {
    fn delay(&self) -> f64 {
        self.servers
            .map_or(self.demand, |servers| self.demand * (1.0 - 1.0 / servers.max(1) as f64))
    }

    /// Time there of a request that finds so many others.
    fn time(&self, others: f64) -> f64 {
        self.delay() + (self.demand - self.delay()) * (1.0 + others)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, LogNormal};

    use super::*;

    const US: f64 = 1e-6;

    fn card(flows: usize, cores: usize, scv: f64) -> Card {
        let service = Service { mean: US, scv };
        Card { flows, skew: 1.0, cores, places: 512, service }
    }

    #[test]
    fn one_queue_is_that_of_the_textbook() {
        // M/M/1 at 0.8: P(wait > t) = 0.8 exp(-0.2 t / s), so that the median is 5 ln 1.6 and P99 5 ln 80 services.
        let one = card(1, 1, 1.0);
        for (p, services) in [(0.5, 5.0 * 1.6f64.ln()), (0.99, 5.0 * 80f64.ln())] {
            let wait = one.wait(0.8 / US, p) / US;
            assert!((wait / services - 1.0).abs() < 1e-3, "{wait} {services}");
        }
        // M/M/1/4 at 0.9: (1 - r) r^4 / (1 - r^5) = 0.1602. At 1 all five states are alike; at 2, 16 of 31.
        let few = Card { places: 4, ..one };
        for (rate, lost) in [(0.9, 0.1602), (1.0, 0.2), (2.0, 16.0 / 31.0)] {
            assert!((few.lost(rate / US) - lost).abs() < 1e-4, "{rate} {}", few.lost(rate / US));
        }
        // M/D/1 has half the mean wait of M/M/1.
        assert!(card(1, 1, 0.0).wait(0.8 / US, 0.99) < 0.51 * one.wait(0.8 / US, 0.99));
        // An overloaded queue is full.
        assert!((one.wait(1.2 / US, 0.99) / (512.0 * US) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn the_busiest_processor_has_the_share_that_a_hash_gives_it() {
        for (flows, cores) in [(2000, 8), (20_000, 4), (65_536, 64)] {
            let draws = 200;
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let rates = LogNormal::new(0.0, 1.0).unwrap();
            let greatest: Vec<f64> = (0..draws)
                .map(|_| {
                    let mut load = vec![0.0; cores];
                    for _ in 0..flows {
                        load[rng.random_range(0..cores)] += rates.sample(&mut rng);
                    }
                    load.iter().copied().fold(0.0, f64::max) / load.iter().sum::<f64>()
                })
                .collect();
            let mean = crate::describe::mean(&greatest);
            let square =
                greatest.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / f64::from(draws);
            let error = (square / f64::from(draws)).sqrt();
            let expected = *card(flows, cores, 0.0).shares().last().unwrap();
            // Four standard errors, and a hundredth for what is no normal distribution.
            let off = (mean - expected).abs();
            assert!(off < 4.0 * error + 0.01 * expected, "{flows} {cores}: {mean} {expected}");
        }
        let shares = card(30, 8, 0.0).shares();
        assert!(shares.is_sorted() && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(card(30, 1, 0.0).shares(), [1.0]);
    }

    #[test]
    fn capacity_grows_with_processors_and_not_beyond_them() {
        let of = |cores, flows| card(flows, cores, 0.0).capacity(1e-4);
        let (one, four) = (of(1, 1000), of(4, 1_000_000));
        assert!(one > 0.99 / US && one < 1.0 / US, "{one}");
        assert!(four > 3.9 * one && four < 4.0 * one, "{four}");
        assert!(of(4, 100) < 0.9 * four);
        // What is found is the end of what is borne.
        let card = card(2000, 8, 0.0);
        let found = card.capacity(1e-4);
        assert!(card.lost(found) <= 1e-4 && card.lost(1.001 * found) > 1e-4);
    }

    #[test]
    fn moments_are_those_of_what_was_measured() {
        assert_eq!(Service::measured(&[2.0, 2.0], false), Service { mean: 2.0, scv: 0.0 });
        assert_eq!(Service::measured(&[2.0, 2.0], true), Service { mean: 2.0, scv: 1.0 });
        assert!((Service::measured(&[1.0, 3.0], false).scv - 0.25).abs() < 1e-12);
        assert_eq!(Service::measured(&[], true).mean, 0.0);
    }

    #[test]
    fn clients_that_wait_are_bound_by_their_number_or_by_the_processors() {
        let of = |clients, stations: &[(f64, Option<usize>)]| {
            let station =
                |&(ms, servers): &(f64, Option<usize>)| Station { demand: 1e-3 * ms, servers };
            let stations: Vec<Station> = stations.iter().map(station).collect();
            let found = closed(clients, &stations);
            // Little's law.
            assert!((found.rate * found.response / clients as f64 - 1.0).abs() < 1e-9);
            found.rate
        };
        let near = |rate: f64, wanted: f64, by: f64| {
            assert!((rate / wanted - 1.0).abs() < by, "{rate} {wanted}");
        };
        near(of(1, &[(1.0, Some(2))]), 1e3, 1e-9);
        near(of(100, &[(1.0, Some(2))]), 2e3, 0.01);
        near(of(100, &[(1.0, Some(1)), (4.0, Some(1))]), 250.0, 1e-9);
        // Two equal stations, n clients: n / (n + 1) of one's rate.
        near(of(9, &[(1.0, Some(1)), (1.0, Some(1))]), 900.0, 1e-9);
        // The machine repairman: 3 clients that think for 4 ms, and one processor of 1 ms. Its idle share is Erlang's, with
        // four services per thinking time: 1 - B, B = (64/6) / (1 + 4 + 8 + 64/6).
        let blocked = (64.0 / 6.0) / (13.0 + 64.0 / 6.0);
        near(of(3, &[(4.0, None), (1.0, Some(1))]), 1e3 * (1.0 - blocked), 1e-9);
    }
}
