# A MariaDB server of Debian 12, for one script. Sourced after common.sh, not run.
# shellcheck shell=bash disable=SC2154 # common.sh has set `work`
for package in liburing2 libaio1 mariadb-client mariadb-client-core mariadb-server-core; do debian "$package"; done
libraries=$(echo "$work"/debian/usr/lib/*-linux-gnu)
socket=$work/socket
said() { echo "MariaDB does not start:" >&2; cat "$work/said" >&2; exit 2; }
LD_LIBRARY_PATH=$libraries mariadb-install-db --no-defaults --basedir="$work/debian/usr" --datadir="$work/data" --user="$(id -un)" \
    --auth-root-authentication-method=normal --skip-test-db >said 2>&1 || said
LD_LIBRARY_PATH=$libraries "$work/debian/usr/sbin/mariadbd" --no-defaults --basedir="$work/debian/usr" --datadir="$work/data" --socket="$socket" \
    --skip-networking --innodb-buffer-pool-size=8M --user="$(id -un)" >said 2>&1 &
server=$!
stop_server() { kill "$server" 2>/dev/null && wait "$server" || true; }
at_end+=(stop_server)
sql() { mariadb --no-defaults --socket="$socket" --user=root --batch --skip-column-names "$@"; } # statements from the input
for _ in {1..100}; do sql <<<'SELECT 1' >/dev/null 2>&1 && break || sleep 0.1; done
sql <<<'SELECT version()' || said
sql <<<'CREATE DATABASE tasks'
