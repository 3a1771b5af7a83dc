/* Device memory that other processes can have, too: a file in memory. A page behind the contents describes it. */
#ifndef STASIS_SHARING_FILE_H
#define STASIS_SHARING_FILE_H

#include <stddef.h>
#include <stdint.h>

/* CUmemLocationType. */
enum where { ON_DEVICE = 1, ON_HOST_NODE = 3 };

struct shared {
    uint64_t magic;
    uint64_t bytes;
    int32_t type;   /* enum where */
    uint32_t place; /* a GPU of the machine, whatever number it has for a process; or a NUMA node */
};

/* Makes a file that holds zeros; -1 if there is no room. */
int file_new(const struct shared *what);
/* Reads the description of a file; -1 if it is none of these. */
int file_read(int file, struct shared *what);
/* Maps it anywhere, or in the place of the mapping at an address; NULL if that fails. Forked children do not have it. */
void *file_map(int file, void *address, size_t bytes, int protection);

#endif
