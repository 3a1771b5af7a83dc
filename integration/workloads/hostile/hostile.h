/* Declarations that the tricks of `hostile` share. */
#ifndef STASIS_WORKLOAD_HOSTILE_H
#define STASIS_WORKLOAD_HOSTILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How often the trick that runs has been played; tricks that are set up once count 1. */
extern volatile unsigned played;

/* Ends the program with a message. */
void give_up(const char *what) __attribute__((noreturn));
/* Starts a thread that does this for ever. */
void in_thread(void *(*body)(void *));
/* Starts a process of this program that plays a part of its own for ever: "/bin/hostile PART PARENT". */
pid_t in_process(const char *part);
/* Starts a process without threads that shares this one's memory. */
void in_shared_memory(int (*body)(void *));
/* Makes a new file of this length, open for reading and writing. */
int new_file(const char *path, off_t length);
/* Calls `act` for each thread of a process. */
void for_each_thread(pid_t process, void (*act)(pid_t process, pid_t thread));

/* Set up by the process that has the GPU. */
void odd_names(void);
void false_vdso(void);
void rewritten_vdso(void);
void many_mappings(void);
void all_mappings(void);
void busy_mappings(void);
void busy_mappings_elsewhere(void);
void same_memory(void);
void false_library(void);
void spoiled_library(void);
void mapped_elsewhere(void);
void false_contents(void);
void overwritten_code(void);
void overwritten_job(void);
void exchanged_slots(void);
void paths(void);
void rank(void);
void many_descriptors(void);
void signals(void);
void stops(void);
void tracer(void);
void fork_bomb(void);
void helpers_stopped(void);
void helpers_killed(void);
void helpers_traced(void);

/* Played by processes of their own; each gets the pid of the process with the GPU. */
void play_signals(pid_t victim);
void play_stops(pid_t victim);
void play_tracer(pid_t victim);
void play_fork_bomb(pid_t victim);
void play_helpers(pid_t victim, char how);
void play_descriptors(pid_t victim);

#endif
