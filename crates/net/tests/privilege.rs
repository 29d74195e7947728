//! Dropping privileges. Each case is a process of its own with one thread, which a test of the usual harness never has.

use std::process::{Command, ExitCode, Stdio};

use fordway_net::privilege::{self, Capability};
use fordway_net::{Error, NetNs, SysctlKey, sysctl};
use libtest_mimic::{Arguments, Failed, Trial};

const CASES: [(&str, fn()); 3] = [
    ("drop_keeps_what_is_listed", drop_keeps_what_is_listed),
    ("drop_to_nothing", drop_to_nothing),
    ("missing_capabilities_are_named", missing_capabilities_are_named),
];

/// The case that this process is, where it is one.
const CASE: &str = "FORDWAY_TEST_PRIVILEGE_CASE";

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let case = CASES.iter().find(|(case, _)| *case == name);
        case.expect("a case of that name").1();
        return ExitCode::SUCCESS;
    }
    let trials = CASES.map(|(name, _)| Trial::test(name, move || run(name)));
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// Runs a case in a process of its own.
fn run(name: &str) -> Result<(), Failed> {
    if !fordway_testhost::is_root() {
        return Ok(());
    }
    let mut child =
        Command::new(std::env::current_exe()?).env(CASE, name).stdin(Stdio::null()).spawn()?;
    let status = fordway_testhost::wait(&mut child, name);
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    value.expect("the field").to_owned()
}

fn own_status() -> String {
    std::fs::read_to_string("/proc/thread-self/status").expect("own status")
}

fn drop_keeps_what_is_listed() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a namespace (needs root)");
    let kept = [Capability::CAP_NET_ADMIN, Capability::CAP_BPF];
    privilege::drop_all_but(&kept).unwrap();
    privilege::require(&kept).unwrap();
    assert!(!privilege::has(Capability::CAP_SYS_ADMIN).unwrap());

    let mask = kept.iter().fold(0, |mask, capability| mask | capability.bitmask());
    let expect = |status: &str| {
        for name in ["CapPrm", "CapEff", "CapBnd"] {
            let value = u64::from_str_radix(&field(status, name), 16).unwrap();
            assert_eq!(value, mask, "{name}");
        }
        assert_eq!(field(status, "NoNewPrivs"), "1");
    };
    expect(&own_status());
    // Threads started later have no more, and programs neither.
    expect(&std::thread::spawn(own_status).join().unwrap());
    let program = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let status = String::from_utf8(program.stdout).unwrap();
    assert_eq!(u64::from_str_radix(&field(&status, "CapBnd"), 16).unwrap(), mask);
    let effective = u64::from_str_radix(&field(&status, "CapEff"), 16).unwrap();
    assert_eq!(effective & !mask, 0);

    // What is kept works, what is not does not.
    sysctl::write(&SysctlKey::forwarding_v4(), "1").unwrap();
    let error = NetNs::open("/proc/1/ns/net").and_then(|namespace| namespace.enter());
    assert!(error.unwrap_err().errno().is_some());
}

fn drop_to_nothing() {
    privilege::drop_all_but(&[]).unwrap();
    privilege::drop_all_but(&[]).unwrap();
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(&own_status(), name), "0000000000000000", "{name}");
    }
}

fn missing_capabilities_are_named() {
    privilege::drop_all_but(&[Capability::CAP_NET_RAW]).unwrap();
    let wanted = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF];
    for error in
        [privilege::require(&wanted).unwrap_err(), privilege::drop_all_but(&wanted).unwrap_err()]
    {
        let Error::Capability(mut missing) = error else {
            panic!("{error}");
        };
        missing.sort();
        assert_eq!(missing, ["CAP_BPF", "CAP_NET_ADMIN"]);
    }
    assert!(privilege::has(Capability::CAP_NET_RAW).unwrap());
}
