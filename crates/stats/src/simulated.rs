//! Simulations: what intervals contain, how often tests err, and what they find. Tolerances are four standard deviations
//! of the binomial count.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal, StudentT};

use super::describe::median;
use super::interval::{LEVEL, of_median, of_ratio, orders};
use super::multiple::{Tests, family, holm};
use super::paired::{Comparison, Verdict, compare, t_interval};
use super::power::chance;
use super::serial::block_means;
use super::unpaired::{welch, welch_of_series};

const SIZES: [usize; 6] = [3, 5, 7, 10, 20, 40];

/// What values are drawn from; the median is 0.
#[derive(Debug, Clone, Copy)]
enum Parent {
    Normal,
    /// Exponential: skewness 2.
    Skewed,
    /// Student's t with two degrees of freedom: no variance.
    Heavy,
}

const PARENTS: [Parent; 3] = [Parent::Normal, Parent::Skewed, Parent::Heavy];

impl Parent {
    fn draw(self, rng: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Normal => StandardNormal.sample(rng),
            Self::Skewed => {
                let e: f64 = rand_distr::Exp1.sample(rng);
                e - std::f64::consts::LN_2
            }
            Self::Heavy => StudentT::new(2.0).unwrap().sample(rng),
        }
    }

    fn sample(self, n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
        (0..n).map(|_| self.draw(rng)).collect()
    }
}

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// The share of so many trials in which something holds.
fn share(trials: usize, mut holds: impl FnMut() -> bool) -> f64 {
    (0..trials).filter(|_| holds()).count() as f64 / trials as f64
}

/// Four standard deviations of a share of so many trials.
fn slack(level: f64, trials: usize) -> f64 {
    4.0 * (level * (1.0 - level) / trials as f64).sqrt()
}

/// A positive value: a spread of some ten per cent around 1.
fn value(parent: Parent, rng: &mut ChaCha8Rng) -> f64 {
    (0.1 * parent.draw(rng)).exp()
}

#[test]
fn a_medians_interval_contains_it_as_often_as_its_level_says() {
    let trials = 4000;
    for (seed, parent) in (1..).zip(PARENTS) {
        for n in SIZES {
            let (rng, level) = (&mut rng(seed), orders(n).unwrap().1);
            let covers = || of_median(&parent.sample(n, rng)).unwrap().contains(0.0);
            let found = share(trials, covers);
            assert!(
                (found - level).abs() < slack(level, trials),
                "{parent:?} {n}: {found} {level}"
            );
        }
    }
}

/// The earlier rule: the bias-corrected and accelerated bootstrap interval (Efron 1987) of a median.
fn bca(values: &[f64], rng: &mut ChaCha8Rng) -> (f64, f64) {
    use super::describe::{mean, quantile, sorted};
    use statrs::distribution::{ContinuousCDF, Normal};
    let normal = Normal::standard();
    let n = values.len();
    let draw = |rng: &mut ChaCha8Rng| -> Vec<f64> {
        (0..n).map(|_| values[rng.random_range(0..n)]).collect()
    };
    let all = sorted(&(0..500).map(|_| median(&draw(rng))).collect::<Vec<f64>>());
    let own = median(values);
    let below =
        all.iter().map(|r| if *r < own { 1.0 } else { 0.5 * f64::from(u8::from(*r == own)) });
    let bias = normal.inverse_cdf(below.sum::<f64>() / all.len() as f64);
    let without = |skip: usize| median(&[&values[..skip], &values[skip + 1..]].concat());
    let left_out: Vec<f64> = (0..n).map(without).collect();
    let centre = mean(&left_out);
    let power = |p: i32| left_out.iter().map(|v| (centre - v).powi(p)).sum::<f64>();
    let acceleration = if power(2) > 0.0 { power(3) / (6.0 * power(2).powf(1.5)) } else { 0.0 };
    let end = |alpha: f64| {
        let z = bias + normal.inverse_cdf(alpha);
        quantile(&all, normal.cdf(bias + z / (1.0 - acceleration * z)))
    };
    (end(0.025), end(0.975))
}

#[test]
fn a_bootstrap_of_the_median_of_seven_does_not_hold_its_level() {
    let (trials, rng) = (1500, &mut rng(1));
    let found = share(trials, || {
        let (low, high) = bca(&Parent::Normal.sample(7, rng), rng);
        low <= 0.0 && 0.0 <= high
    });
    // The second least to the second greatest: 1 - 2 * 8 / 128.
    assert!(found < LEVEL - slack(LEVEL, trials) && (found - 0.875).abs() < 0.03, "{found}");
}

/// Whether Student's interval on logarithms, which ratios have, contains the ratio.
fn ratio_covered(ratios: impl Iterator<Item = f64>, truth: f64) -> bool {
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    let (low, high) = t_interval(&logs, LEVEL).unwrap();
    low <= truth.ln() && truth.ln() <= high
}

#[test]
fn a_ratios_interval_holds_if_both_arms_spread_alike() {
    let trials = 4000;
    for (seed, parent) in (1..).zip(PARENTS) {
        for n in SIZES {
            let rng = &mut rng(seed);
            let found = share(trials, || {
                let mut ratio = || 0.9 * value(parent, rng) / value(parent, rng);
                ratio_covered((0..n).map(|_| ratio()), 0.9)
            });
            assert!(found > LEVEL - slack(LEVEL, trials), "{parent:?} {n}: {found}");
        }
    }
}

#[test]
fn a_ratios_interval_loses_what_the_documents_say_if_only_one_arm_is_skewed() {
    let (trials, rng) = (4000, &mut rng(1));
    let truth = (0.1 * (1.0 - std::f64::consts::LN_2)).exp();
    let found = SIZES.map(|n| {
        share(trials, || ratio_covered((0..n).map(|_| value(Parent::Skewed, rng)), truth))
    });
    assert!(found.iter().all(|f| *f > 0.87 - slack(0.87, trials)), "{found:?}");
}

#[test]
fn welchs_interval_holds_for_samples_of_one_shape() {
    let trials = 4000;
    for (seed, parent) in (1..).zip(PARENTS) {
        for n in SIZES {
            let rng = &mut rng(seed);
            let found = share(trials, || {
                let (own, base) = (parent.sample(n, rng), parent.sample(n, rng));
                let [low, high] = welch(&own, &base).unwrap().ci95;
                low <= 0.0 && 0.0 <= high
            });
            assert!(found > LEVEL - slack(LEVEL, trials), "{parent:?} {n}: {found}");
        }
    }
}

/// What a mechanism and its base add to an untranslated path in one block: `ratio` and 1, with errors of all three values.
fn added(parent: Parent, ratio: f64, spread: f64, rng: &mut ChaCha8Rng) -> (f64, f64) {
    let [native, own, base] = [(); 3].map(|()| spread * parent.draw(rng));
    (ratio + own - native, 1.0 + base - native)
}

#[test]
fn fiellers_interval_holds_also_where_the_base_adds_less_than_nothing_in_some_blocks() {
    let trials = 4000;
    for (seed, parent) in (1..).zip(PARENTS) {
        for (n, spread) in SIZES.into_iter().flat_map(|n| [(n, 0.1), (n, 0.5)]) {
            let rng = &mut rng(seed);
            let found = share(trials, || {
                let pairs: Vec<(f64, f64)> =
                    (0..n).map(|_| added(parent, 0.1, spread, rng)).collect();
                of_ratio(&pairs).unwrap().interval.is_none_or(|i| i.contains(0.1))
            });
            assert!(found > LEVEL - slack(LEVEL, trials), "{parent:?} {n} {spread}: {found}");
        }
    }
}

#[test]
fn leaving_such_blocks_out_moves_the_ratio() {
    // The earlier rule: the median of the ratios of blocks in which the base added something.
    let (trials, n, rng) = (2000, 40, &mut rng(1));
    let found = share(trials, || {
        let pairs: Vec<(f64, f64)> = (0..n).map(|_| added(Parent::Normal, 0.1, 1.0, rng)).collect();
        let kept: Vec<f64> = pairs.iter().filter(|p| p.1 > 0.0).map(|p| p.0 / p.1).collect();
        of_median(&kept).is_some_and(|i| i.contains(0.1))
    });
    assert!(found < LEVEL - slack(LEVEL, trials), "{found}");
}

/// A stationary series x(t) = rho x(t-1) + e of variance 1.
fn series(n: usize, rho: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut x = Parent::Normal.draw(rng);
    let step = |_| {
        let own = x;
        x = rho * x + (1.0 - rho * rho).sqrt() * Parent::Normal.draw(rng);
        own
    };
    (0..n).map(step).collect()
}

#[test]
fn series_of_one_mean_are_told_apart_in_one_of_twenty_cases_at_most() {
    let trials = 400;
    let rates = |n: usize, rho: f64| {
        let rng = &mut rng(1);
        let mut errors = [0; 2];
        for _ in 0..trials {
            let (own, base) = (series(n, rho, rng), series(n, rho, rng));
            // The earlier rule: as many block means as the series is worth values, taken for independent.
            let before = welch(&block_means(&own), &block_means(&base));
            for (count, test) in errors.iter_mut().zip([before, welch_of_series(&own, &base)]) {
                *count += usize::from(test.is_some_and(|t| t.p < 0.05));
            }
        }
        errors.map(|count| count as f64 / trials as f64)
    };
    let (most, mut before) = (0.05 + slack(0.05, trials), Vec::new());
    for rho in [0.0, 0.3, 0.6, 0.8, 0.9, 0.95] {
        for n in [60, 240] {
            let [old, new] = rates(n, rho);
            assert!(new < most, "{n} {rho}: {new}");
            before.push(old);
        }
    }
    assert!(before[2..].iter().filter(|old| **old > most).count() >= 6, "{before:?}");
}

#[test]
fn series_of_different_means_are_told_apart() {
    let (trials, rng) = (200, &mut rng(1));
    // 240 values are worth 27: the difference is 3.7 of its standard errors.
    let found = share(trials, || {
        let own: Vec<f64> = series(240, 0.8, rng).iter().map(|v| v + 1.0).collect();
        welch_of_series(&own, &series(240, 0.8, rng)).is_some_and(|t| t.p < 0.05)
    });
    assert!(found > 0.85, "{found}");
}

/// So many comparisons over `blocks` blocks, all with one true ratio.
fn comparisons(
    count: usize,
    blocks: usize,
    ratio: f64,
    deviation: f64,
    rng: &mut ChaCha8Rng,
) -> Vec<Comparison> {
    let mut pair = |_| (ratio * (deviation * Parent::Normal.draw(rng)).exp(), 1.0);
    (0..count)
        .map(|_| compare(&(0..blocks).map(&mut pair).collect::<Vec<_>>(), 0.03).unwrap())
        .collect()
}

/// The rule: both tests of all comparisons are one family.
fn judge(all: &[Comparison]) -> Vec<Verdict> {
    let tests: Vec<Tests> = all.iter().map(Comparison::tests).collect();
    all.iter().zip(family(&tests)).map(|(c, p)| c.verdict(p, 0.05, false)).collect()
}

/// The earlier rule: Holm over the tests for a difference, and equivalence first, not adjusted.
fn judge_as_before(all: &[Comparison]) -> Vec<Verdict> {
    let adjusted = holm(&all.iter().map(|c| c.p_t.unwrap()).collect::<Vec<f64>>());
    let verdict = |(c, p): (&Comparison, f64)| {
        let tests = Tests { difference: Some(p), equivalence: c.p_equivalence };
        c.verdict(tests, 0.05, false)
    };
    all.iter().zip(adjusted).map(verdict).collect()
}

#[test]
fn a_family_of_twenty_errs_in_one_of_twenty_runs_at_most() {
    let trials = 1500;
    type Rule = fn(&[Comparison]) -> Vec<Verdict>;
    let errs = |judge: Rule, ratio: f64, deviation: f64, wrong: fn(Verdict) -> bool| {
        let rng = &mut rng(1);
        let one = || judge(&comparisons(20, 10, ratio, deviation, rng)).into_iter().any(wrong);
        share(trials, one)
    };
    // At the margin itself "equivalent" is wrong, of equal arms "better" and "worse" are; these spread so widely that
    // equivalence is not shown.
    let at_margin = errs(judge, 1.03, 0.01, |v| v == Verdict::Equivalent);
    let equal = errs(judge, 1.0, 0.1, Verdict::differs);
    let most = 0.05 + slack(0.05, trials);
    assert!(at_margin < most && equal < most, "{at_margin} {equal}");
    let before = errs(judge_as_before, 1.03, 0.01, |v| v == Verdict::Equivalent);
    // 1 - 0.95^20 = 0.64.
    assert!((before - 0.64).abs() < slack(0.64, trials), "{before}");
}

#[test]
fn the_familys_rule_costs_little_power() {
    let trials = 1000;
    let finds = |judge: fn(&[Comparison]) -> Vec<Verdict>, ratio: f64, right: Verdict| {
        let rng = &mut rng(1);
        let mut found = 0;
        for _ in 0..trials {
            let all = judge(&comparisons(20, 10, ratio, 0.01, rng));
            found += all.into_iter().filter(|v| *v == right).count();
        }
        found as f64 / 20.0 / f64::from(trials)
    };
    let differences = [judge, judge_as_before].map(|rule| finds(rule, 1.05, Verdict::Worse));
    assert!(differences.iter().all(|share| *share > 0.99), "{differences:?}");
    let [now, before] = [judge, judge_as_before].map(|rule| finds(rule, 1.0, Verdict::Equivalent));
    assert!(before > 0.99 && now > 0.99, "{now} {before}");
}

#[test]
fn known_costs_are_found_as_often_as_the_power_curve_says() {
    let trials = 2000;
    for (cost, blocks) in
        [0.01, 0.03, 0.1].into_iter().flat_map(|cost| [3, 7, 20].map(|blocks| (cost, blocks)))
    {
        let rng = &mut rng(1);
        let said = chance(blocks, 0.02, 1.0 + cost, 0.03, 0.05).unwrap();
        let mut found = [0; 2];
        for _ in 0..trials {
            let one = comparisons(1, blocks as usize, 1.0 + cost, 0.02, rng);
            let verdict = judge(&one)[0];
            found[0] += usize::from(verdict.differs());
            found[1] += usize::from(verdict == Verdict::Equivalent);
        }
        for (found, said) in found.into_iter().zip([said.different, said.equivalent]) {
            let found = found as f64 / trials as f64;
            let within = slack(said.clamp(0.001, 0.999), trials);
            assert!((found - said).abs() < within, "{cost} {blocks}: {found} {said}");
        }
    }
}
