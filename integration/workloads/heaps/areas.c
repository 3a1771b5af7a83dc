/* The areas of one process without threads. */
#define _GNU_SOURCE
#include "heaps.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RW (PROT_READ | PROT_WRITE)
#define GAP ((size_t)2 << 20)
#define GUARD_INSTALL 102 /* Linux 6.13 */
#define SEED 0x123456789abcdefULL

enum origin { ANONYMOUS, HEAP, SHARED, MEMFD, MEMFD_PRIVATE };
enum extra { NOTHING, LOCK, GUARD_PAGE, GUARD_MARK };

struct recipe {
    const char *kind;
    enum contents contents;
    enum origin origin;
    int advice;
    int protection;
    enum extra extra;
};

/* What a child inherits, or inherits differently. */
static const struct recipe for_children[] = {
    {"shared", RANDOM, SHARED, 0, RW, NOTHING},
    {"memfd", RANDOM, MEMFD, 0, RW, NOTHING},
    {"dontfork", RANDOM, ANONYMOUS, MADV_DONTFORK, RW, NOTHING},
    {"wipeonfork", RANDOM, ANONYMOUS, MADV_WIPEONFORK, RW, NOTHING},
};
static const struct recipe plain = {"plain", RANDOM, ANONYMOUS, 0, RW, NOTHING};
static const struct recipe others[] = {
    {"half-zero", HALF_ZERO, ANONYMOUS, 0, RW, NOTHING},
    {"weights", WEIGHTS, ANONYMOUS, 0, RW, NOTHING},
    {"sparse", SPARSE, ANONYMOUS, 0, RW, NOTHING},
    {"zero", ZERO, ANONYMOUS, 0, RW, NOTHING},
    {"huge", RANDOM, ANONYMOUS, MADV_HUGEPAGE, RW, NOTHING},
    {"nohuge", RANDOM, ANONYMOUS, MADV_NOHUGEPAGE, RW, NOTHING},
    {"dontdump", RANDOM, ANONYMOUS, MADV_DONTDUMP, RW, NOTHING},
    {"locked", RANDOM, ANONYMOUS, 0, RW, LOCK},
    {"read-only", RANDOM, ANONYMOUS, 0, PROT_READ, NOTHING},
    {"hidden", RANDOM, ANONYMOUS, 0, PROT_NONE, NOTHING},
    {"executable", RANDOM, ANONYMOUS, 0, RW | PROT_EXEC, NOTHING},
    {"guarded", RANDOM, ANONYMOUS, 0, RW, GUARD_PAGE},
    {"guard-marks", RANDOM, ANONYMOUS, 0, RW, GUARD_MARK},
    {"heap", RANDOM, HEAP, 0, RW, NOTHING},
    {"memfd-private", RANDOM, MEMFD_PRIVATE, 0, RW, NOTHING},
};
#define COUNT(array) (sizeof array / sizeof array[0])

static struct area areas[COUNT(for_children) + 1 + COUNT(others)];
static size_t count;

unsigned char *map_apart(size_t bytes, int flags, int descriptor) {
    unsigned char *room = mmap(NULL, bytes + 3 * GAP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(room != MAP_FAILED, "mmap");
    unsigned char *start = (unsigned char *)(((uintptr_t)room + 2 * GAP) / GAP * GAP);
    must(mmap(start, bytes, RW, flags | MAP_FIXED, descriptor, 0) == start, "mmap");
    return start;
}

static unsigned char *map(const struct recipe *recipe, size_t bytes) {
    if (recipe->origin == HEAP) {
        /* From brk, whatever its size. */
        mallopt(M_MMAP_MAX, 0);
        unsigned char *start = malloc(bytes);
        must(start != NULL, "malloc");
        return start;
    }
    if (recipe->origin == ANONYMOUS || recipe->origin == SHARED)
        return map_apart(bytes, MAP_ANONYMOUS | (recipe->origin == SHARED ? MAP_SHARED : MAP_PRIVATE), -1);
    int file = memfd_create(recipe->kind, MFD_CLOEXEC);
    must(file >= 0 && !ftruncate(file, (off_t)bytes), "memfd");
    return map_apart(bytes, recipe->origin == MEMFD ? MAP_SHARED : MAP_PRIVATE, file);
}

static void make(const struct recipe *recipe, size_t bytes, enum contents contents) {
    if (!wanted(recipe->kind))
        return;
    struct area *area = &areas[count];
    /* Not a whole number of megabytes. */
    bytes += 3 * PAGE;
    *area = (struct area){recipe->kind, map(recipe, bytes), bytes, contents, (count + 1) * SEED, recipe->protection, 0, ""};
    must(!recipe->advice || !madvise(area->start, bytes, recipe->advice), recipe->kind);
    must(recipe->extra != LOCK || !mlock(area->start, bytes), "mlock (it needs CAP_IPC_LOCK)");
    if (recipe->extra == GUARD_PAGE || recipe->extra == GUARD_MARK)
        area->hole = bytes / PAGE / 2 * PAGE;
    fill(area);
    unsigned char *hole = area->start + area->hole;
    if (recipe->extra == GUARD_MARK && madvise(hole, PAGE, GUARD_INSTALL)) {
        must(errno == EINVAL, "guard marks");
        return;
    }
    must(recipe->extra != GUARD_PAGE || !mprotect(hole, PAGE, PROT_NONE), "mprotect");
    must(recipe->protection == RW || !mprotect(area->start, bytes, recipe->protection), "mprotect");
    flags_of(area->start, area->flags, sizeof area->flags);
    count++;
}

void areas_make_for_children(size_t bytes) {
    for (size_t i = 0; i < COUNT(for_children); i++)
        make(&for_children[i], bytes, for_children[i].contents);
}

void areas_make(size_t bytes, enum contents of_plain) {
    make(&plain, bytes, of_plain);
    for (size_t i = 0; i < COUNT(others); i++)
        make(&others[i], bytes, others[i].contents);
}

struct area *area_of(const char *kind) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(areas[i].kind, kind))
            return &areas[i];
    return NULL;
}

const char *guard_state(void) {
    struct area *area = area_of("guard-marks");
    if (!area)
        return "none";
    return is_readable(area->start + area->hole) ? "lost" : "kept";
}

void areas_check(struct report *report) {
    for (size_t i = 0; i < count; i++) {
        check_area(&areas[i], report);
        if (!strcmp(areas[i].kind, "guarded") && is_readable(areas[i].start + areas[i].hole))
            note_bad(report, "guarded", areas[i].start + areas[i].hole, "can be read");
    }
}
