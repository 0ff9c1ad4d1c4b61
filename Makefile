# Slipstack. `make help` lists the targets.

SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin
SEEDS ?= 10000
FUZZ_SECONDS ?= 60
SOAK_MINUTES ?= 60
SHARING_COUNT ?= 50

.PHONY: help setup build dpdk demo test check bench heuristics captures coverage differential \
	interop interop-full seeds worlds scale scaling held forks served library bytes floor soak \
	models programs sanitize instructions fuzz reference book install clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing (root)
	@scripts/setup

build: setup ## target/release/slipstack, libslipstack.so and libfstack
	@cargo build --release -p slipstack-cli -p slipstack-preload -p slipstack-capi

dpdk: build ## slipstack-dpdk, for --device dpdk:… (Debian: libdpdk-dev), and its tests
	@pkg-config --exists libdpdk 2>/dev/null || scripts/setup pkg-config libdpdk-dev dpdk-dev
	@cargo build --release -p slipstack-device-dpdk --features dpdk
	@cargo clippy --quiet -p slipstack-device-dpdk --features dpdk --all-targets -- -D warnings
	@cargo test --quiet -p slipstack-device-dpdk --features dpdk
	@tests/programs/run --only dpdk

demo: build ## nginx on Slipstack, asked by curl on the kernel; leaves nothing behind
	@scripts/demo

test: setup ## everything that is checked before a change goes in
	@scripts/test

check: setup ## formatting, clippy, layering and size limits only
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets -- -D warnings
	@cargo run -q -p xtask -- check

bench: build ## kernel against in-process against instance: table, JSON, SVG in bench-results/
	@scripts/bench $(BENCH_ARGS)

floor: build ## processor time per request by part, and the rate without code of ours (needs perf)
	@scripts/floor $(FLOOR_ARGS)

heuristics: build ## what each rule of thumb brings: rate, CPU, p50, p99 with and without
	@scripts/heuristics $(HEURISTICS_ARGS)

interop: build ## kernel and Slipstack over fourteen bad wires: table, JSON, SVG in bench-results/
	@scripts/interop $(INTEROP_ARGS)

captures: build ## every program test with its frames, compared by tshark with the kernel's
	@cargo build -q -p slipstack-emulator
	@tests/programs/run --captures target/captures

coverage: setup ## share of the lines of wire and stack that tests run; fails below 90 %
	@scripts/coverage

differential: build ## random packets and socket calls, on the kernel and on Slipstack
	@tests/differential/run --count $$(( ($(SEEDS) + 3) / 4 ))

.PHONY: sharing
sharing: build ## random processes that share connections: each call as on the kernel; SHARING_COUNT
	@tests/sharing/run --count $(SHARING_COUNT) --seed $$(date +%s)
	@tests/sharing/run --threads --count $(SHARING_COUNT) --seed $$(date +%s)

.PHONY: dns
dns: build ## 200,000 questions to `slipstack serve dns`, NSD and Knot, answers compared
	@tests/dns/run $(DNS_ARGS)

interop-full: build ## the whole matrix, 10 runs a cell; INTEROP_ARGS="--out DIR" continues
	@scripts/interop --full $(INTEROP_ARGS)

seeds: setup ## SEEDS simulated connections over a bad wire
	@cargo run -q --release -p slipstack-sim --bin seeds -- --count $(SEEDS)

worlds: setup ## SEEDS / 10 seeds, rounded up, of every family of simulated worlds
	@cargo run -q --release -p slipstack-sim --bin worlds -- --count $$(( ($(SEEDS) + 9) / 10 ))

scale: setup ## a million connections in one stack: memory of each, cost against a hundred
	@cargo run -q --release -p slipstack-sim --bin scale

served: build ## servers of the command against nginx and Knot on the kernel, on two cores
	@scripts/served $(SERVED_ARGS)

library: build ## servers of the C library against the same one preloaded and on the kernel
	@scripts/library $(LIBRARY_ARGS)

scaling: setup ## what a request costs at 1 to 64 engines, and which cache lines engines share
	@scripts/scaling cost shared

held: setup ## 200,000 real connections in a server inside one engine: memory of each
	@scripts/held

forks: build ## children a second beside 1,000 connections, and what each costs
	@scripts/forks

bytes: build ## copies for each byte and throughput of the C library, with copies and without
	@scripts/bytes $(BYTES_ARGS)

soak: build ## SOAK_MINUTES each of load with kills, of reloads, and of simulations
	@scripts/soak --minutes $(SOAK_MINUTES)
	@scripts/reloads --reloads 1000 --upgrades 50 --minutes $(SOAK_MINUTES)
	@cargo run -q --release -p slipstack-sim --bin worlds -- \
		--minutes $(SOAK_MINUTES) --start $$(date +%s)

models: setup ## the rings and the ownership word in every order of threads (loom)
	@cargo run -q --profile models -p slipstack-models

programs: build ## the page of programs: some eighty with their real clients (half an hour)
	@cargo build -q -p slipstack-tokio-echo
	@for crate in quic hyper; do \
		cargo build -q --release --locked --manifest-path tests/page/$$crate/Cargo.toml \
			--target-dir $${CARGO_TARGET_DIR:-target}/$$crate || exit 1; \
	done
	@scripts/setup debootstrap
	@scripts/trixie || echo "programs: without a chroot of Debian 13 there is no HTTP/3"
	@tests/page/run --install $(PROGRAMS_ARGS)

sanitize: setup ## tests under AddressSanitizer and ThreadSanitizer (needs nightly)
	@scripts/sanitize

instructions: setup ## instructions of one request, connection, burst …; fails above +1 %
	@scripts/instructions

fuzz: setup ## every fuzz target for FUZZ_SECONDS
	@scripts/fuzz $(FUZZ_SECONDS)

reference: ## write docs/reference: options from their table, RFCs from the source's citations
	@cargo run -q -p xtask -- reference

book: ## the book as HTML in target/book (needs mdbook)
	@command -v mdbook >/dev/null || \
		{ echo "mdbook is not installed; the book's text is in docs/book/src" >&2; exit 1; }
	@mdbook build docs/book -d ../../target/book

PREFIX ?= /usr/local
HEADERS := $(wildcard crates/capi/include/*.h)
install: build ## slipstack, its libraries, headers and pkg-config files under PREFIX
	install -D -m 755 target/release/slipstack $(DESTDIR)$(PREFIX)/bin/slipstack
	for name in fstack ff_ifconfig ff_route ff_ipfw ff_knictl ff_sysctl ff_netstat ff_arp ff_ndp \
		ff_top ff_traffic; do \
		ln -sf slipstack $(DESTDIR)$(PREFIX)/bin/$$name; done
	[ ! -e target/release/slipstack-dpdk ] || \
		install -D -m 755 target/release/slipstack-dpdk $(DESTDIR)$(PREFIX)/bin/slipstack-dpdk
	install -D -m 755 target/release/libslipstack.so $(DESTDIR)$(PREFIX)/lib/libslipstack.so
	ln -sf libslipstack.so $(DESTDIR)$(PREFIX)/lib/libff_syscall.so
	install -D -m 755 target/release/libfstack.so $(DESTDIR)$(PREFIX)/lib/libfstack.so
	install -D -m 644 target/release/libfstack.a $(DESTDIR)$(PREFIX)/lib/libfstack.a
	ln -sf libfstack.a $(DESTDIR)$(PREFIX)/lib/libslipstack.a
	install -d $(DESTDIR)$(PREFIX)/include/slipstack $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include/slipstack
	for name in slipstack libfstack; do \
		sed 's|@PREFIX@|$(PREFIX)|' crates/capi/pkgconfig/$$name.pc.in \
			> $(DESTDIR)$(PREFIX)/lib/pkgconfig/$$name.pc || exit 1; \
	done

clean: ## remove what was built
	@cargo clean
