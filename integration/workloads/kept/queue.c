/* A POSIX queue with a message. */
#include "kept.h"

#include <fcntl.h>
#include <mqueue.h>

static mqd_t queue;

void queue_begin(void) {
    struct mq_attr small = {.mq_maxmsg = 2, .mq_msgsize = 8};
    queue = mq_open("/queue", O_RDWR | O_CREAT | O_EXCL, 0600, &small);
    MUST(queue >= 0 && !mq_send(queue, "x", 1, 0));
}

const char *queue_wrong(void) {
    struct mq_attr now;
    return mq_getattr(queue, &now) || now.mq_curmsgs != 1 ? "queue" : NULL;
}
