/* Children: one that shares memory copy-on-write, two with images of their own, one that nobody has waited for. */
#define _GNU_SOURCE
#include "heaps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RW (PROT_READ | PROT_WRITE)
#define ZOMBIE_STATUS 7
enum { PARENT, CHILD };

static int cow_child = -1, members[2] = {-1, -1}; /* our ends of a socket pair to each */
static pid_t zombie;
static struct area cow;
static uint64_t *cow_seeds; /* of each page, as this process has it */
static uint64_t writes;

static int pair_with_child(int *theirs) {
    int pair[2];
    must(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), "socketpair");
    *theirs = pair[1];
    return pair[0];
}

static void cow_check(struct report *report) {
    check_flags(&cow, report);
    for (size_t page = 0; page < cow.bytes / PAGE; page++) {
        uint64_t *from = (uint64_t *)(cow.start + page * PAGE);
        const uint64_t *wrong = wrong_in_piece(from, from + PAGE / sizeof *from, RANDOM, cow_seeds[page], &report->checksum);
        if (wrong) {
            note_bad(report, cow.kind, wrong, "");
            break;
        }
    }
    report->kinds++;
    report->bytes += cow.bytes;
}

/* Each process writes to pages of its own, further ones each time. */
static void cow_write(int who) {
    size_t page = (2 * writes++ + (size_t)who) % (cow.bytes / PAGE);
    cow_seeds[page] += 0x1000001 + (uint64_t)who;
    uint64_t *from = (uint64_t *)(cow.start + page * PAGE);
    fill_piece(from, from + PAGE / sizeof *from, RANDOM, cow_seeds[page]);
}

static void child_check(struct report *report) {
    cow_check(report);
    for (int i = 0; i < 2; i++) {
        struct area *area = area_of(i ? "memfd" : "shared");
        if (area)
            check_area(area, report);
    }
    struct area *left_out = area_of("dontfork"), *wiped = area_of("wipeonfork");
    if (left_out && is_readable(left_out->start))
        note_bad(report, "dontfork", left_out->start, "in the child");
    if (wiped) {
        wiped->contents = UNTOUCHED;
        check_area(wiped, report);
    }
}

static void run_child(int parent) {
    char order;
    cow.kind = "cow-child";
    while (read(parent, &order, 1) == 1) {
        struct report report = {0};
        if (order == 'w')
            cow_write(CHILD);
        child_check(&report);
        if (write(parent, &report, sizeof report) != sizeof report)
            break;
    }
    _exit(0);
}

static void start_cow(size_t bytes) {
    cow = (struct area){"cow", map_apart(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1), bytes, RANDOM, 0xc0c0c0c0ULL, RW, 0, ""};
    fill(&cow);
    flags_of(cow.start, cow.flags, sizeof cow.flags);
    cow_seeds = malloc(bytes / PAGE * sizeof *cow_seeds);
    must(cow_seeds != NULL, "malloc");
    for (size_t page = 0; page < bytes / PAGE; page++)
        cow_seeds[page] = cow.seed;
    int theirs;
    cow_child = pair_with_child(&theirs);
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        close(cow_child);
        run_child(theirs);
    }
    close(theirs);
}

static int start_member(const char *kind, size_t bytes) {
    int theirs, ours = pair_with_child(&theirs);
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        char descriptor[16], size[32];
        close(ours);
        snprintf(descriptor, sizeof descriptor, "%d", theirs);
        snprintf(size, sizeof size, "%zu", bytes);
        execl("/proc/self/exe", "heaps", "member", kind, descriptor, size, (char *)NULL);
        _exit(127);
    }
    close(theirs);
    return ours;
}

void family_member(int argc, char **argv) {
    must(argc == 5, "member KIND DESCRIPTOR BYTES");
    int parent = atoi(argv[3]);
    size_t bytes = strtoull(argv[4], NULL, 10);
    struct area area = {argv[2], map_apart(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1), bytes, RANDOM, 0xe8ecULL, RW, 0, ""};
    fill(&area);
    flags_of(area.start, area.flags, sizeof area.flags);
    if (!strcmp(area.kind, "filtered"))
        filter_calls();
    char order;
    while (read(parent, &order, 1) == 1) {
        struct report report = {0};
        check_area(&area, &report);
        if (write(parent, &report, sizeof report) != sizeof report)
            break;
    }
    _exit(0);
}

void family_start(size_t bytes) {
    if (wanted("zombie")) {
        zombie = fork();
        must(zombie >= 0, "fork");
        if (zombie == 0)
            _exit(ZOMBIE_STATUS);
    }
    for (int i = 0; i < 2; i++)
        if (wanted(i ? "filtered" : "exec"))
            members[i] = start_member(i ? "filtered" : "exec", bytes);
    if (wanted("cow"))
        start_cow(bytes);
}

/* Has one of them do something, and adds what it has found. */
static void ask(int member, const char *order, struct report *report) {
    struct report theirs = {0};
    if (write(member, order, 1) != 1 || read(member, &theirs, sizeof theirs) != sizeof theirs) {
        note_bad(report, "member", NULL, "does not answer");
        return;
    }
    report->kinds += theirs.kinds;
    report->bytes += theirs.bytes;
    report->checksum ^= theirs.checksum;
    if (!report->bad[0])
        strcpy(report->bad, theirs.bad);
}

/* What one process writes must not be seen by the other, before and after. */
static void cow_turn(struct report *report) {
    struct report seen = {0};
    cow_check(report);
    ask(cow_child, "c", report);
    cow_write(PARENT);
    ask(cow_child, "c", &seen);
    ask(cow_child, "w", &seen);
    cow_check(&seen);
    if (!report->bad[0])
        strcpy(report->bad, seen.bad);
}

static void zombie_check(struct report *report) {
    siginfo_t how = {0};
    /* It may take a moment to end. */
    if (waitid(P_PID, (id_t)zombie, &how, WEXITED | WNOWAIT) || how.si_code != CLD_EXITED || how.si_status != ZOMBIE_STATUS)
        note_bad(report, "zombie", NULL, "is not as it was");
    report->kinds++;
}

void family_check(struct report *report) {
    if (zombie > 0)
        zombie_check(report);
    for (int i = 0; i < 2; i++)
        if (members[i] >= 0)
            ask(members[i], "c", report);
    if (cow_child >= 0)
        cow_turn(report);
}
