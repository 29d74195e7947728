"""Client with a CLAT, router, server: three network namespaces, and the daemon in the client's.

    client  c0 ──── r0  router  r1 ──── s0  server
    clat0: 192.0.0.1 = 2001:db8:1::c1a7     198.51.100.2 = 2001:db8:64::c633:6402
"""

import ctypes
import glob
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time

PREF64 = "2001:db8:64::/96"
CLAT4, CLAT6 = "192.0.0.1", "2001:db8:1::c1a7"
CLIENT6, ROUTER6 = "2001:db8:1::10", "2001:db8:1::1"
SERVER4, SERVER6 = "198.51.100.2", "2001:db8:64::c633:6402"
NAME = "clat0"

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """What could not be set up or done; told to the person without a trace."""


def run(*argv, stdin=None, check=True, timeout=60):
    """Runs a command to its end and returns it, with its output."""
    done = subprocess.run([str(a) for a in argv], input=stdin, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise Failure(f"{' '.join(map(str, argv))}: {done.stderr.strip() or done.stdout.strip() or done.returncode}")
    return done


def wait_until(what, condition, seconds=20.0):
    """Asks until the condition holds and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"after {seconds:.0f} s still not so: {what}")
        time.sleep(0.02)


def end_in_order():
    """Has every signal that asks for an end raise KeyboardInterrupt."""

    def interrupt(*_):
        raise KeyboardInterrupt

    # SIGINT too: a shell has background jobs ignore it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def die_with_parent():
    """Of a child, before its program starts."""
    # So that nothing is left behind if the script itself is killed.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Ctrl-C is for the script, which then ends its children in order.
    os.setpgid(0, 0)


class Namespace:
    """One network namespace; `ip netns exec` is not used, since it hides /sys/fs/bpf."""

    def __init__(self, name):
        self.name = name
        run("ip", "netns", "add", name)

    def argv(self, *argv):
        return ["nsenter", f"--net=/run/netns/{self.name}", *map(str, argv)]

    def run(self, *argv, **options):
        return run(*self.argv(*argv), **options)

    def inode(self):
        return os.stat(f"/run/netns/{self.name}").st_ino


class Topology:
    """The namespaces, a folder for the run, and every process that was started."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="fordway-soak-")
        # A copy, so that a build meanwhile does not mix two versions.
        self.program = shutil.copy(program, f"{self.folder}/program")
        self.children = []
        self.namespaces = []
        self.daemon = None

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _build(self):
        tag = secrets.token_hex(3)
        for role in ("client", "router", "server"):
            namespace = Namespace(f"fwsoak-{tag}-{role[0]}")
            setattr(self, role, namespace)
            self.namespaces.append(namespace)
        client, router, server = self.namespaces
        router.run("ip", "link", "add", "r0", "type", "veth", "peer", "name", "c0", "netns", client.name)
        router.run("ip", "link", "add", "r1", "type", "veth", "peer", "name", "s0", "netns", server.name)
        addresses = (
            (client, "c0", f"{CLIENT6}/64"),
            (router, "r0", f"{ROUTER6}/64"),
            (router, "r1", "2001:db8:2::1/64"),
            (server, "s0", "2001:db8:2::2/64"),
            (server, "s0", f"{SERVER6}/128"),
        )
        for namespace, device, address in addresses:
            # No link-local address that is still being looked for when the first packet goes.
            namespace.run("sysctl", "-qw", f"net.ipv6.conf.{device}.accept_dad=0")
            namespace.run("ip", "link", "set", "lo", "up")
            namespace.run("ip", "link", "set", device, "up")
            namespace.run("ip", "-6", "addr", "add", address, "dev", device, "nodad")
        router.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
        client.run("ip", "-6", "route", "add", "default", "via", ROUTER6)
        server.run("ip", "-6", "route", "add", "default", "via", "2001:db8:2::1", "src", SERVER6)
        router.run("ip", "-6", "route", "add", PREF64, "via", "2001:db8:2::2")
        # Every ICMP error is counted, so none may be withheld.
        for namespace in self.namespaces:
            namespace.run("sysctl", "-qw", "net.ipv6.icmp.ratelimit=0", "net.ipv4.icmp_ratelimit=0")
        wait_until(
            "all addresses are usable",
            lambda: not any(n.run("ip", "-6", "addr", "show", "tentative").stdout for n in self.namespaces),
        )

    # Processes

    def start(self, namespace, *argv, **options):
        """Starts a process in a namespace; it is ended with the topology at the latest."""
        child = subprocess.Popen(namespace.argv(*argv), preexec_fn=die_with_parent, text=True, **options)
        self.children.append(child)
        return child

    def end(self, child, seconds=20, how=signal.SIGTERM):
        """Ends a process by its id and returns its status."""
        if child.poll() is None:
            child.send_signal(how)
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        return child.returncode

    def close(self):
        """Ends all that was started and removes all that was made, the latest first."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for child in reversed(self.children):
            self.end(child)
        if self.namespaces and self.daemon is not None:
            # A daemon that was killed, or left, has its kernel engine still there.
            self.fordway("down", NAME, check=False)
        for namespace in self.namespaces:
            run("ip", "netns", "del", namespace.name, check=False)
        self.namespaces = []
        shutil.rmtree(self.folder, ignore_errors=True)

    # The daemon

    def configure(self, engine, attach, *lines):
        """Writes the configuration file; `lines` are further keys of the translator."""
        text = [
            "[[translator]]",
            f'name = "{NAME}"',
            'mode = "clat"',
            f'pref64 = "{PREF64}"',
            f'v6 = "{CLAT6}"',
            'uplink = "c0"',
            f'engine = "{engine}"',
            f'attach = "{attach}"',
            *lines,
        ]
        path = f"{self.folder}/fordway.toml"
        with open(path + ".new", "w") as file:
            file.write("\n".join(text) + "\n")
        os.rename(path + ".new", path)

    def start_daemon(self, seconds=20):
        """Starts the daemon and returns it when it says that it is ready."""
        path = f"{self.folder}/log"
        at = os.path.getsize(path) if os.path.exists(path) else 0
        with open(path, "a") as log:
            self.daemon = self.start(self.client, self.program, "--run-dir", f"{self.folder}/run", "run",
                                     "-c", f"{self.folder}/fordway.toml", stdout=log, stderr=log)

        def ready():
            with open(path) as file:
                file.seek(at)
                text = file.read()
            if self.daemon.poll() is not None:
                raise Failure(f"the daemon ended with {self.daemon.returncode}:\n{text}")
            return " ready after " in text

        wait_until("the daemon is ready", ready, seconds)
        return self.daemon

    def fordway(self, *argv, **options):
        """A command of the gateway's command line, towards this daemon."""
        return self.client.run(self.program, "--run-dir", f"{self.folder}/run", *argv, **options)

    def stats(self):
        """What `fordway stats --json` says of the translator."""
        return json.loads(self.fordway("stats", "--json").stdout)["translators"][0]

    def status(self):
        """What `fordway status --json` says of the translator."""
        return json.loads(self.fordway("status", "--json").stdout)["translators"][0]

    def log(self):
        """The daemon's log lines so far."""
        with open(f"{self.folder}/log") as file:
            return file.read().splitlines()

    def pins(self):
        """Folder of the kernel engine's pins; it need not exist."""
        found = glob.glob(f"/sys/fs/bpf/fordway/{self.client.inode()}-*/{NAME}")
        return found[0] if found else f"/sys/fs/bpf/fordway/{self.client.inode()}-?/{NAME}"
