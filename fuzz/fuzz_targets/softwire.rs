#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fordway_testkit::fuzz::softwire(data));
