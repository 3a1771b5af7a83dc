/* A periodic timer that has expired each time, and was not read yet. */
#include "kept.h"

#include <poll.h>
#include <stdint.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { LONGER_THAN_ITS_PERIOD = 10000 };

static int timer;

static int expires(void) {
    struct pollfd readable = {.fd = timer, .events = POLLIN};
    return poll(&readable, 1, LONGER_THAN_ITS_PERIOD) == 1;
}

void timer_begin(void) {
    struct itimerspec often = {.it_value.tv_nsec = 1, .it_interval.tv_nsec = 10 * 1000 * 1000};
    timer = timerfd_create(CLOCK_MONOTONIC, 0);
    MUST(timer >= 0 && !timerfd_settime(timer, 0, &often, NULL) && expires());
}

const char *timer_wrong(void) {
    uint64_t times;
    if (read(timer, &times, sizeof times) != sizeof times)
        return "the timer had not expired";
    return expires() ? NULL : "the timer does not expire again";
}
