/*
 * heaps PORT [MIB] [random|half-zero|weights] [KIND...]: memory of every kind that a checkpoint has to bring back, without CUDA; MIB of each,
 * or of those kinds that are named. Each packet has every byte verified, by each process in its own memory, and is answered
 *
 *   ok KINDS BYTES CHECKSUM COUNT GUARD     how much there is, always the same; of all words, which the count decides on, too; how many packets
 *                                           so far; guard marks (MADV_GUARD_INSTALL), which some versions of CRIU lose: kept, lost or none
 *   bad KIND ADDRESS WHAT                   what is there instead
 *
 * A mapping whose flags in smaps are not as they were is bad, too. The word before the kinds is what "plain" is filled with.
 */
#define _GNU_SOURCE
#include "heaps.h"

#include "../serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static char **kinds;
static int kind_count;
static unsigned packets;

int wanted(const char *kind) {
    for (int i = 0; i < kind_count; i++)
        if (!strcmp(kinds[i], kind))
            return 1;
    return kind_count == 0;
}

static void answer(char *text, size_t room) {
    struct report report = {0};
    areas_check(&report);
    threads_check(&report);
    family_check(&report);
    if (report.bad[0])
        snprintf(text, room, "bad %s\n", report.bad);
    else
        snprintf(text, room, "ok %" PRIu64 " %" PRIu64 " %016" PRIx64 " %u %s\n", report.kinds, report.bytes, report.checksum, ++packets,
                 guard_state());
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "member"))
        family_member(argc, argv);
    size_t bytes = (size_t)argument(argc, argv, 2, 64) << 20;
    const char *fills[] = {[RANDOM] = "random", [HALF_ZERO] = "half-zero", [WEIGHTS] = "weights"};
    enum contents contents = RANDOM;
    int first = 3;
    for (int i = RANDOM; i <= WEIGHTS && argc > 3; i++)
        if (!strcmp(argv[3], fills[i])) {
            contents = (enum contents)i;
            first = 4;
        }
    kinds = argv + first;
    kind_count = argc > first ? argc - first : 0;
    areas_make_for_children(bytes);
    family_start(bytes);
    areas_make(bytes, contents);
    threads_start(bytes);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
