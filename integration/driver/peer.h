/* The caller's view: other processes, found through their mailboxes, and the faults that were ordered. */
#ifndef STASIS_PEER_H
#define STASIS_PEER_H

#include "mailbox.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

/* Opens /proc/PID/mem of a process with a mailbox and reads it; -1 for any other process. */
static int peer_open(int pid, struct mailbox *box) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int memory = open(path, O_RDWR | O_CLOEXEC);
    if (memory < 0)
        return -1;
    if (pread(memory, box, sizeof *box, (off_t)MAILBOX_ADDRESS) != sizeof *box || box->magic != MAILBOX_MAGIC) {
        close(memory);
        return -1;
    }
    return memory;
}

/* Whether the process holds memory of the GPU now. */
static int on_gpu(const struct mailbox *box) { return box->state == RUNNING || box->state == LOCKED; }

/* Calls `visit` for every process that is on the GPU. Without shared memory between processes, /proc is the record. */
static void each_on_gpu(void (*visit)(int pid, const struct mailbox *box, void *context), void *context) {
    DIR *proc = opendir("/proc");
    if (!proc)
        return;
    struct dirent *entry;
    while ((entry = readdir(proc))) {
        int pid = atoi(entry->d_name);
        struct mailbox box;
        int memory = pid > 0 ? peer_open(pid, &box) : -1;
        if (memory < 0)
            continue;
        close(memory);
        if (on_gpu(&box))
            visit(pid, &box, context);
    }
    closedir(proc);
}

static void add_bytes(int pid, const struct mailbox *box, void *sum) {
    (void)pid;
    *(uint64_t *)sum += box->device_bytes;
}

/* The GPU's memory: GPU_MIB, or what a line "memory MIB" of the faults says. */
static uint64_t total_bytes(void) {
    unsigned long long mib = GPU_MIB;
    FILE *file = fopen(FAULTS, "re");
    char line[128];
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "memory %llu", &mib);
    if (file)
        fclose(file);
    return mib << 20;
}

static uint64_t free_bytes(void) {
    uint64_t used = 0, total = total_bytes();
    each_on_gpu(add_bytes, &used);
    return used < total ? total - used : 0;
}

#endif
