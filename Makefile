# Fordway. Targets: demo test bench lint fmt fuzz install uninstall clean

PREFIX   ?= /usr/local
DESTDIR  ?=
CARGO    ?= cargo
# Seconds per fuzz target.
FUZZ_TIME ?= 60

# What building, tests and the lab's measurements need from Debian.
BUILD_PACKAGES := clang-19 gcc libc6-dev libelf-dev linux-libc-dev make pkg-config zlib1g-dev
TEST_PACKAGES  := $(BUILD_PACKAGES) ethtool iperf3 iproute2 iputils-ping nftables procps tayga traceroute util-linux

RELEASE := target/release
BINDIR  := $(DESTDIR)$(PREFIX)/bin
MANDIR  := $(DESTDIR)$(PREFIX)/share/man/man1
UNITDIR := $(DESTDIR)$(PREFIX)/lib/systemd/system

.PHONY: demo test bench lint fmt fuzz install uninstall clean release packages

# What does translation cost? Builds, measures for some minutes, says where the report is.
demo: packages release
	$(RELEASE)/fordway-lab run clat-vs-dual-stack --profile quick --fordway $(RELEASE)/fordway

# Everything that can be tested, ending with the sum of all results.
test: packages
	scripts/test

# The ratios that the design promises, measured side by side in one run.
bench: packages release
	$(RELEASE)/fordway-lab run goals --fordway $(RELEASE)/fordway

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

fmt:
	$(CARGO) fmt --all

# Each fuzz target for FUZZ_TIME seconds, from the committed corpus; what is found goes to
# fuzz/target/found. Needs cargo-fuzz (cargo install cargo-fuzz).
fuzz:
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing. Install it with: cargo install cargo-fuzz" >&2; exit 1; }
	cd fuzz && for target in $$(RUSTC_BOOTSTRAP=1 $(CARGO) fuzz list); do \
		mkdir -p target/found/$$target; \
		RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --sanitizer none $$target target/found/$$target corpus/$$target \
			-- -max_total_time=$(FUZZ_TIME) -print_final_stats=1 || exit 1; \
	done

release:
	$(CARGO) build --release --package fordway --package fordway-lab

packages:
	@scripts/packages $(TEST_PACKAGES)

install: release
	install -d $(BINDIR) $(MANDIR) $(UNITDIR) $(DESTDIR)/etc/fordway
	install -m 755 $(RELEASE)/fordway $(RELEASE)/fordway-lab $(BINDIR)
	$(RELEASE)/fordway man $(MANDIR)
	$(RELEASE)/fordway-lab man $(MANDIR)
	for program in fordway fordway-lab; do \
		install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
			$(DESTDIR)$(PREFIX)/share/zsh/site-functions \
			$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d; \
		$(RELEASE)/$$program completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$program; \
		$(RELEASE)/$$program completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$program; \
		$(RELEASE)/$$program completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$program.fish; \
	done
	sed 's|@BINDIR@|$(PREFIX)/bin|' packaging/fordway.service > $(UNITDIR)/fordway.service
	chmod 644 $(UNITDIR)/fordway.service
	test -e $(DESTDIR)/etc/fordway/fordway.toml || install -m 644 packaging/fordway.toml $(DESTDIR)/etc/fordway/fordway.toml

uninstall:
	rm -f $(BINDIR)/fordway $(BINDIR)/fordway-lab $(MANDIR)/fordway*.1 $(UNITDIR)/fordway.service
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fordway $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fordway-lab
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_fordway $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_fordway-lab
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fordway.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fordway-lab.fish

clean:
	$(CARGO) clean
