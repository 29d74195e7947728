"""What the checklist asks of fordway.service: the gateway on a host whose first process is systemd."""

import json
import re

from gateway import CONFIGURATION as WITHOUT_LOGS
from network import CONFIGURATION, FILE, WORK, Network
from topology import Failure, wait_until

UNIT = "fordway.service"
# The group's threshold of `systemd-analyze security`.
SCORE = 2.0
# Seconds of WatchdogSec, and what a killed daemon needs to start again here.
WATCHDOG = 60


def check(condition, what):
    if not condition:
        raise Failure(what)


class Service:
    """The gateway's unit."""

    def __init__(self, guest, packages):
        self.guest = guest
        self.packages = packages
        self.network = Network(guest)
        self.found = None

    def set_up(self):
        self.network.purge()
        self.network.build()
        self.found = self.network.snapshot()

    def show(self, name, unit=UNIT):
        return self.guest.says(f"systemctl show --value --property={name} {unit}")

    def pid(self):
        return int(self.show("MainPID"))

    def status(self):
        return json.loads(self.guest.says("fordway status --json"))

    def log(self, fields="-o cat", unit=UNIT):
        return self.guest.says(f"journalctl --boot --no-pager --unit={unit} {fields}")

    def write(self, text):
        self.guest.put(FILE, text)

    def as_found(self):
        now = self.network.snapshot()
        other = sorted(set(now.splitlines()) ^ set(self.found.splitlines()))
        check(not other, "the host is not as it was found: " + "; ".join(other))

    def started_again(self, pid, seconds):
        """Waits for another daemon than `pid` that is ready."""
        wait_until("the daemon is started again", lambda: self.show("ActiveState") == "active" and self.pid() not in (0, pid), seconds)

    # Items, in this order

    def install(self):
        """An installation starts nothing, enables nothing, and changes nothing of the network."""
        self.guest.run("dpkg --install " + " ".join(self.packages.debs.values()))
        check(not self.guest.holds("systemctl --quiet is-enabled fordway fordway-clat"), "a unit is enabled")
        check(not self.guest.holds("systemctl --quiet is-active fordway fordway-clat"), "a unit runs")
        self.as_found()

    def valid(self):
        """systemd finds nothing to say about the units."""
        said = self.guest.run("systemd-analyze verify --man=no fordway.service fordway-clat.service", check=False)
        lines = [line for line in (said.stdout + said.stderr).splitlines() if "fordway" in line]
        check(said.returncode == 0 and not lines, "\n".join(lines) or f"status {said.returncode}")

    def hardened(self):
        """`systemd-analyze security` gives both units 2.0 or less."""
        scores = []
        for unit in ("fordway.service", "fordway-clat.service"):
            said = self.guest.says(f"systemd-analyze security --no-pager {unit} | tail -n 1")
            found = re.search(r"exposure level for \S+: ([0-9.]+)", said)
            check(found, said)
            scores.append(float(found[1]))
        check(max(scores) <= SCORE, f"exposure levels {scores}")
        return f"exposure levels {scores[0]} and {scores[1]}"

    def ready(self):
        """`systemctl enable --now` returns when packets are translated, by the kernel engine."""
        self.write(CONFIGURATION)
        self.guest.run("systemctl enable --now fordway")
        check(self.network.answers("client"), "the first ping has no answer\n" + self.log())
        one = self.status()["translators"][0]
        check(one["engine"] == "kernel", json.dumps(one))
        check("ready after" in self.log(), self.log())
        check(self.show("StatusText").startswith("Running: nat64"), self.show("StatusText"))

    def unprivileged(self):
        """The daemon is the user fordway; one thread has the capabilities it needs, the others none, and seccomp filters."""
        pid = self.pid()
        script = f"cd /proc/{pid}/task && for t in *; do grep -H -E '^(Name|Uid|CapEff|CapAmb|NoNewPrivs|Seccomp_filters):' $t/status; done"
        threads = {}
        for line in self.guest.says(script).splitlines():
            task, name, value = line.replace("/status", "").split(":", 2)
            threads.setdefault(task, {})[name] = value.split()
        uid = self.guest.says("id -u fordway")
        main = threads[str(pid)]
        for thread in threads.values():
            check(set(thread["Uid"]) == {uid}, f"{thread}: another user")
            check(thread["NoNewPrivs"] == ["1"], f"{thread}: may get privileges")
            check(int(thread["CapAmb"][0], 16) == 0, f"{thread}: programs that it starts get capabilities")
        # CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF.
        check(int(main["CapEff"][0], 16) == 1 << 12 | 1 << 38 | 1 << 39, f"{main}")
        others = [thread for task, thread in threads.items() if task != str(pid)]
        check(others and all(int(thread["CapEff"][0], 16) == 0 for thread in others), f"{others}")
        control = next(thread for thread in others if thread["Name"] == ["fordway-control"])
        check(int(control["Seccomp_filters"][0]) > int(main["Seccomp_filters"][0]) > 0, "the daemon's own filter is missing")

    def preferred(self):
        """Threads of queues have the nice value -10, and no other thread has."""
        said = self.guest.says(f"ps -L -o comm=,ni= -p {self.pid()}").splitlines()
        nice = {name: int(value) for name, value in (line.rsplit(maxsplit=1) for line in said)}
        queues = [name for name in nice if re.fullmatch(r"nat64-[0-9]+", name)]
        check(queues and {name for name, value in nice.items() if value == -10} == set(queues), f"{nice}")

    def sandbox(self):
        """Of kernel settings only those of the network can be written, of devices TUN, of the BPF file system the own pins."""
        inside = f"nsenter --target {self.pid()} --mount setpriv --reuid fordway --regid fordway --clear-groups "
        for path in ("/etc/fordway", "/usr", "/proc/sys/kernel", "/sys/fs/bpf", "/sys/fs/cgroup", "/var/lib", "/home"):
            check(not self.guest.holds(f"{inside} sh -c 'test -w {path}'"), f"{path} can be written")
        mounts = self.guest.says(f"cat /proc/{self.pid()}/mountinfo")
        writable = {line.split()[4] for line in mounts.splitlines() if line.split()[5].startswith("rw")}
        check({"/proc/sys/net", "/sys/fs/bpf/fordway", "/run/fordway", "/var/lib/fordway", "/var/log/fordway"} <= writable, f"{writable}")
        for path in ("/", "/etc", "/proc/sys", "/sys/devices", "/sys/kernel", "/sys/kernel/security", "/sys/module"):
            check(not self.guest.holds(f"nsenter --target {self.pid()} --mount test -w {path}"), f"root could write {path}")
        devices = self.guest.says(f"{inside} ls /dev /dev/net").split()
        check("tun" in devices and "vda" not in devices, f"{devices}")
        pins = self.guest.says("ls -A /sys/fs/bpf/fordway/*/nat64").split()
        check("nat64_meta" in pins, f"{pins}")

    def files(self):
        """Sockets, folders and logs have the owner and mode that they should."""
        self.guest.run("adduser --quiet --system --ingroup fordway --no-create-home reader 2>/dev/null || useradd --system --gid fordway reader")
        expected = {
            "/run/fordway": "fordway:fordway 755", "/run/fordway/control.sock": "fordway:fordway 600",
            "/run/fordway/net": "fordway:fordway 700", "/var/lib/fordway": "fordway:fordway 755",
            "/var/log/fordway": "fordway:fordway 2750", "/var/log/fordway/nat64.json": "fordway:fordway 640",
            "/sys/fs/bpf/fordway": "fordway:fordway 700",
        }
        for path, what in expected.items():
            found = self.guest.says(f"stat --format='%U:%G %a' {path}")
            check(found == what, f"{path}: {found}, not {what}")
        check(self.guest.holds("setpriv --reuid reader --regid fordway --clear-groups head -c 1 /var/log/fordway/nat64.json"),
              "a member of the group can't read the log")
        check(not self.guest.holds("setpriv --reuid nobody --regid nogroup --clear-groups head -c 1 /var/log/fordway/nat64.json"),
              "everybody can read the log")

    def beside(self):
        """When the CLAT's service starts, what this daemon has given to another group stays with it; what root has left is taken over."""
        self.guest.run("chgrp adm /run/fordway/control.read.sock; touch /run/fordway/left; chmod 600 /run/fordway/left; systemctl start fordway-clat")
        for path, what in (("control.read.sock", "fordway:adm 660"), ("left", "fordway:fordway 600")):
            found = self.guest.says(f"stat --format='%U:%G %a' /run/fordway/{path}")
            check(found == what, f"{path}: {found}, not {what}")
        self.guest.run("systemctl stop fordway-clat; rm /run/fordway/left; chgrp fordway /run/fordway/control.read.sock")

    def reload(self):
        """`systemctl reload` applies another configuration while connections go on."""
        self.network.start_traffic()
        pid = self.pid()
        self.write(CONFIGURATION + '\n[[translator]]\nname = "siit0"\nmode = "siit"\nengine = "user"\npool6 = ["2001:db8:46::/96"]\n')
        self.guest.run("systemctl reload fordway")
        check(self.guest.holds("ip link show dev siit0"), "the new translator is not there")
        self.write(CONFIGURATION)
        self.guest.run("systemctl reload fordway")
        check(not self.guest.holds("ip link show dev siit0"), "the removed translator is there")
        check(self.pid() == pid, "the daemon is another one")
        self.network.go_on()

    def refused(self):
        """`systemctl reload` of a wrong file fails, says why, and changes nothing."""
        pid = self.pid()
        self.write(CONFIGURATION + "unknown = 1\n")
        said = self.guest.run("systemctl reload fordway", check=False)
        check(said.returncode != 0, "the reload succeeded")
        check("unknown" in self.log(), self.log())
        check(self.show("ActiveState") == "active" and self.pid() == pid, "the daemon has ended")
        self.write(CONFIGURATION)
        self.network.go_on()

    def restart(self):
        """`systemctl restart` loses no connection."""
        pid = self.pid()
        self.guest.run("systemctl restart fordway")
        check(self.pid() != pid, "it is the same daemon")
        check("sessions of an earlier run go on" in self.log(), self.log())
        self.network.go_on()

    def killed(self):
        """A killed daemon is started again, and no connection is lost."""
        pid = self.pid()
        self.guest.run("systemctl kill --signal=KILL fordway")
        self.started_again(pid, 60)
        self.network.go_on()

    def watchdog(self):
        """A daemon that is stopped (SIGSTOP) is killed by systemd's watchdog and started again, and no connection is lost."""
        check(self.show("WatchdogUSec") == "1min", self.show("WatchdogUSec"))
        pid = self.pid()
        self.guest.run("systemctl kill --signal=STOP fordway")
        self.started_again(pid, WATCHDOG + 120)
        check("Watchdog timeout" in self.log(), self.log())
        self.network.end_traffic()

    def journal(self):
        """The journal has severities and fields, and each line once."""
        entries = [json.loads(line) for line in self.log("--output=json").splitlines()]
        ready = [entry for entry in entries if str(entry.get("MESSAGE", "")).startswith("ready after")]
        check(ready and all(entry["PRIORITY"] == "6" for entry in ready), f"{ready}")
        check(ready[-1]["SYSLOG_IDENTIFIER"] == "fordway" and ready[-1]["TARGET"].startswith("fordway"), f"{ready[-1]}")
        boots = {(entry["_PID"], entry["MESSAGE"]) for entry in ready}
        check(len(boots) == len(ready), "lines come twice")
        errors = self.log("--output=cat --priority=err")
        check("ready after" not in errors, errors)

    def wrong(self):
        """A start with a wrong file fails at once, with the reason in the journal, and is not tried again."""
        self.guest.run("systemctl stop fordway")
        self.write("[[translator]]\nname = 'nat64'\nmode = 'nat46'\n")
        check(not self.guest.holds("systemctl start fordway"), "it has started")
        check(self.show("Result") == "exit-code" and self.show("ExecMainStatus") == "2", self.show("Result"))
        check(self.show("ActiveState") == "failed", "it is tried again")
        check("nat46" in self.log("--output=cat --priority=info"), self.log())
        self.write(CONFIGURATION)
        self.guest.run("systemctl reset-failed fordway")

    def stop(self):
        """`systemctl stop` leaves the host as it was found."""
        self.guest.run("systemctl start fordway")
        check(self.network.answers("client"), "nothing is translated")
        self.guest.run("systemctl stop fordway")
        self.as_found()

    def by_hand(self):
        """A daemon that root starts by hand works in the service's folders, and the service afterwards."""
        # The service's logs are the service's.
        self.guest.put(f"{WORK}/hand.toml", WITHOUT_LOGS)
        self.guest.run(f"systemd-run --quiet --collect --unit=fw-hand --property=Type=notify fordway run {WORK}/hand.toml")
        check(self.status()["translators"][0]["engine"] == "kernel", "it has no kernel engine")
        check(self.network.answers("client"), "nothing is translated")
        self.guest.run("systemctl stop fw-hand")
        self.as_found()
        self.guest.run("systemctl start fordway")
        check(self.status()["translators"][0]["engine"] == "kernel", "the service has no kernel engine then")
        check(self.network.answers("client"), "nothing is translated then")

    def down(self):
        """`fordway leave` and `fordway down` by root leave nothing that keeps the service from starting."""
        self.guest.run("fordway leave")
        wait_until("the service has ended", lambda: self.show("ActiveState") == "inactive", 60)
        check(self.network.answers("client"), "the kernel engine does not go on")
        self.guest.run("fordway down nat64")
        self.as_found()
        self.guest.run("systemctl start fordway")
        check(self.network.answers("client"), "nothing is translated then")

    def rotated(self):
        """logrotate moves the log away, and the daemon writes a new one."""
        self.guest.run("logrotate --force /etc/logrotate.d/fordway")
        check(self.guest.holds("test -s /var/log/fordway/nat64.json.1"), self.guest.says("ls -l /var/log/fordway"))
        log = "/var/log/fordway/nat64.json"

        def written():
            self.network.answers("client", "2001:db8:64::c633:6401")
            return self.guest.holds(f"test -s {log}")

        wait_until("a new log is written", written, 60)
        found = self.guest.says(f"stat --format='%U:%G %a' {log}")
        check(found == "fordway:fordway 640", found)

    def reboot(self):
        """After a reboot the enabled service translates."""
        self.guest.reboot()
        self.network.build()
        wait_until("the service runs", lambda: self.show("ActiveState") == "active", 120)
        check(self.network.answers("client"), "nothing is translated\n" + self.log())
        self.guest.run("systemctl disable --now fordway")
        self.as_found()

    ITEMS = (install, valid, hardened, ready, unprivileged, preferred, sandbox, files, beside, reload, refused, restart, killed, watchdog, journal, wrong,
             stop, by_hand, down, rotated, reboot)
