/*
 * Bits of USR: those that say how floats are computed on v79 and later are not
 * modelled, and a write that changes one is refused there.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "guest.h"

void run(void)
{
    u32 usr;
    __asm__ volatile("%0 = usr" : "=r"(usr));
    /* As it is, and another rounding mode, which is modelled */
    __asm__ volatile("usr = %0\n usr = %1\n usr = %0"
                     : : "r"(usr), "r"(usr | 1 << 22) : "usr");
    put("ok   the same\n");
    __asm__ volatile("usr = %0" : : "r"(usr ^ 1 << 11) : "usr");
    put("ok   another mode\n");
}
