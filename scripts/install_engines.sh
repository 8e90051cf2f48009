#!/usr/bin/env bash
# Installs what tests and benchmarks use beside tvsnap, and only what is missing: container engines (Docker's dockerd,
# containerd and runc, buildah, Podman) and PostgreSQL. tvsnap itself needs none of them.
#
# No service is started, and none is left enabled: the tests and benchmarks run an engine of their own
# (scripts/docker_engine.py). One that was there before stays as it is, whoever packaged it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

POLICY=/usr/sbin/policy-rc.d

installed_packages() { dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u; }

# without_services COMMAND...: runs it where the packages it installs may start nothing. What says so to them lies over
# the machine's own policy in a mount namespace that ends with the command; the empty file below is no policy.
without_services() {
    local policy status=0 made=
    policy=$(mktemp)
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    [ -e "$POLICY" ] || { : >"$POLICY" && made=1; }
    unshare --mount sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh "$policy" "$POLICY" "$@" || status=$?
    rm -f "$policy"
    [ -z "$made" ] || [ -s "$POLICY" ] || rm -f "$POLICY"
    return $status
}

# disable_services PACKAGE...: as their administrator would, so that upgrades do not enable them again.
disable_services() {
    local files units
    files=$(dpkg-query -L "$@")
    if command -v systemctl >/dev/null; then
        mapfile -t units < <(sed -nE 's,^(/usr)?/lib/systemd/system/([^/]+\.(service|socket|timer|path))$,\2,p' <<<"$files")
        [ ${#units[@]} -eq 0 ] || systemctl disable "${units[@]}"
        mapfile -t units < <(sed -nE 's,^/usr/lib/systemd/user/([^/]+\.(service|socket|timer|path))$,\1,p' <<<"$files")
        [ ${#units[@]} -eq 0 ] || systemctl --global disable "${units[@]}"
    fi
    while read -r name; do update-rc.d "$name" disable; done < <(sed -nE 's|^/etc/init\.d/([^/]+)$|\1|p' <<<"$files")
}

# install PACKAGE...: and nothing of it runs, now or at the next start.
install() {
    local before new
    before=$(installed_packages)
    without_services bash -euo pipefail -c '. scripts/common.sh; install_packages "$@"' bash "$@"
    mapfile -t new < <(comm -13 <(cat <<<"$before") <(installed_packages))
    [ ${#new[@]} -eq 0 ] || run_logged disable-services "keeping services disabled" disable_services "${new[@]}"
}

# By the programs: a Docker Engine that came another way is as good, and its packages exclude the distribution's.
missing() { ! command -v "$1" >/dev/null; }

packages=()
! missing dockerd || packages+=(docker.io)
! missing buildah || packages+=(buildah)
! missing podman || packages+=(podman)
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || packages+=(postgresql)
if [ ${#packages[@]} -gt 0 ] || missing docker; then
    one_set_up_at_a_time
    [ ${#packages[@]} -eq 0 ] || install "${packages[@]}"
    # Since Debian 13 the command is packed apart from the engine.
    ! missing docker || install docker-cli
fi
