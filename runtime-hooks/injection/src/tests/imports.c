/*
 * A driver's library and a program that uses it, in one: `imports [FILE...]` has 70 allocations of its own, or maps these files. It
 * prints the thread that passes for the one that carries out checkpoints, and for each allocation its address, its descriptor, and its handle.
 * For the line "fork" it prints whether a child of it can import memory. For each other line that it reads it prints how often that thread has waited, or 0 if it has waited badly or a handle has another value.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES (64UL << 10)
#define OWN 70
#define MOST 80

#ifdef LIBRARY

#define HAVE(condition) \
    do { \
        if (!(condition)) \
            return 1; \
    } while (0)

static struct allocation {
    void *handle;
    int file, references, mapped;
} allocations[MOST];
static struct mapping {
    uint64_t address;
    struct allocation *of;
    int access;
} mappings[MOST];
static __thread int contexts;
static int mode;

/* As libcuda's. */
static void *new_handle(void) { return calloc(1, 784); }

static struct allocation *find(uint64_t handle) {
    for (struct allocation *each = allocations; each < allocations + MOST; each++)
        if (handle && (uint64_t)each->handle == handle && each->references)
            return each;
    return NULL;
}

static struct mapping *at(uint64_t address) {
    for (struct mapping *each = mappings; each < mappings + MOST; each++)
        if (each->of && address - each->address < BYTES)
            return each;
    return NULL;
}

static void drop_unused(struct allocation *of) {
    if (of->references || of->mapped)
        return;
    close(of->file);
    free(of->handle);
    of->handle = NULL;
}

static int has_rights(const struct mapping *mapping) { return mapping->access ? PROT_READ | PROT_WRITE : PROT_NONE; }

int cuMemImportFromShareableHandle(uint64_t *handle, void *file, int type) {
    for (struct allocation *each = allocations; each < allocations + MOST; each++)
        if (!each->handle) {
            int own = fcntl((int)(intptr_t)file, F_DUPFD_CLOEXEC, 0);
            HAVE(own >= 0);
            *each = (struct allocation){new_handle(), own, 1, 0};
            *handle = (uint64_t)each->handle;
            return 0;
        }
    return 2;
}
int cuMemExportToShareableHandle(int *file, uint64_t handle, int type, uint64_t flags) {
    HAVE(find(handle));
    *file = fcntl(find(handle)->file, F_DUPFD_CLOEXEC, 0);
    return *file < 0;
}
int cuMemRetainAllocationHandle(uint64_t *handle, uint64_t address) {
    HAVE(at(address));
    at(address)->of->references++;
    *handle = (uint64_t)at(address)->of->handle;
    return 0;
}
int cuMemRelease(uint64_t handle) {
    struct allocation *of = find(handle);
    HAVE(of);
    of->references--;
    drop_unused(of);
    return 0;
}
int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, uint64_t flags) {
    *address = (uint64_t)mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return 0;
}
int cuMemAddressFree(uint64_t address, size_t bytes) { return munmap((void *)address, bytes) != 0; }
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) {
    HAVE(find(handle) && !at(address));
    for (struct mapping *each = mappings; each < mappings + MOST; each++)
        if (!each->of) {
            HAVE(mmap((void *)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, find(handle)->file, 0) != MAP_FAILED);
            *each = (struct mapping){address, find(handle), 0};
            each->of->mapped++;
            return 0;
        }
    return 2;
}
int cuMemUnmap(uint64_t address, size_t bytes) {
    struct mapping *mapping = at(address);
    HAVE(mapping && bytes == BYTES);
    mmap((void *)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    struct allocation *of = mapping->of;
    mapping->of = NULL;
    of->mapped--;
    drop_unused(of);
    return 0;
}
int cuMemSetAccess(uint64_t address, size_t bytes, const int *accesses, size_t count) {
    HAVE(at(address) && count == 1 && accesses[0] == 1 && accesses[2] == 3);
    at(address)->access = 3;
    return mprotect((void *)address, bytes, PROT_READ | PROT_WRITE) != 0;
}
int cuMemGetAccess(uint64_t *flags, const int *location, uint64_t address) {
    HAVE(at(address));
    *flags = (uint64_t)at(address)->access;
    return 0;
}

/* Long enough for a process to be killed meanwhile. */
static int copy(void *to, const void *from, size_t bytes) {
    HAVE(contexts && mode == 2);
    memcpy(to, from, bytes);
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    return 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { return at(from) ? copy(to, (void *)from, bytes) : 1; }
int cuCtxSynchronize(void) { return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { return at(to) ? copy((void *)to, from, bytes) : 1; }
int cuThreadExchangeStreamCaptureMode(int *other) {
    int before = mode;
    mode = *other;
    *other = before;
    return 0;
}

int cuMemGetAllocationPropertiesFromHandle(void *properties, uint64_t handle) { return 1; }
int cuMemGetAddressRange_v2(uint64_t *start, size_t *bytes, uint64_t address) { return 1; }
int cuPointerGetAttribute(void *value, int attribute, uint64_t address) { return 1; }
int cuMemPoolGetAccess(int *flags, void *pool, const int *location) { return 1; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *active = 1, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = mappings, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(void *context) { return contexts++, 0; }
int cuCtxPopCurrent_v2(void **context) { return contexts--, 0; }
int cuCtxEnablePeerAccess(void *context, unsigned flags) { return 1; }
int cuCtxDisablePeerAccess(void *context) { return 1; }

#else

int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, uint64_t flags);
int cuMemImportFromShareableHandle(uint64_t *handle, void *file, int type);
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags);
int cuMemSetAccess(uint64_t address, size_t bytes, const int *accesses, size_t count);
int cuMemRetainAllocationHandle(uint64_t *handle, uint64_t address);
int cuMemRelease(uint64_t handle);

static uint64_t addresses[OWN], handles[OWN];
static volatile uint64_t waits, bad;
static volatile int thread_id;

static void *wait_in_poll(void *unused) {
    /* The C library makes an arena for the thread. */
    void *volatile any = calloc(1, 1);
    free(any);
    thread_id = (int)syscall(SYS_gettid);
    for (;;) {
        bad += poll(NULL, 0, 5) != 0;
        waits++;
    }
    return unused;
}

static int are_as_they_were(int count) {
    for (int i = 0; i < count; i++) {
        uint64_t handle;
        if (cuMemRetainAllocationHandle(&handle, addresses[i]) || handle != handles[i] || cuMemRelease(handle))
            return 0;
    }
    return 1;
}

static int create(void) {
    int file = memfd_create("imports", MFD_CLOEXEC);
    return ftruncate(file, BYTES) ? -1 : file;
}

static int can_child_import(void) {
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        uint64_t handle;
        int failed = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)create(), 1) || cuMemRelease(handle);
        _exit(failed);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
    char line[64];
    pthread_t thread;
    pthread_create(&thread, NULL, wait_in_poll, NULL);
    while (!thread_id)
        usleep(100);
    printf("%d", thread_id);
    int count = argc > 1 ? argc - 1 : OWN;
    for (int i = 1; i <= count; i++) {
        uint64_t address, handle;
        int file = argc > 1 ? open(argv[i], O_RDWR | O_CLOEXEC) : create();
        if (cuMemAddressReserve(&address, BYTES, 0, 0, 0) || cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file, 1) ||
            cuMemMap(address, BYTES, 0, handle, 0) || cuMemSetAccess(address, BYTES, (int[]){1, 0, 3}, 1))
            return 1;
        for (unsigned j = 0; j < BYTES && argc == 1; j++)
            ((char *)address)[j] = (char)(j * 7 + i);
        addresses[i - 1] = address, handles[i - 1] = handle;
        printf(" %lu %d %lu", (unsigned long)address, file, (unsigned long)handle);
    }
    puts("");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == 'f') {
            printf("%d\n", can_child_import());
            fflush(stdout);
            continue;
        }
        uint64_t before = waits;
        while (waits < before + 2 && !bad)
            usleep(100);
        printf("%lu\n", bad || !are_as_they_were(count) ? 0UL : (unsigned long)waits);
        fflush(stdout);
    }
}

#endif
