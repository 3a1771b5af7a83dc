/* The stand-in for NVML: the few calls that nvml-wrapper makes for a driver version, GPUs, memory and processes. */
#include "peer.h"

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NO_SPACE = 7 };

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

struct list {
    struct process *room;
    unsigned capacity, count;
};

static int copy_text(const char *text, char *buffer, unsigned length) {
    return snprintf(buffer, length, "%s", text) < (int)length ? SUCCESS : NO_SPACE;
}

EXPORT int nvmlInit_v2(void) { return SUCCESS; }

EXPORT int nvmlShutdown(void) { return SUCCESS; }

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    return copy_text("580.0.0-standin", version, length);
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 1;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    static char only;
    *device = &only;
    return index == 0 ? SUCCESS : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    (void)device;
    return copy_text(GPU_UUID_TEXT, uuid, length);
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    return copy_text(GPU_NAME, name, length);
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    (void)device;
    memory->total = total_bytes();
    memory->free = free_bytes();
    memory->reserved = 0;
    memory->used = memory->total - memory->free;
    return SUCCESS;
}

static void add_process(int pid, const struct mailbox *box, void *context) {
    struct list *list = context;
    if (list->count < list->capacity)
        list->room[list->count] = (struct process){.pid = (unsigned)pid, .used_bytes = box->device_bytes};
    list->count++;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    (void)device;
    struct list list = {.room = processes, .capacity = processes ? *count : 0};
    each_on_gpu(add_process, &list);
    *count = list.count;
    return list.count <= list.capacity ? SUCCESS : NO_SPACE;
}
