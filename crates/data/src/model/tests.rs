use super::*;
use crate::artefacts::{self, Run};
use crate::fixture;

fn runs(names: &[&str], blocks: u32) -> Vec<Run> {
    let dir = tempfile::tempdir().unwrap();
    names
        .iter()
        .map(|name| {
            let folder = dir.path().join(name);
            fixture::folder(&folder, name, blocks, 1.0);
            artefacts::read(&folder).unwrap()
        })
        .collect()
}

fn decision(runs: &[Run], wanted: &[&str]) -> Decision {
    let named: Vec<Named<'_>> = runs.iter().map(|run| Named { folder: "x", run }).collect();
    let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    decide(&named, &wanted, &User { cores: 4, ..User::default() })
}

fn needed(of: &Decision, network: Network, need: Need) -> Needed {
    of.needs.iter().find(|n| n.network == network && n.need == need).unwrap().clone()
}

#[test]
fn one_run_of_nat64_says_what_it_can_and_what_it_cannot() {
    let all = runs(&["nat64"], 7);
    let found = decision(&all, &[]);
    assert_eq!(found.not_measured, [Quantity::Dns64, Quantity::ClatDelay]);
    let cores = needed(&found, Network::Nat64, Need::Cores);
    assert_eq!((cores.value, cores.missing), (None, Some(Quantity::Dns64)));
    let addresses = needed(&found, Network::DualStack, Need::Addresses);
    assert_eq!(addresses.value, Some(4.0));
    let memory = needed(&found, Network::DualStack, Need::Memory);
    assert!(memory.interval.unwrap().contains(memory.value.unwrap()));
    assert_eq!(found.break_even, None);
    // Twice the same.
    let text = |d: &Decision| serde_json::to_string(d).unwrap();
    assert_eq!(text(&found), text(&decision(&all, &[])));
}

#[test]
fn two_runs_together_say_the_rest_and_arms_can_be_chosen() {
    let all = runs(&["nat64", "dns64"], 3);
    let found = decision(&all, &["nat64-tayga"]);
    let cores = needed(&found, Network::Nat64, Need::Cores);
    assert!(cores.value.is_some() && (cores.interval.unwrap().level - 0.75).abs() < 1e-9);
    assert!(found.break_even.is_some() && found.break_even_interval.is_some());
    let arm = |q| found.sources.iter().find(|i| i.source.quantity == q).unwrap().source.clone();
    assert_eq!(arm(Quantity::Nat64Traffic).mechanism, "nat64-tayga");
    assert_eq!(arm(Quantity::Dns64).run, 1);
    // Native, NAT44 and NAT64 are known in the same way.
    assert_eq!(arm(Quantity::Nat64Traffic).metric, arm(Quantity::NativeTraffic).metric);
}

#[test]
fn more_processors_carry_more_but_not_more_than_their_number() {
    let found = decision(&runs(&["nat64"], 3), &[]);
    let of = |q| found.scaling.iter().filter(move |s| s.quantity == q).collect::<Vec<_>>();
    let nat64 = of(Quantity::Nat64Traffic);
    assert_eq!(nat64.iter().map(|s| s.cores).collect::<Vec<_>>(), [1, 2, 4]);
    for pair in nat64.windows(2) {
        assert!(pair[1].gbit_s > pair[0].gbit_s && pair[1].efficiency <= 1.0, "{pair:?}");
    }
    assert!(nat64[0].wait_spread_us > nat64[0].wait_us);
}
