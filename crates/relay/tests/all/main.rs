//! A relay between a client that has IPv6 alone and a server that has IPv4 alone. Needs root.

mod hostile;
mod icmp;
mod tcp;
mod timers;
mod udp;
mod world;
