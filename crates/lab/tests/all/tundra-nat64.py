#!/usr/bin/env python3
"""Stands in for Tundra: its command line and its configuration file (tundra-nat64(8), tundra-nat64.conf(5)) in front of TAYGA.

A CLAT in the I/O mode tun alone. It refuses what Tundra refuses: an unknown option or key, a key that is missing, and a value that
makes no sense. TUNDRA_VERSION is the version that it says it is: before 5, a configuration has one other key.
"""

import argparse
import ipaddress
import os
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = os.environ.get("TUNDRA_VERSION", "5.0.5")
OLD = int(VERSION.split(".")[0]) < 5
MODES = ("translate", "mktun", "rmtun", "validate-config")


def fail(why):
    sys.exit(f"tundra-nat64: {why}")


def yes_or_no(value):
    return value in ("yes", "no")


def empty_or_name(value):
    return value == "" or re.fullmatch(r"[a-z_][a-z0-9_-]*", value)


def address(family):
    return lambda value: isinstance(ipaddress.ip_address(value), family)


def number(least, most):
    return lambda value: value.isdigit() and least <= int(value) <= most


V4, V6 = address(ipaddress.IPv4Address), address(ipaddress.IPv6Address)
KEYS = {
    "program.translator_threads": lambda value: value == "" or number(1, 256)(value),
    "program.privilege_drop_user": empty_or_name,
    "program.privilege_drop_group": empty_or_name,
    "io.mode": lambda value: value == "tun",
    "io.tun.device_path": lambda value: value in ("", "/dev/net/tun"),
    "io.tun.interface_name": lambda value: re.fullmatch(r"[^/\s]{1,15}", value),
    "io.tun.owner_user": empty_or_name,
    "io.tun.owner_group": empty_or_name,
    "router.ipv4": V4,
    "router.ipv6": V6,
    "router.generated_packet_ttl": number(1, 255),
    "addressing.mode": lambda value: value == "clat",
    "addressing.nat64_clat.ipv4": V4,
    "addressing.nat64_clat.ipv6": V6,
    "addressing.nat64_clat_siit.prefix": V6,
    "addressing.nat64_clat_siit.allow_translation_of_private_ips": yes_or_no,
    "translator.ipv4.outbound_mtu": number(96, 65535),
    "translator.ipv6.outbound_mtu": number(1280, 65535),
    "translator.6to4.copy_dscp_and_ecn": yes_or_no,
    "translator.4to6.copy_dscp_and_ecn": yes_or_no,
} | ({"program.chroot_dir": lambda value: value == "" or value.startswith("/")} if OLD else {"io.tun.multi_queue": yes_or_no})


def read(path):
    """The configuration; it ends the program where Tundra would refuse it."""
    values = {}
    with sys.stdin if path == "-" else open(path) as file:
        for count, line in enumerate(map(str.strip, file), 1):
            if line == "!STOP":
                break
            if not line or line[0] in "#;":
                continue
            key, equals, value = (part.strip() for part in line.partition("="))
            if not equals or key not in KEYS:
                fail(f"{path}, line {count}: unknown key: {key}")
            if key in values:
                fail(f"{path}, line {count}: {key} is there twice")
            try:
                good = KEYS[key](value)
            except ValueError:
                good = False
            if not good:
                fail(f"{path}, line {count}: invalid value of {key}: {value!r}")
            values[key] = value
    for key in KEYS:
        if key not in values:
            fail(f"{path}: {key} is missing")
    return values


def tayga(values, folder):
    """The same translation as a configuration of TAYGA."""
    lines = [
        f"tun-device {values['io.tun.interface_name']}",
        f"ipv4-addr {values['router.ipv4']}",
        f"ipv6-addr {values['router.ipv6']}",
        f"prefix {values['addressing.nat64_clat_siit.prefix']}/96",
        f"map {values['addressing.nat64_clat.ipv4']} {values['addressing.nat64_clat.ipv6']}",
    ]
    with open(shutil.which("tayga"), "rb") as program:
        knows = b"wkpf-strict" in program.read()
    if knows:
        private = values["addressing.nat64_clat_siit.allow_translation_of_private_ips"]
        lines.append(f"wkpf-strict {'no' if private == 'yes' else 'yes'}")
    path = os.path.join(folder, "tayga.conf")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def main():
    parser = argparse.ArgumentParser(prog="tundra-nat64")
    parser.add_argument("-v", "--version", action="version", version=f"Tundra-NAT64 {VERSION} (a stand-in)")
    parser.add_argument("-c", "--config-file", required=True)
    parser.add_argument("mode", nargs="?", choices=MODES, default="translate")
    options = parser.parse_args()
    values = read(options.config_file)
    if options.mode == "validate-config":
        print("The configuration is valid.")
        return
    # TAYGA has read its file when it says so; the folder goes with the process that made it.
    with tempfile.TemporaryDirectory(prefix="tundra-stand-in-") as folder:
        path = tayga(values, folder)
        if options.mode != "translate":
            sys.exit(subprocess.run(["tayga", "-c", path, f"--{options.mode}"]).returncode)
        # The descriptor stays open in TAYGA, and the file is gone when it is.
        inherited = os.open(path, os.O_RDONLY)
        os.set_inheritable(inherited, True)
    os.execvp("tayga", ["tayga", "-n", "-c", f"/proc/self/fd/{inherited}"])


if __name__ == "__main__":
    main()
