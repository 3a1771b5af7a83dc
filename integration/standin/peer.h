/* The caller's view: other processes, found through their mailboxes, and what they hold on the machine's GPUs. */
#ifndef STASIS_PEER_H
#define STASIS_PEER_H

#include "machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

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

/*
 * Opens /proc/PID/mem of a process with a mailbox and reads it; -1 for any other process. A process that merely shares its memory with such a
 * process, as a child of vfork(2) does, is another one: driver 580 says NOT_INITIALIZED of it, whatever state the other one is in.
 */
static int peer_open(int pid, struct mailbox *box) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int memory = open(path, O_RDWR | O_CLOEXEC);
    if (memory < 0)
        return -1;
    if (pread(memory, box, sizeof *box, (off_t)MAILBOX_ADDRESS) != sizeof *box || box->magic != MAILBOX_MAGIC ||
        !thread_here(pid, box->restore_thread)) {
        close(memory);
        return -1;
    }
    return memory;
}

/* Returns the bytes that the process holds on a GPU now; 0 if it is not on it. */
static uint64_t bytes_on(const struct mailbox *box, unsigned gpu) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < box->gpus && i < GPUS; i++)
        if (box->gpu[i] == gpu && (box->state == RUNNING || box->state == LOCKED))
            bytes += box->bytes[i];
    return bytes;
}

/* Calls `visit` for every process that is on the GPU. Without shared memory between processes, /proc is the record. */
static void each_on_gpu(unsigned gpu, void (*visit)(int pid, const struct mailbox *box, uint64_t bytes, void *context),
                        void *context) {
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
        uint64_t bytes = bytes_on(&box, gpu);
        if (bytes > 0)
            visit(pid, &box, bytes, context);
    }
    closedir(proc);
}

static void add_bytes(int pid, const struct mailbox *box, uint64_t bytes, void *sum) {
    (void)pid, (void)box;
    *(uint64_t *)sum += bytes;
}

static uint64_t free_bytes(const struct machine *machine, unsigned gpu) {
    uint64_t used = 0, total = machine->gpu[gpu].total_bytes;
    each_on_gpu(gpu, add_bytes, &used);
    return used < total ? total - used : 0;
}

#endif
