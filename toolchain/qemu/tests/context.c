/*
 * The timer; and vectors with and, if the emulator asks for it, without a
 * vector context.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "guest.h"

typedef int Vector ALIGNED(128) __attribute__((vector_size(128)));

#define CONTEXT_CALL 0x485658
#define ENOSYS 38

static u8 memory[128] ALIGNED(128);

static void vector(void)
{
    __asm__ volatile("{ v0 = vsplat(%0) }\n { vmem(%1+#0) = v0 }\n"
                     : : "r"(0x01010101), "r"(memory) : "v0", "memory");
}

static unsigned long long ticks(void)
{
    unsigned long long now;
    __asm__ volatile("%0 = c31:30" : "=r"(now));
    return now;
}

void run(void)
{
    struct { long seconds, nanoseconds; } pause = { 0, 50 * 1000 * 1000 };
    unsigned long long start = ticks();
    sys3(101, (long)&pause, 0, 0);
    unsigned long long after = ticks();
    /* 50 ms are 960000 ticks; the machine may have been busy for longer */
    check("ticks of 50 ms", after - start >= 960000, 1);
    check("no more than a minute's", after - start < 60ull * 19200000, 1);

    long given = sys3(CONTEXT_CALL, 1, 0, 0);
#ifdef CONTEXTS
    check("a context is given", given, 0);
#else
    check("nobody needs a context", given, -ENOSYS);
#endif
    vector();
    check("a vector was stored", memory[127], 1);
    sys3(CONTEXT_CALL, 0, 0, 0);
    vector();
}
