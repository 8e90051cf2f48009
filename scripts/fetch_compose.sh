#!/usr/bin/env bash
# Puts Docker Compose 2.26.1, as Debian 13 packs it, into a folder as FOLDER/docker-compose: unpacked, not installed. It
# comes from where this machine has its Debian packages from, whatever release of Debian it has.
#
#   scripts/fetch_compose.sh FOLDER
set -euo pipefail
. "$(dirname "$0")/common.sh"

VERSION=2.26.1-4
[ $# = 1 ] || die "give the folder: scripts/fetch_compose.sh FOLDER"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[ ! -x "$folder/docker-compose" ] || exit 0
command -v apt-get >/dev/null || die "there is no apt-get here; Docker Compose $VERSION comes as a package of Debian"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
# shellcheck disable=SC2016 # apt-get replaces it
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
[ -n "$archive" ] || die "this machine has no packages of Debian (apt-get update)"
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$key] $archive trixie main" >"$work/sources.list"
cat >"$work/apt.conf" <<END
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
export APT_CONFIG=$work/apt.conf
run_logged compose-update "apt-get update" apt-get update
cd "$work"
run_logged compose-download "downloading Docker Compose $VERSION" apt-get download "docker-compose=$VERSION"
dpkg -x "$work"/docker-compose_*.deb "$work/tree"
mv "$work/tree/usr/libexec/docker/cli-plugins/docker-compose" "$folder/docker-compose"
