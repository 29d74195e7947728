# Fordway. `make help` lists the targets.

PREFIX   ?= /usr/local
DESTDIR  ?=
CARGO    ?= cargo
# Four fifths of a program are debugging information, which is not installed; names of functions are. STRIP=: leaves it.
STRIP    ?= strip --strip-debug
# What packages, tarball and image are built with. PROFILE=release takes half the time, for programs that are a little slower.
PROFILE  ?= dist
# Seconds per fuzz target.
FUZZ_TIME ?= 60

# What building, tests and the lab's measurements need from Debian.
BUILD_NEEDS    := clang-19 gcc libc6-dev libelf-dev linux-libc-dev make pkg-config zlib1g-dev
LAB_NEEDS      := $(BUILD_NEEDS) apache2-bin apache2-utils bind9 conntrack curl dnsperf ethtool hey iperf3 iproute2 iputils-ping nftables nghttp2-client nginx-light procps squid tayga \
                  tcpdump unbound util-linux vsftpd wrk
TEST_NEEDS     := $(LAB_NEEDS) bind9-dnsutils bird2 chromium conntrackd dnsmasq-base frr kea-dhcp6-server keepalived knot-dnsutils lftp nats-server ndisc6 openssh-client \
                  openssh-server openssl python3 radvd snmp snmpd traceroute tshark bpftool containernetworking-plugins podman python3-jsonschema python3-yaml runc
# What the lab's runs with a standby need beside the others.
BENCH_NEEDS    := $(LAB_NEEDS) keepalived nats-server openssl
# What makes packages and an image of the built programs, and what tests them.
PACKAGE_NEEDS  := buildah debhelper dpkg-dev lintian xz-utils
PACKAGE_TEST_NEEDS := $(PACKAGE_NEEDS) iproute2 iputils-ping mmdebstrap nftables podman procps python3 runc systemd util-linux
SYSTEMD_NEEDS  := $(PACKAGE_NEEDS) e2fsprogs mmdebstrap python3 qemu-system-x86 util-linux

# Tests of crates/testkit that need nothing but the core.
CORE_TESTS := all vectors

BUILD   := build --release --package fordway --package fordway-lab --package fordway-cni
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
# The programs that are installed or packed; without libraries of the system for the tarball and the image.
PROGRAMS = $(or $(CARGO_TARGET_DIR),target)/$(PROFILE)
STATIC_PROFILE ?= release
STATIC_TARGET  := $(shell uname -m)-unknown-linux-gnu
STATIC_PROGRAMS = $(or $(CARGO_TARGET_DIR),target)/$(STATIC_TARGET)/$(STATIC_PROFILE)
PACKAGE = STRIP="$(STRIP)" scripts/package $(VERSION:%=--version %)
BINDIR  := $(DESTDIR)$(PREFIX)/bin
MANDIR  := $(DESTDIR)$(PREFIX)/share/man/man1
UNITDIR := $(DESTDIR)$(PREFIX)/lib/systemd/system
BASHDIR := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHDIR  := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISHDIR := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
LIBDIR  := $(DESTDIR)$(PREFIX)/lib
DOCDIR  := $(DESTDIR)$(PREFIX)/share/doc/fordway
# What runs when a network comes: of networkd-dispatcher and NetworkManager, which look below /usr/lib only.
HOOKS   := $(LIBDIR)/networkd-dispatcher/routable.d/50-fordway-clat $(LIBDIR)/networkd-dispatcher/degraded.d/50-fordway-clat
NMHOOK  := $(LIBDIR)/NetworkManager/dispatcher.d/50-fordway-clat

.PHONY: help demo kernels test quick affected steady soak dist bench lint fmt coverage mutants faults fuzz release static packages debs tarball image
.PHONY: packages-test systemd systemd-needs install install-files uninstall clean rust test-needs lab-needs build-needs package-needs package-test-needs

# This list.
help:
	@awk '/^# / { text = text substr($$0, 2); next } /^$$/ { text = "" } /^[a-z][a-z-]*:/ && text { \
		sub(/:.*/, "", $$1); sub(/^ /, "", text); sub(/[.] .*/, ".", text); printf "%-14s %s\n", $$1, text; text = "" }' Makefile

# Builds, measures for some minutes what translation costs, and says where the report is.
demo: rust
	@scripts/demo $(RELEASE) $(CARGO) $(subst --package fordway-cni,,$(BUILD)) -- $(LAB_NEEDS)

# Everything that can be tested, each test in a process of its own, ending with the slowest and the sum of all results.
test: test-needs rust
	scripts/test

# The pure crates: no clang, no libbpf, no root. Under a minute after a small change.
quick: rust
	scripts/test --quick

# Crates that a change since BASE can break (default: since this branch left main; on main, what is not committed).
affected: test-needs rust
	scripts/test --affected $(BASE:%=--base %)

# Do tests give the same answer every time? Beside two busy loops: tests that once depended on chance COUNT times each, then the
# whole suite SUITES times. It says beforehand how long that takes.
COUNT  ?= 200
SUITES ?= 5
steady: test-needs rust
	scripts/steady $(COUNT) $(SUITES)

# Do the kernels that Debian offers take the kernel engine? Each in an emulated guest, about a quarter of an hour. Ends with a table.
kernels: test-needs rust
	scripts/kernels

# Real sizes: traffic for minutes, the lab's runs as people run them, agreement with fresh seeds. It says beforehand how long it takes.
soak: test-needs release
	scripts/soak.d/all $(RELEASE)

# The ratios that the design promises, measured side by side: of the translators in one run, of the other mechanisms in a second, of a
# gateway with a standby in a third.
bench: rust release
	@scripts/needs $(BENCH_NEEDS)
	$(RELEASE)/fordway-lab run goals --fordway $(RELEASE)/fordway
	$(RELEASE)/fordway-lab run mechanisms-goals --fordway $(RELEASE)/fordway
	$(RELEASE)/fordway-lab run replication --pin client=1,mechanism=0,server=1 --fordway $(RELEASE)/fordway

# Formatting, and clippy without a warning. Also the gateway without each of its features, and without all of them; tests of what it then refuses.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	for features in "" dstm,nat44,cluster nat-pt,nat44,cluster nat-pt,dstm,cluster nat-pt,dstm,nat44; do \
		$(CARGO) clippy --package fordway --no-default-features --features "$$features" -- -D warnings || exit 1; \
	done
	scripts/test --package fordway-dns64 --package fordway-config special:: feature::

# Formats the sources.
fmt:
	$(CARGO) fmt --all

# Which lines and branches of the core its own tests reach: vectors, sequences, properties, corpora, the model.
# Needs cargo-llvm-cov (cargo install cargo-llvm-cov), which fetches what it needs of LLVM with rustup.
coverage: rust
	@command -v cargo-llvm-cov >/dev/null || { echo "cargo-llvm-cov is missing. Install it with: cargo install cargo-llvm-cov" >&2; exit 1; }
	RUSTC_BOOTSTRAP=1 $(CARGO) llvm-cov --branch --no-cfg-coverage-nightly --summary-only --ignore-filename-regex 'crates/testkit/|/tests' \
		--package fordway-wire --package fordway-xlat --package fordway-testkit --lib $(CORE_TESTS:%=--test %)

# Does a test fail for each small change of the core? Hours; a sample of 300 in two or three hours is
# `make mutants MUTANTS="--jobs 2 --sharding round-robin --shard 5/14"`, one file
# `MUTANTS="--file crates/wire/src/ipv6.rs"` one file. .cargo/mutants.toml says what can't be told apart, and why.
# Needs cargo-mutants (cargo install cargo-mutants).
mutants: rust
	@command -v cargo-mutants >/dev/null || { echo "cargo-mutants is missing. Install it with: cargo install cargo-mutants" >&2; exit 1; }
	$(CARGO) mutants --package fordway-wire --package fordway-xlat --package fordway-dns64 --output target $(MUTANTS)

# Does a test of the kernel programs fail for each of the faults of crates/bpf/faults.toml? Less than an hour.
faults: test-needs rust
	scripts/faults $(FAULTS)

# Each fuzz target for FUZZ_TIME seconds, from the committed corpus; what is found goes to
# fuzz/target/found. Needs cargo-fuzz (cargo install cargo-fuzz).
fuzz:
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing. Install it with: cargo install cargo-fuzz" >&2; exit 1; }
	cd fuzz && for target in $$(RUSTC_BOOTSTRAP=1 $(CARGO) fuzz list); do \
		mkdir -p target/found/$$target; \
		RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --sanitizer none $$target target/found/$$target corpus/$$target \
			-- -max_total_time=$(FUZZ_TIME) -print_final_stats=1 || exit 1; \
	done

# The programs as people build them: optimised crate by crate.
release: build-needs rust
	$(CARGO) $(BUILD)

# What is installed: optimised across crates as well, which takes several times as long to build.
dist: build-needs rust
	$(CARGO) $(BUILD:--release=--profile dist)

# Programs without libraries of the system, for lab hosts that have older ones (docs/lab-hosts.md).
static: build-needs rust
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) $(BUILD:--release=--profile $(STATIC_PROFILE)) --target $(STATIC_TARGET)

# Debian packages, a tarball of static programs and a container image, below target/packages (docs/install.md).
packages: debs tarball image

packages tarball image: STATIC_PROFILE = $(PROFILE)

# The Debian packages alone, which lintian then checks.
debs: package-needs $(PROFILE)
	$(PACKAGE) --programs $(PROGRAMS) deb

# The tarball of static programs alone.
tarball: package-needs static
	$(PACKAGE) --programs $(STATIC_PROGRAMS) tarball

# The container image alone: the static gateway and CNI plugin and nothing else.
image: package-needs static
	$(PACKAGE) --programs $(STATIC_PROGRAMS) image

# Installs, upgrades, downgrades, removes and purges the packages under traffic, in namespaces. Needs root.
packages-test: package-test-needs packages
	scripts/package-test

# The packages below a booted systemd, in an emulated guest: units, watchdog, reboot, network managers, option 108, installation to
# purge. Packs the programs that were built last. Ten minutes; SUITE=trixie: on Debian 13.
systemd: systemd-needs
	scripts/systemd $(SUITE:%=--suite %)

rust:
	@command -v $(CARGO) >/dev/null || { \
		echo "Rust is missing: $(CARGO) is not on PATH. Install it from https://rustup.rs, for the user who runs make." >&2; \
		exit 1; }

test-needs:
	@scripts/needs $(TEST_NEEDS)

lab-needs:
	@scripts/needs $(LAB_NEEDS)

build-needs:
	@scripts/needs $(BUILD_NEEDS)

package-needs:
	@scripts/needs $(PACKAGE_NEEDS)

package-test-needs:
	@scripts/needs $(PACKAGE_TEST_NEEDS)

systemd-needs:
	@scripts/needs $(SYSTEMD_NEEDS)

# Builds and installs below PREFIX. Makes the user that the services run as. The configuration of an earlier installation stays.
install: $(PROFILE)
	@$(MAKE) --no-print-directory install-files
	@if [ -z "$(DESTDIR)" ] && command -v systemd-sysusers >/dev/null; then \
		systemd-sysusers $(LIBDIR)/sysusers.d/fordway.conf && systemd-tmpfiles --create $(LIBDIR)/tmpfiles.d/fordway.conf; \
	fi

# Installs the programs of the folder PROGRAMS, and all that belongs to them, below DESTDIR and PREFIX.
install-files:
	install -d $(BINDIR) $(MANDIR) $(UNITDIR) $(DESTDIR)/etc/fordway
	install -m 755 $(PROGRAMS)/fordway $(PROGRAMS)/fordway-lab $(BINDIR)
	$(STRIP) $(BINDIR)/fordway $(BINDIR)/fordway-lab
	install -D -m 755 $(PROGRAMS)/fordway-cni $(LIBDIR)/cni/fordway-cni
	$(STRIP) $(LIBDIR)/cni/fordway-cni
	install -d $(BASHDIR) $(ZSHDIR) $(FISHDIR)
	for program in fordway fordway-lab; do \
		$(PROGRAMS)/$$program man $(MANDIR) && \
		$(PROGRAMS)/$$program completions bash > $(BASHDIR)/$$program && \
		$(PROGRAMS)/$$program completions zsh > $(ZSHDIR)/_$$program && \
		$(PROGRAMS)/$$program completions fish > $(FISHDIR)/$$program.fish || exit 1; \
	done
	for unit in fordway fordway-clat; do \
		sed 's|@BINDIR@|$(PREFIX)/bin|' packaging/$$unit.service > $(UNITDIR)/$$unit.service && \
		chmod 644 $(UNITDIR)/$$unit.service || exit 1; \
	done
	install -D -m 644 -t $(LIBDIR)/systemd/network packaging/networkd/90-fordway-clat.network
	install -D -m 644 -t $(LIBDIR)/NetworkManager/conf.d packaging/NetworkManager/conf.d/50-fordway-clat.conf
	for hook in $(HOOKS); do install -D -m 755 packaging/networkd/fordway-clat $$hook || exit 1; done
	install -D -m 755 packaging/NetworkManager/dispatcher.d/50-fordway-clat $(NMHOOK)
	install -D -m 644 packaging/sysusers.d/fordway.conf $(LIBDIR)/sysusers.d/fordway.conf
	install -D -m 644 packaging/tmpfiles.d/fordway.conf $(LIBDIR)/tmpfiles.d/fordway.conf
	install -D -m 644 -t $(DOCDIR) README.md SECURITY.md
	install -D -m 644 -t $(DOCDIR)/docs docs/*.md
	install -D -m 644 -t $(DOCDIR)/examples examples/*.toml packaging/examples/*.toml packaging/prometheus/fordway.rules.yml packaging/grafana/fordway.json
	install -D -m 755 -t $(DOCDIR)/examples examples/ipv6-only-test
	install -D -m 644 packaging/networkd/ipv6-only-preferred.conf $(DOCDIR)/examples/networkd-ipv6-only-preferred.conf
	install -D -m 644 packaging/NetworkManager/ipv6-only-preferred.conf $(DOCDIR)/examples/NetworkManager-ipv6-only-preferred.conf
	test -e $(DESTDIR)/etc/fordway/fordway.toml || install -m 644 packaging/fordway.toml $(DESTDIR)/etc/fordway/fordway.toml

# Removes what `make install` has installed. Configuration, state and logs stay, and the user fordway, who owns some of them.
uninstall:
	rm -f $(BINDIR)/fordway $(BINDIR)/fordway-lab $(MANDIR)/fordway.1 $(MANDIR)/fordway-*.1 $(UNITDIR)/fordway.service $(UNITDIR)/fordway-clat.service
	rm -f $(LIBDIR)/systemd/network/90-fordway-clat.network $(LIBDIR)/NetworkManager/conf.d/50-fordway-clat.conf
	rm -f $(LIBDIR)/cni/fordway-cni $(HOOKS) $(NMHOOK) $(LIBDIR)/sysusers.d/fordway.conf $(LIBDIR)/tmpfiles.d/fordway.conf
	rm -rf $(DOCDIR)
	rm -f $(BASHDIR)/fordway $(BASHDIR)/fordway-lab $(ZSHDIR)/_fordway $(ZSHDIR)/_fordway-lab
	rm -f $(FISHDIR)/fordway.fish $(FISHDIR)/fordway-lab.fish

# Removes what was built.
clean:
	$(CARGO) clean
