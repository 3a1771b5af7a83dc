#!/bin/bash
# Makes the packages for Debian and for RPM, and the tarball, from programs that were built: assemble.sh VERSION PROGRAMS
# OUT [CRIU]. With CRIU, the directory that criu.sh has filled, also those of stasis-criu.
#
# The packages are for /usr, the tarball for /usr/local or any other prefix. Their manual pages and completions are
# written by the program itself. operations.log and CRIU's logs are bounded by their writer, so logrotate has no part.
set -euo pipefail
version=$1 programs=$2 criu=${4:-}
mkdir -p "$3"
out=$(readlink -f "$3")
here=$(dirname "$(readlink -f "$0")")
config=$(dirname "$here")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

stripped=$work/stripped
install -D -m 755 --strip -t "$stripped" \
    "$programs"/{stasis-runtime,containerd-shim-stasis-v2,stasis,libstasis_memory.so}

# Lays out everything below a prefix: DIRECTORY, and the prefix as it will be.
lay_out() {
    local to=$1 prefix=$2 units=$1/lib/systemd/system
    install -D -m 755 -t "$to/bin" "$stripped"/{stasis-runtime,containerd-shim-stasis-v2,stasis}
    install -D -m 755 -t "$to/lib/stasis" "$stripped/libstasis_memory.so"
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
    install -D -m 644 -t "$to/share/stasis/monitoring" "$config"/monitoring/*
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

# Makes a Debian package: to_deb NAME VERSION CONTROL DIRECTORY
to_deb() {
    sed "s/@VERSION@/$2/; s/@MAINTAINER@/$(maintainer)/" "$here/$3" >"$4/DEBIAN/control"
    (cd "$4" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -Zgzip --build "$4" "$out/$1_$2_amd64.deb"
    made+=("$1_$2_amd64.deb")
}

# Makes an RPM package of what is laid out: to_rpm NAME VERSION DIRECTORY
to_rpm() {
    # Directories of the system have owners and modes of its own.
    (cd "$3" && find . -type d \( -path '*/stasis' -o -path '*/stasis/*' -o -path '*/stasis-criu' \) -printf '%%dir /%P\n'
        find . -path ./etc -prune -o ! -type d -printf '/%P\n') >"$work/$1.files"
    rpmbuild -bb --quiet --define "_topdir $work/rpm" --define "_rpmdir $work" --define "_rpmfilename $1.rpm" \
        --define "version $2" --define "laid_out $3" --define "scripts $here" --define "file_list $work/$1.files" \
        "$here/$1.spec"
    mv "$work/$1.rpm" "$out/$1-$2-1.x86_64.rpm"
    made+=("$1-$2-1.x86_64.rpm")
}

made=()
laid_out=$work/laid-out
lay_out "$laid_out/usr" /usr
install -D -m 644 "$config/stasis.toml" "$laid_out/etc/stasis/stasis.toml"
cp -a "$laid_out" "$work/for-rpm"
mv "$work/for-rpm/usr/share/zsh/"{vendor-completions,site-functions}
to_rpm stasis "$version" "$work/for-rpm"
install -D -m 755 -t "$laid_out/DEBIAN" "$here"/{postinst,prerm,postrm}
install -m 644 "$here/conffiles" "$laid_out/DEBIAN/conffiles"
to_deb stasis "$version" control "$laid_out"

name=stasis-$version-x86_64
lay_out "$work/$name" /usr/local
install -D -m 644 "$config/stasis.toml" "$work/$name/share/stasis/stasis.toml"
tar --sort=name --owner=0 --group=0 -C "$work" -czf "$out/$name.tar.gz" "$name"
made+=("$name.tar.gz")

if [ -n "$criu" ]; then
    of_criu=$work/criu
    criu_version=$(<"$criu/version")
    install -D -m 755 "$criu/criu" "$of_criu/usr/lib/stasis/criu/criu"
    install -D -m 644 "$criu/copyright" "$of_criu/usr/share/doc/stasis-criu/copyright"
    to_rpm stasis-criu "$criu_version" "$of_criu"
    mkdir "$of_criu/DEBIAN"
    to_deb stasis-criu "$criu_version" criu.control "$of_criu"
    sources=stasis-criu-$criu_version-sources.tar
    tar --sort=name --owner=0 --group=0 -C "$criu" -cf "$out/$sources" sources
    made+=("$sources")
fi

(cd "$out" && sha256sum "${made[@]}" >SHA256SUMS)
