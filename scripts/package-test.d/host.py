"""A Debian without systemd to install packages on, the gateway's network (gateway.py) around it, and traffic through that."""

import ctypes
import glob
import hashlib
import mmap
import os
import platform
import secrets
import shutil
import stat
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "soak.d"))
from gateway import NETWORK, NOT_OURS, SERVER4, SERVER6, SNAPSHOT, unanswered  # noqa: E402
from topology import Failure, Namespace, run, wait_until  # noqa: E402

CONNECTIONS = 50
UNIT = "fordway.service"
# Folders that are no part of it, and notes of apt.
LEFT_OUT = (*NOT_OURS, "dev", "proc", "run", "sys", "packages", "var/lib/apt")


class Debian:
    """The root folder, in the gateway's network namespace. Needs a mount namespace of its own."""

    def __init__(self, base, packages):
        self.packages = packages
        self.root = os.path.join(os.path.dirname(base), "root")
        os.makedirs(self.root, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "size=2G,mode=755", "tmpfs", self.root)
        run("tar", "-C", self.root, "--exclude=./dev/*", "-xf", base)
        for folder, source in (("proc", "/proc"), ("sys", "/sys"), ("dev", "/dev")):
            run("mount", "--rbind", source, f"{self.root}/{folder}")
        run("mount", "-t", "bpf", "bpf", f"{self.root}/sys/fs/bpf")
        run("mount", "-t", "tmpfs", "tmpfs", f"{self.root}/run")
        # Both say "systemd is here" to the packages' scripts.
        os.makedirs(f"{self.root}/run/systemd/system")
        os.makedirs(f"{self.root}/run/test")
        shutil.copy(f"{HERE}/systemctl", f"{self.root}/usr/local/bin/systemctl")
        os.makedirs(f"{self.root}/packages")
        run("mount", "--bind", packages, f"{self.root}/packages")
        self._build()
        self.traffic = None

    def _build(self):
        tag = secrets.token_hex(3)
        self.client, self.gateway, self.server = self.namespaces = [Namespace(f"fwpkg-{tag}-{role}") for role in "cgs"]
        self.gateway.run("sh", "-c", NETWORK.format(client=self.client.name, server=self.server.name))

    def argv(self, *argv):
        return self.gateway.argv("chroot", self.root, *argv)

    def run(self, *argv, **options):
        """Runs a command on it."""
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C",
                       "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(self.argv(*argv), capture_output=True, text=True, timeout=300, env=environment, stdin=subprocess.DEVNULL)
        if options.get("check", True) and done.returncode != 0:
            raise Failure(f"{' '.join(argv)}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.log()}")
        return done

    def install(self, *debs):
        """Installs packages, and returns what was said."""
        done = self.run("dpkg", "--install", "--force-confold", *map(self.path, debs))
        return done.stdout + done.stderr

    def path(self, deb):
        """Of a package, as seen from there."""
        return f"/packages/{os.path.relpath(deb, self.packages)}"

    def write(self, path, text):
        with open(self.root + path, "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, path):
        with open(self.root + path, encoding="utf-8") as file:
            return file.read()

    def log(self):
        """The daemon's."""
        path = f"/run/test/{UNIT}.log"
        return self.read(path) if os.path.exists(self.root + path) else ""

    def pid(self):
        """Of the daemon; `None`: it does not run."""
        active = self.run("systemctl", "is-active", UNIT, check=False).returncode == 0
        return int(self.read(f"/run/test/{UNIT}.pid")) if active else None

    def program(self):
        """Whether the daemon runs the program that is installed: that file, and not one that was replaced."""
        running, installed = os.stat(f"/proc/{self.pid()}/exe"), os.stat(f"{self.root}/usr/bin/fordway")
        return (running.st_dev, running.st_ino) == (installed.st_dev, installed.st_ino)

    def version(self):
        return self.run("dpkg-query", "--show", "--showformat=${Version}", "fordway").stdout

    def files(self):
        """What each file is, but for those of `LEFT_OUT`."""
        found = {}
        for folder, folders, names in os.walk(self.root):
            here = os.path.relpath(folder, self.root)
            keep = lambda name: os.path.normpath(os.path.join(here, name)) not in LEFT_OUT  # noqa: E731
            folders[:] = [name for name in folders if keep(name)]
            for name in filter(keep, folders + names):
                path = os.path.join(folder, name)
                status = os.lstat(path)
                what = (oct(status.st_mode), status.st_uid, status.st_gid)
                if stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as file:
                        what += (hashlib.sha256(file.read()).hexdigest(),)
                elif stat.S_ISLNK(status.st_mode):
                    what += (os.readlink(path),)
                found[os.path.relpath(path, self.root)] = what
        return found

    def network(self):
        """What of the gateway's network a daemon could have changed."""
        return self.gateway.run("sh", "-c", SNAPSHOT).stdout.splitlines()

    def pins(self):
        return glob.glob(f"{self.root}/sys/fs/bpf/fordway/*/*")

    def change_tables(self):
        """Makes the tables of sessions look as if there were one subscriber fewer: no start can use them."""
        path, = glob.glob(f"{self.root}/sys/fs/bpf/fordway/*/nat64/nat64_meta")
        name = ctypes.create_string_buffer(path.encode())
        number, get = {"x86_64": 321, "aarch64": 280}[platform.machine()], 7
        attributes = (ctypes.c_uint64 * 2)(ctypes.addressof(name), 0)
        map_ = ctypes.CDLL(None, use_errno=True).syscall(number, get, attributes, ctypes.sizeof(attributes))
        if map_ < 0:
            raise Failure(f"{path}: {os.strerror(ctypes.get_errno())}")
        with mmap.mmap(map_, mmap.PAGESIZE) as memory:
            # crates/xlat/src/nat64/table/layout.rs, `Meta`: the layout, and entries of three kinds.
            subscribers = int.from_bytes(memory[12:16], sys.byteorder)
            memory[12:16] = (subscribers - 1).to_bytes(4, sys.byteorder)
        os.close(map_)

    def start_traffic(self):
        self.traffic = Traffic(self)
        return self.traffic

    def close(self):
        if self.traffic:
            self.traffic.close()
        self.run("systemctl", "stop", UNIT, check=False)
        self.run("fordway", "down", "--all", check=False)
        for namespace in self.namespaces:
            run("ip", "netns", "del", namespace.name, check=False)
        # Only what is empty is removed: parts of the real host were mounted there.
        run("umount", "--recursive", "--lazy", self.root, check=False)
        os.rmdir(self.root)


class Traffic:
    """Connections from the client to the server, and pings beside them."""

    def __init__(self, host):
        self.server = subprocess.Popen(host.server.argv(sys.executable, f"{HERE}/peer.py", "server", SERVER4),
                                       stdout=subprocess.PIPE, text=True)
        port = self.server.stdout.readline().strip()
        self.ping = subprocess.Popen(host.client.argv("ping", "-n", "-q", "-i", "0.02", "-W", "10", SERVER6),
                                     stdout=subprocess.PIPE, text=True)
        self.client = subprocess.Popen(host.client.argv(sys.executable, f"{HERE}/peer.py", "client", SERVER6, port, str(CONNECTIONS)),
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.rounds = self.failed = 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.go_on()

    def _read(self):
        for line in self.client.stdout:
            self.rounds, self.failed = map(int, line.split())

    def go_on(self):
        """Waits for two more rounds."""
        least = self.rounds + 2
        wait_until("connections go on", lambda: self.rounds >= least or self.client.poll() is not None, 90)
        if self.client.poll() is not None:
            raise Failure("the client has ended")

    def end(self):
        """Connections that failed, and pings that got no answer."""
        self.client.stdin.close()
        self.client.wait(60)
        self.reader.join(10)
        self.ping.send_signal(2)
        text = self.ping.communicate(timeout=60)[0]
        self.close()
        return self.failed, unanswered(text)

    def close(self):
        for child in (self.client, self.ping, self.server):
            if child.poll() is None:
                child.kill()
                child.wait()
