/* The parts of `heaps` (main.c says what it is for). */
#ifndef STASIS_WORKLOAD_HEAPS_H
#define STASIS_WORKLOAD_HEAPS_H

#include <stddef.h>
#include <stdint.h>

#define PAGE ((size_t)4096)

enum contents {
    RANDOM,    /* incompressible */
    HALF_ZERO, /* every other page or so holds zeros that were written; by runs of eight */
    WEIGHTS,   /* bf16 numbers, N(0, 0.02) */
    SPARSE,    /* one run of sixteen pages in eight; the others were never touched */
    ZERO,      /* written */
    UNTOUCHED,
};

/* A piece of memory that has one mapping, or more if somebody cuts it up. */
struct area {
    const char *kind;
    unsigned char *start;
    size_t bytes;
    enum contents contents;
    uint64_t seed;
    int protection;  /* as it is between the checks */
    size_t hole;     /* offset of a page that nobody can read; 0: none */
    char flags[160]; /* VmFlags of its first mapping once it was made */
};

/* What checks have found. Members of the family send theirs. */
struct report {
    uint64_t kinds, bytes, checksum;
    char bad[192]; /* what was wrong first; empty: nothing */
};

/* Ends the program, saying what has failed. */
void must(int good, const char *what);

void fill(const struct area *area);
/* The first word that is not as it was filled, or NULL; the checksum goes on over the words. */
const uint64_t *first_wrong(const struct area *area, uint64_t *checksum);
/* The same for a part that is within one page. */
void fill_piece(uint64_t *from, uint64_t *end, enum contents contents, uint64_t seed);
const uint64_t *wrong_in_piece(const uint64_t *from, const uint64_t *end, enum contents contents, uint64_t seed, uint64_t *checksum);
void check_flags(const struct area *area, struct report *report);
/* Looks at the flags and at every byte, and counts the area. */
void check_area(struct area *area, struct report *report);
void note_bad(struct report *report, const char *kind, const volatile void *at, const char *what);

/* VmFlags of the mapping that an address is in. */
void flags_of(const void *at, char *flags, size_t room);
int is_readable(const void *page);
/* A mapping of its own: no other is next to it. */
unsigned char *map_apart(size_t bytes, int flags, int descriptor);

/* Whether the command line names a kind, or none at all. */
int wanted(const char *kind);

/* Areas of this process by kind; those that children see differently are made before these are. */
void areas_make_for_children(size_t bytes);
void areas_make(size_t bytes, enum contents of_plain);
void areas_check(struct report *report);
struct area *area_of(const char *kind);
const char *guard_state(void);

void threads_start(size_t bytes);
void threads_check(struct report *report);
/* From now on this thread dies of calls that change mappings' contents. */
void filter_calls(void);

void family_start(size_t bytes);
/* Has the members check, and write to what they share. */
void family_check(struct report *report);
/* The image of a member that was started by exec; does not return. */
void family_member(int argc, char **argv);

#endif
