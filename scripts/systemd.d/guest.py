"""A Debian with systemd in an emulated guest: its image, its start, and commands in it.

    host     image (mmdebstrap, kept), disk with the packages -> QEMU
    guest    systemd is its first process; qemu-guest-agent runs commands and tells what they said

The guest has no network card. Its writes go to a scratch file, so each run begins with the same system.
"""

import base64
import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from topology import Failure, die_with_parent, run, wait_until

# systemd and what its items need; no network for later.
PACKAGES = (
    "dbus", "dhcpcd-base", "dnsmasq-base", "iproute2", "iputils-ping", "kmod", "libelf1", "linux-image-cloud-amd64", "logrotate",
    "network-manager", "networkd-dispatcher", "nftables", "polkitd", "procps", "python3", "qemu-guest-agent", "systemd-resolved",
    "systemd-sysv", "udev", "zlib1g",
)
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# What each check starts itself, and what only takes time here.
DISABLED = (
    "NetworkManager.service", "NetworkManager-wait-online.service", "NetworkManager-dispatcher.service", "apt-daily-upgrade.timer",
    "apt-daily.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
    "getty@tty1.service", "logrotate.timer", "networkd-dispatcher.service", "systemd-networkd-wait-online.service",
    "systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service", "wpa_supplicant.service",
)
SIZE = "3G"
# The journal outlives a reboot; names of devices are those that the kernel gives.
SET_UP = r"""
set -eu
echo guest >"$1/etc/hostname"
echo '/dev/vda / ext4 defaults 0 1' >"$1/etc/fstab"
mkdir -p "$1/var/log/journal" "$1/job"
rm -rf "$1"/var/cache/apt/*.bin "$1"/var/lib/apt/lists/*
for unit in @DISABLED@; do chroot "$1" systemctl --quiet disable "$unit" 2>/dev/null || true; done
rm -f "$1/etc/resolv.conf" "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
"""
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
               "SYSTEMD_PAGER=cat", "SYSTEMD_COLORS=0", "HOME=/root", "NO_COLOR=1")
# Every instruction is emulated.
PATIENCE = 120.0


def mirror():
    """That of the host's own apt."""
    told = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages", check=False).stdout
    own = [line.split()[0] for line in told.splitlines() if line.endswith(" Debian") and "security" not in line]
    return own[0] if own else "http://deb.debian.org/debian"


class Image:
    """Root file system, kernel and initial RAM disk of a suite; built if the recipe is another one than before."""

    def __init__(self, cache, suite):
        recipe = hashlib.sha256(repr((PACKAGES, LEFT_OUT, DISABLED, SIZE, SET_UP)).encode()).hexdigest()[:8]
        self.folder = f"{cache}/{suite}-{recipe}"
        if not os.path.exists(self.folder):
            for name in os.listdir(cache) if os.path.isdir(cache) else ():
                if name.startswith(f"{suite}-"):
                    shutil.rmtree(f"{cache}/{name}")
            self._build(cache, suite)

    def path(self, name):
        return f"{self.folder}/{name}"

    def _build(self, cache, suite):
        print(f"mmdebstrap makes an image of Debian {suite} with systemd: once, for some minutes", flush=True)
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".image-", dir=cache) as scratch:
            # apt fetches packages as a user of its own.
            os.chmod(scratch, 0o755)
            root, made, hook = f"{scratch}/root", f"{scratch}/made", f"{scratch}/hook"
            os.mkdir(made)
            with open(hook, "w", encoding="utf-8") as file:
                file.write(SET_UP.replace("@DISABLED@", " ".join(DISABLED)))
            # Mounts and processes of its own, which go with it however it ends.
            run("env", f"TMPDIR={scratch}", "unshare", "--mount", "--pid", "--fork", "--kill-child", "mmdebstrap", "--quiet", "--mode=root",
                "--variant=minbase", f"--include={','.join(PACKAGES)}", "--aptopt=APT::Install-Recommends \"false\"",
                *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT), f"--customize-hook=sh {hook} \"$1\"", suite, root, mirror(),
                timeout=3600)
            for name, prefix in (("kernel", "vmlinuz-"), ("initrd", "initrd.img-")):
                found = [entry for entry in os.listdir(f"{root}/boot") if entry.startswith(prefix)]
                if not found:
                    raise Failure(f"the image has no /boot/{prefix}*")
                shutil.copy(f"{root}/boot/{found[0]}", f"{made}/{name}")
            run("mke2fs", "-q", "-t", "ext4", "-L", "guest", "-d", root, f"{made}/disk", SIZE, timeout=600)
            os.rename(made, self.folder)


def pack(folder, disk):
    """A disk with the files of a folder."""
    size = sum(os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names)
    with contextlib.suppress(FileNotFoundError):
        os.remove(disk)
    run("mke2fs", "-q", "-t", "ext4", "-d", folder, disk, f"{size // 1000000 + 32}M", timeout=300)


def end(pid):
    """Ends a process, of this run or of an earlier one: by SIGKILL after half a minute."""
    with contextlib.suppress(ProcessLookupError), contextlib.ExitStack() as stack:
        process = os.pidfd_open(pid)
        stack.callback(os.close, process)
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], 30)[0]:
                break


class Guest:
    """A guest that runs. Its agent listens at a socket of `folder`, where a later process finds it, too."""

    def __init__(self, folder):
        self.folder = folder
        self.socket = None
        self.pending = b""
        # Of this run, and of an earlier one.
        self.emulator = self.left = None

    @property
    def console(self):
        return f"{self.folder}/console"

    @property
    def words(self):
        """What QEMU says."""
        return f"{self.folder}/qemu"

    def boot(self, image, job, cpus, memory, keep):
        """Starts a guest in the place of one that an earlier run has left. It ends with this process, unless it is to be kept."""
        os.makedirs(self.folder, exist_ok=True)
        self.left = self.kept()
        self.close()
        for name in ("agent", "console"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{self.folder}/{name}")
        argv = [
            # Double-word atomics would stop all emulated processors.
            "qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max,cx16=off", "-smp", str(cpus), "-m", str(memory),
            "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-object", "rng-random,id=rng,filename=/dev/urandom",
            "-device", "virtio-rng-pci,rng=rng",
            "-kernel", image.path("kernel"), "-initrd", image.path("initrd"), "-append",
            "root=/dev/vda rw console=ttyS0 quiet loglevel=4 panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on",
            "-serial", f"file:{self.console}",
            "-drive", f"file={image.path('disk')},if=virtio,format=raw,snapshot=on",
            "-drive", f"file={job},if=virtio,format=raw,snapshot=on",
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={self.folder}/agent,server=on,wait=off",
            "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
        ]
        with open(self.words, "wb") as words:
            self.emulator = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=keep,
                                             preexec_fn=None if keep else die_with_parent, env={**os.environ, "TMPDIR": self.folder})
        with open(f"{self.folder}/pid", "w", encoding="utf-8") as file:
            file.write(str(self.emulator.pid))
        self.attach()
        self.run("mkdir -p /job && mount -o ro /dev/vdb /job")

    def kept(self):
        """Process number of a guest that another run has left up."""
        try:
            with open(f"{self.folder}/pid", encoding="utf-8") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                return pid if f"{self.folder}/agent" in file.read() else None
        except (OSError, ValueError):
            return None

    def take_over(self):
        """Makes that one this run's."""
        self.left = self.kept()
        if self.left is None:
            raise Failure("no guest was kept")

    def attach(self, seconds=600):
        """Waits for the agent, of a guest that starts or is there."""
        wait_until("the guest is up; its console is " + self.console, self._is_up, seconds)

    def _is_up(self):
        if self.emulator is not None and self.emulator.poll() is not None:
            with open(self.words, encoding="utf-8", errors="replace") as words:
                raise Failure(f"QEMU ended with status {self.emulator.returncode}; the guest's console is {self.console}\n{words.read()}".rstrip())
        try:
            self.detach()
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(5)
            self.socket.connect(f"{self.folder}/agent")
            self.pending = b""
            # An answer to an earlier question may come first.
            number = time.monotonic_ns() % 1_000_000_000
            self._send("guest-sync", id=number)
            while self._receive().get("return") != number:
                pass
            self.socket.settimeout(PATIENCE)
            return True
        except (OSError, ValueError):
            return False

    def detach(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _send(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")

    def _receive(self):
        while b"\n" not in self.pending:
            more = self.socket.recv(1 << 16)
            if not more:
                raise Failure(f"the guest's agent has gone; the guest's console is {self.console}")
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def ask(self, command, **arguments):
        """A command of the agent's protocol."""
        if self.socket is None:
            self.attach(PATIENCE)
        try:
            self._send(command, **arguments)
            answer = self._receive()
        except (Failure, OSError, ValueError):
            # The answer may come later. The next command must not take it for its own.
            self.detach()
            raise
        if "error" in answer:
            raise Failure(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    def run(self, script, check=True, timeout=PATIENCE, stdin=None):
        """Runs a line of shell to its end, and returns it with what it said."""
        more = {} if stdin is None else {"input-data": base64.b64encode(stdin).decode()}
        pid = self.ask("guest-exec", path="/bin/sh", arg=["-c", script], env=list(ENVIRONMENT), **{"capture-output": True}, **more)["pid"]
        deadline, pause = time.monotonic() + timeout, 0.02
        while True:
            status = self.ask("guest-exec-status", pid=pid)
            if status["exited"]:
                break
            if time.monotonic() > deadline:
                raise Failure(f"after {timeout:.0f} s not at its end: {script}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.3)
        text = lambda name: base64.b64decode(status.get(name, "")).decode(errors="replace")  # noqa: E731
        done = subprocess.CompletedProcess(script, status.get("exitcode", 128 + status.get("signal", 0)), text("out-data"), text("err-data"))
        if check and done.returncode != 0:
            raise Failure(f"{script}: {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
        return done

    def says(self, script, **options):
        """What it says on standard output, without the last line feed."""
        return self.run(script, **options).stdout.rstrip("\n")

    def holds(self, script):
        """Whether it ends with status 0."""
        return self.run(script, check=False).returncode == 0

    def put(self, path, content):
        """Writes a file."""
        content = content if isinstance(content, bytes) else content.encode()
        handle = self.ask("guest-file-open", path=path, mode="w")
        for at in range(0, len(content), 1 << 15):
            self.ask("guest-file-write", handle=handle, **{"buf-b64": base64.b64encode(content[at:at + (1 << 15)]).decode()})
        self.ask("guest-file-close", handle=handle)

    def reboot(self):
        boot = self.says("cat /proc/sys/kernel/random/boot_id")
        # Later, so that this answer is not cut off.
        self.run("systemd-run --quiet --on-active=2s systemctl --no-block reboot")

        def again():
            with contextlib.suppress(Failure, OSError, ValueError):
                return self._is_up() and self.says("cat /proc/sys/kernel/random/boot_id") != boot
            return False

        wait_until("the guest is up again; its console is " + self.console, again, 600)
        self.run("mount -o ro /dev/vdb /job")

    def close(self):
        """Ends the guest; nothing of it stays but its console and what QEMU said."""
        self.detach()
        if self.left is not None:
            end(self.left)
            self.left = None
        if self.emulator is not None and self.emulator.poll() is None:
            end(self.emulator.pid)
            self.emulator.wait()
