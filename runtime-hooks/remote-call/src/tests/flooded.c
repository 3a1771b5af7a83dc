/* flooded FILE [stop]: a thread floods the process, or its first thread, with signals; that thread
 * counts in FILE, and its handler counts the signals there.
 *
 * After each burst the flood waits until the first thread has counted. The kernel delivers every
 * pending signal before that thread gets on, and a thread that gets more of the processor can send
 * them for ever faster than they are handled. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BURST 1000

static int stops;
static volatile uint64_t *counts;

static void handled(int signal) {
    (void)signal;
    counts[1]++;
}

static void *flood(void *unused) {
    for (;;) {
        uint64_t counted = counts[0];
        for (int i = 0; i < BURST; i++) {
            syscall(SYS_tgkill, getpid(), getpid(), SIGRTMIN + 3);
            syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
            if (stops)
                kill(getpid(), SIGCONT);
        }
        while (counts[0] == counted)
            sched_yield();
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    stops = argc > 2;
    int file = open(argv[1], O_RDWR);
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_t thread;
    signal(SIGUSR1, handled);
    signal(SIGRTMIN + 3, handled);
    if (counts == MAP_FAILED || pthread_create(&thread, NULL, flood, NULL))
        return 1;
    for (;;)
        counts[0]++;
}
