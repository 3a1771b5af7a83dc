/* Names that end lines, act on a terminal, are no UTF-8 or lie about what they name. */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *const NAMES[] = {
    "\033]0;owned\a",
    "a\nlevel=error",
    "\xff\xfe\x80",
    /* Cut inside the third letter by the kernel. */
    "abcdefghijklm\xe4\xb8\xad",
    ") R 1 1 1 0 -1",
    "x (deleted)",
    "\xe2\x80\xae" "txt",
    "[vdso]",
};
#define COUNT (sizeof NAMES / sizeof *NAMES)

static void *rename_for_ever(void *unused) {
    for (;; usleep(200)) {
        prctl(PR_SET_NAME, NAMES[played % COUNT]);
        int leader = open("/proc/self/comm", O_WRONLY);
        if (leader >= 0) {
            const char *name = NAMES[(played + 1) % COUNT];
            if (write(leader, name, strlen(name)) > 0)
                played++;
            close(leader);
        }
    }
    return unused;
}

static void use(const char *name, const char *other) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/%s", name);
    int file = new_file(path, 4096);
    if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED)
        give_up(path);
    if (vfork() == 0) {
        execl("/bin/pause", name, other, NULL);
        _exit(70);
    }
}

void odd_names(void) {
    for (size_t i = 0; i < COUNT; i++)
        use(NAMES[i], NAMES[(i + 1) % COUNT]);
    in_thread(rename_for_ever);
}

/*
 * Where NCCL's settings are looked for: a device of another's, a fifo without a writer, a link out of the container, and one that
 * has no end. Read only of ranks, so there are two that are called so.
 */
static void make_paths(void) {
    mkdir("/root", 0700);
    unlink("/etc/nccl.conf");
    if (mkfifo("/root/.nccl.conf", 0600) && access("/root/.nccl.conf", F_OK))
        give_up("a fifo");
    if (mknod("/etc/nccl.conf", S_IFCHR | 0666, makedev(10, 130)))
        give_up("a device");
    if (symlink("/proc/1/root/etc/shadow", "/tmp/out") || symlink("/tmp/loop", "/tmp/loop"))
        give_up("a link");
    mkdir("/dev/nvidia-caps", 0755);
    mkfifo("/dev/nvidia9", 0666);
    symlink("/tmp/loop", "/dev/nvidia8");
    mknod("/dev/nvidia7", S_IFCHR | 0666, makedev(10, 130));
    mkfifo("/tmp/libcuda.so.1", 0666);
}

void rank(void) {
    prctl(PR_SET_NAME, "pt_nccl_\033[2J");
    played = 1;
}

/* `vfork` returns when the other one runs its program, which has yet to open the GPU. */
static void wait_until_it_is_a_rank(pid_t other) {
    char path[64], name[16] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", other);
    while (strncmp(name, "pt_nccl_", 8)) {
        FILE *comm = fopen(path, "r");
        if (!comm || !fgets(name, sizeof name, comm))
            give_up("the other rank");
        fclose(comm);
        usleep(1000);
    }
}

void paths(void) {
    make_paths();
    pid_t other = vfork();
    if (other == 0) {
        char *const arguments[] = {"hostile", "rank", "10109", NULL};
        char *const environment[] = {
            "NCCL_CONF_FILE=/tmp/out", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64", "\xff\n=\033", NULL};
        execve("/bin/hostile", arguments, environment);
        _exit(70);
    }
    wait_until_it_is_a_rank(other);
    rank();
}
