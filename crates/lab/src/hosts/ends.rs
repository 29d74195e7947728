//! Where a run takes place, as its back end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Pair;
use crate::backend::{Backend, Cap, Counting, Keeper, Netns, Place};
use crate::error::Result;
use crate::process::{Dialogue, Output, Running};

/// Where a run takes place: on this machine alone, or on two hosts.
#[derive(Debug)]
pub(crate) enum Ends {
    /// This machine.
    One(Netns),
    /// Two hosts joined by a wire.
    Two(Arc<Pair>),
}

impl Ends {
    /// The two hosts, when it is two.
    pub(crate) fn pair(&self) -> Option<&Arc<Pair>> {
        match self {
            Self::One(_) => None,
            Self::Two(pair) => Some(pair),
        }
    }

    fn own(&self) -> &dyn Backend {
        match self {
            Self::One(netns) => netns,
            Self::Two(pair) => pair.as_ref(),
        }
    }
}

impl Backend for Ends {
    fn run(&self, place: Option<&Place>, argv: &[String], output: Output<'_>) -> Result<Running> {
        self.own().run(place, argv, output)
    }

    fn talk(&self, place: &Place, argv: &[String], patience: Duration) -> Result<Dialogue> {
        self.own().talk(place, argv, patience)
    }

    fn inside(&self, place: &Place, argv: &[String]) -> Vec<String> {
        self.own().inside(place, argv)
    }

    fn namespace(&self, place: &Place) -> PathBuf {
        self.own().namespace(place)
    }

    fn deploy(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        self.own().deploy(name, content)
    }

    fn outside(&self, place: &Place, argv: &[String], output: Output<'_>) -> Result<Running> {
        self.own().outside(place, argv, output)
    }

    fn wire(&self, place: &Place) -> Option<&str> {
        self.own().wire(place)
    }

    fn keeper(&self) -> Keeper {
        self.own().keeper()
    }

    fn count(&self, pids: &[u32], handles: &[u64]) -> Result<Counting> {
        self.own().count(pids, handles)
    }

    fn cap(&self) -> Option<Cap> {
        self.own().cap()
    }
}
