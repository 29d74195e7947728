"""What the checklist asks of fordway-clat.service: a host of an IPv6-only network, below systemd-networkd with
systemd-resolved, dhcpcd and NetworkManager."""

import json
import re

from gateway import SERVER4, SERVER6
from network import LINK, NAME, NETWORK_FILE, ROUTER_COMMAND, WORK, Network
from service import check
from topology import wait_until

UNIT = "fordway-clat.service"
FORDWAY = "fordway --socket /run/fordway/clat.sock"
NETWORK = """[Match]
Name=up0

[Network]
DHCP={dhcp}
IPv6AcceptRA=yes
LinkLocalAddressing=ipv6
"""
EXAMPLES = "/usr/share/doc/fordway/examples"
# Seconds within which the CLAT follows its network here.
FOLLOWS = 60
# The first versions that ask for option 108.
NETWORKD_108, NETWORKMANAGER_108 = 255, (1, 52)


class Clat:
    """The CLAT's unit, and who manages the host's network."""

    def __init__(self, guest, packages):
        self.guest = guest
        self.packages = packages
        self.network = Network(guest)

    def set_up(self):
        """The package is installed, and the host has the cable of an IPv6-only network, whatever parts came before."""
        self.guest.run(f"dpkg-query --show fordway >/dev/null 2>&1 || dpkg --install {self.packages.debs['fordway']}")
        self.network.build_router()
        self.guest.run("ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf; systemctl enable --now systemd-resolved")

    def status(self):
        """Of the CLAT; empty while the daemon does not answer."""
        said = self.guest.run(f"{FORDWAY} status --json", check=False)
        return json.loads(said.stdout)["automatic"][0] if said.returncode == 0 else {}

    def state(self):
        """`active`, `aside` or `waiting`."""
        return self.status().get("state")

    def until(self, state):
        wait_until(f"the CLAT is {state}; its log:\n{self.log()}", lambda: self.state() == state, FOLLOWS)

    def log(self):
        return self.guest.says(f"journalctl --boot --no-pager --unit={UNIT} -o cat --lines=20")

    def pings(self):
        """An IPv4 address answers, by way of the CLAT or natively."""
        wait_until("an IPv4 address answers\n" + self.guest.says("ip route; ip -6 route; ip addr show dev up0"),
                   lambda: self.network.answers(address=SERVER4, seconds=2), FOLLOWS)

    def native(self):
        """The host's own IPv4 addresses at its device."""
        return re.findall(r"inet (198\.18\.0\.\d+)", self.guest.says("ip -4 addr show dev up0"))

    def unplug(self):
        self.guest.run("ip link del up0")

    def is_active(self):
        return self.guest.holds(f"systemctl --quiet is-active {UNIT}")

    def networkd(self, dhcp="no"):
        """Has systemd-networkd manage the device."""
        self.guest.put(NETWORK_FILE, NETWORK.format(dhcp=dhcp))
        self.guest.run("networkctl reload && networkctl reconfigure up0")

    def version(self, command):
        return tuple(map(int, re.search(r"(\d+)(?:\.(\d+))?", self.guest.says(command)).groups(default="0")))


class Networkd(Clat):
    """Below systemd-networkd, with systemd-resolved."""

    def set_up(self):
        super().set_up()
        self.unplug()
        self.guest.put(NETWORK_FILE, NETWORK.format(dhcp="no"))
        self.guest.run("systemctl start systemd-networkd networkd-dispatcher")

    def waits(self):
        """The service is there before a network is, and waits for one."""
        self.guest.run("systemctl enable --now fordway-clat")
        check(self.state() == "waiting", self.state())
        check(self.is_active(), "the service has ended")

    def follows(self):
        """A network of systemd-networkd brings the host IPv4."""
        self.network.link()
        self.until("active")
        self.pings()
        check(not self.native(), "the host has an IPv4 address of its own")

    def managed(self):
        """systemd-networkd leaves the CLAT's interface alone, and nothing waits for it."""
        said = self.guest.says("networkctl --no-legend list clat0").split()
        check(said[-1] == "unmanaged", " ".join(said))
        self.guest.run("/lib/systemd/systemd-networkd-wait-online --timeout=60")

    def names(self):
        """systemd-resolved asks the network's DNS64 server, and programs reach the name by IPv6."""
        said = self.guest.says(f"resolvectl query --type=AAAA {NAME}")
        check(SERVER6 in said, said)
        check(self.network.answers(address=NAME), "the name does not answer")

    def comes_and_goes(self):
        """The CLAT follows a link which goes and comes, and which is replaced by another."""
        for away, back in (("ip -n net link set n0 down", "ip -n net link set n0 up"), ("ip link del up0", "set -e" + LINK)):
            self.guest.run(away)
            self.until("waiting")
            check(not self.guest.holds("ip route | grep clat0"), "the host has a way for IPv4 still")
            self.guest.run(back)
            self.until("active")
            self.pings()

    def keeps(self):
        """Rules and routes of the CLAT outlive a restart of systemd-networkd, which removes those of others."""
        rules = self.guest.says("ip -6 rule; ip -4 rule")
        self.guest.run("systemctl restart systemd-networkd")
        wait_until("the rules are there again", lambda: self.guest.says("ip -6 rule; ip -4 rule") == rules, FOLLOWS)
        self.pings()

    def by_names(self):
        """Without a prefix in advertisements, the CLAT finds it by systemd-resolved."""
        self.guest.run(f"echo 'pref64 = []' >>{WORK}/router.toml && {ROUTER_COMMAND} reload")
        self.guest.run("systemctl restart fordway-clat")

        def found():
            status = self.status()
            return status.get("state") == "active" and [one["source"] for one in status["prefixes"]] == ["dns"]

        wait_until("the prefix comes from the DNS", found, FOLLOWS)
        self.pings()
        self.guest.run(f"sed -i '/^pref64 = /d' {WORK}/router.toml && {ROUTER_COMMAND} reload")

    def hook(self):
        """The hook of networkd-dispatcher starts the service if it does not run when a network comes."""
        self.guest.run("systemctl stop fordway-clat; ip -n net link set n0 down")
        wait_until("the link is down", lambda: "no-carrier" in self.guest.says("networkctl --no-legend list up0"), FOLLOWS)
        self.guest.run("ip -n net link set n0 up")
        wait_until("the hook has started the service", self.is_active, FOLLOWS)
        self.until("active")

    def aside(self):
        """With an IPv4 address by DHCP, the CLAT steps aside, and comes back when that is gone."""
        self.network.dhcp()
        self.networkd(dhcp="ipv4")
        self.until("aside")
        check(self.native() and not self.guest.holds("ip link show dev clat0"), "the CLAT's interface is there")
        self.pings()
        self.networkd()
        self.until("active")
        self.pings()

    def option_108(self):
        """Where the network prefers IPv6-only (option 108), systemd-networkd with the shipped drop-in takes no IPv4 address."""
        self.network.dhcp("--dhcp-option=108,0:0:7:8")
        folder = f"{NETWORK_FILE}.d"
        self.guest.run(f"mkdir -p {folder} && cp {EXAMPLES}/networkd-ipv6-only-preferred.conf {folder}/ipv6-only-preferred.conf")
        self.networkd(dhcp="ipv4")
        asks = self.version("networkctl --version") >= (NETWORKD_108,)
        wait_until("the DHCP server is asked", lambda: self.network.has_said("fw-dhcp", "DHCPOFFER"), FOLLOWS)
        if asks:
            self.until("active")
            check(not self.native(), f"the host has taken {self.native()}")
        else:
            # Nothing breaks: the key is passed over, and the network's IPv4 is used.
            self.until("aside")
        self.pings()
        self.guest.run(f"rm -r {folder}")
        self.networkd()
        self.until("active")
        return "" if asks else "this systemd-networkd is too old for it: it takes IPv4, and the CLAT steps aside"

    def dhcpcd(self):
        """Where the network prefers IPv6-only (option 108), dhcpcd takes no IPv4 address."""
        self.network.dhcp("--dhcp-option=108,0:0:7:8")
        self.guest.put(f"{WORK}/dhcpcd.conf", "ipv4only\nnohook resolv.conf, hostname\noption ipv6_only_preferred\n")
        self.guest.run("systemd-run --quiet --collect --unit=fw-dhcpcd dhcpcd --nobackground --config "
                       f"{WORK}/dhcpcd.conf up0")
        wait_until("dhcpcd hears of it", lambda: self.network.has_said("fw-dhcpcd", "IPv6-Only Preferred"), FOLLOWS)
        check(self.state() == "active" and not self.native(), f"{self.state()}, {self.native()}")
        self.pings()
        self.guest.run("systemctl stop fw-dhcpcd fw-dhcp")

    ITEMS = (waits, follows, managed, names, comes_and_goes, keeps, by_names, hook, aside, option_108, dhcpcd)


class NetworkManager(Clat):
    """Below NetworkManager."""

    def set_up(self):
        super().set_up()
        self.guest.run("rm -f /etc/NetworkManager/conf.d/60-* /etc/NetworkManager/system-connections/*; "
                       "systemctl --quiet enable NetworkManager-dispatcher; systemctl start NetworkManager")
        wait_until("NetworkManager runs", lambda: self.guest.holds("nmcli general status"), FOLLOWS)
        self.guest.run("nmcli device set up0 managed yes; nmcli connection add type ethernet ifname up0 con-name up autoconnect no "
                       "ipv4.method disabled ipv6.method auto ipv6.addr-gen-mode eui64")

    def follows(self):
        """A network of NetworkManager brings the host IPv4, and NetworkManager leaves the CLAT's interface alone."""
        self.guest.run("systemctl start fordway-clat; nmcli connection up up")
        self.until("active")
        self.pings()
        said = self.guest.says("nmcli --terse --fields DEVICE,STATE device | grep ^clat0")
        check(said == "clat0:unmanaged", said)

    def keeps(self):
        """The CLAT outlives a restart of NetworkManager."""
        self.guest.run("systemctl restart NetworkManager")
        wait_until("NetworkManager runs", lambda: self.guest.holds("nmcli general status"), FOLLOWS)
        self.until("active")
        self.pings()

    def hook(self):
        """The hook of NetworkManager starts the service if it does not run when a network comes."""
        self.guest.run("systemctl stop fordway-clat; nmcli connection down up; nmcli connection up up")
        wait_until("the hook has started the service", self.is_active, FOLLOWS)
        self.until("active")
        self.pings()

    def option_108(self):
        """Where the network prefers IPv6-only (option 108), NetworkManager with the shipped file takes no IPv4 address."""
        self.network.dhcp("--dhcp-option=108,0:0:7:8")
        self.guest.run(f"cp {EXAMPLES}/NetworkManager-ipv6-only-preferred.conf /etc/NetworkManager/conf.d/60-ipv6-only-preferred.conf && "
                       "systemctl reload NetworkManager && nmcli connection modify up ipv4.method auto ipv4.may-fail yes && nmcli connection up up")
        asks = self.version("nmcli --version") >= NETWORKMANAGER_108
        wait_until("the DHCP server is asked", lambda: self.network.has_said("fw-dhcp", "DHCPOFFER"), FOLLOWS)
        self.until("active" if asks else "aside")
        check(bool(self.native()) != asks, f"the host has taken {self.native()}")
        self.pings()
        return "" if asks else "this NetworkManager is too old for it: it takes IPv4, and the CLAT steps aside"

    ITEMS = (follows, keeps, hook, option_108)
