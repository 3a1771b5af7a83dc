/*
 * ranks [PORT [RANKS [OPTION...]]]: a parent without CUDA forks ranks, each with CUDA on a GPU (rank modulo GPUs), that meet in a kernel again
 * and again: one that has come waits there, inside a CUDA call, for all others, as in a collective of NCCL. A packet is
 * answered once all have met again: "ok RANKS MEETINGS CHECKSUM", "bad ..." if the checksum of a rank is wrong, or "stuck
 * MEETINGS" after ten seconds. The ranks share anonymous memory, which they inherit.
 *
 * OPTION "nccl=PATH": the ranks pass for ones that use NCCL, of which PATH is the library. "ahead=N": all but the first look at their results only at every Nth meeting, and so
 * have that many kernels submitted that wait for the first, as ranks that print no loss do. "only=RANK": this program starts that
 * rank alone, and meets those of others, of other containers, through the file "file=PATH" in the place of inherited memory.
 */
#define _GNU_SOURCE
#include "../gpu/gpu.h"
#include "meet.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MOST_RANKS 16
#define PAGE 4096

/* A rank's report of its last meetings; two by turns, so that one can be read while the other is written. */
struct report {
    uint64_t finished, checksum;
};

static struct shared {
    _Alignas(PAGE) struct slot slots[MOST_RANKS];
    _Alignas(PAGE) struct report reports[MOST_RANKS][2];
} *shared;
static uint32_t ranks, ahead = 1;

static void nap(long microseconds) { nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL); }

static void *watch(void *unused) {
    while (pause())
        continue;
    return unused;
}

/* Imitates, for the outside, a rank that uses NCCL through PyTorch: the library, and a thread with this name. */
static void pass_for_nccl(const char *library) {
    int file = open(library, O_RDONLY | O_CLOEXEC);
    pthread_t watchdog;
    if (file < 0 || mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED ||
        pthread_create(&watchdog, NULL, watch, NULL)) {
        perror(library);
        exit(1);
    }
    pthread_setname_np(watchdog, "pt_nccl_watchdg");
    close(file);
}

static void be_rank(uint32_t rank) {
    prctl(PR_SET_PDEATHSIG, 9);
    gpu_open_device((int)rank % gpu_count());
    CUmodule module;
    CUfunction meet;
    CUDA(cuModuleLoadData(&module, MEET));
    CUDA(cuModuleGetFunction(&meet, module, "meet"));
    CUdeviceptr slots, state = gpu_allocate(sizeof(struct meetings));
    CUDA(cuMemHostRegister_v2(shared->slots, sizeof shared->slots, 2));
    CUDA(cuMemHostGetDevicePointer_v2(&slots, shared->slots, 0));
    struct meetings now = {.number = 100 * (uint64_t)(rank + 1)};
    CUDA(cuMemcpyHtoD_v2(state, &now, sizeof now));
    for (uint64_t meetings = 1;; meetings++) {
        CUDA(cuLaunchKernel(meet, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&slots, &rank, &ranks, &state}, NULL));
        /* A rank's own work: the others wait for the last one. */
        nap(rank && ahead > 1 ? 100 : 1000 + 500 * rank);
        if (rank && meetings % ahead)
            continue;
        CUDA(cuMemcpyDtoH_v2(&now, state, sizeof now));
        struct report *report = &shared->reports[rank][now.finished % 2];
        report->checksum = now.checksum;
        __atomic_store_n(&report->finished, now.finished, __ATOMIC_RELEASE);
    }
}

static void start_rank(uint32_t rank, int argc, char **argv) {
    if (fork())
        return;
    /* Faults of the stand-in name ranks by tag: TAG-0, TAG-1, ... */
    const char *own_tag = getenv("STASIS_TAG");
    char tag[64];
    snprintf(tag, sizeof tag, "%s-%u", own_tag ? own_tag : "ranks", rank);
    setenv("STASIS_TAG", tag, 1);
    for (int i = 3; i < argc; i++) {
        if (!strncmp(argv[i], "nccl=", 5))
            pass_for_nccl(argv[i] + 5);
        else if (!strncmp(argv[i], "ahead=", 6))
            ahead = (uint32_t)strtoul(argv[i] + 6, NULL, 10);
    }
    ahead = ahead ? ahead : 1;
    be_rank(rank);
}

static uint64_t finished(uint32_t rank) {
    const struct report *reports = shared->reports[rank];
    uint64_t even = __atomic_load_n(&reports[0].finished, __ATOMIC_ACQUIRE);
    uint64_t odd = __atomic_load_n(&reports[1].finished, __ATOMIC_ACQUIRE);
    return even > odd ? even : odd;
}

static uint64_t finished_by_all(void) {
    uint64_t least = UINT64_MAX;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint64_t own = finished(rank);
        least = own < least ? own : least;
    }
    return least;
}

/* Rank r comes to meeting m with the number 100 (r + 1) + m. */
static uint64_t checksum(uint64_t meetings) {
    return 50ULL * ranks * (ranks + 1) * meetings + ranks * (meetings * (meetings + 1) / 2);
}

/* Checks the last meeting that each rank reports. */
static int all_are_right(void) {
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (int tries = 0;; tries++) {
            uint64_t meetings = finished(rank);
            const struct report *report = &shared->reports[rank][meetings % 2];
            if (report->checksum == checksum(meetings))
                break;
            if (tries == 100)
                return 0;
            nap(100); /* it was being written */
        }
    return 1;
}

static void answer(char *text, size_t room) {
    uint64_t before = finished_by_all(), now = before;
    for (int i = 0; i < 10000 && now < before + 2; i++) {
        nap(1000);
        now = finished_by_all();
    }
    unsigned long long meetings = now, sum = checksum(now);
    if (now < before + 2)
        snprintf(text, room, "stuck %llu\n", meetings);
    else
        snprintf(text, room, "%s %u %llu %llu\n", all_are_right() ? "ok" : "bad", ranks, meetings, sum);
}

/* The memory in which ranks meet: a file's, or inherited. */
static void *meeting_place(const char *path) {
    int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (path && (file < 0 || ftruncate(file, sizeof *shared)))
        return MAP_FAILED;
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | (path ? 0 : MAP_ANONYMOUS), file, 0);
    if (path)
        close(file);
    return memory;
}

int main(int argc, char **argv) {
    const char *path = NULL;
    int only = -1;
    for (int i = 3; i < argc; i++) {
        if (!strncmp(argv[i], "file=", 5))
            path = argv[i] + 5;
        else if (!strncmp(argv[i], "only=", 5))
            only = atoi(argv[i] + 5);
    }
    shared = meeting_place(path);
    if (shared == MAP_FAILED)
        return 1;
    ranks = (uint32_t)argument(argc, argv, 2, 2);
    ranks = ranks < 1 ? 1 : ranks > MOST_RANKS ? MOST_RANKS : ranks;
    for (uint32_t rank = 0; rank < ranks; rank++)
        if (only < 0 || rank == (uint32_t)only)
            start_rank(rank, argc, argv);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
