/*
 * The eight instructions with f8 whose order of lanes is not known, by number.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "guest.h"

#define WORD_(w) __asm__ volatile(".word " #w : : : "memory")
#define WORD(w) WORD_(w)

void run(void)
{
    WORD(FORM);
    put("executed\n");
}
