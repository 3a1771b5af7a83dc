/* leaderless: its leader ends at SIGUSR1, and another thread goes on. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t told;

static void tell(int signal) {
    told = signal;
}

static void *stay(void *unused) {
    for (;;)
        pause();
    return unused;
}

int main(void) {
    pthread_t thread;
    sigset_t own;
    signal(SIGUSR1, tell);
    /* The process gets SIGUSR1, and any thread takes it that does not block it: a new one, too, once it has its mask. */
    sigemptyset(&own);
    sigaddset(&own, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &own, NULL);
    if (pthread_create(&thread, NULL, stay, NULL))
        return 1;
    pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    puts("up");
    fflush(stdout);
    while (!told)
        usleep(1000);
    pthread_exit(NULL);
}
