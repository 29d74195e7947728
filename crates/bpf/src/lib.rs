//! The kernel engine: eBPF programs that translate the common packets, and their loader.

#[allow(missing_docs, clippy::all, unreachable_pub, dead_code)]
mod tc_object {
    include!(concat!(env!("OUT_DIR"), "/fordway_tc.skel.rs"));
}
