//! The DNS64 server between programs that people use: dig, kdig and curl ask it; Unbound and BIND answer it.

mod cache;
mod cookies;
mod encrypted;
mod forward;
mod protect;
mod world;
