#include "bridge.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol.h"

/* Runs until either side ends. */
int bridge(void) {
    static struct {
        int from, to;
        size_t at, length;
        char data[65536];
    } ways[2];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un control = {.sun_family = AF_UNIX, .sun_path = CONTROL_PATH};
    if (fd < 0 || connect(fd, (struct sockaddr *)&control, sizeof control)) die(CONTROL_PATH);
    ways[0].from = 0, ways[0].to = fd;
    ways[1].from = fd, ways[1].to = 1;
    for (int i = 0; i < 2; i++) set_nonblocking(ways[i].to);
    for (;;) {
        struct pollfd p[2];
        for (int i = 0; i < 2; i++) {
            bool full = ways[i].length > 0;
            p[i] = (struct pollfd){full ? ways[i].to : ways[i].from, full ? POLLOUT : POLLIN, 0};
        }
        if (poll(p, 2, -1) < 0) return 1;
        for (int i = 0; i < 2; i++) {
            if (!p[i].revents) continue;
            if (!ways[i].length) {
                ssize_t n = read(ways[i].from, ways[i].data, sizeof ways[i].data);
                if (n < 0 && errno == EAGAIN) continue;
                if (n <= 0) return 0;
                ways[i].at = 0;
                ways[i].length = (size_t)n;
            }
            ssize_t n = write_now(ways[i].to, ways[i].data + ways[i].at, ways[i].length);
            if (n < 0) return 0;
            ways[i].at += (size_t)n;
            ways[i].length -= (size_t)n;
        }
    }
}
