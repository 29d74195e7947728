//! Compiles the tester's program to the object that it loads.

#[path = "../bpf/build/objects.rs"]
mod objects;

fn main() {
    objects::build(&["tester", "live"]);
}
