/*
 * hostile TRICK PORT: counts as `counter` does, holds 24 MiB more of GPU memory, and plays a trick on programs that look at it, checkpoint and restore it. The
 * answer is "COUNT PLAYED": how often the trick was played says that it was. A trick that has a part for a process of its own has this program
 * run once more, without CUDA.
 */
#define _GNU_SOURCE
#include "../gpu/gpu.h"
#include "hostile.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK (256 << 10)
#define HELD (24 << 20)

volatile unsigned played;
static CUdeviceptr counter;
static int port;

void give_up(const char *what) {
    perror(what);
    exit(70);
}

void in_thread(void *(*body)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL))
        give_up("a thread");
}

pid_t in_process(const char *part) {
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/hostile", "hostile", part, parent, NULL);
        _exit(70);
    }
    if (pid < 0)
        give_up("a process");
    return pid;
}

void in_shared_memory(int (*body)(void *)) {
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || clone(body, stack + STACK, CLONE_VM | SIGCHLD, NULL) < 0)
        give_up("a process with the same memory");
}

int new_file(const char *path, off_t length) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, length))
        give_up(path);
    return file;
}

void for_each_thread(pid_t process, void (*act)(pid_t process, pid_t thread)) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && (entry = readdir(threads));)
        if (atoi(entry->d_name) > 0)
            act(process, atoi(entry->d_name));
    if (threads)
        closedir(threads);
}

static void answer(char *text, size_t room) {
    snprintf(text, room, "%u %u\n", counter_increment(counter), played);
}

static void *serve_on(void *unused) {
    serve(port, answer);
    return unused;
}

static void end_main_thread(void) {
    in_thread(serve_on);
    played = 1;
    pthread_exit(NULL);
}

static const struct {
    const char *name;
    void (*set_up)(void);
} TRICKS[] = {
    {"odd-names", odd_names},
    {"false-vdso", false_vdso},
    {"rewritten-vdso", rewritten_vdso},
    {"many-mappings", many_mappings},
    {"all-mappings", all_mappings},
    {"busy-mappings", busy_mappings},
    {"busy-mappings-elsewhere", busy_mappings_elsewhere},
    {"same-memory", same_memory},
    {"main-thread-ended", end_main_thread},
    {"false-library", false_library},
    {"spoiled-library", spoiled_library},
    {"mapped-elsewhere", mapped_elsewhere},
    {"false-contents", false_contents},
    {"overwritten-code", overwritten_code},
    {"overwritten-job", overwritten_job},
    {"exchanged-slots", exchanged_slots},
    {"paths", paths},
    {"rank", rank},
    {"many-descriptors", many_descriptors},
    {"signals", signals},
    {"stops", stops},
    {"tracer", tracer},
    {"fork-bomb", fork_bomb},
    {"helpers-stopped", helpers_stopped},
    {"helpers-killed", helpers_killed},
    {"helpers-traced", helpers_traced},
};

static void play(const char *part, pid_t victim) {
    if (!strcmp(part, "play-signals"))
        play_signals(victim);
    if (!strcmp(part, "play-stops"))
        play_stops(victim);
    if (!strcmp(part, "play-tracer"))
        play_tracer(victim);
    if (!strcmp(part, "play-fork-bomb"))
        play_fork_bomb(victim);
    if (!strncmp(part, "play-helpers-", 13))
        play_helpers(victim, part[13]);
    if (!strcmp(part, "play-descriptors"))
        play_descriptors(victim);
    exit(64);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 64;
    if (!strncmp(argv[1], "play-", 5))
        play(argv[1], atoi(argv[2]));
    port = atoi(argv[2]);
    gpu_open();
    counter = counter_new(100);
    pattern_fill(gpu_allocate(HELD), HELD / sizeof(uint64_t), 1);
    for (size_t i = 0; i < sizeof TRICKS / sizeof *TRICKS; i++)
        if (!strcmp(TRICKS[i].name, argv[1])) {
            TRICKS[i].set_up();
            serve(port, answer);
        }
    return 64;
}
