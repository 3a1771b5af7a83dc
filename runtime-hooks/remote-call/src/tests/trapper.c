/* trapper: has a handler for SIGTRAP, which ends it with 42. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void trapped(int signal) {
    (void)signal;
    _exit(42);
}

int main(void) {
    signal(SIGTRAP, trapped);
    puts("up");
    fflush(stdout);
    for (;;)
        pause();
}
