//! What `fordway top` shows: rates between two samples of each daemon, and their layout.

mod screen;
mod view;

pub(crate) use screen::{Screen, text};
pub(crate) use view::{View, Watched, schema};
