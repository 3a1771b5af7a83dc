/*
 * A driver's library and a program that uses it, in one: `survey GATE` prints the address of 64 MiB that pass for GPU memory, and
 * the thread that passes for the one that carries out checkpoints. For each line that it reads it prints how often that thread has
 * waited, or 0 if it has waited badly. A thread that finds the file GATE in cuDeviceGetCount renames it to GATE.reached, and does not
 * come out as long as GATE.reached exists.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef LIBRARY

static char *memory;
static const char *gate;
static char reached[4096];
#define BYTES (64UL << 20)

void *make_memory(const char *path) {
    /* Every library that allocates handles calls both. */
    void *volatile unused = calloc(1, 1);
    free(unused);
    gate = path;
    snprintf(reached, sizeof reached, "%s.reached", path);
    return memory = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int is_in(uint64_t address) { return address - (uint64_t)memory < BYTES; }

int cuMemRetainAllocationHandle(uint64_t *handle, uint64_t address) { return 1; }
int cuMemGetAllocationPropertiesFromHandle(void *properties, uint64_t handle) { return 1; }
int cuMemRelease(uint64_t handle) { return 1; }
int cuMemGetAddressRange_v2(uint64_t *start, size_t *bytes, uint64_t address) {
    *start = (uint64_t)memory, *bytes = BYTES;
    return is_in(address) ? 0 : 1;
}
int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
    *(int *)value = attribute == 10;
    return 0;
}
int cuMemGetAccess(uint64_t *flags, const int *location, uint64_t address) { return 1; }
int cuMemPoolGetAccess(int *flags, void *pool, const int *location) { return 1; }
int cuDeviceGetCount(int *count) {
    rename(gate, reached);
    while (!access(reached, F_OK))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    *count = 1;
    return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *active = 1, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = memory, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuCtxEnablePeerAccess(void *context, unsigned flags) { return 1; }
int cuCtxDisablePeerAccess(void *context) { return 1; }

/* These are not called. */
int cuThreadExchangeStreamCaptureMode(int *mode) { return 1; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { return 1; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { return 1; }
int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, uint64_t flags) { return 1; }
int cuMemAddressFree(uint64_t address, size_t bytes) { return 1; }
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) { return 1; }
int cuMemUnmap(uint64_t address, size_t bytes) { return 1; }
int cuMemSetAccess(uint64_t address, size_t bytes, const void *accesses, size_t count) { return 1; }
int cuMemExportToShareableHandle(int *file, uint64_t handle, int type, uint64_t flags) { return 1; }
int cuCtxSynchronize(void) { return 1; }
int cuMemImportFromShareableHandle(uint64_t *handle, void *file, int type) { return 1; }

#else

void *make_memory(const char *path);
static volatile uint64_t waits, bad;
static volatile int thread_id;

static void *wait_on(void *unused) {
    thread_id = (int)syscall(SYS_gettid);
    for (;;) {
        bad += nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL) != 0;
        waits++;
    }
    return unused;
}

int main(int argc, char **argv) {
    char line[64];
    pthread_t thread;
    void *memory = make_memory(argv[argc - 1]);
    pthread_create(&thread, NULL, wait_on, NULL);
    while (!thread_id)
        usleep(100);
    printf("%lu %d\n", (unsigned long)memory, thread_id);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        uint64_t before = waits;
        while (waits < before + 2 && !bad)
            usleep(100);
        printf("%lu\n", bad ? 0UL : (unsigned long)waits);
        fflush(stdout);
    }
}

#endif
