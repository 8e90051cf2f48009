#include "network.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checks.h"

/* Sets up a new network namespace for a sandbox: loopback only, and any process may bind any port. */
void set_network_up(void) {
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    check(s >= 0 && ioctl(s, SIOCSIFFLAGS, &up) == 0, "loopback");
    close(s);
    write_file("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    /* The kernel does not limit data queued in ping sockets: some hundreds of them could take the machine's memory. */
    write_file("/proc/sys/net/ipv4/ping_group_range", "1 0");
    /* Servers that prefer Multipath TCP, which CRIU refuses (those in Go do), then use TCP. */
    const char *mptcp = "/proc/sys/net/mptcp/enabled";
    if (access(mptcp, W_OK) == 0) write_file(mptcp, "0");
}

/* Where the table of connections has its size, for the network namespaces that this one's processes make (Linux 6.1). */
static const char CHILDREN_BUCKETS[] = "/proc/sys/net/ipv4/tcp_child_ehash_entries";
/* Limits that the kernel derives from that size, and that are to be those of the machine. */
static const char *const DERIVED[] = {
    "/proc/sys/net/ipv4/tcp_max_tw_buckets",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
};

/* Makes a network namespace with a table of connections of its own. A program that lists connections, such as CRIU at
 * each checkpoint, reads each bucket of the table: in that of the machine, some 100,000, which takes milliseconds. */
static void make_namespace(void) {
    char usual[sizeof DERIVED / sizeof *DERIVED][32];
    if (access(CHILDREN_BUCKETS, F_OK) != 0) {
        check(unshare(CLONE_NEWNET) == 0, "network namespace");
        return;
    }
    check(unshare(CLONE_NEWNET) == 0, "outer network namespace"); /* only for its setting; it ends at the next unshare */
    for (unsigned i = 0; i < sizeof DERIVED / sizeof *DERIVED; i++) read_file(DERIVED[i], usual[i], sizeof usual[i]);
    write_file(CHILDREN_BUCKETS, "1024");
    check(unshare(CLONE_NEWNET) == 0, "network namespace");
    for (unsigned i = 0; i < sizeof DERIVED / sizeof *DERIVED; i++) write_file(DERIVED[i], usual[i]);
}

void fresh_network(void) {
    make_namespace();
    set_network_up();
}
