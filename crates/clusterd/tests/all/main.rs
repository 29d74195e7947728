//! Gateways in processes of their own, with real servers of NATS, while processes are killed and stand still.

mod gateway;
mod ill;
mod late;
mod ledger;
mod nats;
mod ownership;
mod routes;
mod store;
mod strangers;
mod world;
