/* Whether an area is as it was made: every byte of it, and the flags of its mapping. */
#define _GNU_SOURCE
#include "heaps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void must(int good, const char *what) {
    if (good)
        return;
    perror(what);
    exit(3);
}

void note_bad(struct report *report, const char *kind, const volatile void *at, const char *what) {
    if (!report->bad[0])
        snprintf(report->bad, sizeof report->bad, "%s %p %s", kind, (const void *)at, what);
}

int is_readable(const void *page) {
    /* The kernel reads a file name there, or cannot. */
    return access(page, F_OK) == 0 || errno != EFAULT;
}

static void read_flags(const void *at, char *flags, size_t room) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    must(maps != NULL, "smaps");
    char line[512];
    int here = 0;
    flags[0] = 0;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
            here = start <= (uintptr_t)at && (uintptr_t)at < end;
        else if (here && !strncmp(line, "VmFlags:", 8)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(flags, room, "%s ", line + 9);
            break;
        }
    }
    fclose(maps);
}

/*
 * A restore in the midst of reading goes on at the same offset, of another text: CRIU's own mapping may still be in it. So one reading is
 * no reading.
 */
void flags_of(const void *at, char *flags, size_t room) {
    char again[256];
    read_flags(at, flags, room);
    for (;;) {
        read_flags(at, again, sizeof again);
        if (!strncmp(again, flags, room - 1))
            return;
        snprintf(flags, room, "%s", again);
    }
}

static int has(const char *flags, const char *flag) { return strstr(flags, flag) != NULL; }

/* Each flag has two letters and a space. */
static int all_of(const char *these, const char *in, const char *but) {
    for (; *these == ' '; these++)
        ;
    for (; these[0] && these[1]; these += 3) {
        char flag[3] = {these[0], these[1], 0};
        if (!has(in, flag) && !has(but, flag))
            return 0;
    }
    return 1;
}

/*
 * A mapping that had no opinion on huge pages may have come to like them: there is no way to fill one with huge pages without, and no way
 * back. Whether it is accounted for (ac) is the kernel's to know.
 */
static int same_flags(const char *before, const char *now) {
    const char *but = has(before, "nh") ? "sd ac " : "sd ac hg ";
    return all_of(before, now, "sd ac ") && all_of(now, before, but);
}

void check_flags(const struct area *area, struct report *report) {
    char flags[sizeof area->flags], what[160];
    flags_of(area->start, flags, sizeof flags);
    if (!same_flags(area->flags, flags)) {
        snprintf(what, sizeof what, "flags %.70s now %.70s", area->flags, flags);
        note_bad(report, area->kind, area->start, what);
    }
}

void check_area(struct area *area, struct report *report) {
    check_flags(area, report);
    int hidden = !(area->protection & PROT_READ);
    if (hidden && is_readable(area->start))
        note_bad(report, area->kind, area->start, "can be read");
    if (hidden)
        must(!mprotect(area->start, area->bytes, PROT_READ), "mprotect");
    const uint64_t *wrong = first_wrong(area, &report->checksum);
    if (wrong) {
        char what[32];
        snprintf(what, sizeof what, "%016" PRIx64, *wrong);
        note_bad(report, area->kind, wrong, what);
    }
    if (hidden)
        must(!mprotect(area->start, area->bytes, area->protection), "mprotect");
    report->kinds++;
    report->bytes += area->bytes;
}
