# A PostgreSQL server of the system's version, for one script. Sourced after common.sh, not run.
# shellcheck shell=bash disable=SC2154 # common.sh has set `work`
bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] || { echo "PostgreSQL is missing: this finding cannot be shown here" >&2; exit 2; }
# A server refuses to run as root.
as=()
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid=nobody --regid=nogroup --clear-groups --)
    chown nobody "$work"
fi
postgres() { "${as[@]}" "$bin/pg_ctl" -w -D "$work/data" -l "$work/log" "$@" >"$work/said"; }
start() { postgres -o "-k $work -h '' -c shared_buffers=128kB -c max_connections=5" start; }
sql() { "${as[@]}" "$bin/psql" -qAtX -h "$work" postgres -c "$1"; }
stop_server() { [ ! -e "$work/data/postmaster.pid" ] || postgres -m immediate stop; }
at_end+=(stop_server)
"$bin/postgres" --version
"${as[@]}" "$bin/initdb" -D "$work/data" -A trust -E UTF8 --locale=C >"$work/said"
start
