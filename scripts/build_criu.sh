#!/usr/bin/env bash
# Builds CRIU from the source package of a newer suite, fetched from the mirror that this machine's apt uses, with
# functions of ours in place of some of its own (native/criu explains them), and keeps it, as root, in
# /usr/local/lib/tvsnap/criu-VERSION-ADDITIONS, else below ~/.cache/tvsnap: the binary, the licences of all that is
# linked into it, which sources that is (sources.txt), and CRIU's own. apt verifies the source against the archive's
# keys; its lists and configuration on this machine are only read.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/apt_sources.sh

WORK=$(mktemp -d "${TMPDIR:-/tmp}/tvsnap-criu.XXXXXX")
NEW=$KEPT/new.$$
trap 'rm -rf "$WORK" "$NEW"' EXIT

# fetch_source SUITE: downloads the source of a new enough CRIU; sets TAR and VERSION. Fails if the suite has none.
fetch_source() {
    write_private_configuration "$MIRROR $1"
    {
        echo "== suite $1"
        private_apt update && (cd "$WORK/source" && private_apt source --download-only --tar-only criu)
    } >>"$CACHE/criu-fetch.log" 2>&1 </dev/null || return 1
    TAR=$(ls "$WORK"/source/criu_*.orig.tar.* | grep -v '\.asc$' | sort -V | tail -n 1)
    VERSION=$(basename "$TAR" | sed 's/^criu_\(.*\)\.orig\.tar\..*/\1/')
    at_least "$VERSION" "$OLDEST_CRIU"
}

fetch_newest_source() {
    local suite suites=(forky sid)
    [ "$ORIGIN" = Debian ] || suites=(devel)
    : >"$CACHE/criu-fetch.log"
    for suite in "${suites[@]}"; do
        say "fetching the source of CRIU: ${ORIGIN}'s suite $suite"
        ! fetch_source "$suite" || return 0
    done
    tail -n 20 "$CACHE/criu-fetch.log" >&2
    if grep -q NO_PUBKEY "$CACHE/criu-fetch.log"; then
        die "the key that signs $ORIGIN's newer suites is unknown here: apt-get install a newer ${ORIGIN,,}-archive-keyring"
    fi
    die "no source of CRIU $OLDEST_CRIU or newer in $ORIGIN's suites ${suites[*]} (log: $CACHE/criu-fetch.log);" \
        "put a criu $OLDEST_CRIU or newer in PATH, or go on without: TVSNAP_WITHOUT_CRIU=1"
}

# replace FILE OLD NEW: replaces the one place where a file of CRIU's says OLD, a pattern.
replace() {
    [ "$(grep -c -- "$2" "$1")" = 1 ] || { echo "$1 does not say once: $2"; return 1; }
    sed -i "s/$2/$3/" "$1"
}

# stand_in NAME ARGUMENTS RESULT: has ours, further below, called instead of a static function of criu/tty.c.
stand_in() {
    replace criu/tty.c "^static $3 $1($2)\$" "static $3 $1($2);\nstatic __maybe_unused $3 criu_${1#*tty_}($2)"
}

add_ours() { # DIRECTORY of our sources
    stand_in tty_do_dump_queued_data 'struct tty_dump_info \*dinfo' int &&
        stand_in __tty_do_writeback_queued_data 'struct tty_dump_info \*dinfo' void &&
        stand_in pty_restore_queued_data 'struct tty_info \*info, int fd' void &&
        stand_in tty_verify_ctty void int &&
        replace criu/tty.c '^#define MAX_TTYS 1088$' '#define MAX_TTYS (1088 + 1024)' &&
        replace criu/tty.c '^static struct tty_driver ctty_driver = {$' \
            'static struct tty_driver current_driver;\nstatic __maybe_unused struct tty_driver ctty_driver = {' &&
        replace criu/tty.c 'return &ctty_driver;' 'return \&current_driver;' &&
        replace criu/tty.c 'if (!tty_deps_restored(info))' 'if (info->driver != \&current_driver \&\& !tty_deps_restored(info))' &&
        replace criu/tty.c 'size_t off = 0, size = 16384;' 'size_t off = 0, size = 32768;' &&
        replace criu/tty.c '^	size_t tty_data_size;$' '&\n\tbool packets;' &&
        replace criu/tty.c '^static bool stdin_isatty' 'static int send_packets(int, int);\nstatic int restore_lent(struct tty_info *, int);\nstatic void resume_packets(struct tty_dump_info *);\n\n&' &&
        replace criu/tty.c '__tty_do_writeback_queued_data(dinfo->link);' \
            '&\n\tresume_packets(dinfo);\n\tresume_packets(dinfo->link);' &&
        replace criu/tty.c 'int packet_mode = 1;' 'int packet_mode = 0;' &&
        replace criu/tty.c '^	pty_restore_queued_data(info->link, master);$' \
            '&\n\tif (!info->link \&\& restore_lent(info, master))\n\t\tgoto err;\n\tif (info->tie->packet_mode \&\& send_packets(master, 1))\n\t\tgoto err;' || return
    cat "$1/terminals.c" "$1/queues.c" >>criu/tty.c
    printf '%s\n' 'extern int open_masters(void);' 'extern pid_t lead_session(void);' >>criu/include/tty.h
    replace criu/cr-restore.c 'sid = setsid();' 'sid = lead_session();' &&
        replace criu/cr-restore.c 'if (open_transport_socket())' 'if (open_transport_socket() || open_masters())' || return
    cat "$1/links.c" >>criu/files-reg.c
    printf '%s\n' 'extern int link_quietly(int, char *, int, char *, uid_t, gid_t, int);' \
        'extern void unlink_quietly(int, char *);' >>criu/include/files-reg.h
    replace criu/files-reg.c 'while (linkat_hard(lfd' 'while (link_quietly(lfd' &&
        replace criu/files-reg.c 'unlinkat(mntns_root, rlb->path, 0);' 'unlink_quietly(mntns_root, rlb->path);' || return
    printf '%s\n' 'extern bool has_users(void);' 'extern int become_owner(bool);' \
        'extern int clone_in_users(int (*)(void *), void *, int, int, pid_t);' >>criu/include/namespaces.h
    replace criu/namespaces.c '^#include "images\/userns.pb-c.h"$' \
        '&\nstatic int write_owners(struct cr_img *, UsernsEntry *);' &&
        replace criu/namespaces.c 'ret = pb_write_one(img, e, PB_USERNS);' 'ret = write_owners(img, e);' &&
        replace criu/cr-restore.c 'ret = clone3_with_pid_noasan(restore_task' 'ret = clone_in_users(restore_task' &&
        replace criu/cr-restore.c '(root_ns_mask & CLONE_NEWUSER) && prepare_userns(init)' \
            '(root_ns_mask \& CLONE_NEWUSER) \&\& !has_users() \&\& prepare_userns(init)' &&
        replace criu/cr-dump.c 'ret = dump_task_rlimits(pid, core->tc->rlimits);' \
            'ret = become_owner(true) || dump_task_rlimits(pid, core->tc->rlimits) || become_owner(false) ? -1 : 0;' || return
    cat "$1/owners.c" >>criu/namespaces.c
    replace criu/sk-unix.c '^struct unix_sk_info;$' \
        '&\nstatic void note_root(pid_t, const char *, const struct stat *, char **);\nstatic int go_to_name(const char *, const char *);' &&
        replace criu/sk-unix.c 'd->deleted = strip_deleted(path, ret);' '&\n\tnote_root(p->pid, name, \&st, \&ue->name_dir);' &&
        replace criu/sk-unix.c 'if (chdir(ui->name_dir))' 'if (go_to_name(ui->name, ui->name_dir))' || return
    cat "$1/roots.c" >>criu/sk-unix.c
    replace criu/fsnotify.c '^static int dump_one_inotify(int lfd' \
        'static int parse_watches(int, const struct fd_parms *, InotifyFileEntry *);\n\n&' &&
        replace criu/fsnotify.c 'parse_fdinfo(lfd, FD_TYPES__INOTIFY, &ie)' 'parse_watches(lfd, p, \&ie)' || return
    cat "$1/watches.c" >>criu/fsnotify.c
    printf '%s\n' 'extern bool is_on_overlay(int, const char *);' >>criu/include/fsnotify.h
    replace criu/proc_parse.c '^#include "util.h"$' '&\n#include "fsnotify.h"' &&
        replace criu/proc_parse.c 'if (vfi->dev_maj == 0)' 'if (vfi->dev_maj == 0 \&\& !is_on_overlay(dirfd(mfd), path))' &&
        replace criu/mount.c 'openat(pfd, "root", O_RDONLY | O_DIRECTORY, 0)' 'openat(pfd, "root", O_PATH | O_DIRECTORY)' &&
        replace criu/mount.c 'open_proc(PROC_SELF, "root")' 'open_proc_path(PROC_SELF, "root")' &&
        replace criu/mount-v2.c 'open_proc(PROC_SELF, "root")' 'open_proc_path(PROC_SELF, "root")' || return
    replace criu/mem.c '^static int task_reset_dirty_track(int pid)$' \
        'static int begin_comparing(struct pstree_item *);\nstatic void end_comparing(void);\nstatic bool is_same_page(pmc_t *, unsigned long);\n\n&' &&
        replace criu/mem.c '^static int detect_pid_reuse' 'static __maybe_unused int detect_pid_reuse' &&
        replace criu/mem.c 'detect_pid_reuse(item, mdc->stat, mdc->parent_ie);' 'begin_comparing(item);' &&
        replace criu/mem.c 'page_in_parent(page_info.softdirty)' 'is_same_page(pmc, vaddr)' &&
        replace criu/mem.c '^out_xfer:$' '&\n\tend_comparing();' || return
    cat "$1/pages.c" >>criu/mem.c
    printf '%s\n' 'extern int serve(int);' >>criu/include/cr-service.h
    replace criu/crtools.c 'return cr_service_work(atoi(argv\[optind + 1\]));' 'return serve(atoi(argv[optind + 1]));' &&
        replace criu/mem.c '^static inline bool vma_force_premap' \
            'static bool is_held(struct pstree_item *, struct vma_area *);\n\n&' &&
        replace criu/mem.c '^static int premap_private_vma' \
            'static int take_held(struct pstree_item *, struct vma_area *, void **);\n\n&' &&
        replace criu/mem.c '^static int restore_priv_vma_content' \
            'static unsigned long pages_there(struct pstree_item *, struct vma_area *, unsigned long, unsigned long);\n\n&' &&
        replace criu/mem.c 'ri->vmas.rst_priv_size += vma_area_len(vma);' \
            'ri->vmas.rst_priv_size += vma_area_len(vma) + PAGE_SIZE;' &&
        replace criu/mem.c '^	if (!vma_inherited(vma)) {$' \
            '\tret = take_held(t, vma, tgt_addr);\n\tif (ret < 0)\n\t\treturn -1;\n\tif (ret) {\n\t\taddr = *tgt_addr;\n\t} else if (!vma_inherited(vma)) {' &&
        replace criu/mem.c 'if (vma->pvma == NULL && pr->pieok && !vma_force_premap(vma, &vmas->h)) {' \
            'if (vma->pvma == NULL \&\& pr->pieok \&\& !is_held(t, vma) \&\& !vma_force_premap(vma, \&vmas->h)) {' &&
        replace criu/mem.c '^			unsigned char buf\[PAGE_SIZE\];$' '&\n\t\t\tunsigned long there;' &&
        replace criu/mem.c '^			if (!vma_area_is(vma, VMA_PREMMAPED)) {$' \
            '\t\t\tthere = pages_there(t, vma, va, nr_pages - i);\n\t\t\tif (there) {\n\t\t\t\tbitmap_set(vma->page_bitmap, (va - vma->e->start) \/ PAGE_SIZE, there);\n\t\t\t\tpr->skip_pages(pr, there * PAGE_SIZE);\n\t\t\t\tva += there * PAGE_SIZE;\n\t\t\t\ti += there - 1;\n\t\t\t\tcontinue;\n\t\t\t}\n&' || return
    cp "$1/held.h" criu/include/ && cat "$1/held.c" >>criu/mem.c
    cp "$1/mappings.h" criu/include/ && replace criu/include/image.h '^#define VMA_EXT_PLUGIN' '#include "mappings.h"\n&' &&
        replace criu/proc_parse.c '__parse_vmflags(buf, &vma_area->e->flags' 'note_promise(buf, vma_area);\n\t&' &&
        replace criu/mem.c '^static int premap_private_vma' \
            'static bool keeps_unwritable(struct pstree_item *, struct vma_area *, struct page_read *);\nstatic int inherit_rights(struct vma_area *, void *, unsigned long);\nstatic int make_writable(struct vma_area *);\n\n&' &&
        replace criu/mem.c 'size, vma->e->prot | PROT_WRITE,' \
            'size, vma->e->prot | (vma->e->status \& VMA_NO_PROT_WRITE ? 0 : PROT_WRITE),' &&
        replace criu/mem.c '^			pr_perror("Unable to remap a private vma");$' \
            '&\n\t\t\treturn -1;\n\t\t}\n\t\tif (inherit_rights(vma, addr, size)) {' &&
        replace criu/mem.c '^		if (vma->pvma == NULL && pr->pieok && ' \
            '\t\tif (!keeps_unwritable(t, vma, pr) \&\& vma->pvma == NULL \&\& pr->pieok \&\& ' &&
        replace criu/mem.c 'if (pr->pe->vaddr >= vma->e->end)' \
            'if (pr->pe->vaddr >= vma->e->end \&\& !(vma->e->status \& VMA_PROMISED))' &&
        replace criu/mem.c '^			if (vma_inherited(vma)) {$' \
            '\t\t\tif (vma_inherited(vma) || vma->e->status \& VMA_NO_PROT_WRITE) {' &&
        replace criu/mem.c '^				clear_bit(off, vma->pvma->page_bitmap);$' \
            '\t\t\t\tif (vma_inherited(vma))\n\t\t\t\t\tclear_bit(off, vma->pvma->page_bitmap);' &&
        replace criu/mem.c '^				memcpy(p, buf, PAGE_SIZE);$' \
            '\t\t\t\tret = make_writable(vma);\n\t\t\t\tif (ret < 0)\n\t\t\t\t\tgoto err_read;\n&' || return
    cat "$1/mappings.c" >>criu/mem.c
    printf '%s\n' 'struct task_restore_args;' 'extern int prepare_locks(int, struct task_restore_args *);' \
        >>criu/include/file-lock.h
    replace criu/include/restorer.h '^struct task_restore_args {$' \
        'struct restore_lock {\n\tint fd;\n\tstruct flock lock;\n};\n\n&\n\tstruct restore_lock *locks;\n\tunsigned int locks_n;\n' &&
        replace criu/include/restorer.h '^#include <limits.h>$' '&\n#include <fcntl.h>' &&
        replace criu/cr-restore.c 'if (prepare_timerfds(ta))' 'if (prepare_timerfds(ta) || prepare_locks(pid, ta))' &&
        replace criu/cr-restore.c '^	RST_MEM_FIXUP_PPTR(task_args->timerfd);$' '&\n\tRST_MEM_FIXUP_PPTR(task_args->locks);' &&
        replace criu/pie/restorer.c '^static int timerfd_arm(' \
            'static int lock_again(struct task_restore_args *);\nstatic void add_time(struct timespec *, const struct timespec *);\n\n&' &&
        replace criu/pie/restorer.c 'ret = timerfd_arm(args);' 'ret = lock_again(args) ?: timerfd_arm(args);' &&
        replace criu/pie/restorer.c 'if (t->settime_flags & TFD_TIMER_ABSTIME) {' \
            'if (t->settime_flags \& TFD_TIMER_ABSTIME \&\& (t->val.it_value.tv_sec || t->val.it_value.tv_nsec)) {' &&
        replace criu/pie/restorer.c 't->val.it_value.tv_sec += (time_t)ts.tv_sec;' 'add_time(\&t->val.it_value, \&ts);' || return
    cat "$1/locks.c" >>criu/file-lock.c
    cat "$1/restorer.c" >>criu/pie/restorer.c
    # A fork's files are a copy of those at the dump, so their size will do; it would read each program and library, as
    # root, for an id that says whether it is the same one.
    replace criu/include/cr_options.h 'FILE_VALIDATION_DEFAULT FILE_VALIDATION_BUILD_ID' \
        'FILE_VALIDATION_DEFAULT FILE_VALIDATION_FILE_SIZE'
}

# Without GnuTLS (only for encrypted migration) and static: tvsnap starts CRIU for every checkpoint and every fork,
# and this start takes 0.7 ms instead of 2.1. The run directory holds CRIU's cache of what the kernel can do; on
# anything but a tmpfs each start takes 40-80 ms more.
compile() {
    local make=(make -j"$(nproc)" criu RUNDIR=/dev/shm NO_GNUTLS=1)
    unset MAKEFLAGS MAKELEVEL
    "${make[@]}" || return
    # Only the last link may be static: CRIU's parasite code is linked with the same flags, and must not be.
    # Where a suite has no static libnl or libnet, the dynamic program serves.
    mv criu/criu criu/criu.dynamic
    "${make[@]}" LDFLAGS="-static -Wl,-Map=$PWD/linked.map" || mv criu/criu.dynamic criu/criu
}

# owner PATH: prints the package that a file is of, which may know it by a name from before /lib was moved to /usr/lib.
owner() { { dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "${1#/usr}"; } | sed 's/: .*//'; }

# note_origins DIRECTORY: writes there whose code is in the binary: CRIU's source, the licences, and the packages of the
# static libraries that were linked into it, as `SOURCE=VERSION`.
note_origins() {
    local path package
    cp "$TAR" COPYING "$1" || return
    [ -e linked.map ] || return 0
    sed -n 's/^LOAD \(\/.*\)$/\1/p' linked.map | xargs realpath | sort -u | grep -v "^$PWD/" >linked || return
    while read -r path; do owner "$path" || return; done <linked | sort -u >packages
    xargs dpkg-query -W -f '${source:Package}=${source:Version}\n' <packages | sort -u >"$1/sources.txt" || return
    while read -r package; do keep_licence "${package%:*}" "$1" || return; done <packages
}

mkdir -p "$CACHE"
packages=(libc6-dev libcap-dev libnet1-dev libnl-3-dev libprotobuf-c-dev libprotobuf-dev protobuf-c-compiler
    protobuf-compiler uuid-dev xz-utils)
for program in gcc make pkg-config; do
    command -v "$program" >/dev/null || packages+=("$program")
done
install_packages "${packages[@]}"

if ! find_mirror; then
    run_logged apt-update "apt-get update" apt-get update
    find_mirror || die "apt knows no Debian or Ubuntu archive, so the source of CRIU cannot be fetched;" \
        "put a criu $OLDEST_CRIU or newer in PATH, or go on without: TVSNAP_WITHOUT_CRIU=1"
fi
fetch_newest_source

say "building CRIU $VERSION (about half a minute)"
mkdir "$WORK/build"
run_logged criu-build "unpacking $TAR" tar -xf "$TAR" -C "$WORK/build" --strip-components=1
ADDED=$PWD/native/criu
cd "$WORK/build"
run_logged criu-build "adding $ADDED to CRIU $VERSION" add_ours "$ADDED"
run_logged criu-build "building CRIU $VERSION" compile

strip -o "$WORK/criu" criu/criu
mkdir -p "$NEW"
run_logged criu-notes "noting what was linked into CRIU" note_origins "$NEW"
kept=$KEPT/criu-$VERSION-$CRIU_ADDITIONS
mkdir -p "$kept"
mv "$NEW"/* "$kept"
cp "$WORK/criu" "$kept/criu.new"
mv "$kept/criu.new" "$kept/criu" # last, and renamed into place: the old one may be running
