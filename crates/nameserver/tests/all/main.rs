//! The DNS64 server as its clients see it, before an upstream server that each test breaks as it likes.

mod answers;
mod cookies;
mod encrypted;
mod hostile;
mod limits;
mod reload;
mod streams;
mod wildcard;
mod world;
