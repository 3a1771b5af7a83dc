/*
 * The kernel of a collective: `meet(slots, rank, ranks, state)`. Each rank puts its number into its slot of memory that all share, waits
 * until all have, and adds all numbers up.
 */
#ifndef STASIS_WORKLOAD_MEET_H
#define STASIS_WORKLOAD_MEET_H

#include <stdint.h>

/* In host memory that all ranks share. A rank is at most one meeting ahead of another, so two numbers are enough. */
struct slot {
    uint64_t meeting; /* the last one that the rank came to */
    uint64_t number[2];
    uint64_t unused;
};

/* In the memory of each rank's GPU. */
struct meetings {
    uint64_t finished;
    uint64_t number;   /* the rank's last; one more each time */
    uint64_t checksum; /* all numbers of all ranks so far */
};

static const char MEET[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry meet(.param .u64 p_slots, .param .u32 p_rank, .param .u32 p_ranks, .param .u64 p_state)\n{\n"
    ".reg .pred %p;\n .reg .u32 %rank, %ranks, %r;\n"
    ".reg .u64 %slots, %slot, %state, %meeting, %number, %sum, %odd, %seen, %t;\n"
    "ld.param.u64 %slots, [p_slots];\n ld.param.u32 %rank, [p_rank];\n ld.param.u32 %ranks, [p_ranks];\n"
    "ld.param.u64 %state, [p_state];\n cvta.to.global.u64 %slots, %slots;\n cvta.to.global.u64 %state, %state;\n"
    "ld.global.u64 %meeting, [%state];\n add.u64 %meeting, %meeting, 1;\n"
    "ld.global.u64 %number, [%state+8];\n add.u64 %number, %number, 1;\n"
    "ld.global.u64 %sum, [%state+16];\n"
    "and.b64 %odd, %meeting, 1;\n shl.b64 %odd, %odd, 3;\n"
    "mul.wide.u32 %t, %rank, 32;\n add.u64 %slot, %slots, %t;\n"
    "add.u64 %t, %slot, %odd;\n st.volatile.global.u64 [%t+8], %number;\n membar.sys;\n"
    "st.volatile.global.u64 [%slot], %meeting;\n mov.u32 %r, 0;\n"
    "next:\n setp.ge.u32 %p, %r, %ranks;\n @%p bra done;\n"
    "mul.wide.u32 %t, %r, 32;\n add.u64 %slot, %slots, %t;\n"
    "wait:\n ld.volatile.global.u64 %seen, [%slot];\n setp.ge.u64 %p, %seen, %meeting;\n @%p bra there;\n"
    "nanosleep.u32 1000;\n bra wait;\n"
    "there:\n membar.sys;\n add.u64 %t, %slot, %odd;\n ld.volatile.global.u64 %seen, [%t+8];\n"
    "add.u64 %sum, %sum, %seen;\n add.u32 %r, %r, 1;\n bra next;\n"
    "done:\n st.global.u64 [%state], %meeting;\n st.global.u64 [%state+8], %number;\n st.global.u64 [%state+16], %sum;\n"
    "ret;\n}\n";

#endif
