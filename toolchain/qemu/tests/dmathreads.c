/*
 * The engines of several threads at once: each has its own, and does not see
 * the others' chains.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "dma.h"

#define THREADS 4
#define ROUNDS 200
#define CHAIN 6
#define BYTES 1024

/* Of a thread: memory, and what it found */
static struct {
    u8 src[CHAIN * BYTES], dst[CHAIN * BYTES];
    Desc d[CHAIN];
    u32 rounds, wrong, states;
} own[THREADS] ALIGNED(128);
static u8 stacks[THREADS][8192] ALIGNED(128);
static volatile u32 ended;

static void work(u32 me)
{
    for (u32 round = 0; round < ROUNDS; round++) {
        memset(own[me].dst, 0xee, sizeof(own[me].dst));
        for (u32 i = 0; i < sizeof(own[me].src); i++) {
            own[me].src[i] = i * 7 + round + 64 * me;
        }
        own[me].states += dmpoll() != 0;
        for (u32 i = 0; i < CHAIN; i++) {
            set(own[me].d[i], 0, BYTES, own[me].src + BYTES * i,
                own[me].dst + BYTES * i, 0, 0, 0, 0);
            dmlink(i ? own[me].d[i - 1] : 0, own[me].d[i]);
            if (i == round % CHAIN) {
                dmpoll();
            }
        }
        own[me].states += dmwait() != 0;
        for (u32 i = 0; i < sizeof(own[me].src); i++) {
            own[me].wrong += own[me].dst[i] != own[me].src[i];
        }
        own[me].rounds++;
    }
    __asm__ volatile("1: r6 = memw_locked(%0)\n r6 = add(r6,#1)\n"
                     "   memw_locked(%0,p0) = r6\n if (!p0) jump 1b\n"
                     : : "r"(&ended) : "r6", "p0", "memory");
}

static void __attribute__((noinline, used)) thread(u32 me)
{
    work(me);
    sys3(93, 0, 0, 0);
}

/* A thread that shares everything with this one */
static void spawn(u32 me)
{
    register long r6 __asm__("r6") = 220;
    register long r0 __asm__("r0") = 0x50f00;
    register long r1 __asm__("r1") = (long)(stacks[me] + sizeof(stacks[me]));
    register long r2 __asm__("r2") = 0;
    register long r3 __asm__("r3") = 0;
    register long r4 __asm__("r4") = 0;
    register u32 r16 __asm__("r16") = me;
    __asm__ volatile("trap0(#1)\n { p0 = cmp.eq(r0,#0)\n if (!p0.new) jump:t 1f }\n"
                     "{ r0 = r16\n jump thread }\n 1:\n"
                     : "+r"(r0) : "r"(r6), "r"(r1), "r"(r2), "r"(r3), "r"(r4),
                     "r"(r16) : "p0", "memory");
    check("a thread", r0 > 0, 1);
}

void run(void)
{
    for (u32 me = 1; me < THREADS; me++) {
        spawn(me);
    }
    work(0);
    while (ended < THREADS) {
        sys3(124, 0, 0, 0);
    }
    for (u32 me = 0; me < THREADS; me++) {
        check("rounds", own[me].rounds, ROUNDS);
        check("wrong bytes", own[me].wrong, 0);
        check("engines that were not idle", own[me].states, 0);
    }
}
