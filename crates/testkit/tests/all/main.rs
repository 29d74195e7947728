//! Tests of the core that need no kernel, and of the documents.

mod architecture;
mod corpus;
mod documents;
mod links;
mod model;
mod properties;
mod softwire;
mod threats;
