//! A device under test with known behaviour, between two interfaces, until it is ended:
//! `known-device NEAR FAR nothing|loss=EVERY|rate=FRAMES_PER_SECOND|delay=MICROSECONDS|table=ENTRIES`.

use std::sync::atomic::AtomicBool;

use fordway_testkit::known::Bridge;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [near, far, behaviour] = &words[..] else {
        return Err("NEAR FAR BEHAVIOUR".into());
    };
    let mut bridge = Bridge::open(near, far, behaviour.parse()?)?;
    println!("ready");
    Ok(bridge.run(&AtomicBool::new(false))?)
}
