/* workload PIECES [VARIANT]: has PIECES * 2 MiB of "GPU" memory, and reads commands from its
 * input, one word at a time; answers each with a number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int gpu_begin(size_t), gpu_out(void), gpu_half_out(void), gpu_rest_out(void), gpu_in(void);
size_t gpu_wrong(void), gpu_bytes(void);
void *gpu_contents(void);

/* Waits for every child. */
static void *taker(void *unused) {
    for (;;)
        if (waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD)
            sched_yield();
    return unused;
}

static void *sleeper(void *unused) {
    for (;;)
        pause();
    return unused;
}

/* Lets nothing through but what the program itself does from now on. */
static int filter(void) {
    static const int allowed[] = {SYS_read, SYS_write, SYS_munmap, SYS_newfstatat, SYS_lseek,
                                  SYS_futex, SYS_sched_yield, SYS_restart_syscall, SYS_exit,
                                  SYS_exit_group};
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter rules[2 * COUNT + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int i = 0; i < COUNT; i++) {
        struct sock_filter is = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        struct sock_filter pass = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        rules[1 + 2 * i] = is;
        rules[2 + 2 * i] = pass;
    }
    struct sock_filter kill = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    rules[2 * COUNT + 1] = kill;
    struct sock_fprog program = {.len = 2 * COUNT + 2, .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int begin(const char *variant) {
    pthread_t thread;
    signal(SIGTERM, SIG_IGN);
    if (!strcmp(variant, "twice"))
        return !dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_LAZY);
    if (!strcmp(variant, "taker"))
        return pthread_create(&thread, NULL, taker, NULL);
    if (!strcmp(variant, "crowd")) {
        for (int i = 0; i < 300; i++)
            if (pthread_create(&thread, NULL, sleeper, NULL))
                return 1;
        return 0;
    }
    if (!strcmp(variant, "locked"))
        return mlockall(MCL_CURRENT | MCL_FUTURE);
    if (!strcmp(variant, "filtered"))
        return filter();
    return 0;
}

/* Areas of the same kind as a hole on both sides of the contents. */
static int guards(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    char *contents = gpu_contents();
    return mmap(contents - 4096, 4096, PROT_NONE, flags, -1, 0) == MAP_FAILED ||
           mmap(contents + gpu_bytes(), 4096, PROT_NONE, flags, -1, 0) == MAP_FAILED;
}

enum { PAGE = 4096, MANY = 70000, SHARED = 100 };
static void *shared[2 * SHARED];
static size_t shared_count;

/* Mappings of one page that the kernel joins with no other. */
static void map_shared(void) {
    while (shared_count < sizeof shared / sizeof *shared) {
        void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return;
        shared[shared_count++] = page;
        if (shared_count == SHARED)
            return;
    }
}

/* As many mappings as the kernel allows; how many of them were made one by one. */
static size_t map_all(void) {
    char *all = mmap(NULL, 2ul * MANY * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    map_shared();
    for (size_t i = 0; i < MANY && !mprotect(all + (2 * i + 1) * PAGE, PAGE, PROT_READ);)
        i++;
    map_shared();
    return shared_count;
}

/* One mapping less. */
static int unmap_one(void) { return shared_count == 0 || munmap(shared[--shared_count], PAGE); }

/* Forks a child that has all that its parent has, and does the same. */
static int in_a_child(void) {
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(gpu_out() || gpu_in() || gpu_wrong() ? 1 : 0);
    return child < 0 || waitpid(child, &status, 0) != child || status;
}

int main(int argc, char **argv) {
    char word[32];
    if (argc < 2 || gpu_begin(strtoul(argv[1], NULL, 10)))
        return 1;
    puts("0");
    fflush(stdout);
    if (begin(argc > 2 ? argv[2] : ""))
        return 1;
    while (scanf("%31s", word) == 1) {
        unsigned long answer = 0;
        if (!strcmp(word, "out"))
            answer = (unsigned long)gpu_out();
        else if (!strcmp(word, "half-out"))
            answer = (unsigned long)gpu_half_out();
        else if (!strcmp(word, "rest-out"))
            answer = (unsigned long)gpu_rest_out();
        else if (!strcmp(word, "in"))
            answer = (unsigned long)gpu_in();
        else if (!strcmp(word, "wrong"))
            answer = gpu_wrong();
        else if (!strcmp(word, "contents"))
            answer = (unsigned long)gpu_contents();
        else if (!strcmp(word, "lock"))
            answer = (unsigned long)mlock(gpu_contents(), 4096);
        else if (!strcmp(word, "guards"))
            answer = (unsigned long)guards();
        else if (!strcmp(word, "map-all"))
            answer = map_all();
        else if (!strcmp(word, "unmap-one"))
            answer = (unsigned long)unmap_one();
        else if (!strcmp(word, "fork"))
            answer = (unsigned long)in_a_child();
        else if (strcmp(word, "nothing"))
            return 2;
        printf("%lu\n", answer);
        fflush(stdout);
    }
    return 0;
}
