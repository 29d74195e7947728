//! Compiles the testers' programs to the objects that they load.

#[path = "../bpf/build/objects.rs"]
mod objects;

fn main() {
    objects::build(&["flows", "frames"]);
}
