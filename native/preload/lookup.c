/* Finds functions in the objects that were loaded after this one, like dlsym(RTLD_NEXT, ...): not every program has
 * dlsym, which was in a separate library before glibc 2.34. */
#include "preload.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <sys/syscall.h>

struct search {
    const char *name;
    uint32_t hash;
    bool passed; /* this object was reached */
    void *found;
};

struct tables {
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *gnu, *old;
    const ElfW(Half) * versions;
};

static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name; name++) hash = hash * 33 + (unsigned char)*name;
    return hash;
}

bool equal_texts(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static const ElfW(Phdr) * segment(const struct dl_phdr_info *object, ElfW(Word) type) {
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == type) return &object->dlpi_phdr[i];
    return NULL;
}

/* glibc has converted these into addresses, musl leaves them relative. */
static const void *address(const struct dl_phdr_info *object, ElfW(Addr) value) {
    return (const void *)(value < object->dlpi_addr ? object->dlpi_addr + value : value);
}

static bool read_tables(const struct dl_phdr_info *object, struct tables *t) {
    const ElfW(Phdr) *dynamic = segment(object, PT_DYNAMIC);
    *t = (struct tables){0};
    if (!dynamic) return false;
    for (const ElfW(Dyn) *entry = (const void *)(object->dlpi_addr + dynamic->p_vaddr); entry->d_tag != DT_NULL; entry++) {
        const void *at = address(object, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB) t->symbols = at;
        if (entry->d_tag == DT_STRTAB) t->names = at;
        if (entry->d_tag == DT_GNU_HASH) t->gnu = at;
        if (entry->d_tag == DT_HASH) t->old = at;
        if (entry->d_tag == DT_VERSYM) t->versions = at;
    }
    return t->symbols && t->names && (t->gnu || t->old);
}

/* Returns the address if that symbol is a function of that name, in the version that new programs get. */
static void *as_function(const struct dl_phdr_info *object, const struct tables *t, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &t->symbols[index];
    if (symbol->st_shndx == SHN_UNDEF || !equal_texts(t->names + symbol->st_name, name)) return NULL;
    if (t->versions && t->versions[index] & 0x8000) return NULL;
    void *at = (void *)(object->dlpi_addr + symbol->st_value);
    if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC) return ((void *(*)(void))at)();
    return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC ? at : NULL;
}

static void *find_by_gnu_hash(const struct dl_phdr_info *object, const struct tables *t, const struct search *s) {
    uint32_t buckets = t->gnu[0], first = t->gnu[1], words = t->gnu[2];
    const uint32_t *bucket = t->gnu + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t)), *chain = bucket + buckets;
    if (!buckets) return NULL;
    uint32_t index = bucket[s->hash % buckets];
    if (index < first) return NULL;
    for (;; index++) {
        uint32_t hash = chain[index - first];
        void *found = (hash | 1) == (s->hash | 1) ? as_function(object, t, index, s->name) : NULL;
        if (found || hash & 1) return found;
    }
}

static void *find_in(const struct dl_phdr_info *object, const struct search *s) {
    struct tables t;
    if (!read_tables(object, &t)) return NULL;
    if (t.gnu) return find_by_gnu_hash(object, &t, s);
    for (uint32_t i = 0; i < t.old[1]; i++) {
        void *found = as_function(object, &t, i, s->name);
        if (found) return found;
    }
    return NULL;
}

static bool holds(const struct dl_phdr_info *object, const void *code) {
    uintptr_t here = (uintptr_t)code;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && here >= start && here < start + part->p_memsz) return true;
    }
    return false;
}

static int look(struct dl_phdr_info *object, size_t size, void *data) {
    struct search *s = data;
    (void)size;
    if (!s->passed) {
        s->passed = holds(object, (const void *)&gnu_hash);
        return 0;
    }
    s->found = find_in(object, s);
    return s->found != NULL;
}

void *next_symbol(const char *name) {
    struct search s = {.name = name, .hash = gnu_hash(name)};
    dl_iterate_phdr(look, &s);
    return s.found;
}

long missing(void) {
    *__errno_location() = ENOSYS;
    return -1;
}

/* Makes a system call of up to four arguments; returns the kernel's result, with an error as a negative number. */
long kernel(long number, long a, long b, long c, long d) {
#if defined __x86_64__
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#else
#error "a fixed clock and fixed randomness need x86-64 or 64-bit ARM"
#endif
}
