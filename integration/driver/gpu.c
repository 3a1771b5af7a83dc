/*
 * The GPU of a workload. While the state is RUNNING or LOCKED the process has descriptors of the three NVIDIA device nodes and a
 * mapping of one, which CRIU cannot dump ("Can't handle non-regular mapping"); device memory is shared memory at fixed
 * addresses. A checkpoint copies it to private anonymous memory and gives the devices up; a restore takes all of it back.
 */
#define _GNU_SOURCE
#include "gpu.h"
#include "mailbox.h"
#include "result.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEVICE_MEMORY 0x600000000000ULL
#define ALLOCATIONS 256
#define PAGE 4096ULL

static const char *const NODES[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"};

struct allocation {
    void *address;
    size_t bytes;
    void *in_host; /* where its contents are while checkpointed */
};

static struct mailbox *box;
static struct allocation allocations[ALLOCATIONS];
static unsigned long long next_address = DEVICE_MEMORY;
static int nodes[3] = {-1, -1, -1};
static void *node_mapping = MAP_FAILED;
static int holds_managed_memory, is_lost;

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int calls;   /* that are inside */
static int closing; /* a lock waits for them, so no others come in */

static void give_nodes_up(void) {
    if (node_mapping != MAP_FAILED)
        munmap(node_mapping, PAGE);
    node_mapping = MAP_FAILED;
    for (int i = 0; i < 3; i++) {
        if (nodes[i] >= 0)
            close(nodes[i]);
        nodes[i] = -1;
    }
}

static int take_nodes(void) {
    for (int i = 0; i < 3; i++)
        if ((nodes[i] = open(NODES[i], O_RDONLY | O_CLOEXEC)) < 0)
            goto failed;
    node_mapping = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, nodes[2], 0);
    if (node_mapping != MAP_FAILED)
        return 0;
failed:
    give_nodes_up();
    return NO_DEVICE;
}

static int map_device_memory(struct allocation *allocation) {
    void *mapped = mmap(allocation->address, allocation->bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return mapped == allocation->address ? 0 : OUT_OF_MEMORY;
}

static void forget_copies(void) {
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++) {
        if (each->in_host)
            munmap(each->in_host, each->bytes);
        each->in_host = NULL;
    }
}

/* GPU memory to host memory. */
static int checkpoint(void) {
    if (holds_managed_memory)
        return NOT_SUPPORTED;
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++) {
        if (!each->address)
            continue;
        void *copy = mmap(NULL, each->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED) {
            forget_copies();
            return OUT_OF_MEMORY;
        }
        each->in_host = memcpy(copy, each->address, each->bytes);
    }
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (each->address)
            munmap(each->address, each->bytes);
    give_nodes_up();
    return 0;
}

static int restore(void) {
    if (take_nodes())
        return NOT_SUPPORTED; /* what the real one says when a device node is missing */
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++) {
        if (!each->address)
            continue;
        if (map_device_memory(each))
            return OUT_OF_MEMORY;
        memcpy(each->address, each->in_host, each->bytes);
    }
    forget_copies();
    return 0;
}

static void nap(long nanoseconds) {
    nanosleep(&(struct timespec){.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000}, NULL);
}

static void set_closing(int value) {
    pthread_mutex_lock(&gate);
    closing = value;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&gate);
}

/* Waits for the calls that are inside; new ones do not come in from now on. */
static int lock(unsigned timeout_ms, int busy) {
    set_closing(1);
    for (unsigned waited = 0; !timeout_ms || waited < timeout_ms; waited++) {
        pthread_mutex_lock(&gate);
        int idle = calls == 0 && !busy;
        if (idle)
            box->state = LOCKED;
        pthread_mutex_unlock(&gate);
        if (idle) {
            set_closing(0);
            return 0;
        }
        nap(1000000);
    }
    set_closing(0);
    return NOT_READY;
}

static int unlock(void) {
    pthread_mutex_lock(&gate);
    box->state = RUNNING;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&gate);
    return 0;
}

static int move(int (*work)(void), enum state goal) {
    int result = work();
    if (result == 0)
        box->state = goal;
    return result;
}

static int serve(void) {
    static const enum state NEEDED[] = {[LOCK] = RUNNING, [CHECKPOINT] = LOCKED, [RESTORE] = CHECKPOINTED, [UNLOCK] = LOCKED};
    if (box->fault == FAULT_CRASH)
        abort();
    if (box->delay_ms)
        nap(box->delay_ms * 1000000L);
    if (box->request == TELL_STATE)
        return box->fault == FAULT_ERROR ? box->fault_argument : 0;
    if (box->request < LOCK || box->request > UNLOCK)
        return INVALID_VALUE;
    if (box->state != NEEDED[box->request])
        return ILLEGAL_STATE;
    if (box->request == RESTORE && is_lost)
        return OPERATING_SYSTEM; /* an earlier restore found no room: final, as with driver 580 */
    if (box->fault == FAULT_ERROR) {
        is_lost |= box->request == RESTORE && box->fault_argument == OUT_OF_MEMORY;
        return box->fault_argument;
    }
    switch (box->request) {
    case LOCK:
        return lock(box->timeout_ms, box->fault == FAULT_BUSY);
    case CHECKPOINT:
        return move(checkpoint, CHECKPOINTED);
    case RESTORE:
        return move(restore, LOCKED);
    default:
        return unlock();
    }
}

static void *restore_thread(void *unused) {
    (void)unused;
    __atomic_store_n(&box->restore_thread, (int32_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    for (;;) {
        uint32_t asked = __atomic_load_n(&box->asked, __ATOMIC_ACQUIRE);
        if (asked != box->answered) {
            box->result = serve();
            __atomic_store_n(&box->answered, asked, __ATOMIC_RELEASE);
        }
        nap(300000);
    }
    return NULL;
}

/* The tag by which faults name a workload: STASIS_TAG, else the name of the program. */
static void set_tag(void) {
    const char *tag = getenv("STASIS_TAG");
    snprintf(box->tag, sizeof box->tag, "%s", tag ? tag : program_invocation_short_name);
}

int gpu_start(void) {
    if (box)
        return 0;
    if (take_nodes())
        return NO_DEVICE;
    struct mailbox *page = mmap((void *)MAILBOX_ADDRESS, PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (page == MAP_FAILED)
        return OUT_OF_MEMORY;
    box = page;
    box->device_bytes = CONTEXT_BYTES;
    set_tag();
    /* A forked child has no CUDA: it must not look as if it had. */
    madvise(box, PAGE, MADV_DONTFORK);
    /* The workload's signals are for its own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, restore_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return OPERATING_SYSTEM;
    while (!__atomic_load_n(&box->restore_thread, __ATOMIC_ACQUIRE))
        nap(100000);
    __atomic_store_n(&box->magic, MAILBOX_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

int gpu_enter(void) {
    if (!box)
        return NOT_INITIALIZED;
    pthread_mutex_lock(&gate);
    while (box->state != RUNNING || closing)
        pthread_cond_wait(&opened, &gate);
    calls++;
    pthread_mutex_unlock(&gate);
    return 0;
}

void gpu_leave(void) {
    pthread_mutex_lock(&gate);
    calls--;
    pthread_mutex_unlock(&gate);
}

void *gpu_allocate(size_t bytes) {
    bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
    for (struct allocation *each = allocations; bytes && each < allocations + ALLOCATIONS; each++) {
        if (each->address)
            continue;
        *each = (struct allocation){.address = (void *)next_address, .bytes = bytes};
        if (map_device_memory(each)) {
            each->address = NULL;
            return NULL;
        }
        next_address += bytes + PAGE;
        box->device_bytes += bytes;
        return each->address;
    }
    return NULL;
}

int gpu_release(void *address) {
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++) {
        if (!address || each->address != address)
            continue;
        munmap(each->address, each->bytes);
        box->device_bytes -= each->bytes;
        each->address = NULL;
        return 0;
    }
    return INVALID_VALUE;
}

void gpu_hold_managed_memory(void) { holds_managed_memory = 1; }
