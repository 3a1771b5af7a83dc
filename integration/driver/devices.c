#define _GNU_SOURCE
#include "devices.h"
#include "result.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ULL

static const char *const DRIVER_NODES[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
#define UVM 1
#define NODES (2 + GPUS)

static int nodes[NODES] = {-1, -1, -1, -1, -1, -1};
static void *mappings[GPUS] = {MAP_FAILED, MAP_FAILED, MAP_FAILED, MAP_FAILED};

static int open_gpu(unsigned gpu) {
    char path[32];
    snprintf(path, sizeof path, "/dev/nvidia%u", gpu);
    return open(path, O_RDONLY | O_CLOEXEC);
}

unsigned devices_find(uint8_t gpus[GPUS]) {
    uint8_t all[GPUS];
    unsigned there = 0, count = 0;
    for (unsigned gpu = 0; gpu < GPUS; gpu++) {
        int node = open_gpu(gpu);
        if (node < 0)
            continue;
        close(node);
        all[there++] = (uint8_t)gpu;
    }
    const char *named = getenv("CUDA_VISIBLE_DEVICES");
    if (!named) {
        memcpy(gpus, all, sizeof all);
        return there;
    }
    while (count < GPUS) {
        char *end;
        unsigned long place = strtoul(named, &end, 10);
        if (end == named || place >= there)
            break; /* what follows one that is not there does not count */
        gpus[count++] = all[place];
        named = *end ? end + 1 : end;
    }
    return count;
}

void devices_give_up(void) {
    for (int i = 0; i < GPUS; i++) {
        if (mappings[i] != MAP_FAILED)
            munmap(mappings[i], PAGE);
        mappings[i] = MAP_FAILED;
    }
    for (int i = 0; i < NODES; i++) {
        if (nodes[i] >= 0)
            close(nodes[i]);
        nodes[i] = -1;
    }
}

int devices_take(const uint8_t *gpus, unsigned count) {
    for (int i = 0; i < 2; i++)
        if ((nodes[i] = open(DRIVER_NODES[i], O_RDONLY | O_CLOEXEC)) < 0)
            goto failed;
    for (unsigned i = 0; i < count; i++) {
        if ((nodes[2 + i] = open_gpu(gpus[i])) < 0)
            goto failed;
        mappings[i] = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, nodes[2 + i], 0);
        if (mappings[i] == MAP_FAILED)
            goto failed;
    }
    return 0;
failed:
    devices_give_up();
    return NO_DEVICE;
}

void devices_map_managed(void) {
    if (mmap(NULL, PAGE, PROT_READ, MAP_SHARED, nodes[UVM], 0) == MAP_FAILED)
        abort();
}
