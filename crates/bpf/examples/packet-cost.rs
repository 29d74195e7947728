//! What the kernel programs need for a packet: nanoseconds (the mean of the middle half of many single runs), instructions,
//! cache lines that packets at other processors write to as well; and a model of hosts with many processors made of
//! these. Needs root.
//!
//! Absolute numbers are of this machine and of warm caches. Compare two builds of this, run in turns:
//! `cargo run --release -p fordway-bpf --example packet-cost`.

#[path = "../tests/costs/bytecode.rs"]
mod bytecode;
#[path = "../tests/costs/hook.rs"]
mod hook;
#[path = "../tests/costs/model.rs"]
mod model;
#[path = "../tests/costs/paths.rs"]
mod paths;
#[path = "../tests/costs/table.rs"]
mod table;
#[path = "../tests/costs/verifier.rs"]
mod verifier;

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Instant;

use model::Lines;
use table::Scope;

const RUNS: u16 = 20_000;
const PROCESSORS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

fn main() {
    let line_ns = line_ns();
    let mut times = Vec::new();
    paths::visit(&mut |path, loaded| {
        let mut each: Vec<u32> = (0..RUNS).map(|number| path.run(loaded, number)).collect();
        each.sort_unstable();
        let middle = &each[each.len() / 4..each.len() * 3 / 4];
        times.push(middle.iter().map(|&ns| f64::from(ns)).sum::<f64>() / middle.len() as f64);
    });
    hook::install();
    let mut rows = Vec::new();
    paths::visit(&mut |path, loaded| rows.push(table::count(path, loaded)));

    println!("A cache line comes from the other processor in {line_ns:.0} ns.");
    println!("{:<42} {:>6} {:>13} {:>10}", "path", "ns", "instructions", "lines");
    for (row, ns) in rows.iter().zip(&times) {
        let lines: u64 = row.lines.values().sum();
        println!("{:<42} {ns:>6.0} {:>13} {lines:>10}", row.path, row.instructions);
    }
    println!(
        "\nA model, nothing measured: millions of packets per second of the program alone, by processors,"
    );
    println!("if each packet of a flow arrives at another processor than the one before it.");
    print!("{:<42}", "path");
    PROCESSORS.iter().for_each(|processors| print!(" {processors:>6}"));
    println!();
    for (row, &ns) in rows.iter().zip(&times) {
        let of = |scope| row.lines.get(&scope).copied().unwrap_or(0);
        // New flows of a subscriber are as many processors' as those of all hosts.
        let lines =
            Lines { of_flow: of(Scope::Flow) + of(Scope::Subscriber), of_all: of(Scope::All) };
        print!("{:<42}", row.path);
        for processors in PROCESSORS {
            print!(" {:>6.1}", model::rate(processors, ns, lines, line_ns));
        }
        println!();
    }
}

/// How long a cache line takes from one processor to another: two threads that write to it in turns.
fn line_ns() -> f64 {
    const TURNS: usize = 1_000_000;
    let turn = AtomicUsize::new(0);
    let play = |processor| {
        fordway_tun::set_processors(&[processor]).expect("two processors");
        let begun = Instant::now();
        for mine in (0..TURNS).map(|turn| turn * 2 + processor) {
            while turn.load(Acquire) != mine {
                std::hint::spin_loop();
            }
            turn.store(mine + 1, Release);
        }
        begun.elapsed().as_nanos() as f64 / (TURNS * 2) as f64
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        play(0);
        other.join().expect("a turn")
    })
}
