"""What the checklist asks of the packages: installed, upgraded, downgraded, removed and purged below systemd, under traffic.

The commands and what they say are a transcript (scripts/systemd --transcript).
"""

from gateway import NOT_OURS
from network import CONFIGURATION, FILE, Network
from service import check

# What else writes to a Debian that runs: systemd, its journal, and other services.
LEFT_OUT = (*NOT_OURS, "etc/resolv.conf", "etc/subgid-", "etc/subuid-", "root", "var/lib/NetworkManager", "var/lib/logrotate", "var/lib/private",
            "var/lib/systemd", "var/log/alternatives.log", "var/log/journal", "var/tmp")


class Lifecycle:
    """A fresh host, and the packages' life on it."""

    def __init__(self, guest, packages, transcript):
        self.guest = guest
        self.packages = packages
        self.network = Network(guest)
        self.transcript = transcript
        self.files = self.found = None

    def set_up(self):
        """The host is one on which the packages have never been."""
        self.network.purge()
        self.network.build()
        self.files, self.found = self.list(), self.network.snapshot()

    def show(self, command, check=True):
        """Runs a command for the transcript."""
        done = self.guest.run(command, check=False, timeout=600)
        self.transcript(f"# {command}\n{done.stdout}{done.stderr}")
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def note(self, words):
        self.transcript(f"\n## {words}\n")

    def list(self):
        """Each file of the disk with kind, mode, owner and size; configuration with its content, too."""
        pruned = "-xdev \\( " + " -o ".join(f"-path /{path}" for path in LEFT_OUT) + " \\) -prune -o"
        said = self.guest.says(f"find / {pruned} \\( -type d -printf '%p %y %m %u %g\\n' \\) -o -printf '%p %y %m %u %g %s %l\\n'; "
                               f"find /etc {pruned} -type f -exec sha256sum {{}} +")
        return set(said.splitlines())

    def pid(self):
        return int(self.guest.says("systemctl show --value --property=MainPID fordway"))

    def is_own_program(self):
        """Whether the daemon runs the program that is installed."""
        return self.guest.says(f"stat -L --format=%i /proc/{self.pid()}/exe /usr/bin/fordway | uniq | wc -l") == "1"

    def as_found(self):
        other = set(self.network.snapshot().splitlines()) ^ set(self.found.splitlines())
        check(not other, "the network is not as it was found: " + "; ".join(sorted(other)))

    # Items, in this order

    def install(self):
        """Installed and enabled, the gateway translates."""
        self.note("A fresh host: install, configure, enable")
        self.show(f"dpkg --install {self.packages.earlier}")
        self.guest.put(FILE, CONFIGURATION)
        self.show(f"cat {FILE}")
        self.show(f"fordway check -c {FILE}")
        self.show("systemctl enable --now fordway")
        self.show("systemctl --no-pager --lines=0 status fordway")
        self.show("fordway status")
        self.note("Traffic: connections and pings cross the gateway from here on")
        self.network.start_traffic()
        self.show("fordway sessions --count", check=False)

    def upgrade(self):
        """An upgrade restarts the daemon, and no session ends."""
        self.note("Upgrade")
        pid = self.pid()
        said = self.show("dpkg --install --force-confold " + self.packages.later)
        check("sessions: taken over" in said, said)
        check(self.pid() != pid and self.is_own_program(), "the earlier daemon goes on")
        check(self.guest.says(f"cat {FILE}") == CONFIGURATION.rstrip("\n"), "the configuration is another")
        self.network.go_on()
        self.show("fordway sessions --count", check=False)

    def downgrade(self):
        """A downgrade restarts the daemon, and no session ends."""
        self.note("Downgrade")
        pid = self.pid()
        said = self.show(f"dpkg --install --force-confold {self.packages.earlier}")
        check("sessions: taken over" in said, said)
        check(self.pid() != pid and self.is_own_program(), "the later daemon goes on")
        self.network.end_traffic()
        self.note("Of all that, no connection has failed, and each ping was answered")

    def remove(self):
        """A removal leaves the network as it was found, and the configuration."""
        self.note("Remove")
        self.show("dpkg --remove fordway")
        self.as_found()
        check(not self.guest.holds("systemctl --quiet is-active fordway"), "the service runs")
        check(self.guest.says(f"cat {FILE}") == CONFIGURATION.rstrip("\n"), "the configuration is another")
        self.show("ls /etc/fordway /var/log/fordway")

    def purge(self):
        """A purge leaves nothing: no file, user, unit or host change."""
        self.note("Purge")
        self.show("dpkg --purge fordway")
        self.guest.run("systemctl daemon-reload")
        other = sorted(self.files ^ self.list())
        check(not other, "not as before: " + "; ".join(other))
        self.as_found()
        check(not self.guest.holds("test -e /sys/fs/bpf/fordway || test -e /run/fordway"), "folders are left")
        self.show("find / -xdev -iname '*fordway*' -not -path '*/job/*' -not -path '/run/fwtest/*'; getent passwd fordway; getent group fordway; true")
        self.note("Files, users, units, addresses, routes, rules, nftables and settings are as before the installation")

    ITEMS = (install, upgrade, downgrade, remove, purge)
