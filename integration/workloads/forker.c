/*
 * forker [PORT [try]]: a process with CUDA forks two children that never exec, as programs with worker processes do; the second child has
 * three threads. Each counts, the parent in GPU memory and the children in host memory; a packet is answered with the
 * three numbers, and, with "try", with what CUDA says to each child.
 */
#define _GNU_SOURCE
#include "gpu/gpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHILDREN 2

struct news {
    uint32_t count;
    CUresult cuda;
};

static CUdeviceptr counter;
static int children[CHILDREN]; /* our ends of a socket pair to each */
static int own_end, tries_cuda;
static uint32_t start;

/* Counts once for each byte that it receives. */
static void *count(void *unused) {
    (void)unused;
    struct news news = {.count = start};
    char byte;
    while (read(own_end, &byte, 1) == 1) {
        news.count++;
        if (tries_cuda)
            news.cuda = cuInit(0);
        if (write(own_end, &news, sizeof news) != sizeof news)
            break;
    }
    _exit(0);
}

static void *wait_for_ever(void *unused) {
    while (pause())
        continue;
    return unused;
}

static void child(int index) {
    start = 100 * (uint32_t)(index + 2);
    if (index == 1) {
        pthread_t counting, waiting;
        if (pthread_create(&waiting, NULL, wait_for_ever, NULL) || pthread_create(&counting, NULL, count, NULL))
            _exit(1);
        wait_for_ever(NULL);
    }
    count(NULL);
}

static int start_child(int index) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        exit(1);
    if (fork() == 0) {
        close(pair[0]);
        for (int i = 0; i < index; i++)
            close(children[i]);
        own_end = pair[1];
        child(index);
    }
    close(pair[1]);
    return pair[0];
}

static void answer(char *text, size_t room) {
    size_t used = (size_t)snprintf(text, room, "%u", counter_increment(counter));
    for (int i = 0; i < CHILDREN; i++) {
        struct news news;
        if (write(children[i], "x", 1) != 1 || read(children[i], &news, sizeof news) != sizeof news)
            used += (size_t)snprintf(text + used, room - used, " ended");
        else if (tries_cuda)
            used += (size_t)snprintf(text + used, room - used, " %u:%d", news.count, news.cuda);
        else
            used += (size_t)snprintf(text + used, room - used, " %u", news.count);
    }
    snprintf(text + used, room - used, "\n");
}

int main(int argc, char **argv) {
    tries_cuda = argc > 2;
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    gpu_open();
    counter = counter_new(100);
    for (int i = 0; i < CHILDREN; i++)
        children[i] = start_child(i);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
