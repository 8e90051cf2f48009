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

void fresh_network(void) {
    check(unshare(CLONE_NEWNET) == 0, "network namespace");
    set_network_up();
}
