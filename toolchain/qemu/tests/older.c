/*
 * Instructions that v68 lacks: of v69, and with -DV73 of v73.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "guest.h"

void run(void)
{
#ifdef V73
    __asm__ volatile(".word 0x1e05e160" : : : "v0");   /* v0.sf=v1.w */
#else
    __asm__ volatile(".word 0x1fc3e2e0" : : : "v0");   /* v0.uh=vmpy(v2.uh,v3.uh):>>16 */
#endif
    put("ok executed\n");
}
