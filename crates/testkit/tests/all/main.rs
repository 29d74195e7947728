//! Tests of the core that need no kernel, and of the documents.

mod architecture;
mod corpus;
mod documents;
mod kit;
mod links;
mod model;
mod properties;
mod softwire;
mod threats;
