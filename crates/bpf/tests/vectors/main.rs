//! Every vector on the kernel's programs, on the user engine, and on both together; sequences on the user engine.
//!
//! The names of trials begin with the subject: `kernel/`, `tun/`, `kernel_tun/`, `tun_nat64/`. Needs root; says so, and
//! does nothing, without.

#[path = "../all/alike.rs"]
mod alike;
mod kernel;
mod kernel_tun;
mod shared;
mod tun;
mod tun_nat64;

use fordway_testkit::live;

fn main() {
    let mut arguments = live::arguments();
    // Two threads would each load the programs of a configuration, which takes longer than all of its vectors.
    arguments.test_threads = Some(1);
    let trials = [kernel::trials(), tun::trials(), kernel_tun::trials(), tun_nat64::trials()];
    let conclusion = libtest_mimic::run(&arguments, trials.into_iter().flatten().collect());
    tun::stop();
    kernel_tun::stop();
    live::tidy();
    if !kernel::leaves_little(&arguments) {
        std::process::exit(101);
    }
    conclusion.exit();
}
