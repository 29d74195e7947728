"""Builds test binaries with cargo and lists the tests in them."""

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace

# Crates that build and are tested without clang, libbpf and root.
PURE = ["fordway-wire", "fordway-xlat", "fordway-softwire", "fordway-dns64", "fordway-dstm", "fordway-cluster", "fordway-testkit", "fordway-stats", "fordway-data", "fordway-procedures"]
# Crates that are built once more without their features, and which of their tests then run: those whose name contains this.
# A run of everything takes only the core: the others' dependencies would be built once more as well (`make lint` runs them).
BARE = {"fordway-xlat": "nat64::", "fordway-dns64": "special::", "fordway-config": "feature::"}
BARE_ALWAYS = ["fordway-xlat"]
CARGO = os.environ.get("CARGO", "cargo")
# Seconds that each test took last time; the longest are started first.
TIMES = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "test-times.json")
# Where no times are known: crates whose tests wait for real programs come first.
SLOW_FIRST = ["fordway-lab", "fordway", "fordway-bpf", "fordway-relay", "fordway-proxy", "fordway-resolver", "fordway-router", "fordway-net"]


@dataclass(frozen=True)
class Binary:
    """A test binary: `name` is its crate's, with the target's unless that is the library or program itself."""
    name: str
    path: str
    package: str
    folder: str
    # It has a harness of its own and runs whole.
    is_whole: bool
    # Only tests whose name contains this are its own.
    part: str = ""

    def environment(self):
        return {"CARGO_MANIFEST_DIR": self.folder, "CARGO_PKG_NAME": self.package}

    def tests(self, names, ignored=False):
        """Its tests whose name contains one of `names`; those marked as ignored, or the others."""
        if self.is_whole:
            chosen = not ignored and (not names or any(name in self.name for name in names))
            return [Test(self, "")] if chosen else []
        marked = self.listed("--ignored")
        found = marked if ignored else [name for name in self.listed() if name not in set(marked)]
        return [Test(self, name) for name in found if self.part in name and (not names or any(part in name for part in names))]

    def listed(self, *which):
        command = [self.path, "--list", "--format", "terse", *which]
        told = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True,
                              env=os.environ | self.environment()).stdout
        return [line.removesuffix(": test") for line in told.splitlines() if line.endswith(": test")]


@dataclass(frozen=True)
class Test:
    """A test of a binary; without a name, all of it."""
    binary: Binary
    name: str

    @property
    def label(self):
        return f"{self.binary.name} {self.name}".rstrip()

    def command(self):
        if self.binary.is_whole:
            return [self.binary.path]
        return [self.binary.path, "--exact", self.name, "--include-ignored", "--nocapture", "--test-threads=1"]


def metadata():
    told = subprocess.run([CARGO, "metadata", "--format-version", "1", "--no-deps", "--locked"], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)["packages"]


def binaries(packages, more):
    """Builds the tests of these packages, or of all; `None` if that failed."""
    # What is built once needs no record of what changed since.
    environment = os.environ | ({"CARGO_INCREMENTAL": "0"} if os.environ.get("CI") == "true" else {})
    if {"fordway-lab", "fordway-cni"} & set(packages) and "fordway" not in packages:
        # The lab deploys the gateway's program; tests of the plugin have it as their gateway.
        if subprocess.run([CARGO, "build", "--locked", "--package", "fordway", *more], env=environment, check=False).returncode != 0:
            return None
    bare = [package for package in BARE if package in (packages or BARE_ALWAYS)]
    found = built((chosen(packages) or ["--workspace"]) + more, environment)
    if not bare or found is None:
        return found
    without = built([*chosen(bare), "--no-default-features", *more], environment)
    return None if without is None else found + [replace(binary, name=f"{binary.name}-bare", part=BARE[binary.package]) for binary in without]


def chosen(packages):
    """Cargo's arguments that choose these packages."""
    return [word for package in packages for word in ("--package", package)]


def built(which, environment):
    """Builds the tests that cargo's arguments `which` choose; `None` if that failed."""
    command = [CARGO, "test", "--no-run", "--locked", "--message-format=json-render-diagnostics", *which]
    print(f"{' '.join(command[:2])} {' '.join(which)}", flush=True)
    made = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    found = []
    for line in made.stdout:
        said = json.loads(line) if line.startswith("{") else {}
        if said.get("executable") and said.get("profile", {}).get("test"):
            found.append(said)
    if made.wait() != 0:
        return None
    return [binary_of(said) for said in found]


def binary_of(said):
    folder = os.path.dirname(said["manifest_path"])
    with open(said["manifest_path"], "rb") as file:
        manifest = tomllib.load(file)
    package, target = manifest["package"]["name"], said["target"]
    own = [entry for entry in manifest.get("test", []) if entry.get("name") == target["name"]]
    is_test = target["kind"] == ["test"]
    name = f"{package}/{target['name']}" if is_test else package
    return Binary(name, said["executable"], package, folder, any(entry.get("harness") is False for entry in own))


def longest_first(tests):
    """The order in which tests are started: what took long last time first, then crates known to be slow."""
    try:
        with open(TIMES, encoding="utf-8") as file:
            times = json.load(file)
    except (OSError, ValueError):
        times = {}

    def key(test):
        place = SLOW_FIRST.index(test.binary.package) if test.binary.package in SLOW_FIRST else len(SLOW_FIRST)
        return (-times.get(test.label, 0), not test.binary.is_whole, place)

    return sorted(tests, key=key)


def named_in(path, tests):
    """Those of the tests that the file names (CRATE NAME, where NAME may be a part, or a whole binary), and lines that name none."""
    with open(path, encoding="utf-8") as file:
        lines = [(number, line.split()) for number, line in enumerate(file, 1) if line.strip() and not line.startswith("#")]
    chosen, unknown = [], []
    for number, words in lines:
        package, part = words[0], words[1] if len(words) > 1 else ""
        found = [test for test in tests if test.binary.package == package and part in test.label]
        chosen += [test for test in found if test not in chosen]
        if not found:
            unknown.append((number, " ".join(words)))
    return chosen, unknown


def remember(results):
    try:
        with open(TIMES, encoding="utf-8") as file:
            times = json.load(file)
    except (OSError, ValueError):
        times = {}
    times.update({result.test.label: round(result.seconds, 2) for result in results})
    try:
        with open(TIMES, "w", encoding="utf-8") as file:
            json.dump(times, file)
    except OSError as error:
        print(f"{TIMES}: {error}: the next run does not know which tests take long", file=sys.stderr)


def git(*words):
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.split("\n")


def affected(base):
    """Packages whose tests read or link something that has changed since `base`, committed or not."""
    if base is None:
        bases = [git("merge-base", "HEAD", branch)[0] for branch in ("origin/main", "main")]
        head = git("rev-parse", "HEAD")[0]
        base = next((it for it in bases if it and it != head), head)
    changed = [path for path in git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard") if path]
    packages = metadata()
    folders = {os.path.relpath(os.path.dirname(it["manifest_path"])): it["name"] for it in packages}
    # Folders and files outside crates/ that tests read, with the crates that read them.
    readers = {
        "vectors/": ["fordway-testkit", "fordway-bpf", "fordway"],
        "fuzz/": ["fordway-testkit", "fordway-proxy"],
        "examples/": ["fordway", "fordway-config"],
        "packaging/": ["fordway", "fordway-daemon"],
        "Makefile": ["fordway"],
        "docs/": ["fordway-testkit", "fordway", "fordway-daemon", "fordway-config"],
        ".md": ["fordway-testkit", "fordway"],
    }
    found = set()
    for path in changed:
        owner = next((name for folder, name in folders.items() if path.startswith(folder + "/")), None)
        read = [name for where, names in readers.items() if path.startswith(where) or path.endswith(where) for name in names]
        if owner:
            found.add(owner)
        elif path in ("Cargo.toml", "Cargo.lock") or path.startswith(".cargo/"):
            return [it["name"] for it in packages]
        found.update(read)
    users = {}
    for package in packages:
        for dependency in package["dependencies"]:
            users.setdefault(dependency["name"], set()).add((package["name"], dependency["kind"]))
    return sorted(broken_by(found, users))


def broken_by(changed, users):
    """`changed` and every package that depends on one of them. What a package uses for its tests alone can't break
    those who depend on the package."""
    found = set(changed)
    ahead = list(changed)
    while ahead:
        for name, kind in users.get(ahead.pop(), ()):
            if name not in found:
                found.add(name)
                if kind != "dev":
                    ahead.append(name)
    return found
