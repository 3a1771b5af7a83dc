/*
 * mesh [PORT [MEMBERS]]: a parent without CUDA forks MEMBERS processes (default: 4), one a GPU as long as there are GPUs. Each has 2 MiB that it counts
 * in, and has imported those of all others, as ranks of NCCL have. For each packet all count, and then all map what they have imported anew, by the
 * handles that they have kept, and read all counts: "ok COUNT", or "wrong" with the sum that each member has read.
 */
#define _GNU_SOURCE
#include "gpu/gpu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 8
#define BYTES (2UL << 20)
#define ON_DEVICE 1
#define POSIX_FILE 1
#define READ_WRITE 3
#define START 100

static int ends[MOST][2]; /* the parent's end and the member's, of a socket pair */
static int members;

struct piece {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
};

static void send_file(int socket, int file) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof file)];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    struct msghdr message = {.msg_iov = &(struct iovec){"f", 1}, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (sendmsg(socket, &message, 0) != 1)
        exit(1);
}

static int receive_file(int socket) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct msghdr message = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int file;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
        exit(1);
    memcpy(&file, CMSG_DATA(&control.header), sizeof file);
    return file;
}

static void map_at(const struct piece *piece, int device) {
    CUmemAccessDesc access = {.location = {ON_DEVICE, device}, .flags = READ_WRITE};
    CUDA(cuMemMap(piece->address, BYTES, 0, piece->handle, 0));
    CUDA(cuMemSetAccess(piece->address, BYTES, &access, 1));
}

static void map(struct piece *piece, int device) {
    CUDA(cuMemAddressReserve(&piece->address, BYTES, 0, 0, 0));
    map_at(piece, device);
}

static void create(struct piece *piece, int device) {
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = POSIX_FILE, .location = {ON_DEVICE, device}};
    uint32_t start = START;
    CUDA(cuMemCreate(&piece->handle, BYTES, &properties, 0));
    map(piece, device);
    CUDA(cuMemcpyHtoD_v2(piece->address, &start, sizeof start));
}

/* Returns the sum of all counts. */
static uint32_t read_all(const struct piece *pieces, int own, int device) {
    uint32_t sum = 0;
    for (int i = 0; i < members; i++) {
        uint32_t count;
        if (i != own) {
            CUDA(cuMemUnmap(pieces[i].address, BYTES));
            map_at(&pieces[i], device);
        }
        CUDA(cuMemcpyDtoH_v2(&count, pieces[i].address, sizeof count));
        sum += count;
    }
    return sum;
}

static void be_member(int own) {
    struct piece pieces[MOST];
    int socket = ends[own][1], file;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int device = own % gpu_count();
    gpu_open_device(device);
    create(&pieces[own], device);
    CUDA(cuMemExportToShareableHandle(&file, pieces[own].handle, POSIX_FILE, 0));
    send_file(socket, file);
    close(file);
    for (int i = 0; i < members; i++) {
        file = receive_file(socket);
        if (i != own) {
            CUDA(cuMemImportFromShareableHandle(&pieces[i].handle, (void *)(intptr_t)file, POSIX_FILE));
            map(&pieces[i], device);
        }
        close(file);
    }
    char what;
    while (read(socket, &what, 1) == 1) {
        uint32_t result = what == 'c' ? counter_increment(pieces[own].address) : read_all(pieces, own, device);
        if (write(socket, &result, sizeof result) != sizeof result)
            break;
    }
    _exit(0);
}

static void start(int member) {
    if (fork())
        return;
    for (int i = 0; i < members; i++) {
        close(ends[i][0]);
        if (i != member)
            close(ends[i][1]);
    }
    be_member(member);
}

/* All members work at the same time; returns whether all have answered. */
static int ask(char what, uint32_t *results) {
    int asked = 0, answered = 0;
    for (int i = 0; i < members; i++)
        asked += write(ends[i][0], &what, 1) == 1;
    for (int i = 0; i < members; i++)
        answered += read(ends[i][0], &results[i], sizeof *results) == sizeof *results;
    return asked == members && answered == members;
}

static void answer(char *text, size_t room) {
    uint32_t counts[MOST] = {0}, sums[MOST] = {0}, sum = 0;
    int good = ask('c', counts) && ask('r', sums);
    for (int i = 0; i < members; i++)
        sum += counts[i];
    for (int i = 0; i < members; i++)
        good &= sums[i] == sum && counts[i] == counts[0];
    if (good) {
        snprintf(text, room, "ok %u\n", counts[0]);
        return;
    }
    size_t used = (size_t)snprintf(text, room, "wrong");
    for (int i = 0; i < members; i++)
        used += (size_t)snprintf(text + used, room - used, " %u/%u", sums[i], counts[i]);
    snprintf(text + used, room - used, "\n");
}

int main(int argc, char **argv) {
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    members = (int)argument(argc, argv, 2, 4);
    if (members < 2 || members > MOST)
        return 1;
    for (int i = 0; i < members; i++)
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends[i]))
            return 1;
    for (int i = 0; i < members; i++)
        start(i);
    int files[MOST];
    for (int i = 0; i < members; i++) {
        close(ends[i][1]);
        files[i] = receive_file(ends[i][0]);
    }
    for (int i = 0; i < members; i++)
        for (int j = 0; j < members; j++)
            send_file(ends[i][0], files[j]);
    for (int i = 0; i < members; i++)
        close(files[i]);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
