# Shared by the set-up scripts: messages, logs, versions, Debian packages. Sourced, not run.

HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/tvsnap
# Where CRIU is kept that was built here: for all if root builds it.
KEPT=/usr/local/lib/tvsnap
[ "$(id -u)" = 0 ] || KEPT=$CACHE
OLDEST_CRIU=4.2
# What scripts/build_criu.sh adds to CRIU, and keeps beside it; another name when that changes.
CRIU_ADDITIONS=tvsnap13

# Once the command that runs has ended; what a script removes at its end is removed then, too.
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() { echo "==> $*"; }

die() {
    echo "error: $*" >&2
    exit 1
}

# run_logged NAME WHAT COMMAND...: runs a long command with its output in a log; shows the log's end if it fails.
run_logged() {
    local log=$CACHE/$1.log what=$2
    shift 2
    mkdir -p "$CACHE"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        die "$what failed; the lines above are the end of $log"
    fi
}

# One set-up at a time, until this script ends: apt, the kept CRIU and .venv are shared.
one_set_up_at_a_time() {
    mkdir -p "$CACHE"
    exec 9>"$CACHE/setup.lock"
    flock 9
}

# at_least VERSION OLDEST: compares dotted versions; anything but a version is older than any.
at_least() { [[ $1 == [0-9]* ]] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# criu_version BINARY: prints its version, or nothing if it does not run.
criu_version() { "$1" --version 2>/dev/null | sed -n 's/^Version: //p'; }

# apt-get, such that nobody is asked, and that waits for another apt-get to end.
apt_install() { apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"; }

# The same, which Ctrl-C does not stop: half of it would have to be mended by hand (dpkg --configure -a).
apt_install_undisturbed() (
    trap '' INT TERM HUP
    apt_install "$@"
)

# install_packages PACKAGE...: installs those that are missing; does not touch apt when none is.
install_packages() {
    local package missing=()
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "these packages are missing and there is no apt-get to install them: ${missing[*]}"
    [ "$(id -u)" = 0 ] || die "these packages are missing, run as root: apt-get install ${missing[*]}"
    say "installing system packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    run_logged apt-update "apt-get update" apt-get update
    grep '^[WE]: ' "$CACHE/apt-update.log" >&2 || true # it fails only where it has no lists at all
    run_logged apt-download "downloading ${missing[*]} from the network" apt_install --download-only "${missing[@]}"
    run_logged apt-install "apt-get install ${missing[*]}" apt_install_undisturbed "${missing[@]}"
}

# keep_licence PACKAGE DIRECTORY: copies what a package says of its licences, and the common ones that it names.
keep_licence() {
    local name said=/usr/share/doc/$1/copyright
    cp -L "$said" "$2/$1.copyright"
    for name in $(grep -o 'common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$said" | cut -d/ -f2 | sort -u); do
        cp -L "/usr/share/common-licenses/$name" "$2"
    done
}

# The newest CRIU that was built here with these additions.
kept_criu() {
    local binary
    while read -r _ binary; do
        if at_least "$(criu_version "$binary")" "$OLDEST_CRIU"; then
            echo "$binary"
            return
        fi
    done < <(find "$KEPT" "$CACHE" -mindepth 2 -maxdepth 2 -path "*/criu-*-$CRIU_ADDITIONS/criu" -type f \
        -printf '%P %p\n' 2>/dev/null | sort -rV)
}
