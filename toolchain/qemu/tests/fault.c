/*
 * A program that a signal ends, two calls deep.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "guest.h"

static void __attribute__((noinline)) inner(volatile u32 *at)
{
    put("before\n");
    *at = 1;
    put("after\n");
}

static void __attribute__((noinline)) outer(u32 at)
{
    inner((u32 *)at);
    put("returned\n");
}

void run(void)
{
    outer(0x10);
    put("returned\n");
}
