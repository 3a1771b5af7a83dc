#!/bin/sh
# Puts stasis on the node that it runs on, or takes it away: installer.sh install|remove containerd|crio
# Stays, and does nothing: installer.sh stay
#
# The DaemonSet runs it with the node's root at /host, the node's processes (hostPID) and all rights, from an image that
# has our tarball unpacked below /package. It may be run again at any time, and be killed at any time. The part of
# the pod that stays has no rights.
set -eu

verb=$1 engine=${2:-}
prefix=/usr/local
kept=$prefix/share/stasis/installed
in_use=lib/stasis/shim-in-use
to_restart=/run/stasis-installer/restart-$engine
# Node Feature Discovery makes labels of what is in the files here.
label=/etc/kubernetes/node-feature-discovery/features.d/stasis
# The namespace of a node's mounts is that of its first process.
on_node() {
    nsenter -t 1 -m /usr/bin/env -i PATH=$prefix/bin:$prefix/sbin:/usr/bin:/usr/sbin:/bin:/sbin "$@"
}

say() { echo "stasis on ${NODE_NAME:-this node}: $*"; }

# Puts one file, or link, in its place in one step: at every moment there is one, and who runs the old one keeps it.
put() {
    if [ -L "$1" ]; then
        [ "$(readlink "$1")" != "$(readlink "/host$2" || true)" ] || return 0
    elif cmp -s "$1" "/host$2"; then
        return 0
    fi
    mkdir -p "/host${2%/*}"
    rm -f "/host$2.new"
    cp -P -p "$1" "/host$2.new"
    mv -f "/host$2.new" "/host$2"
    say "$2 is that of the image"
}

# The order is that of an upgrade: the engine's programs before what calls them.
files() {
    echo bin/stasis
    echo bin/stasis-runtime
    (cd "$1" && find . -type f -o -type l) | sed 's,^\./,,' | sort | grep -v -x -e bin/stasis -e bin/stasis-runtime
}

install_files() {
    package=$(echo /package/stasis-*)
    if [ -e /host/usr/bin/stasis ]; then
        say "/usr/bin/stasis is there, of a Debian package: upgrade or remove that, nothing was changed" >&2
        exit 1
    fi
    for file in $(files "$package"); do
        put "$package/$file" "$prefix/$file"
    done
    files "$package" >/installed
    put /installed "$kept"
    for default in /settings/stasis.toml "$package/share/stasis/stasis.toml"; do
        [ -e "$default" ] || continue
        # Settings of a ConfigMap are the node's; the default ones are put only where there are none.
        if [ "$default" = /settings/stasis.toml ] || [ ! -e /host/etc/stasis/stasis.toml ]; then
            # A file of a ConfigMap is a link.
            cp -L "$default" /stasis.toml
            put /stasis.toml /etc/stasis/stasis.toml
        fi
    done
    on_systemd daemon-reload
}

on_systemd() {
    [ ! -d /host/run/systemd/system ] || on_node systemctl "$@"
}

# Containers go on. A restart that was due when we were killed is still due.
restart_engine() {
    [ -e "/host$to_restart" ] || return 0
    say "$engine is restarted"
    on_node systemctl restart "$engine"
    rm "/host$to_restart"
}

# Changes the engine's settings, if they are not as they should be: set_up, or set_up --undo.
set_up() {
    # The answer has to be known: what fails here leaves the engine as it is.
    difference=$(on_node stasis setup "$engine" "$@" --dry-run --json)
    case $difference in
    *'"files": []'*) ;;
    *)
        mkdir -p "/host${to_restart%/*}"
        : >"/host$to_restart"
        on_node stasis setup "$engine" "$@"
        ;;
    esac
    restart_engine
}

install() {
    install_files
    set_up
    # This output is the log of the pod. On a node with a fault containers run on, and no checkpoint is certain.
    if on_node stasis doctor; then
        state=ready
    else
        state=degraded
    fi
    echo "stasis.io/node=$state" >/label
    put /label "$label"
    say "labelled $state"
}

# New pods do not come; what runs goes on until it ends, and only then anything is removed.
remove() {
    rm -f "/host$label"
    [ -e "/host$kept" ] || return 0
    # One that was killed below has been here before.
    if [ -e "/host$prefix/bin/stasis" ] && [ -e "/host$prefix/$in_use" ]; then
        wait_until_unused
        set_up --undo
        # A pod may have come between.
        wait_until_unused
    fi
    while read -r file; do
        rm -f "/host$prefix/$file"
    done <"/host$kept"
    rm -f "/host$kept"
    on_systemd daemon-reload
}

wait_until_unused() {
    said=
    until needed_by=$(on_node "$prefix/$in_use" $prefix/bin 2>&1); do
        [ "$needed_by" = "$said" ] || say "$needed_by" | head -n 4
        said=$needed_by
        pause 5
    done
}

# Waits so many seconds. A signal ends it at once, and with it this program.
pause() {
    sleep "$1" &
    wait $!
}

trap 'exit 0' TERM INT
while [ "$verb" = stay ]; do
    pause 3600
done
case $engine in containerd | crio) ;; *) say "no engine: $engine" >&2; exit 2 ;; esac
case $verb in install | remove) "$verb" ;; *) say "neither install nor remove: $verb" >&2; exit 2 ;; esac
say "$verb: done"
