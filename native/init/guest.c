#include "guest.h"

struct guest guest;
struct action action = {.client = -1, .output = -1, .input = -1};
