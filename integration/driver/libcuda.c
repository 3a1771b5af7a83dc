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
 * restore, unlock or get-state; TAG a workload's tag or *; ACTION error:N, hang, slow:MS, crash or busy; COUNT how
 * many calls it is for (default: all). Counts are kept in the file, under a lock.
 */
struct order {
    enum fault fault;
    int argument;
    unsigned delay_ms;
    int hang;
};

static int matches(const char *line, const char *call, const char *tag, char *action, int *count) {
    char found_call[32], found_tag[32];
    *count = -1;
    return sscanf(line, "%31s %31s %63s %d", found_call, found_tag, action, count) >= 3 &&
           !strcmp(found_call, call) && (!strcmp(found_tag, "*") || !strcmp(found_tag, tag));
}

static void obey(const char *action, struct order *order) {
    if (sscanf(action, "error:%d", &order->argument) == 1)
        order->fault = FAULT_ERROR;
    else if (sscanf(action, "slow:%u", &order->delay_ms) == 1)
        return;
    else if (!strcmp(action, "hang"))
        order->hang = 1;
    else if (!strcmp(action, "crash"))
        order->fault = FAULT_CRASH;
    else if (!strcmp(action, "busy"))
        order->fault = FAULT_BUSY;
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
    int count, kept = 0;
    while (kept < 64 && fgets(lines[kept], sizeof lines[kept], file)) {
        char *line = lines[kept++];
        if (!matches(line, call, tag, action, &count) || count == 0)
            continue;
        obey(action, &order);
        if (count > 0) {
            char found_tag[32];
            sscanf(line, "%*s %31s", found_tag);
            snprintf(line, sizeof lines[0], "%s %s %s %d\n", call, found_tag, action, count - 1);
        }
    }
    rewind(file);
    if (ftruncate(fileno(file), 0) == 0)
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

static int no_room(enum request request, const struct mailbox *box) {
    return request == RESTORE && box->state == CHECKPOINTED && free_bytes() < box->device_bytes;
}

/* Has the restore thread of a process do something, and waits for its answer. */
static int ask(int pid, enum request request, const char *call, unsigned timeout_ms) {
    struct mailbox box;
    int memory = peer_open(pid, &box);
    if (memory < 0)
        return NOT_INITIALIZED;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    int turn = open(path, O_RDONLY | O_CLOEXEC); /* one caller at a time */
    flock(turn, LOCK_EX);
    int result = settle(memory, &box);
    if (result == 0) {
        struct order order = order_for(call, box.tag);
        while (order.hang)
            pause();
        if (no_room(request, &box))
            order = (struct order){.fault = FAULT_ERROR, .argument = OUT_OF_MEMORY};
        box.request = request;
        box.timeout_ms = timeout_ms;
        box.fault = order.fault;
        box.fault_argument = order.argument;
        box.delay_ms = order.delay_ms;
        result = put(memory, &box);
    }
    if (result == 0)
        result = settle(memory, &box);
    if (result == 0)
        result = box.result;
    close(turn);
    close(memory);
    return result;
}

/* Answered by the process itself: one that is stopped or frozen gives no answer, as with driver 580. */
EXPORT int cuCheckpointProcessGetState(int pid, int *state) {
    int result = ask(pid, TELL_STATE, "get-state", 0);
    struct mailbox box;
    int memory = result == 0 ? peer_open(pid, &box) : -1;
    if (memory < 0)
        return result;
    close(memory);
    *state = (int)box.state;
    return 0;
}

/* The thread that has this id in the innermost pid namespace of its process, as the caller sees it; 0 if there is none. */
static int thread_here(int pid, int inside) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    int found = 0;
    for (struct dirent *task; tasks && !found && (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.16s/status", pid, task->d_name);
        FILE *status = fopen(path, "re");
        while (status && fgets(line, sizeof line, status))
            if (!strncmp(line, "NSpid:", 6) && atoi(strrchr(line, '\t')) == inside)
                found = atoi(task->d_name);
        if (status)
            fclose(status);
    }
    if (tasks)
        closedir(tasks);
    return found;
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
    uint32_t timeout_ms = 0;
    if (arguments)
        memcpy(&timeout_ms, arguments, sizeof timeout_ms);
    return ask(pid, LOCK, "lock", timeout_ms);
}

EXPORT int cuCheckpointProcessCheckpoint(int pid, const void *arguments) {
    (void)arguments;
    return ask(pid, CHECKPOINT, "checkpoint", 0);
}

/* CUcheckpointRestoreArgs of CUDA 13: a pointer to pairs of UUIDs at 0, their number at 8. There is one GPU. */
EXPORT int cuCheckpointProcessRestore(int pid, const void *arguments) {
    const char(*pairs)[32] = NULL;
    uint32_t count = 0;
    if (arguments) {
        memcpy(&pairs, arguments, sizeof pairs);
        memcpy(&count, (const char *)arguments + 8, sizeof count);
    }
    if (count > 1 || (count == 1 && (memcmp(pairs[0], GPU_UUID, 16) || memcmp(pairs[0] + 16, GPU_UUID, 16))))
        return INVALID_VALUE;
    return ask(pid, RESTORE, "restore", 0);
}

EXPORT int cuCheckpointProcessUnlock(int pid, const void *arguments) {
    (void)arguments;
    return ask(pid, UNLOCK, "unlock", 0);
}
