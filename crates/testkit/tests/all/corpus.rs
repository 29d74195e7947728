//! The committed corpora of the fuzz targets, replayed.

use std::fs;
use std::path::Path;

use fordway_testkit::fuzz;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let path = entry.unwrap().path();
        // A panic does not say which file it was.
        println!("{}", path.display());
        run(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn core_v4() {
    replay("core_v4", fuzz::core_v4);
}

#[test]
fn core_v6() {
    replay("core_v6", fuzz::core_v6);
}

#[test]
fn icmp_error() {
    replay("icmp_error", fuzz::icmp_error);
}

#[test]
fn structured() {
    replay("structured", fuzz::structured);
}

#[test]
fn stateful() {
    replay("stateful", fuzz::stateful);
}

#[test]
fn dns64() {
    replay("dns64", fuzz::dns64);
}

#[test]
fn router() {
    replay("router", fuzz::router);
}

#[test]
fn dstm() {
    replay("dstm", fuzz::dstm);
}

#[test]
fn ftp() {
    replay("ftp", fuzz::ftp);
}

#[test]
fn softwire() {
    replay("softwire", fuzz::softwire);
}

#[test]
fn dns_gateway() {
    replay("dns_gateway", fuzz::dns_gateway);
}
