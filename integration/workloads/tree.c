/*
 * tree [PORT]: one parent, three CUDA processes (started by exec, since CUDA does not survive fork) and four more without
 * CUDA, one of them started by exec. Each counts by itself; a packet has all of them count once, and is answered with all
 * the numbers: three from GPU memory, then five from host memory, the parent's last.
 */
#define _GNU_SOURCE
#include "gpu/gpu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CUDA_MEMBERS 3
#define MEMBERS 7

enum kind { ON_GPU, PLAIN };

static int members[MEMBERS]; /* our ends of a socket pair to each */
static uint32_t own_count;

/* A member: counts once for each byte that it receives. */
static void member(int socket, enum kind kind, uint32_t start) {
    CUdeviceptr counter = 0;
    uint32_t count = start;
    if (kind == ON_GPU) {
        gpu_open();
        counter = counter_new(start);
    }
    char byte;
    while (read(socket, &byte, 1) == 1) {
        count = kind == ON_GPU ? counter_increment(counter) : count + 1;
        if (write(socket, &count, sizeof count) != sizeof count)
            break;
    }
    _exit(0);
}

static void exec_member(int socket, enum kind kind, uint32_t start) {
    char descriptor[16], number[16], tag[64];
    const char *own_tag = getenv("STASIS_TAG");
    snprintf(descriptor, sizeof descriptor, "%d", socket);
    snprintf(number, sizeof number, "%u", start);
    /* Faults of the stand-in name members by tag: TAG-1, TAG-2, ... */
    snprintf(tag, sizeof tag, "%s-%u", own_tag ? own_tag : "tree", start / 100);
    setenv("STASIS_TAG", tag, 1);
    execl("/proc/self/exe", "tree", "member", kind == ON_GPU ? "gpu" : "plain", descriptor, number, (char *)NULL);
    _exit(127);
}

static int start_member(int index) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        exit(1);
    if (fork() == 0) {
        close(pair[0]);
        for (int i = 0; i < index; i++)
            close(members[i]);
        uint32_t start = 100 * (uint32_t)(index + 1);
        if (index < CUDA_MEMBERS)
            exec_member(pair[1], ON_GPU, start);
        if (index == CUDA_MEMBERS)
            exec_member(pair[1], PLAIN, start);
        member(pair[1], PLAIN, start);
    }
    close(pair[1]);
    return pair[0];
}

static void answer(char *text, size_t room) {
    size_t used = 0;
    for (int i = 0; i < MEMBERS; i++)
        if (write(members[i], "x", 1) != 1)
            used += (size_t)snprintf(text + used, room - used, "lost ");
    for (int i = 0; i < MEMBERS; i++) {
        uint32_t count = 0;
        if (read(members[i], &count, sizeof count) == sizeof count)
            used += (size_t)snprintf(text + used, room - used, "%u ", count);
        else
            used += (size_t)snprintf(text + used, room - used, "ended ");
    }
    snprintf(text + used, room - used, "%u\n", ++own_count);
}

int main(int argc, char **argv) {
    if (argc > 4 && !strcmp(argv[1], "member"))
        member(atoi(argv[3]), strcmp(argv[2], "gpu") ? PLAIN : ON_GPU, (uint32_t)atoi(argv[4]));
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < MEMBERS; i++)
        members[i] = start_member(i);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
