# Source packages from the archives that this machine's apt uses, whose lists and configuration are only read. Sourced,
# after common.sh, not run; WORK names a directory for lists and downloads.

# Sets ORIGIN (Debian or Ubuntu) and MIRROR (the address of this machine's own main archive), as apt understands
# its configuration. The lists must have been fetched: they tell whose archive it is.
find_mirror() {
    local codename targets
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    targets=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
        grep -E '^(Debian|Ubuntu) ' || true)
    # Its own suite first: other entries may be mirrors of security updates only.
    read -r ORIGIN _ MIRROR < <(
        grep -E "^[^ ]+ $codename " <<<"$targets" || cat <<<"$targets"
    ) || true
    [ -n "${MIRROR:-}" ]
}

# The archives of this machine's own suites, an address and a suite a line.
own_suites() {
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        sed -n "s/^$ORIGIN //p" | sort -u
}

# private_apt COMMAND...: apt-get with a source list and state of its own.
private_apt() { apt-get -c "$WORK/apt.conf" "$@"; }

# write_private_configuration "ADDRESS SUITE"...: for private_apt, in $WORK, with the sources that these have.
write_private_configuration() {
    local signed_by='' keyring=/usr/share/keyrings/${ORIGIN,,}-archive-keyring.gpg components=main
    [ ! -e "$keyring" ] || signed_by="[signed-by=$keyring] "
    [ "$ORIGIN" = Debian ] || components="main universe"
    rm -rf "$WORK/lists"
    mkdir -p "$WORK/lists/partial" "$WORK/cache/archives/partial" "$WORK/source" "$WORK/none"
    printf "deb-src $signed_by%s $components\n" "$@" >"$WORK/sources.list"
    cat >"$WORK/apt.conf" <<CONF
Dir::Etc::sourcelist "$WORK/sources.list";
Dir::Etc::sourceparts "$WORK/none";
Dir::State::lists "$WORK/lists";
Dir::Cache "$WORK/cache";
APT::Sandbox::User "root";
Acquire::AllowInsecureRepositories "false";
APT::Get::AllowUnauthenticated "false";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF
}
