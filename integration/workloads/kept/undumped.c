/* Objects that CRIU does not dump, or not unless asked to. No restore brings them back, so nothing can be wrong with them. */
#define _GNU_SOURCE
#include "kept.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define REMOVED "/dev/shm/removed"
#define LARGE (2 << 20)

const char *nothing_wrong(void) {
    return NULL;
}

/* Both ends of a connection. */
void connection_begin(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    MUST(!bind(server, (struct sockaddr *)&address, sizeof address) && !listen(server, 1));
    MUST(!getsockname(server, (struct sockaddr *)&address, &size));
    MUST(!connect(client, (struct sockaddr *)&address, sizeof address) && accept(server, NULL, NULL) >= 0);
    close(server);
}

/* One end of a connection with a server of the host. */
void outside_begin(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/outside/socket"};
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(client >= 0 && !connect(client, (struct sockaddr *)&address, sizeof address));
}

/* A large file that was removed, which is open, or is mapped and not open. */
static int removed(void) {
    static char bytes[LARGE];
    int file = open(REMOVED, O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(file >= 0 && write(file, bytes, LARGE) == LARGE && !unlink(REMOVED));
    return file;
}

void deleted_begin(void) {
    removed();
}

void unmapped_begin(void) {
    int file = removed();
    MUST(mmap(NULL, LARGE, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED && !close(file));
}

/* A directory of the root file system. */
void watch_begin(void) {
    MUST(inotify_add_watch(inotify_init(), "/bin", IN_CREATE) >= 0);
}

/* A child with pids of its own, as a sandbox has it. */
void nested_begin(void) {
    pid_t sandbox = fork();
    MUST(sandbox >= 0);
    if (sandbox)
        return;
    MUST(!unshare(CLONE_NEWUSER | CLONE_NEWPID));
    MUST(fork() >= 0);
    for (;;)
        pause();
}

/* The kernel may lack these: then the program ends. */
void faults_begin(void) {
    MUST(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */) >= 0);
}

void secret_begin(void) {
    MUST(syscall(SYS_memfd_secret, 0) >= 0);
}

void bpf_begin(void) {
    union bpf_attr queue = {.map_type = BPF_MAP_TYPE_QUEUE, .value_size = 4, .max_entries = 1};
    MUST(syscall(SYS_bpf, BPF_MAP_CREATE, &queue, sizeof queue) >= 0);
}
