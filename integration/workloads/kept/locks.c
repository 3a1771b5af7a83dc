/* Locks of files, of each kind. Another process asks whether they are held. */
#define _GNU_SOURCE
#include "kept.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

static struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
static const char *const names[] = {"/lock-flock", "/lock-posix", "/lock-ofd"};

static int lock(int kind, int file) {
    switch (kind) {
    case 0:
        return flock(file, LOCK_EX | LOCK_NB);
    case 1:
        return fcntl(file, F_SETLK, &whole);
    default:
        return fcntl(file, F_OFD_SETLK, &whole);
    }
}

void locks_begin(void) {
    for (int kind = 0; kind < 3; kind++) {
        int file = open(names[kind], O_RDWR | O_CREAT, 0600);
        MUST(file >= 0 && !lock(kind, file));
    }
}

const char *locks_wrong(void) {
    for (int kind = 0; kind < 3; kind++) {
        pid_t child = fork();
        if (!child)
            _exit(lock(kind, open(names[kind], O_RDWR)) == 0);
        int status;
        MUST(waitpid(child, &status, 0) == child);
        if (status)
            return names[kind];
    }
    return NULL;
}
