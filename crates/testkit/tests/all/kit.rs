//! The kit itself: packets, readings, models and vectors are what they say.

mod checksum;
mod configs;
mod known;
mod model;
mod oracle;
mod packet;
mod sequence;
mod tap;
mod vector;
mod view;
