//! The program as it runs: its commands, its daemon between real hosts in namespaces, its documents.
//!
//! Each test has namespaces, folders and sockets of its own, and may run beside any other.

mod common;

mod bursts;
mod clat;
mod clat_auto;
mod clat_auto_dns;
mod clat_auto_host;
mod clat_auto_speed;
mod clat_hooks;
mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod control;
mod daemon;
mod desired;
mod direct;
mod discover;
mod dns64;
mod dns64_people;
mod dns64_server;
mod docs;
mod doctor;
#[cfg(feature = "dstm")]
mod dstm;
mod dual_stack;
mod export;
mod host;
mod hostile;
mod in_front;
mod in_place;
mod ingress;
mod ipv6_only;
mod kernel;
mod metrics;
mod mistakes;
#[cfg(feature = "nat44")]
mod nat44;
mod nat64;
mod nat64_ftp;
mod nat64_life;
#[cfg(feature = "nat-pt")]
mod nat_pt;
mod offline;
mod packages;
mod path_mtu;
mod pool4;
mod privileges;
mod proxy;
mod reload;
mod rename;
mod restart;
mod rights;
mod services;
mod siit;
mod softwire;
mod ssh;
mod takeover;
mod top;
mod trace;
mod trt;
mod upkeep;
mod xlat464;
