# Thin: each target is one line into a script or cargo. On a fresh Debian 12 as root they install what they need.

.PHONY: demo test bench install requirements

requirements:
	integration/hosts/install-requirements.sh

demo: requirements
	cargo run --quiet --release -p stasis-integration --bin demo

test: requirements
	integration/test.sh

bench: requirements
	cargo run --quiet --release -p stasis-integration --bin bench

install:
	cargo build --quiet --release -p stasis --bin stasis-runtime
	install -D -m 755 target/release/stasis-runtime $(DESTDIR)/usr/local/bin/stasis-runtime
	install -D -m 644 -b config/stasis.toml $(DESTDIR)/etc/stasis/stasis.toml
