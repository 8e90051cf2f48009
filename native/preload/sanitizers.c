/* What programs of gcc's and clang's -fsanitize=address refuse to run with: a library that was loaded before theirs. It
 * does no harm here, and a program's own options come after these. */
#include "preload.h"

EXPORT(const char *, __asan_default_options, void) { return "verify_asan_link_order=0"; }
