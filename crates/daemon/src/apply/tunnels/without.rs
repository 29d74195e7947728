//! DSTM left out (feature `dstm`): no packet waits for an address, and no server changes bindings.

/// Never made.
#[derive(Default)]
pub(crate) struct Waiting;

impl Waiting {
    pub(crate) fn push(&self, _packet: &[u8], _partial: bool) {}
}
