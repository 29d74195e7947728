//! The configuration file as users write it and as it is written out.

#[cfg(feature = "cluster")]
mod cluster;
mod docs;
mod feature;
mod files;
mod round_trip;
mod round_trip_services;
mod schema;
