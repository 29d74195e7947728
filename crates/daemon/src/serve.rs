//! Requests of clients, servers beside the translators, and reload.

pub(crate) mod automatic;
pub(crate) mod bib;
mod cache;
pub(crate) mod cluster;
pub(crate) mod control;
pub(crate) mod desired;
#[cfg(feature = "dstm")]
pub(crate) mod dstm_client;
#[cfg(not(feature = "dstm"))]
#[path = "serve/dstm_client/without.rs"]
pub(crate) mod dstm_client;
pub(crate) mod handle;
pub(crate) mod nat64;
pub(crate) mod reload;
pub(crate) mod requests;
pub(crate) mod services;
pub(crate) mod status;
pub(crate) mod trace;
