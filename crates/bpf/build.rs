//! Compiles the programs to the objects that the loader carries.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Newest first; any of them makes programs that the oldest supported kernel verifies.
const CLANGS: [&str; 8] =
    ["clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", "clang-20", "clang"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var("CLANG").ok().or_else(find_clang).unwrap_or_else(|| {
        panic!("no clang found: install one (apt-get install clang-19), or set CLANG")
    });
    // The kernel's uapi headers include <asm/types.h>, which lies in the folder of the machine's ABI.
    let triplet = format!(
        "/usr/include/{}-linux-gnu",
        env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it")
    );
    for object in ["fordway_tc", "fordway_xdp", "fordway_xdp_nat64", "fordway_softwire"] {
        let built = SkeletonBuilder::new()
            .source(format!("c/{object}.bpf.c"))
            .obj(out.join(format!("{object}.o")))
            .clang(&clang)
            .clang_args([
                "-Ic",
                "-Ic/include",
                "-I",
                &triplet,
                "-mcpu=v3",
                "-O2",
                "-g",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Werror",
            ])
            .build();
        if let Err(error) = built {
            panic!("cannot build c/{object}.bpf.c with {clang}: {error:#}");
        }
    }
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-env-changed=CLANG");
}

fn find_clang() -> Option<String> {
    let works = |name: &str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    CLANGS.into_iter().find(|name| works(name)).map(str::to_owned)
}
