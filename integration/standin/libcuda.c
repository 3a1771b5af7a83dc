/* The engine's half of the stand-in for libcuda: the checkpoint calls, which act on another process. */
#include "peer.h"
#include "result.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); }

/*
 * A fault that was ordered for this call, if any. Each line of the file is "CALL TAG ACTION [COUNT]": CALL is lock, checkpoint,
 * restore, unlock or get-state; TAG a workload's tag or *; ACTION error:N, hang, slow:MS, slowly:MS
 * (behind each 2 MiB that it copies), hold:NAME, half:NAME (when it has copied half), crash or busy;
 * COUNT how many calls it is for (default: all). Counts are kept in the file, under a lock. A call that is held waits
 * until the file NAME beside this one is gone. Other lines describe the machine: machine.h.
 */
struct order {
    enum fault fault;
    int argument;
    unsigned delay_ms;
    int hang;
    int is_held_halfway;
    char held_by[96];
};

static int matches(const char *line, const char *call, const char *tag, char *action, int *count) {
    char found_call[32], found_tag[32];
    *count = -1;
    return sscanf(line, "%31s %31s %63s %d", found_call, found_tag, action, count) >= 3 &&
           !strcmp(found_call, call) && (!strcmp(found_tag, "*") || !strcmp(found_tag, tag));
}

static void obey(const char *action, struct order *order) {
    char name[32];
    if (sscanf(action, "error:%d", &order->argument) == 1)
        order->fault = FAULT_ERROR;
    else if (sscanf(action, "slow:%u", &order->delay_ms) == 1)
        return;
    else if (sscanf(action, "hold:%31[a-z]", name) == 1)
        snprintf(order->held_by, sizeof order->held_by, STANDIN "/%s", name);
    else if (sscanf(action, "half:%31[a-z]", name) == 1) {
        order->is_held_halfway = 1;
        snprintf(order->held_by, sizeof order->held_by, STANDIN "/%s", name);
    } else if (!strcmp(action, "hang"))
        order->hang = 1;
    else if (!strcmp(action, "crash"))
        order->fault = FAULT_CRASH;
    else if (!strcmp(action, "busy"))
        order->fault = FAULT_BUSY;
    else if (sscanf(action, "slowly:%d", &order->argument) == 1)
        order->fault = FAULT_SLOWNESS;
    else
        abort(); /* a test with a typing error must not pass */
}

static struct order order_for(const char *call, const char *tag) {
    struct order order = {0};
    FILE *file = fopen(FAULTS, "r+e");
    if (!file)
        return order;
    flock(fileno(file), LOCK_EX);
    char lines[64][128], action[64];
    int count, kept = 0, changed = 0;
    while (kept < 64 && fgets(lines[kept], sizeof lines[kept], file)) {
        char *line = lines[kept++];
        if (!matches(line, call, tag, action, &count) || count == 0)
            continue;
        obey(action, &order);
        if (count > 0) {
            char found_tag[32];
            sscanf(line, "%*s %31s", found_tag);
            snprintf(line, sizeof lines[0], "%s %s %s %d\n", call, found_tag, action, count - 1);
            changed = 1;
        }
    }
    rewind(file);
    /* The caller may be killed at any call: a file without an order for this call is left alone. */
    if (changed && ftruncate(fileno(file), 0) == 0)
        for (int i = 0; i < kept; i++)
            fputs(lines[i], file);
    fclose(file);
    return order;
}

/* Reads the mailbox until the request in progress, whoever made it, is answered. */
static int settle(int memory, struct mailbox *box) {
    while (pread(memory, box, sizeof *box, (off_t)MAILBOX_ADDRESS) == sizeof *box) {
        if (box->asked == box->answered)
            return 0;
        nap();
    }
    return OPERATING_SYSTEM; /* the process has ended */
}

static int put(int memory, const struct mailbox *box) {
    const size_t start = offsetof(struct mailbox, request), end = offsetof(struct mailbox, asked);
    const char *bytes = (const char *)box;
    uint32_t asked = box->asked + 1;
    if (pwrite(memory, bytes + start, end - start, (off_t)(MAILBOX_ADDRESS + start)) < 0 ||
        pwrite(memory, &asked, sizeof asked, (off_t)(MAILBOX_ADDRESS + end)) < 0)
        return OPERATING_SYSTEM;
    return 0;
}

static int set_held_halfway(int memory, uint32_t value) {
    off_t at = (off_t)(MAILBOX_ADDRESS + offsetof(struct mailbox, is_held_halfway));
    return pwrite(memory, &value, sizeof value, at) < 0 ? OPERATING_SYSTEM : 0;
}

static void wait_while_held(const struct order *order) {
    while (*order->held_by && !access(order->held_by, F_OK))
        nap();
}

/* CUcheckpointGpuPair. */
struct pair {
    unsigned char old[UUID_BYTES], new[UUID_BYTES];
};

/* One of the checkpoint calls. */
struct call {
    enum request request;
    const char *name;
    unsigned timeout_ms;
    const struct pair *pairs;
    uint32_t pair_count;
};

/* Returns which of the machine's GPUs has this UUID; GPUS if none has. */
static unsigned gpu_with(const unsigned char *uuid, const struct machine *machine) {
    const unsigned char first[] = GPU_UUID;
    unsigned number = uuid[UUID_BYTES - 1] - 1U;
    return memcmp(uuid, first, UUID_BYTES - 1) == 0 && number < machine->gpus ? number : GPUS;
}

/*
 * Chooses the GPU that each GPU of the process becomes in a restore: the same one without pairs, else as the pairs say.
 * They must name every GPU that is recorded, and map it to an existing one, none twice.
 */
static int choose_targets(const struct call *call, const struct machine *machine, struct mailbox *box) {
    unsigned char place[GPUS], taken[GPUS] = {0};
    memset(place, call->pair_count ? GPUS : 0, sizeof place);
    for (unsigned i = 0; i < GPUS && call->pair_count == 0; i++)
        place[i] = (unsigned char)i;
    for (uint32_t i = 0; i < call->pair_count; i++) {
        struct machine all = {.gpus = GPUS}; /* the old one may be another machine's */
        unsigned old = gpu_with(call->pairs[i].old, &all), new = gpu_with(call->pairs[i].new, machine);
        if (old == GPUS || new == GPUS || taken[new]++)
            return INVALID_VALUE;
        place[old] = (unsigned char)new;
    }
    for (unsigned i = 0; i < box->gpus; i++) {
        box->target[i] = place[box->gpu[i]];
        if (box->target[i] >= GPUS)
            return INVALID_VALUE;
    }
    return 0;
}

static int no_room(const struct machine *machine, const struct mailbox *box) {
    for (unsigned i = 0; i < box->gpus; i++)
        if (free_bytes(machine, box->target[i]) < box->bytes[i])
            return 1;
    return 0;
}

/* Writes the request into the mailbox, once the order for it is known. A request that is held
   halfway goes on from there once it may. */
static int post(int memory, struct mailbox *box, const struct call *call) {
    struct order order = order_for(call->name, box->tag);
    while (order.hang)
        pause();
    if (!order.is_held_halfway)
        wait_while_held(&order);
    if (call->request == RESTORE && box->state == CHECKPOINTED) {
        struct machine machine = machine_read();
        if (choose_targets(call, &machine, box))
            return INVALID_VALUE;
        if (no_room(&machine, box))
            order = (struct order){.fault = FAULT_ERROR, .argument = OUT_OF_MEMORY};
    }
    box->request = call->request;
    box->timeout_ms = call->timeout_ms;
    box->fault = order.fault;
    box->fault_argument = order.argument;
    box->delay_ms = order.delay_ms;
    if (!order.is_held_halfway)
        return put(memory, box);
    int result = set_held_halfway(memory, 1);
    if (result == 0)
        result = put(memory, box);
    if (result == 0)
        wait_while_held(&order);
    return result ? result : set_held_halfway(memory, 0);
}

/* Asks the restore thread of a process to carry out a call, and waits for its answer. */
static int ask(int pid, const struct call *call) {
    struct mailbox box;
    int memory = peer_open(pid, &box);
    if (memory < 0)
        return NOT_INITIALIZED;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    int turn = open(path, O_RDONLY | O_CLOEXEC); /* one caller at a time */
    flock(turn, LOCK_EX);
    int result = set_held_halfway(memory, 0); /* by a caller that was killed */
    if (result == 0)
        result = settle(memory, &box);
    if (result == 0)
        result = post(memory, &box, call);
    if (result == 0)
        result = settle(memory, &box);
    if (result == 0)
        result = box.result;
    close(turn);
    close(memory);
    return result;
}

/* The process itself answers: a stopped or frozen one gives no answer, as with driver 580. */
EXPORT int cuCheckpointProcessGetState(int pid, int *state) {
    int result = ask(pid, &(struct call){.request = TELL_STATE, .name = "get-state"});
    struct mailbox box;
    int memory = result == 0 ? peer_open(pid, &box) : -1;
    if (memory < 0)
        return result;
    close(memory);
    *state = (int)box.state;
    return 0;
}

EXPORT int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    struct mailbox box;
    int memory = peer_open(pid, &box);
    if (memory < 0)
        return NOT_INITIALIZED;
    close(memory);
    *thread = thread_here(pid, box.restore_thread);
    return *thread ? 0 : OPERATING_SYSTEM;
}

EXPORT int cuCheckpointProcessLock(int pid, const void *arguments) {
    struct call call = {.request = LOCK, .name = "lock"};
    if (arguments)
        memcpy(&call.timeout_ms, arguments, sizeof call.timeout_ms);
    return ask(pid, &call);
}

EXPORT int cuCheckpointProcessCheckpoint(int pid, const void *arguments) {
    (void)arguments;
    return ask(pid, &(struct call){.request = CHECKPOINT, .name = "checkpoint"});
}

/* CUcheckpointRestoreArgs of CUDA 13: a pointer to pairs at 0, their number at 8. */
EXPORT int cuCheckpointProcessRestore(int pid, const void *arguments) {
    struct call call = {.request = RESTORE, .name = "restore"};
    if (arguments) {
        memcpy(&call.pairs, arguments, sizeof call.pairs);
        memcpy(&call.pair_count, (const char *)arguments + 8, sizeof call.pair_count);
    }
    return ask(pid, &call);
}

EXPORT int cuCheckpointProcessUnlock(int pid, const void *arguments) {
    (void)arguments;
    return ask(pid, &(struct call){.request = UNLOCK, .name = "unlock"});
}
