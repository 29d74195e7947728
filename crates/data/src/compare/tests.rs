use super::*;
use crate::artefacts;
use crate::fixture;

fn run(blocks: u32, factor: f64) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let experiment = fixture::experiment_about("nat64", &[Metric::TcpThroughputUp, Metric::Rtt]);
    fixture::folder_of(dir.path(), &experiment, blocks, factor);
    artefacts::read(dir.path()).unwrap()
}

/// Three runs on days whose machines differ a little, in which one arm has `factor` times its values.
fn side(arm: &str, factor: f64) -> Vec<(String, Run)> {
    let day = |(number, speed): (usize, f64)| {
        let mut run = run(6, speed);
        let noise = 1.0 + 0.002 * number as f64;
        for cell in run.results.cells.iter_mut().filter(|c| c.mechanism == arm) {
            cell.median = cell.median.map(|m| m * factor * noise);
            cell.values.iter_mut().for_each(|v| v.1 *= factor * noise);
        }
        (format!("day {number}"), run)
    };
    [1.0, 1.3, 0.8].into_iter().enumerate().map(day).collect()
}

fn of<'a>(found: &'a Compared, mechanism: &str, metric: Metric) -> &'a Pair {
    found.cells.iter().find(|c| c.mechanism == mechanism && c.metric == metric).unwrap()
}

#[test]
fn days_that_differ_do_not_hide_what_the_ratios_show() {
    let found = compare(&side("nat44", 1.0), &side("nat44", 2.0));
    assert!(found.can_decide());
    let up = of(&found, "nat44", Metric::TcpThroughputUp);
    assert_eq!((up.reference.as_deref(), up.a.runs, up.b.n), (Some("native-v6"), 3, 18));
    assert_eq!(up.verdict, Verdict::Better, "{up:?}");
    assert!((up.ratio.unwrap() - 2.0).abs() < 1e-9);
    let [low, high] = up.ratio_ci95.unwrap();
    assert!(low < 2.0 && 2.0 < high && low > 1.9 && high < 2.1);
    assert!(up.p.unwrap() >= up.p_welch.unwrap());
    assert_eq!(of(&found, "nat44", Metric::Rtt).verdict, Verdict::Worse);
    // Another arm of the same runs did not change.
    let other = of(&found, "nat64-tayga", Metric::Rtt);
    assert_eq!(other.verdict, Verdict::Equivalent, "{other:?}");
    let sentinel = of(&found, "native-v6", Metric::Rtt);
    assert_eq!((sentinel.verdict, sentinel.ratio), (Verdict::Unresolved, Some(1.0)));
    assert!(found.differences.is_empty() && found.only_a.is_empty() && found.only_b.is_empty());
}

#[test]
fn the_deployments_of_one_run_are_no_runs() {
    let (a, b) = ([("a".to_owned(), run(20, 1.0))], side("nat44", 2.0));
    let found = compare(&a, &b[..1]);
    let up = of(&found, "nat44", Metric::TcpThroughputUp);
    assert_eq!((up.verdict, up.p, up.ratio_ci95), (Verdict::Unresolved, None, None));
    assert!((up.ratio.unwrap() - 2.0).abs() < 0.1, "described all the same: {up:?}");
    assert!(up.why.as_ref().unwrap().contains("fewer than 3 runs"));
    assert!(!found.can_decide());
    assert!(
        found.warnings[0].starts_with("1 run against 1 run: this can't decide"),
        "{:?}",
        found.warnings
    );
    // Two on a side have an interval, but no verdict.
    let found = compare(&side("nat44", 1.0)[..2], &b);
    let up = of(&found, "nat44", Metric::TcpThroughputUp);
    assert!(up.ratio_ci95.is_some() && up.verdict == Verdict::Unresolved, "{up:?}");
}

#[test]
fn a_faster_machine_is_a_warning_and_no_verdict() {
    let faster: Vec<(String, Run)> = (0..3).map(|n| (format!("b{n}"), run(6, 1.5))).collect();
    let found = compare(&side("nat44", 1.0), &faster);
    let told = |w: &String| w.contains("sentinel") && w.contains("1.50 times A's");
    assert!(found.warnings.iter().any(told), "{:?}", found.warnings);
    assert_eq!(of(&found, "nat64-tayga", Metric::Rtt).verdict, Verdict::Equivalent);
}

#[test]
fn another_machine_is_a_warning_and_its_clock_no_other_condition() {
    let (a, mut b) = (run(3, 1.0), run(3, 1.0));
    b.results.environment.kernel = "Linux 9".into();
    b.results.environment.load_average = 7.0;
    for cell in &mut b.results.cells {
        cell.condition.clocksource = "hpet".into();
    }
    let cells = a.results.cells.len();
    let (first, second) = ([("a".to_owned(), a)], [("b".to_owned(), b)]);
    let found = compare(&first, &second);
    assert_eq!((found.cells.len(), found.differences.len()), (cells, 1));
    let told = |w: &String| w.contains("machines differ (kernel)");
    assert!(found.warnings.iter().any(told), "{:?}", found.warnings);
    let both: Vec<(String, Run)> = first.into_iter().chain(second).collect();
    let inside = |w: &String| w.contains("A: the machine of b differs");
    assert!(compare(&both, &both).warnings.iter().any(inside));
}

#[test]
fn what_one_side_alone_has_is_listed() {
    let (a, mut b) = (run(3, 1.0), run(3, 1.0));
    b.results.cells.retain(|c| c.mechanism != "nat44");
    let (a, mut b) = ([("a".to_owned(), a)], [("b".to_owned(), b)]);
    let found = compare(&a, &b);
    assert!(!found.only_a.is_empty() && found.only_a.iter().all(|n| n.contains("NAT44")));
    b[0].1.results.cells.clear();
    assert!(compare(&a, &b).warnings.iter().any(|w| w.contains("no cell in common")));
}
