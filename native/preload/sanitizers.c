/* Programs built with gcc's or clang's -fsanitize=address refuse to run with a library that was loaded before
 * theirs. This disables the check, since we do no harm; a program's own options come after these. */
#include "preload.h"

EXPORT(const char *, __asan_default_options, void) { return "verify_asan_link_order=0"; }
