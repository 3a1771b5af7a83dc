# Thin: each target is one line into a script or cargo. On a fresh Debian 12 as root they install what they need.

# Units here are found by systemd, and need not be enabled.
UNITS = /usr/local/lib/systemd/system

.PHONY: demo lint test test-node fuzz campaign soak bench package installer-image install uninstall requirements

requirements:
	@echo "== what test hosts need on this machine"
	integration/hosts/install-requirements.sh

demo: requirements
	@echo "== building the runtime, the CRIU plugin and the demonstration: 5 to 9 minutes on 2 cores, the first time"
	cargo build --locked --profile demo -p stasis -p stasis-runtime -p stasis-criu-plugin -p stasis-integration --no-default-features --features stasis-integration/programs --lib --bin stasis-runtime --bin stasis --bin demo
	target/demo/demo

# All code, with the programs that `make test` does not compile.
lint:
	cargo clippy --locked --workspace --all-targets --features stasis-integration/programs -- -D warnings

test: requirements
	integration/test.sh

# The cases in QEMU: those of CI, and all others.
test-node: requirements
	cargo build --locked --workspace
	cargo test --locked --workspace --test node -- --include-ignored --test-threads 1

SECONDS_EACH ?= 3600
fuzz: requirements
	integration/fuzz.sh $(SECONDS_EACH)

campaign: requirements
	@echo "== building the programs and the campaign"
	cargo build --locked --workspace --exclude stasis-bench --features stasis-integration/programs
	N=$(or $(N),50) SEED=$(or $(SEED),1) JOBS=$(or $(JOBS),1) target/debug/campaign

MINUTES ?= 120
# Seconds from one round to the next.
APART ?= 0
soak: requirements
	cargo build --locked --workspace --exclude stasis-bench --features stasis-integration/programs
	target/debug/soak $(MINUTES) $(APART)

bench: requirements
	@echo "== building everything that is measured"
	cargo build --locked --release --workspace
	target/release/bench

# For Debian and Ubuntu, for RPM, and a tarball, for any glibc from 2.31 on; and a CRIU: in target/package.
package: requirements lint
	config/package/build.sh

# The image of the installer for Kubernetes (deploy/kubernetes), with podman.
IMAGE ?= registry.example.com/stasis-installer:0.1.0
installer-image: package
	deploy/kubernetes/image/build.sh $(IMAGE)

install:
	cargo build --locked --release -p stasis -p stasis-runtime -p containerd-shim-stasis -p stasis-criu-plugin
	install -D -m 755 -t $(DESTDIR)/usr/local/bin target/release/stasis target/release/stasis-runtime target/release/containerd-shim-stasis-v2
	install -D -m 755 -t $(DESTDIR)/usr/local/lib/stasis target/release/libstasis_memory.so
	ln -sf stasis $(DESTDIR)/usr/local/bin/cuda-checkpoint
	install -D -m 644 -t $(DESTDIR)$(UNITS) config/systemd/stasis-recover.service config/systemd/stasis-metrics.service config/systemd/stasis-metrics.timer
	mkdir -p $(DESTDIR)$(UNITS)/multi-user.target.wants
	ln -sf ../stasis-recover.service $(DESTDIR)$(UNITS)/multi-user.target.wants/stasis-recover.service
	test -e $(DESTDIR)/etc/stasis/stasis.toml || install -D -m 644 config/stasis.toml $(DESTDIR)/etc/stasis/stasis.toml

# Refuses while a container needs the shim.
uninstall:
	DESTDIR=$(DESTDIR) config/uninstall.sh
