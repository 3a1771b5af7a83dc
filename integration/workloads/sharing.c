/*
 * sharing [PORT [MIB [OPTION...]]]: a parent without CUDA forks an owner on GPU 0 and an importer on GPU 1 (or 0, if there is one). The owner has
 * MIB of memory (default: 2), of which the importer has a mapping, through a descriptor. For each packet the owner's kernel counts in that memory and the
 * importer reads it: "OWNER IMPORTER", or "ended" for one that is no more. Before it reads, the importer maps the memory anew by the handle that it
 * has kept, as torch's symmetric memory keeps its own.
 *
 * OPTION "released": the importer gives back the handle of what it has mapped. "legacy": memory of cuMemAlloc, through cuIpcGetMemHandle.
 * "own": each has memory of its own that cannot be shared, and counts there.
 * "owner=SOCKET", "importer=SOCKET": this member alone; the other one is in another container, and they meet at the path.
 */
#define _GNU_SOURCE
#include "gpu/gpu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OWNER, IMPORTER, MEMBERS };

#define GRANULE (2UL << 20)
#define ON_DEVICE 1
#define POSIX_FILE 1
#define READ_WRITE 3
#define LAZY_PEER_ACCESS 1

static int asked[MEMBERS][2]; /* the parent's end and the member's, of a socket pair */
static int between[MEMBERS];  /* the members' */
static size_t bytes;
static int is_legacy, is_own, is_released;
static CUmemGenericAllocationHandle imported; /* 0: it keeps none */

static void send_message(const CUipcMemHandle *handle, int file) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof file)];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    struct msghdr message = {.msg_iov = &(struct iovec){(void *)handle, sizeof *handle}, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    if (sendmsg(between[OWNER], &message, 0) != sizeof *handle)
        exit(1);
}

/* Returns the descriptor that came with it; -1 if there is none. */
static int receive_message(CUipcMemHandle *handle) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &(struct iovec){handle, sizeof *handle}, .msg_iovlen = 1,
                             .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(between[IMPORTER], &message, MSG_CMSG_CLOEXEC) != sizeof *handle)
        exit(1); /* the owner has said why */
    int file = -1;
    if (CMSG_FIRSTHDR(&message))
        memcpy(&file, CMSG_DATA(&control.header), sizeof file);
    return file;
}

static void map_at(CUdeviceptr address, CUmemGenericAllocationHandle handle, int device) {
    CUmemAccessDesc access = {.location = {ON_DEVICE, device}, .flags = READ_WRITE};
    CUDA(cuMemMap(address, bytes, 0, handle, 0));
    CUDA(cuMemSetAccess(address, bytes, &access, 1));
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, int device) {
    CUdeviceptr address;
    CUDA(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    map_at(address, handle, device);
    return address;
}

static CUdeviceptr create(int device, int handle_types, CUmemGenericAllocationHandle *handle) {
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = handle_types, .location = {ON_DEVICE, device}};
    CUDA(cuMemCreate(handle, bytes, &properties, 0));
    return map(*handle, device);
}

static CUdeviceptr share(int device) {
    CUipcMemHandle legacy = {{0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    int file = -1;
    if (is_legacy) {
        memory = gpu_allocate(bytes);
        CUDA(cuIpcGetMemHandle(&legacy, memory));
    } else {
        memory = create(device, POSIX_FILE, &handle);
        CUDA(cuMemExportToShareableHandle(&file, handle, POSIX_FILE, 0));
    }
    uint32_t start = 100;
    CUDA(cuMemcpyHtoD_v2(memory, &start, sizeof start));
    send_message(&legacy, file);
    if (file >= 0)
        close(file);
    return memory;
}

static CUdeviceptr import(int device) {
    CUipcMemHandle legacy;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;
    int file = receive_message(&legacy);
    if (is_legacy) {
        CUDA(cuIpcOpenMemHandle_v2(&memory, legacy, LAZY_PEER_ACCESS));
        return memory;
    }
    CUDA(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file, POSIX_FILE));
    close(file);
    memory = map(handle, device);
    if (is_released)
        CUDA(cuMemRelease(handle));
    else
        imported = handle;
    return memory;
}

/* Returns a connection with the other member, once it is there. */
static int meet(int member, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int end = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (member == IMPORTER) {
        while (connect(end, (struct sockaddr *)&address, sizeof address))
            usleep(10000);
        return end;
    }
    if (bind(end, (struct sockaddr *)&address, sizeof address) || listen(end, 1))
        exit(1);
    int other = accept(end, NULL, NULL);
    close(end);
    return other;
}

static CUdeviceptr have_own(int device, uint32_t start) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory = create(device, 0, &handle);
    CUDA(cuMemcpyHtoD_v2(memory, &start, sizeof start));
    return memory;
}

static void be_member(int member) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int device = member % gpu_count();
    gpu_open_device(device);
    CUdeviceptr memory = is_own ? have_own(device, 100 * (uint32_t)(member + 1)) : member == OWNER ? share(device) : import(device);
    close(between[member]);
    char byte;
    while (read(asked[member][1], &byte, 1) == 1) {
        uint32_t count;
        if (imported) {
            CUDA(cuMemUnmap(memory, bytes));
            map_at(memory, imported, device);
        }
        if (is_own || member == OWNER)
            count = counter_increment(memory);
        else
            CUDA(cuMemcpyDtoH_v2(&count, memory, sizeof count));
        if (write(asked[member][1], &count, sizeof count) != sizeof count)
            break;
    }
    _exit(0);
}

static void start(int member) {
    if (fork())
        return;
    /* Faults of the stand-in name members by tag: TAG-0, TAG-1. */
    const char *own_tag = getenv("STASIS_TAG");
    char tag[64];
    snprintf(tag, sizeof tag, "%s-%d", own_tag ? own_tag : "sharing", member);
    setenv("STASIS_TAG", tag, 1);
    for (int i = 0; i < MEMBERS; i++) {
        close(asked[i][0]);
        if (i != member) {
            close(asked[i][1]);
            close(between[i]);
        }
    }
    be_member(member);
}

static void answer(char *text, size_t room) {
    size_t used = 0;
    for (int i = 0; i < MEMBERS; i++) {
        const char *end = i + 1 < MEMBERS ? " " : "\n";
        uint32_t count;
        if (write(asked[i][0], "x", 1) == 1 && read(asked[i][0], &count, sizeof count) == sizeof count)
            used += (size_t)snprintf(text + used, room - used, "%u%s", count, end);
        else
            used += (size_t)snprintf(text + used, room - used, "ended%s", end);
    }
}

int main(int argc, char **argv) {
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    bytes = ((size_t)argument(argc, argv, 2, 2) << 20) + GRANULE - 1;
    bytes -= bytes % GRANULE;
    const char *owner = NULL, *importer = NULL;
    for (int i = 3; i < argc; i++) {
        owner = strncmp(argv[i], "owner=", 6) ? owner : argv[i] + 6;
        importer = strncmp(argv[i], "importer=", 9) ? importer : argv[i] + 9;
        is_legacy |= !strcmp(argv[i], "legacy");
        is_own |= !strcmp(argv[i], "own");
        is_released |= !strcmp(argv[i], "released");
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, between))
        return 1;
    for (int i = 0; i < MEMBERS; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, asked[i]))
            return 1;
    if (owner)
        between[OWNER] = meet(OWNER, owner);
    if (importer)
        between[IMPORTER] = meet(IMPORTER, importer);
    for (int i = 0; i < MEMBERS; i++)
        if (i == OWNER ? !importer : !owner)
            start(i);
    for (int i = 0; i < MEMBERS; i++) {
        close(asked[i][1]);
        close(between[i]);
    }
    serve((int)argument(argc, argv, 1, 10000), answer);
}
