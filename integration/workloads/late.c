/* late [PORT]: starts CUDA with its first packet; from then on it is `counter`. */
#include "gpu/gpu.h"

#include <stdio.h>

static CUdeviceptr counter;

static void answer(char *text, size_t room) {
    if (!counter) {
        gpu_open();
        counter = counter_new(100);
    }
    snprintf(text, room, "%u\n", counter_increment(counter));
}

int main(int argc, char **argv) { serve((int)argument(argc, argv, 1, 10000), answer); }
