//! Compiles BPF programs to objects that libbpf loads. The build scripts of all crates with such programs include it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use libbpf_rs::Linker;
use libbpf_rs::libbpf_sys::API_HEADERS;

/// Newest first; any of them makes programs that the oldest supported kernel verifies.
const CLANGS: [&str; 8] =
    ["clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", "clang-20", "clang"];

/// Makes `NAME.o` of each `c/NAME.bpf.c`, in the folder of what is built.
pub(crate) fn build(names: &[&str]) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var("CLANG").ok().or_else(find_clang).unwrap_or_else(|| {
        panic!("no clang found: install one (apt-get install clang-19), or set CLANG")
    });
    // The headers of the libbpf that loads the objects, as <bpf/...>.
    let headers = out.join("include");
    fs::create_dir_all(headers.join("bpf")).expect("a folder for headers");
    for (name, text) in API_HEADERS {
        fs::write(headers.join("bpf").join(name), text).expect("a header of libbpf");
    }
    for object in names {
        let source = format!("c/{object}.bpf.c");
        let compiled = out.join(format!("{object}.bpf.o"));
        compile(&clang, &headers, &source, &compiled);
        // Linking drops the debugging information that only people read; the types (BTF) stay.
        let mut linker = Linker::new(out.join(format!("{object}.o"))).expect("libbpf's linker");
        linker.add_file(&compiled).and_then(|()| linker.link()).unwrap_or_else(|error| {
            panic!("cannot link c/{object}.bpf.c: {error}");
        });
    }
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-env-changed=CLANG");
}

fn compile(clang: &str, headers: &Path, source: &str, object: &Path) {
    // The kernel's uapi headers include <asm/types.h>, which lies in the folder of the machine's ABI.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let mut command = Command::new(clang);
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-c", "-fno-stack-protector"]);
    command.args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-Ic", "-Ic/include"]);
    command.arg("-I").arg(format!("/usr/include/{arch}-linux-gnu")).arg("-I").arg(headers);
    command.arg(source).arg("-o").arg(object);
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {clang}: {error}"));
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("cannot build {source} with {clang} ({}):\n{said}", output.status);
    }
}

fn find_clang() -> Option<String> {
    let works = |name: &str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    CLANGS.into_iter().find(|name| works(name)).map(str::to_owned)
}
