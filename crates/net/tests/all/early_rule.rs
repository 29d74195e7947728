//! A policy rule before the local table's: the host must never be without that one.

use crate::common::{in_force, in_namespace, ip, ip_output};
use fordway_net::{Applied, Change, Manager, Rule};

fn early(mark: u32) -> Change {
    let mut rule = Rule::new(false, 0, 4_646);
    rule.mark = Some((mark, u32::MAX));
    Change::EarlyRule(rule)
}

/// IPv4 rules with their makers, in the kernel's order.
fn rules() -> Vec<String> {
    let text = ip_output("-details rule show");
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

const LOCAL: &str = "0: from all lookup local proto kernel";
const OURS: &str = "0: from all fwmark 0x464f0001 lookup 4646 proto 246";

#[test]
fn it_comes_first_and_the_kernels_own_is_as_it_was() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let before = rules();
        assert_eq!(before[0], LOCAL);
        let mut one = Manager::open(run.path(), "one").unwrap();
        let mut two = Manager::open(run.path(), "two").unwrap();
        assert!(!in_force(&one, &early(0x464f_0001)));
        assert_eq!(one.apply(&early(0x464f_0001)).unwrap(), Applied::Made);
        assert_eq!(one.apply(&early(0x464f_0001)).unwrap(), Applied::Kept);
        assert_eq!(rules()[..2], [OURS, LOCAL]);
        assert_eq!(two.apply(&early(0x464f_0002)).unwrap(), Applied::Made);
        assert_eq!(rules()[2], LOCAL);
        let report = one.restore().unwrap();
        assert_eq!(report.undone.len(), 1, "{report}");
        assert_eq!(rules()[1], LOCAL);
        let report = two.restore().unwrap();
        assert_eq!(report.undone.len(), 1, "{report}");
        assert_eq!(rules(), before);
    });
}

#[test]
fn it_is_put_first_again_where_somebody_filed_the_local_tables_anew() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "one").unwrap();
        let early = early(0x464f_0001);
        manager.apply(&early).unwrap();
        // Somebody has put another one before it.
        ip("rule add priority 5 table local");
        ip("rule del priority 0 fwmark 0x464f0001");
        ip("rule add priority 0 fwmark 0x464f0001 table 4646 protocol 246");
        assert_eq!(rules()[..2], [LOCAL, OURS]);
        assert!(!in_force(&manager, &early));
        assert_eq!(manager.apply(&early).unwrap(), Applied::Kept);
        assert_eq!(rules()[..3], [OURS, LOCAL, "5: from all lookup local proto unspec"]);
        let _ = manager.restore().unwrap();
        assert_eq!(rules()[..2], [LOCAL, "5: from all lookup local proto unspec"]);
    });
}

#[test]
fn where_the_local_tables_was_moved_nothing_else_is_touched() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("rule add priority 100 table local");
        ip("rule del priority 0");
        let before = rules();
        let mut manager = Manager::open(run.path(), "one").unwrap();
        assert_eq!(manager.apply(&early(0x464f_0001)).unwrap(), Applied::Made);
        assert_eq!(rules()[0], OURS);
        assert_eq!(rules()[1..], before);
        let _ = manager.restore().unwrap();
        assert_eq!(rules(), before);
    });
}

/// What a process that was killed on the way may leave, after each of its steps.
const INTERRUPTED: [&[&str]; 4] = [
    // The stand-in is there.
    &["rule add priority 1 table local protocol 246"],
    // The kernel's own rule is away.
    &["rule add priority 1 table local protocol 246", "rule del priority 0"],
    // Ours is there.
    &[
        "rule add priority 1 table local protocol 246",
        "rule del priority 0",
        "rule add priority 0 fwmark 0x464f0001 table 4646 protocol 246",
    ],
    // The kernel's own is back, behind it.
    &[
        "rule add priority 1 table local protocol 246",
        "rule del priority 0",
        "rule add priority 0 fwmark 0x464f0001 table 4646 protocol 246",
        "rule add priority 0 table local protocol kernel",
    ],
];

#[test]
fn whoever_comes_after_an_interruption_puts_it_right() {
    for left in INTERRUPTED {
        let run = tempfile::tempdir().unwrap();
        in_namespace(|| {
            let before = rules();
            let early = early(0x464f_0001);
            let interrupt = || {
                let mut manager = Manager::open(run.path(), "one").unwrap();
                manager.apply(&early).unwrap();
                drop(manager);
                // The ledger has it; on the host it is only half done.
                ip("rule del priority 0 fwmark 0x464f0001");
                left.iter().for_each(|line| ip(line));
            };
            interrupt();
            let mut next = Manager::open(run.path(), "one").unwrap();
            let _ = next.restore().unwrap();
            assert_eq!(rules(), before, "{left:?}");
            drop(next);

            interrupt();
            let mut next = Manager::open(run.path(), "one").unwrap();
            next.apply(&early).unwrap();
            assert_eq!(rules()[..2], [OURS, LOCAL], "{left:?}");
            assert_eq!(rules().len(), before.len() + 1, "{left:?}");
            let _ = next.restore().unwrap();
            assert_eq!(rules(), before, "{left:?}");
        });
    }
}
