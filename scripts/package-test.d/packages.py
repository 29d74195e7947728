"""The built packages, and the same with other versions."""

import glob
import os
import re
import tempfile

from topology import Failure, run

FILE = "/etc/fordway/fordway.toml"
ALL = ("fordway", "fordway-lab", "fordway-cni")


def newest(pattern):
    """The file of that pattern that was made last."""
    found = sorted(glob.glob(pattern), key=os.path.getmtime)
    if not found:
        raise Failure(f"there is no {pattern}: make packages")
    return found[-1]


class Packages:
    """The packages of a folder, and what upgrades lead to: the same ones, or those of another build."""

    def __init__(self, folder, later=None):
        self.folder = folder
        self.later = later or self
        self.debs = {name: newest(f"{folder}/{name}_[0-9]*.deb") for name in ALL}
        self.version = run("dpkg-deb", "--field", self.debs["fordway"], "Version").stdout.strip()

    def fields(self, name, *fields):
        return run("dpkg-deb", "--field", self.debs[name], *fields).stdout.strip()

    def as_version(self, version):
        """The gateway's later package with another version, and with another configuration to begin with."""
        path = f"{self.folder}/test/fordway_{version}.deb"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            tree = f"{folder}/tree"
            run("dpkg-deb", "--raw-extract", self.later.debs["fordway"], tree)
            with open(f"{tree}/DEBIAN/control", encoding="utf-8") as file:
                text = file.read()
            with open(f"{tree}/DEBIAN/control", "w", encoding="utf-8") as file:
                file.write(re.sub(r"(?m)^Version: .*", f"Version: {version}", text))
            with open(tree + FILE, "a", encoding="utf-8") as file:
                file.write(f"# Version {version}.\n")
            run("dpkg-deb", "--build", "--root-owner-group", "-Znone", tree, path)
        return path

    def dependencies(self):
        """The first of the alternatives each."""
        text = ", ".join(packages.fields(name, "Depends").removeprefix("Depends: ") for packages in (self, self.later) for name in ALL)
        return sorted({re.split(r"[ |(]", one.strip())[0] for one in text.split(",")})
