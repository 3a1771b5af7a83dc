/*
 * kept PORT WHAT...: holds files in /dev/shm ("shared") or a semaphore there ("semaphore"), a file
 * in /data ("volume"), locks of files ("locks"), a connection to itself ("loopback"), a POSIX queue
 * ("queue"), a removed segment ("segment"), an expired timer ("timer", "alarm"), what the kernel
 * keeps of threads ("threads") or what CRIU does not dump (undumped.c), and answers each packet
 * with a number that counts on, and with what is wrong.
 */
#include "../serve.h"
#include "kept.h"

#include <string.h>

static const struct {
    const char *name;
    void (*begin)(void);
    const char *(*wrong)(void);
} kinds[] = {
    {"shared", shared_begin, shared_wrong},
    {"semaphore", semaphore_begin, semaphore_wrong},
    {"volume", volume_begin, volume_wrong},
    {"locks", locks_begin, locks_wrong},
    {"loopback", loopback_begin, loopback_wrong},
    {"queue", queue_begin, queue_wrong},
    {"connection", connection_begin, nothing_wrong},
    {"outside", outside_begin, nothing_wrong},
    {"deleted", deleted_begin, nothing_wrong},
    {"unmapped", unmapped_begin, nothing_wrong},
    {"nested", nested_begin, nothing_wrong},
    {"faults", faults_begin, nothing_wrong},
    {"watch", watch_begin, nothing_wrong},
    {"secret", secret_begin, nothing_wrong},
    {"bpf", bpf_begin, nothing_wrong},
    {"alarm", alarm_begin, alarm_wrong},
    {"segment", segment_begin, segment_wrong},
    {"timer", timer_begin, timer_wrong},
    {"threads", threads_begin, threads_wrong},
};
static int held[8], count, asked;

static void answer(char *text, size_t room) {
    const char *wrong = NULL;
    for (int i = 0; i < count && !wrong; i++)
        wrong = kinds[held[i]].wrong();
    snprintf(text, room, "%d %s\n", ++asked, wrong ? wrong : "ok");
}

int main(int argc, char **argv) {
    for (int i = 2; i < argc; i++)
        for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++)
            if (!strcmp(argv[i], kinds[kind].name)) {
                kinds[kind].begin();
                held[count++] = kind;
            }
    serve((int)argument(argc, argv, 1, 10000), answer);
}
