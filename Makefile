# What people type. Every target does its own set-up on a Debian 12 machine with a Rust
# toolchain: as root it installs missing packages, else it says which ones.

CARGO ?= cargo
CLEW = target/x86_64-unknown-linux-musl/release/clew

.PHONY: help setup build demo lint test test-all bench install deb dist clean

help:
	@echo "make build      the clew command, in $(CLEW)"
	@echo "make demo       clew at work: a rare crash found, replayed, traced back to its cause"
	@echo "make test       format, lints, unit tests, guests and real programs"
	@echo "make test-all   the same and the long ones"
	@echo "make install    into PREFIX (/usr/local), below DESTDIR: the command, manuals, completions"
	@echo "make deb        a Debian package, in target/package"
	@echo "make dist       a tarball of the static command with its checksum, in target/package"
	@echo "make bench      the speed table (README.md, docs/bench.md)"

setup:
	@tools/setup.sh build test bench

build:
	@tools/setup.sh build
	$(CARGO) build --release --package clew

demo: build
	@tools/setup.sh demo
	@tools/demo.sh $(CLEW)

lint:
	$(CARGO) fmt --all --check
	cd crates/weave/preload && $(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets --release -- -D warnings
	tools/check-page.sh

# A single test: cargo test --release --test guests -- signals/basic (tests/README.md)
test:
	@tools/setup.sh build test
	$(MAKE) lint
	tools/test.sh

test-all:
	@tools/setup.sh build test test-all
	$(MAKE) lint
	tools/test.sh --all

bench:
	@tools/setup.sh build test bench
	$(CARGO) build --release --package clew --package clew-bench
	target/x86_64-unknown-linux-musl/release/clew-bench $(BENCH)

PREFIX ?= /usr/local

install: build
	tools/package.sh install $(CLEW) "$(DESTDIR)$(PREFIX)"

deb: build
	tools/package.sh deb $(CLEW)

dist: build
	tools/package.sh dist $(CLEW)

clean:
	$(CARGO) clean
