/*
 * peers [PORT [MIB [disabled]]]: holds MIB of memory (default: 1) on each of two GPUs, with peer access from the first to the second, or with
 * `disabled` one that was enabled and disabled again. Counts on both as `counter` does.
 */
#include "gpu/gpu.h"

#include <stdio.h>

static CUdeviceptr counters[2];

static void answer(char *text, size_t room) {
    unsigned counts[2];
    for (int i = 0; i < 2; i++) {
        gpu_use(i);
        counts[i] = counter_increment(counters[i]);
    }
    snprintf(text, room, "%u %u\n", counts[0], counts[1]);
}

int main(int argc, char **argv) {
    for (int i = 0; i < 2; i++) {
        gpu_open_device(i);
        counters[i] = counter_new(100 * (uint32_t)(i + 1));
        gpu_allocate((size_t)argument(argc, argv, 2, 1) << 20);
    }
    gpu_use(0);
    gpu_enable_peer_access(1);
    if (argc > 3)
        gpu_disable_peer_access(1);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
