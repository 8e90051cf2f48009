#include "shell_mode.h"

#define BIT(mode) (1u << (mode))

/* For each mode, those that may follow. */
static const unsigned next_modes[SHELL_MODES] = {
    [SHELL_GONE] = BIT(SHELL_STARTING),
    [SHELL_STARTING] = BIT(SHELL_IDLE) | BIT(SHELL_GONE),
    [SHELL_IDLE] = BIT(SHELL_RUNNING) | BIT(SHELL_PROMPT) | BIT(SHELL_STARTING) | BIT(SHELL_GONE),
    [SHELL_RUNNING] = BIT(SHELL_IDLE) | BIT(SHELL_GONE),
    [SHELL_PROMPT] = BIT(SHELL_IDLE) | BIT(SHELL_GONE),
};

bool may_follow(enum shell_mode from, enum shell_mode to) {
    return from < SHELL_MODES && to < SHELL_MODES && (next_modes[from] & BIT(to));
}

const char *mode_name(enum shell_mode mode) {
    static const char *const names[SHELL_MODES] = {
        [SHELL_GONE] = "gone", [SHELL_STARTING] = "starting", [SHELL_IDLE] = "idle",
        [SHELL_RUNNING] = "running", [SHELL_PROMPT] = "prompt",
    };
    return mode < SHELL_MODES ? names[mode] : "unknown";
}
