#![no_main]

#[path = "../../crates/proxy/tests/all/corpus/proxy.rs"]
#[allow(dead_code)]
mod proxy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy::response(data));
