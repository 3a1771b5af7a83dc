#define _GNU_SOURCE
#include "file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define MAGIC 0x3179726f6d656d73ULL /* "smemory1" */

int file_new(const struct shared *what) {
    struct shared shared = *what;
    shared.magic = MAGIC;
    int file = memfd_create("stasis-standin", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)shared.bytes + PAGE) == 0 &&
        pwrite(file, &shared, sizeof shared, (off_t)shared.bytes) == sizeof shared)
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

int file_read(int file, struct shared *what) {
    struct stat status;
    if (fstat(file, &status) || !S_ISREG(status.st_mode) || status.st_size < PAGE)
        return -1;
    off_t end = status.st_size - PAGE;
    if (pread(file, what, sizeof *what, end) != sizeof *what || what->magic != MAGIC || what->bytes != (uint64_t)end)
        return -1;
    return 0;
}

void *file_map(int file, void *address, size_t bytes, int protection) {
    char *mapped = mmap(address, bytes, protection, MAP_SHARED | (address ? MAP_FIXED : 0), file, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    madvise(mapped, bytes, MADV_DONTFORK);
    return mapped;
}
