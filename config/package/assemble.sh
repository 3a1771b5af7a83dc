#!/bin/bash
# Makes the Debian package and the tarball from programs that were built: assemble.sh VERSION PROGRAMS OUT
#
# The package is for /usr, the tarball for /usr/local or any other prefix. Their manual pages and completions are
# written by the program itself. operations.log and CRIU's logs are bounded by their writer, so logrotate has no part.
set -euo pipefail
version=$1 programs=$2 out=$3
here=$(dirname "$(readlink -f "$0")")
config=$(dirname "$here")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lays out everything below a prefix: DIRECTORY, and the prefix as it will be.
lay_out() {
    local to=$1 prefix=$2 units=$1/lib/systemd/system
    install -D -m 755 --strip -t "$to/bin" \
        "$programs"/stasis-runtime "$programs"/containerd-shim-stasis-v2 "$programs"/stasis
    install -D -m 755 --strip -t "$to/lib/stasis" "$programs/libstasis_memory.so"
    install -m 755 "$config/shim-in-use.sh" "$to/lib/stasis/shim-in-use"
    ln -s stasis "$to/bin/cuda-checkpoint"
    mkdir -p "$units/multi-user.target.wants"
    for service in stasis-recover stasis-metrics; do
        sed "s,/usr/local/bin,$prefix/bin," "$config/systemd/$service.service" >"$units/$service.service"
    done
    install -m 644 -t "$units" "$config/systemd/stasis-metrics.timer"
    ln -s ../stasis-recover.service "$units/multi-user.target.wants/stasis-recover.service"
    install -D -m 644 "$here/tmpfiles.conf" "$to/lib/tmpfiles.d/stasis.conf"
    "$programs/stasis" documents "$to/share"
    gzip -9 -n "$to"/share/man/man1/*
    install -D -m 644 -t "$to/share/doc/stasis" "$config"/../{README.md,CHANGELOG.md,SECURITY.md}
    install -m 644 "$config/../LICENSE" "$to/share/doc/stasis/copyright"
    install -D -m 644 -t "$to/share/doc/stasis/docs" "$config"/../docs/*.md
    install -D -m 644 -t "$to/share/doc/stasis/docs/internals" "$config"/../docs/internals/*.md
    install -D -m 644 -t "$to/share/doc/stasis/docs/recipes" "$config"/../docs/recipes/*.md
    if [ -e "$programs/stasis.cdx.json" ]; then
        install -m 644 "$programs/stasis.cdx.json" "$to/share/doc/stasis/stasis.cdx.json"
    fi
}

# The package's maintainer: from Debian's variables, or the author of the newest commit (SECURITY.md).
maintainer() {
    local by=${DEBEMAIL:+${DEBFULLNAME:-$DEBEMAIL} <$DEBEMAIL>}
    by=${by:-$(git -C "$here" log -1 --format='%an <%ae>' 2>/dev/null || true)}
    # For the replacement of sed; a name has no line end.
    printf '%s' "${by:-unknown <unknown@localhost>}" | tr -d '\n' | sed 's,[\\/&],\\&,g'
}

debian=$work/debian
lay_out "$debian/usr" /usr
install -D -m 644 "$config/stasis.toml" "$debian/etc/stasis/stasis.toml"
install -D -m 755 -t "$debian/DEBIAN" "$here"/{postinst,prerm,postrm}
install -m 644 "$here/conffiles" "$debian/DEBIAN/conffiles"
sed "s/@VERSION@/$version/; s/@MAINTAINER@/$(maintainer)/" "$here/control" >"$debian/DEBIAN/control"
(cd "$debian" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
mkdir -p "$out"
dpkg-deb --root-owner-group -Zgzip --build "$debian" "$out/stasis_${version}_amd64.deb"

name=stasis-$version-x86_64
lay_out "$work/$name" /usr/local
install -D -m 644 "$config/stasis.toml" "$work/$name/share/stasis/stasis.toml"
tar --sort=name --owner=0 --group=0 -C "$work" -czf "$out/$name.tar.gz" "$name"
