/* A periodic timer whose signal is blocked, and pending. */
#include "kept.h"

#include <signal.h>
#include <sys/time.h>

static sigset_t alarms;

void alarm_begin(void) {
    struct itimerval often = {.it_value.tv_usec = 1, .it_interval.tv_usec = 10000};
    MUST(!sigemptyset(&alarms) && !sigaddset(&alarms, SIGALRM) && !sigprocmask(SIG_BLOCK, &alarms, NULL));
    MUST(!setitimer(ITIMER_REAL, &often, NULL));
    sigset_t pending;
    do
        MUST(!sigpending(&pending));
    while (!sigismember(&pending, SIGALRM));
}

const char *alarm_wrong(void) {
    sigset_t pending;
    MUST(!sigpending(&pending));
    return sigismember(&pending, SIGALRM) ? NULL : "no alarm is pending";
}
