/* Processes of the container that disturb the one with the GPU, and those that stasis makes in it. */
#define _GNU_SOURCE
#include "hostile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void ignore(int signal) {
    (void)signal;
    played++;
}

void signals(void) {
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        signal(number, ignore);
    signal(SIGUSR1, ignore);
    signal(SIGTRAP, ignore);
    in_process("play-signals");
}

static void signal_thread(pid_t process, pid_t thread) {
    const int numbers[] = {SIGUSR1, SIGTRAP, SIGRTMIN, SIGRTMAX, SIGCONT};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        syscall(SYS_tgkill, process, thread, numbers[i]);
}

void play_signals(pid_t victim) {
    for (;;)
        for_each_thread(victim, signal_thread);
}

void stops(void) {
    played = 1;
    in_process("play-stops");
}

void play_stops(pid_t victim) {
    for (;; usleep(500)) {
        kill(victim, SIGSTOP);
        usleep(500);
        kill(victim, SIGCONT);
    }
}

void tracer(void) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    played = 1;
    in_process("play-tracer");
}

static void trace_thread(pid_t process, pid_t thread) {
    (void)process;
    ptrace(PTRACE_SEIZE, thread, 0, 0);
}

/* Resumes all of its tracees, and traces new threads. */
void play_tracer(pid_t victim) {
    for (int status;; usleep(500)) {
        for_each_thread(victim, trace_thread);
        for (pid_t pid; (pid = waitpid(-1, &status, __WALL | WNOHANG)) > 0;)
            ptrace(PTRACE_CONT, pid, 0, 0);
    }
}

void fork_bomb(void) {
    played = 1;
    in_process("play-fork-bomb");
}

/* Makes as many processes as are allowed, each of which makes more. */
void play_fork_bomb(pid_t victim) {
    (void)victim;
    signal(SIGCHLD, SIG_IGN);
    for (;;)
        if (fork() < 0)
            usleep(2000);
}

void helpers_stopped(void) {
    in_process("play-helpers-stopped");
    played = 1;
}

void helpers_killed(void) {
    in_process("play-helpers-killed");
    played = 1;
}

void helpers_traced(void) {
    in_process("play-helpers-traced");
    played = 1;
}

static void disturb(pid_t helper, char how) {
    if (how == 's')
        kill(helper, SIGSTOP);
    if (how == 'k')
        kill(helper, SIGKILL);
    if (how == 't')
        ptrace(PTRACE_SEIZE, helper, 0, 0);
}

/* All processes that did not exist at the beginning belong to others. */
void play_helpers(pid_t victim, char how) {
    (void)victim;
    pid_t own = getpid();
    for (;;) {
        DIR *processes = opendir("/proc");
        for (struct dirent *entry; processes && (entry = readdir(processes));)
            if (atoi(entry->d_name) > own)
                disturb(atoi(entry->d_name), how);
        if (processes)
            closedir(processes);
    }
}

static unsigned fill_descriptors(void) {
    unsigned opened = 0;
    struct rlimit limit;
    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    int null = open("/dev/null", O_RDONLY), last = -1;
    for (int next; (next = dup(null)) >= 0; opened++)
        last = next;
    /* Descriptors for itself. */
    for (int i = 0; i < 64; i++)
        close(last - i);
    return opened;
}

void many_descriptors(void) {
    in_process("play-descriptors");
    in_process("play-descriptors");
    played = fill_descriptors() > 1000;
}

void play_descriptors(pid_t victim) {
    (void)victim;
    fill_descriptors();
    for (;;)
        pause();
}
