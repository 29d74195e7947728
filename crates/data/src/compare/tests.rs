use super::*;
use crate::artefacts;
use crate::fixture;

fn run(blocks: u32, factor: f64) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let experiment = fixture::experiment_about("nat64", &[Metric::TcpThroughputUp, Metric::Rtt]);
    fixture::folder_of(dir.path(), &experiment, blocks, factor);
    artefacts::read(dir.path()).unwrap()
}

fn compared(a: &Run, b: &Run) -> Compared {
    compare(("a", a), ("b", b))
}

fn of<'a>(found: &'a Compared, mechanism: &str, metric: Metric) -> &'a Pair {
    found.cells.iter().find(|c| c.mechanism == mechanism && c.metric == metric).unwrap()
}

#[test]
fn twice_as_much_is_better_or_worse_as_the_metric_has_it() {
    let (a, b) = (run(6, 1.0), run(6, 2.0));
    let found = compared(&a, &b);
    let up = of(&found, "nat44", Metric::TcpThroughputUp);
    assert_eq!(up.verdict, Verdict::Better);
    assert!((up.ratio.unwrap() - 2.0).abs() < 1e-9);
    let [low, high] = up.ratio_ci95.unwrap();
    assert!(low < 2.0 && 2.0 < high && low > 1.9 && high < 2.1);
    assert_eq!(up.cliffs_delta, Some(1.0));
    assert!(up.p.unwrap() >= up.p_welch.unwrap());
    assert_eq!(of(&found, "nat44", Metric::Rtt).verdict, Verdict::Worse);
    // Native IPv6 doubled, too: that is the machine's, not the translator's.
    assert!(found.warnings.iter().any(|w| w.contains("sentinel")), "{:?}", found.warnings);
    assert!(found.differences.is_empty() && found.only_a.is_empty() && found.only_b.is_empty());
}

#[test]
fn the_same_is_equivalent_and_few_deployments_have_no_verdict() {
    let (a, b) = (run(6, 1.0), run(6, 1.001));
    assert_eq!(of(&compared(&a, &b), "nat44", Metric::Rtt).verdict, Verdict::Equivalent);
    let few = compared(&run(2, 1.0), &run(6, 3.0));
    let cell = of(&few, "nat44", Metric::Rtt);
    assert_eq!((cell.verdict, cell.p), (Verdict::Unresolved, None));
    assert!(cell.why.as_ref().unwrap().contains("fewer than 3"));
}

#[test]
fn another_machine_is_a_warning_and_its_clock_no_other_condition() {
    let (a, mut b) = (run(3, 1.0), run(3, 1.0));
    b.results.environment.kernel = "Linux 9".into();
    b.results.environment.load_average = 7.0;
    for cell in &mut b.results.cells {
        cell.condition.clocksource = "hpet".into();
    }
    let found = compared(&a, &b);
    assert_eq!(found.cells.len(), a.results.cells.len());
    assert_eq!(found.differences.len(), 1);
    assert!(
        found.warnings.iter().any(|w| w.contains("machines differ (kernel)")),
        "{:?}",
        found.warnings
    );
}

#[test]
fn what_one_run_alone_has_is_listed() {
    let (a, mut b) = (run(3, 1.0), run(3, 1.0));
    b.results.cells.retain(|c| c.mechanism != "nat44");
    let found = compared(&a, &b);
    assert!(!found.only_a.is_empty() && found.only_a.iter().all(|n| n.contains("NAT44")));
    b.results.cells.clear();
    assert!(compared(&a, &b).warnings.iter().any(|w| w.contains("no cell in common")));
}
