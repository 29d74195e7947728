//! The Debian packages, as far as they can be checked without making them (`make packages-test` does the rest).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fordway_testhost::has_programs;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of `packaging/debian`.
fn debian(name: &str) -> String {
    std::fs::read_to_string(root().join("packaging/debian").join(name)).unwrap()
}

/// The packages that are made.
fn packages() -> Vec<String> {
    let control = debian("control");
    let packages = control.lines().filter_map(|line| line.strip_prefix("Package: "));
    packages.map(str::to_owned).collect()
}

/// Lines of what a shell command says in a folder.
fn lines(folder: &Path, command: &str) -> Vec<String> {
    let output = Command::new("sh").args(["-c", command]).current_dir(folder).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {errors}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn each_file_that_is_installed_is_in_one_package() {
    if !has_programs(&["make"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (programs, tree) = (dir.path().join("programs"), dir.path().join("tree"));
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fordway"), programs.join("fordway")).unwrap();
    // The other programs are other crates'.
    let lab =
        "#!/bin/sh\n[ \"$1\" != man ] || touch \"$2/fordway-lab.1\" \"$2/fordway-lab-run.1\"\n";
    let executable = std::fs::Permissions::from_mode(0o755);
    for (name, text) in [("fordway-lab", lab), ("fordway-cni", "#!/bin/sh\n")] {
        std::fs::write(programs.join(name), text).unwrap();
        std::fs::set_permissions(programs.join(name), executable.clone()).unwrap();
    }
    let make = Command::new("make")
        .args(["--silent", "install-files", "PREFIX=/usr", "STRIP=:"])
        .arg(format!("PROGRAMS={}", programs.display()))
        .arg(format!("DESTDIR={}", tree.display()))
        .env_remove("MAKEFLAGS")
        .current_dir(root())
        .output()
        .unwrap();
    assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
    let installed = lines(&tree, "find . -type f -printf '%P\\n'");
    let mut homes: BTreeMap<String, Vec<String>> =
        installed.into_iter().map(|path| (path, Vec::new())).collect();
    for package in packages() {
        for line in debian(&format!("{package}.install")).lines() {
            let pattern = line.split(' ').next().unwrap();
            let found = lines(&tree, &format!("find {pattern} -type f"));
            assert!(!found.is_empty(), "{package}: {pattern}");
            for path in found {
                homes.get_mut(&path).unwrap().push(package.clone());
            }
        }
    }
    assert!(homes.len() > 80, "{}", homes.len());
    for (path, packages) in &homes {
        let others = ["fordway-lab", "fordway-cni"];
        let expected = others.into_iter().find(|name| path.contains(name)).unwrap_or("fordway");
        assert_eq!(packages, &[expected], "{path}");
    }
}

#[test]
fn scripts_of_the_packages_are_sound() {
    let folder = root().join("packaging/debian");
    for script in ["fordway.postinst", "fordway.prerm", "fordway.postrm"] {
        let text = debian(script);
        assert_eq!(text.matches("\n#DEBHELPER#\n").count(), 1, "{script}");
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{script}");
        lines(&folder, &format!("sh -n {script}"));
    }
}
