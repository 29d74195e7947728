//! Compiles the programs to the objects that the loader carries.

#[path = "build/objects.rs"]
mod objects;

fn main() {
    objects::build(&[
        "fordway_tc",
        "fordway_xdp",
        "fordway_xdp_nat64",
        "fordway_softwire",
        "fordway_path",
    ]);
}
