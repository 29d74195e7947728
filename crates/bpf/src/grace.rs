//! Waiting until programs have ended.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::{Result, maps};

const NAME: &str = "fordway_grace";

/// Waits until every program in the kernel that runs now has ended.
///
/// A map of maps is for that: when an update of one returns, no program uses what was there before. So the kernel
/// ends an update by an RCU grace period (`maybe_wait_bpf_programs`, since 4.20), on processors without a tick
/// (`nohz_full`) too, where membarrier(2) refuses.
#[derive(Debug)]
pub struct GracePeriods {
    outer: MapHandle,
    inner: MapHandle,
}

impl GracePeriods {
    /// Makes the maps.
    pub fn new() -> Result<GracePeriods> {
        let make = |kind, inner: Option<&MapHandle>| {
            let inner_map_fd = inner.map_or(0, |inner| inner.as_fd().as_raw_fd() as u32);
            let options = bpf_map_create_opts { inner_map_fd, ..Default::default() };
            maps::make(kind, NAME, [4, 4], 1, options)
        };
        let inner = make(MapType::Array, None)?;
        let outer = make(MapType::ArrayOfMaps, Some(&inner))?;
        Ok(GracePeriods { outer, inner })
    }

    /// Waits for one.
    pub fn wait(&self) -> Result<()> {
        let inner = self.inner.as_fd().as_raw_fd().to_ne_bytes();
        self.outer.update(&[0; 4], &inner, MapFlags::ANY).map_err(maps::failed("update", NAME))
    }
}
