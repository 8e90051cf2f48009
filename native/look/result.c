#include "result.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "error_text.h"

/* Returns what was found, or the number of an error. */
int tell(struct told *told, struct text *found, int error) {
    *told = (struct told){.error = error};
    if (error) {
        free(found->data);
        snprintf(told->why, sizeof told->why, "%s", error_text(error));
        return error == ETIME ? LOOK_TOO_LONG : error == E2BIG ? LOOK_TOO_MUCH : LOOK_NOT_ALL;
    }
    told->changed = found->data;
    told->changed_length = found->length;
    return LOOK_DONE;
}
