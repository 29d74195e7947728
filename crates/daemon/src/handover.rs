//! State that one process leaves to the next: the ledger, kernel engines that stay attached, mappings in a file.

pub(crate) mod ledger;
pub(crate) mod leftover;
pub(crate) mod mappings;
