/* Files in /dev/shm: mapped and open, mapped by two processes, closed, without a name; and semaphores, as Python's multiprocessing has them. */
#define _GNU_SOURCE
#include "../serve.h"
#include "kept.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (3 * 4096 / sizeof(uint64_t))
#define SPARSE (1L << 20)

static uint64_t *own, *together, *nameless;
static sem_t *semaphore, *question;
static int own_file;

static uint64_t *mapped(const char *name, uint64_t seed, int *file) {
    *file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(*file >= 0);
    MUST(!ftruncate(*file, WORDS * sizeof(uint64_t)));
    uint64_t *words = mmap(NULL, WORDS * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    MUST(words != MAP_FAILED);
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = pattern_word(i, seed);
    return words;
}

static int is_as_it_was(const uint64_t *words, uint64_t from, uint64_t seed) {
    for (uint64_t i = from; i < WORDS; i++)
        if (words[i] != pattern_word(i, seed))
            return 0;
    return 1;
}

void shared_begin(void) {
    int file;
    own = mapped("/own", 1, &own_file);
    together = mapped("/together", 2, &file);
    close(file);
    nameless = mapped("/nameless", 3, &file);
    MUST(!shm_unlink("/nameless"));
    MUST(!mkdir("/dev/shm/below", 0750) && !symlink("own", "/dev/shm/below/a \"link\"\n"));
    file = open("/dev/shm/below/closed", O_RDWR | O_CREAT, 0640);
    MUST(file >= 0 && pwrite(file, "closed", 6, SPARSE) == 6);
    close(file);
    semaphore = sem_open("/semaphore", O_CREAT | O_EXCL, 0600, 0);
    question = sem_open("/question", O_CREAT | O_EXCL, 0600, 0);
    MUST(semaphore != SEM_FAILED && question != SEM_FAILED && !sem_unlink("/semaphore") && !sem_unlink("/question"));
    pid_t child = fork();
    MUST(child >= 0);
    /* Counts in the memory that both have mapped, once it is asked to. */
    while (!child) {
        sem_wait(question);
        together[0]++;
        sem_post(semaphore);
    }
    together[0] = 0;
}

const char *shared_wrong(void) {
    static uint64_t counted;
    char text[7] = "";
    if (!is_as_it_was(own, 0, 1))
        return "own";
    if (!is_as_it_was(nameless, 0, 3))
        return "nameless";
    if (!is_as_it_was(together, 1, 2))
        return "together";
    sem_post(question);
    sem_wait(semaphore);
    if (together[0] != ++counted)
        return "counted together";
    uint64_t first;
    if (pread(own_file, &first, sizeof first, 0) != sizeof first || first != pattern_word(0, 1))
        return "own file";
    int file = shm_open("/own", O_RDWR, 0);
    int same = file >= 0 && pwrite(file, "x", 1, WORDS * sizeof(uint64_t) - 1) == 1 && ((char *)own)[WORDS * sizeof(uint64_t) - 1] == 'x';
    own[WORDS - 1] = pattern_word(WORDS - 1, 1);
    close(file);
    if (!same)
        return "another file by its name";
    file = open("/dev/shm/below/closed", O_RDONLY);
    int there = file >= 0 && pread(file, text, 6, SPARSE) == 6;
    close(file);
    if (!there || readlink("/dev/shm/below/a \"link\"\n", text, sizeof text) != 3)
        return "closed";
    return NULL;
}

static sem_t *named;

void semaphore_begin(void) {
    named = sem_open("/named", O_CREAT | O_EXCL, 0600, 5);
    MUST(named != SEM_FAILED);
}

const char *semaphore_wrong(void) {
    int now;
    return sem_getvalue(named, &now) || now != 5 ? "semaphore" : NULL;
}
