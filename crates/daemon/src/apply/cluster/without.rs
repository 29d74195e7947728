//! The cluster left out (feature `cluster`): no configuration has one.

use std::path::Path;
use std::sync::Arc;

use fordway_bpf::ShardGates;
use fordway_config::Config;
use fordway_engine::HandOver;
use fordway_net::Change;
use fordway_xlat::nat64::Shards;

use crate::failure::Failure;
use crate::plan::resolve::Facts;

/// None can be had.
#[derive(Debug)]
pub(crate) enum Part {}

/// None can be had.
#[derive(Debug)]
pub(crate) struct Crossings {
    pub(crate) hand_over: Arc<dyn HandOver>,
    pub(crate) changes: Vec<Change>,
}

impl Part {
    pub(crate) fn read(_config: &Config) -> Result<Option<Arc<Part>>, Failure> {
        Ok(None)
    }

    pub(crate) fn shards(&self) -> Arc<Shards> {
        match *self {}
    }

    pub(crate) fn gates(&self) -> Option<Arc<ShardGates>> {
        match *self {}
    }

    pub(crate) fn keep_gates(&self, _pins: &Path, _adopted: bool) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) fn cross(
        &self,
        _queues: usize,
        _run_dir: &Path,
        _facts: &Facts,
    ) -> Result<Crossings, Failure> {
        match *self {}
    }
}
