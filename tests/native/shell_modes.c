/* The shell's modes as shell.c keeps them; client 0 is standard output.
 *
 *   shell_modes table          a line `FROM TO` for each mode that may follow another
 *   shell_modes step FROM TO   goes from one mode to another amid a call, and says what is left: `done` or `refused`,
 *                              the mode, whether an action is under way, whether the next call is told of a loss
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "action.h"
#include "shell.h"
#include "shell_mode.h"

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "table") == 0) {
        for (enum shell_mode from = 0; from < SHELL_MODES; from++)
            for (enum shell_mode to = 0; to < SHELL_MODES; to++)
                if (may_follow(from, to)) printf("%s %s\n", mode_name(from), mode_name(to));
        return 0;
    }
    if (argc != 4 || strcmp(argv[1], "step") != 0) return 2;
    for (int i = 0; i < MAX_CLIENTS; i++) guest.clients[i].input = guest.clients[i].output = -1;
    guest.clients[0] = (struct client){.input = 0, .output = 1};
    guest.listener = guest.master = guest.wake = guest.report = guest.out_reader = -1;
    guest.mode = (enum shell_mode)atoi(argv[2]);
    begin_action(RUN, 0, 1000000, 100);
    bool done = set_mode((enum shell_mode)atoi(argv[3]));
    dprintf(2, "%s %s %d %d\n", done ? "done" : "refused", mode_name(guest.mode), action.kind != NOTHING, guest.loss_untold);
    return 0;
}
