/*
 * User DMA: its instructions, and descriptors.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef DMA_H
#define DMA_H

#include "guest.h"

typedef volatile u32 Desc[8] ALIGNED(64);


#define DONE 0x80000000u
#define ORDERED 0x40000000u
#define TWO  0x01000000u

static void dmstart(volatile void *p)
{
    __asm__ volatile("dmstart(%0)" : : "r"(p) : "memory");
}
static void dmlink(volatile void *tail, volatile void *next)
{
    __asm__ volatile("release(%1):at\n dmlink(%0,%1)" : : "r"(tail), "r"(next)
                     : "memory");
}
static void dmresume(u32 state)
{
    __asm__ volatile("dmresume(%0)" : : "r"(state) : "memory");
}
#define GETTER(NAME) static u32 NAME(void) \
    { u32 v; __asm__ volatile("%0=" #NAME : "=r"(v) : : "memory"); return v; }
GETTER(dmpoll)
GETTER(dmwait)
GETTER(dmpause)

static void set(volatile u32 *p, u32 next, u32 control, volatile void *from,
                volatile void *to, u32 type, u32 shape, u32 stride, u32 offset)
{
    u32 w[8] = { next, control, (u32)from, (u32)to, type, shape, stride,
                 offset };
    for (int i = 0; i < 8; i++) {
        p[i] = w[i];
    }
}

#endif
