//! Mode nat44 left out (feature `nat44`): no entry has it.

use fordway_control::{Nat44Stats, Nat44Status};

use crate::apply::hosts::Owned;

pub(super) fn stats(_owned: &Owned) -> Option<Nat44Stats> {
    None
}

pub(super) fn status(_owned: &Owned) -> Option<Nat44Status> {
    None
}
