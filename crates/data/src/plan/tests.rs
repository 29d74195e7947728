use super::*;

fn run(seed: u64, blocks: u32) -> (Experiment, RunSpec) {
    let experiment = Experiment::find("clat-vs-dual-stack").unwrap();
    let run = RunSpec {
        profile: "quick".into(),
        method: crate::spec::METHOD,
        seed,
        blocks,
        durations_s: vec![1],
        clocksources: vec![],
        offloads: true,
        cached: vec![],
        native: vec![],
        mechanisms: experiment.mechanisms.iter().map(|m| m.name.clone()).collect(),
        skipped: BTreeMap::new(),
        unmeasured: BTreeMap::new(),
        versions: BTreeMap::new(),
        replay: String::new(),
        hosts: None,
        pin: None,
        guest: None,
    };
    (experiment, run)
}

#[test]
fn every_block_holds_every_mechanism_and_a_calibration_of_each_family_once() {
    let (experiment, run) = run(1, 5);
    let plan = lay_out(&experiment, &run, "tsc");
    for block in 1..=5 {
        let own: Vec<&Deployment> = plan.deployments.iter().filter(|d| d.block == block).collect();
        let names: BTreeSet<&str> = own.iter().map(|d| d.mechanism.as_str()).collect();
        assert_eq!((names.len(), own.len()), (own.len(), experiment.mechanisms.len() + 2));
        assert!(names.contains("calibration-v4") && names.contains("calibration-v6"));
        let places: Vec<u32> = own.iter().map(|d| d.order).collect();
        assert_eq!(places, (1..=own.len() as u32).collect::<Vec<u32>>());
    }
    let own = calibrated(&experiment, &run, "calibration-v4");
    assert!(own.contains(&Metric::TcpThroughputUp) && own.contains(&Metric::CpuPerPacketUp));
    assert!(!own.contains(&Metric::Rtt) && calibrated(&experiment, &run, "native-v6").is_empty());
}

#[test]
fn a_machine_that_slows_down_makes_no_difference_of_conditions() {
    // Two clock sources without any effect, and a machine that loses a thousandth of its speed with every deployment.
    const RUNS: u64 = 400;
    let (experiment, base) = run(0, 6);
    let clocksources = ["tsc", "hpet"].map(str::to_owned).to_vec();
    let differs = |plan: &[Deployment]| {
        // Of one arm, the mean over each block's pair of clock sources.
        let at = |clock: &str, block: u32| {
            let this = |d: &&Deployment| {
                (d.block, d.mechanism.as_str(), d.condition.clocksource.as_str())
                    == (block, "native-v6", clock)
            };
            let place = plan.iter().position(|d| this(&d)).unwrap();
            0.999f64.powi(place as i32)
        };
        let pairs: Vec<(f64, f64)> =
            (1..=6).map(|block| (at("tsc", block), at("hpet", block))).collect();
        let found = fordway_stats::paired::compare(&pairs, 0.03).unwrap();
        found.p_t.unwrap() < 0.05
    };
    let (mut old, mut new) = (0, 0);
    for seed in 0..RUNS {
        let run = RunSpec { seed, clocksources: clocksources.clone(), ..base.clone() };
        let plan = lay_out(&experiment, &run, "tsc").deployments;
        new += u64::from(differs(&plan));
        // As it once was: all blocks of one clock source, then all of the next.
        let (first, second): (Vec<_>, Vec<_>) =
            plan.into_iter().partition(|d| d.condition.clocksource == "tsc");
        old += u64::from(differs(&[first, second].concat()));
    }
    let share = |n: u64| n as f64 / RUNS as f64;
    assert_eq!(share(old), 1.0, "every run showed an effect of the clock source");
    let tolerance = 3.0 * (0.05 * 0.95 / RUNS as f64).sqrt();
    assert!(share(new) < 0.05 + tolerance, "{}", share(new));
}

#[test]
fn loads_come_in_an_order_of_their_own_on_each_deployment() {
    let (experiment, run) = run(3, 12);
    let profile = &experiment.profile["quick"];
    let own = |load: Load| points(load, profile).into_iter().map(move |point| (load, point));
    let loads = [Load::Ping, Load::Probe, Load::Simplex];
    let all: Vec<_> = loads.into_iter().flat_map(own).collect();
    let order = |d: &Deployment| order_of_loads(run.seed, d, all.clone());
    let plan = lay_out(&experiment, &run, "tsc").deployments;
    let orders: Vec<_> = plan.iter().filter(|d| d.mechanism == "native-v6").map(order).collect();
    // Each load comes first somewhere, and points of one load are not always in their order.
    let firsts: BTreeSet<Load> = orders.iter().map(|order| order[0].0).collect();
    assert!(firsts.len() >= 2 && orders.iter().all(|order| order.len() == all.len()));
    assert!(orders.windows(2).all(|two| two[0] != two[1]));
    // What is left after an interruption keeps its order.
    let left: Vec<_> = all.iter().skip(1).cloned().collect();
    let kept = order_of_loads(run.seed, &plan[0], left);
    let whole: Vec<_> = order(&plan[0]).into_iter().filter(|one| *one != all[0]).collect();
    assert_eq!(kept, whole);
}

#[test]
fn the_seed_decides_the_order_and_more_blocks_keep_the_first_ones() {
    let (experiment, one) = run(1, 4);
    let again = lay_out(&experiment, &one, "tsc").deployments;
    assert_eq!(lay_out(&experiment, &one, "tsc").deployments, again);
    let (_, two) = run(2, 4);
    assert_ne!(lay_out(&experiment, &two, "tsc").deployments, again);
    let (_, longer) = run(1, 8);
    assert_eq!(lay_out(&experiment, &longer, "tsc").deployments[..again.len()], again);
}

#[test]
fn blocks_differ_in_order() {
    let (experiment, run) = run(3, 6);
    let plan = lay_out(&experiment, &run, "tsc");
    let orders: BTreeSet<Vec<String>> = (1..=6)
        .map(|b| {
            let of = plan.deployments.iter().filter(|d| d.block == b);
            of.map(|d| d.mechanism.clone()).collect()
        })
        .collect();
    assert!(orders.len() > 3);
}

#[test]
fn the_quick_profile_takes_few_minutes_with_every_mechanism() {
    let (experiment, mut run) = run(1, 1);
    for mechanisms in [experiment.mechanisms.len(), 5, 3] {
        run.mechanisms.truncate(mechanisms);
        let profile = &experiment.profile["quick"];
        run.blocks = blocks_for(&experiment, profile, &run.mechanisms, &run.unmeasured, &[1], 1);
        assert!(run.blocks >= 3);
        assert!(lay_out(&experiment, &run, "tsc").seconds < 420.0);
    }
}

#[test]
fn an_arm_is_measured_by_its_own_metrics_and_by_what_can_be_measured() {
    let goals = Experiment::find("goals").unwrap();
    let none = BTreeMap::new();
    let of = |name: &str| metrics_of(&goals, &none, goals.mechanism(name).unwrap());
    let frames = [Metric::FrameRateUp, Metric::FrameRateDown];
    assert_eq!(of("siit-fordway-xdp"), frames);
    assert!(of("clat-fordway-uplink").contains(&Metric::StartTime));
    assert!(!of("native-v6").contains(&Metric::StartTime));
    let without = frames.map(|m| (m.name().to_owned(), "no".to_owned())).into();
    let arm = goals.mechanism("siit-fordway-xdp").unwrap();
    assert!(metrics_of(&goals, &without, arm).is_empty());
}

#[test]
fn metrics_of_one_load_take_its_time_once() {
    let goals = Experiment::find("goals").unwrap();
    let profile = &goals.profile["quick"];
    let one = deployment_seconds(profile, &[Metric::TcpThroughputUp], 2);
    let both = deployment_seconds(profile, &[Metric::TcpThroughputUp, Metric::CpuPerGbitUp], 2);
    assert_eq!(one, both);
}

#[test]
fn the_goals_are_judged_on_seven_pairs_at_least() {
    let goals = Experiment::find("goals").unwrap();
    assert!(goals.profile.values().all(|profile| profile.blocks_min >= 7));
}

#[test]
fn too_few_blocks_are_told_beforehand() {
    assert!(power_notes(2, 6, 0.05)[0].contains("too few for any verdict"));
    assert!(power_notes(4, 6, 0.05)[0].contains("0.125"));
    let told =
        |blocks| power_notes(blocks, 6, 0.05).iter().any(|n| n.contains("less often than 95 %"));
    assert!(told(5) && !told(6));
    assert!(power_notes(20, 6, 0.05).is_empty());
}

#[test]
fn a_whole_sustain_phase_is_planned() {
    let experiment = Experiment::find("rfc9411").unwrap();
    let strict = &experiment.profile["strict"];
    assert!(strict.sustain_s >= 300.0);
    let octets = |load: Load| -> Vec<u64> {
        let of = |point: Option<Point>| point.and_then(|point| point.at(Axis::Octets));
        points(load, strict).into_iter().filter_map(of).collect()
    };
    let kib = |all: &[u64]| all.iter().map(|one| one * 1024).collect::<Vec<u64>>();
    assert_eq!(octets(Load::Transactions(Transact::Single)), kib(&[1, 2, 4, 16, 64]));
    assert_eq!(octets(Load::Transactions(Transact::Kept)), kib(&[1, 16, 64, 256]));
    // A rate and times for each of five sizes, the mixed objects, and many connections.
    let metrics =
        [Metric::WebConnectionRate, Metric::WebThroughputMixed, Metric::WebConnectionsHeld];
    let seconds = deployment_seconds(strict, &metrics, 60);
    assert!((12.0 * 300.0..13.0 * 340.0).contains(&seconds), "{seconds}");
}
