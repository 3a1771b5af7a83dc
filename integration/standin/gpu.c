/*
 * The CUDA of a workload. While the state is RUNNING or LOCKED the process has descriptors and mappings of NVIDIA device nodes, which CRIU
 * cannot dump ("Can't handle non-regular mapping"). A checkpoint copies device memory to private memory and gives the
 * devices up; a restore takes all of it back.
 */
#define _GNU_SOURCE
#include "gpu.h"
#include "devices.h"
#include "mailbox.h"
#include "memory.h"
#include "result.h"
#include "sharing/vmm.h"
#include "stream.h"
#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ULL
static struct mailbox *box;
/* The driver does not survive fork: a child of a process with CUDA never has it. */
static int is_child;
/* The devices that the process sees: how many, and the place of each among the GPUs that are recorded. */
static unsigned devices;
static uint8_t places[GPUS];
/* The GPU of the machine that each device was at first: a process keeps its names when it is moved. */
static uint8_t first_gpu[GPUS];
static int holds_managed_memory, peer_accesses, is_lost;

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int calls;   /* that are inside */
static int closing; /* a lock waits for them, so no others come in */
/* Calls on the restore thread, by code that was put there, are not held, whatever the state is. */
static _Thread_local int is_exempt;

/* GPU memory to host memory. */
static int checkpoint(void) {
    if (holds_managed_memory)
        return NOT_SUPPORTED;
    int result = memory_to_host();
    if (result == 0)
        devices_give_up();
    return result;
}

/* Opens the nodes of those of these GPUs that the process sees. */
static int take_devices(const uint8_t *gpus) {
    uint8_t seen[GPUS];
    for (unsigned i = 0; i < devices; i++)
        seen[i] = gpus[places[i]];
    return devices_take(seen, devices);
}

static int restore(void) {
    if (vmm_has_imports()) {
        is_lost = 1;
        return NOT_SUPPORTED; /* noticed this late by driver 580, and final */
    }
    if (memory_has_opened() || (peer_accesses && memory_largest() >= LOST_WITH_PEER_ACCESS) || vmm_largest_of_peers() >= LOST_WITH_PEER_ACCESS) {
        is_lost = 1;
        return INVALID_VALUE;
    }
    if (take_devices(box->target))
        return NOT_SUPPORTED; /* what the real one says when a device node is missing */
    uint8_t before[GPUS];
    memcpy(before, box->gpu, sizeof before);
    memcpy(box->gpu, box->target, sizeof box->gpu); /* what is shared again is on these */
    int result = memory_to_devices();
    if (result) {
        memcpy(box->gpu, before, sizeof before);
        devices_give_up();
    }
    return result;
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

/* Waits for the calls that are inside and for submitted work; new calls do not come in from now on. */
static int lock(unsigned timeout_ms, int busy) {
    set_closing(1);
    for (unsigned waited = 0; !timeout_ms || waited < timeout_ms; waited++) {
        pthread_mutex_lock(&gate);
        int idle = calls == 0 && stream_is_done() && !busy;
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
    if (is_lost)
        return OPERATING_SYSTEM; /* by a restore that failed for good, as with driver 580 */
    if (box->state != NEEDED[box->request])
        return ILLEGAL_STATE;
    if (box->fault == FAULT_ERROR) {
        is_lost |= box->request == RESTORE && box->fault_argument == OUT_OF_MEMORY;
        return box->fault_argument;
    }
    memory_wait_ms = box->fault == FAULT_SLOWNESS ? (unsigned)box->fault_argument : 0;
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
    is_exempt = 1;
    /* The C library makes an arena for the thread, which has allocated before, as the real one has. */
    void *volatile any = malloc(1);
    free(any);
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

/*
 * The mailbox stays with the parent, the nodes do not: the child has them for ever, as with driver 580. Files of shared memory are the
 * stand-in's alone.
 */
static void after_fork_in_child(void) {
    if (box) {
        memory_close_files();
        vmm_close_files();
    }
    is_child = box != NULL || is_child;
    box = NULL;
}

static int make_mailbox(const uint8_t *gpus, unsigned count) {
    struct mailbox *page = mmap((void *)MAILBOX_ADDRESS, PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (page == MAP_FAILED)
        return OUT_OF_MEMORY;
    madvise(page, PAGE, MADV_DONTFORK);
    pthread_atfork(NULL, NULL, after_fork_in_child);
    page->gpus = count;
    memcpy(page->gpu, gpus, sizeof page->gpu);
    box = page;
    memory_is_held_halfway = &page->is_held_halfway;
    set_tag();
    return 0;
}

static int start_restore_thread(void) {
    int result = start_thread(restore_thread);
    if (result)
        return result;
    while (!__atomic_load_n(&box->restore_thread, __ATOMIC_ACQUIRE))
        nap(100000);
    return 0;
}

int gpu_start(void) {
    if (is_child)
        return NOT_INITIALIZED;
    if (box)
        return 0;
    uint8_t gpus[GPUS] = {0};
    unsigned count = devices_find(gpus);
    devices = devices_visible(count, places);
    if (devices == 0 || take_devices(gpus))
        return NO_DEVICE;
    for (unsigned i = 0; i < devices; i++)
        first_gpu[i] = gpus[places[i]];
    int result = make_mailbox(gpus, count);
    if (result == 0)
        result = start_restore_thread();
    if (result)
        return result;
    __atomic_store_n(&box->magic, MAILBOX_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

int gpu_enter(void) {
    if (!box)
        return NOT_INITIALIZED;
    if (is_exempt)
        return 0;
    pthread_mutex_lock(&gate);
    while (box->state != RUNNING || closing)
        pthread_cond_wait(&opened, &gate);
    calls++;
    pthread_mutex_unlock(&gate);
    return 0;
}

void gpu_leave(void) {
    if (is_exempt)
        return;
    pthread_mutex_lock(&gate);
    calls--;
    pthread_mutex_unlock(&gate);
}

unsigned gpu_devices(void) { return box ? devices : 0; }

unsigned gpu_first(unsigned device) { return first_gpu[device]; }

unsigned gpu_now(unsigned device) { return box->gpu[places[device]]; }

int gpu_device_on(unsigned gpu) {
    for (unsigned device = 0; device < devices; device++)
        if (gpu_now(device) == gpu)
            return (int)device;
    return -1;
}

void gpu_count(unsigned device, long long bytes) { box->bytes[places[device]] += (uint64_t)bytes; }

void gpu_count_peer_access(int change) { peer_accesses += change; }

void gpu_hold_managed_memory(size_t bytes) {
    holds_managed_memory = 1;
    devices_map_managed(bytes);
}
