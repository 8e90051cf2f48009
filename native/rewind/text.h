/* Growing text, files of /proc, and error messages. */
#ifndef TVSNAP_REWIND_TEXT_H
#define TVSNAP_REWIND_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum { MOST_FACTS = 1 << 20 };

struct text {
    char *data;
    size_t length, room;
};

struct reason {
    char *text;
    size_t room;
};

bool fail(struct reason *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool add(struct text *to, const void *data, size_t length);
bool add_line(struct text *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool add_file(struct text *to, int directory, const char *name);
bool add_list(struct text *to, int directory, const char *name);
bool same_text(struct reason *why, int pid, const struct text *was, const struct text *is);
bool is_deleted(const char *path);
unsigned long long start_of(int directory);

#endif
