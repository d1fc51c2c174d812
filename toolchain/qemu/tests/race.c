/*
 * Races: a program in which everything waits for what it needs, and the same
 * with one wait left out.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "dma.h"

#define HMX_CALL 0x484d58
#define TILE 2048

/* What the program leaves out: -DMISSING=name */
#ifndef MISSING
#define MISSING NOTHING
#endif
#define HAS(name) (MISSING != name)
enum {
    NOTHING,
    WAIT_BEFORE_LOAD,       /* a vector is loaded that is being copied to */
    WAIT_BEFORE_SCALAR,     /* the same of a word */
    WAIT_BEFORE_STORE,      /* a vector is stored where a copy goes */
    WAIT_BEFORE_REFILL,     /* a vector is stored where a copy comes from */
    ORDER_BIT,              /* a copy of what the one before it brings */
    WAIT_BEFORE_REUSE,      /* a descriptor is changed */
    WAIT_BEFORE_PACKET,     /* a matrix packet of a tile that is copied */
    SYNC_BEFORE_LOAD,       /* a stored tile is loaded */
    SYNC_BEFORE_COPY,       /* a stored tile is copied */
    SYNC_BEFORE_STORE,      /* operands of a matrix packet are overwritten */
    SYNC_BEFORE_ANSWER,     /* another thread loads a stored tile */
    QUESTION,               /* a thread loads what another stores */
    ANSWER,                 /* a thread stores what another may still load */
    END,                    /* a thread has stored, and another loads */
};

static u8 vtcm[8 * TILE] ALIGNED(4096);
static u8 *const tile = vtcm, *const weight = vtcm + TILE;
static u8 *const out = vtcm + 2 * TILE, *const table = vtcm + 4 * TILE;
static u8 memory[4 * TILE] ALIGNED(128);
static u8 shared[TILE] ALIGNED(128), result[TILE] ALIGNED(128);
static Desc first, second;
static u8 stack[8192] ALIGNED(128);
static volatile u32 question, answer, tid;

static void load(const void *at)
{
    __asm__ volatile("v0 = vmem(%0+#0)" : : "r"(at) : "v0", "memory");
}

static void store(void *at)
{
    __asm__ volatile("v0 = vxor(v0,v0)\n vmem(%0+#0) = v0"
                     : : "r"(at) : "v0", "memory");
}

static void syncht(void)
{
    __asm__ volatile("syncht" : : : "memory");
}

static void start_copy(void *from, void *to)
{
    set(first, 0, TILE, from, to, 0, 0, 0, 0);
    dmlink(0, first);
}

/* Copies are waited for before anybody looks */
static void copies(void)
{
    start_copy(memory, tile);
    if (HAS(WAIT_BEFORE_LOAD)) {
        dmwait();
    }
    load(tile);
    dmwait();

    start_copy(memory, tile);
    if (HAS(WAIT_BEFORE_SCALAR)) {
        dmwait();
    }
    (void)*(volatile u32 *)(tile + 4);
    dmwait();

    start_copy(memory, tile);
    if (HAS(WAIT_BEFORE_STORE)) {
        dmwait();
    }
    store(tile + 128);
    dmwait();

    start_copy(memory, tile);
    if (HAS(WAIT_BEFORE_REFILL)) {
        dmwait();
    }
    store(memory + 256);
    dmwait();

    start_copy(memory, tile);
    if (HAS(WAIT_BEFORE_REUSE)) {
        dmwait();
    }
    first[2] = (u32)memory + TILE;
    dmwait();

    /* In a chain */
    set(second, 0, TILE | (HAS(ORDER_BIT) ? ORDERED : 0), tile,
        memory + 2 * TILE, 0, 0, 0, 0);
    set(first, (u32)second, TILE, memory, tile, 0, 0, 0, 0);
    dmlink(0, first);
    dmwait();
    load(memory + 2 * TILE);
}

static void load_table(void)
{
    register const void *r16 __asm__("r16") = table;

    __asm__ volatile(".word 0x9210c3fe" : : "r"(r16) : "memory");
}

static void packet(void)
{
    register const void *r16 __asm__("r16") = tile;
    register u32 r17 __asm__("r17") = TILE - 1;
    register const void *r18 __asm__("r18") = weight;

    __asm__ volatile(".word 0x921051e4\n .word 0x9212f1ef"
                     : : "r"(r16), "r"(r17), "r"(r18) : "memory");
}

static void store_tile(void)
{
    register void *r16 __asm__("r16") = out;
    register u32 r17 __asm__("r17") = 0;

    __asm__ volatile(".word 0xa6f0f104" : : "r"(r16), "r"(r17) : "memory");
}

/* The unit is waited for before anybody looks */
static void tiles(void)
{
    sys3(HMX_CALL, 1, (long)vtcm, sizeof(vtcm));
    load_table();
    start_copy(memory, tile);
    if (HAS(WAIT_BEFORE_PACKET)) {
        dmwait();
    }
    packet();
    dmwait();
    store_tile();
    if (HAS(SYNC_BEFORE_LOAD)) {
        syncht();
    }
    load(out);
    syncht();

    packet();
    store_tile();
    if (HAS(SYNC_BEFORE_COPY)) {
        syncht();
    }
    start_copy(out, memory + TILE);
    dmwait();
    syncht();

    packet();
    if (HAS(SYNC_BEFORE_STORE)) {
        syncht();
    }
    store(tile);
    syncht();

    packet();
    store_tile();
    if (HAS(SYNC_BEFORE_ANSWER)) {
        syncht();
    }
}

static void wait_for(volatile u32 *word, u32 value)
{
    while (*word != value) {
        sys3(124, 0, 0, 0);
    }
}

static void __attribute__((noinline, used)) thread(void)
{
    if (HAS(QUESTION)) {
        wait_for(&question, 1);
    }
    load(shared);
    load(out);
    answer = 1;
    store(result);
    sys3(93, 0, 0, 0);
}

/* A thread that shares everything; the kernel clears `tid` when it ends */
static void spawn(void)
{
    register long r6 __asm__("r6") = 220;
    register long r0 __asm__("r0") = 0x250f00;
    register long r1 __asm__("r1") = (long)(stack + sizeof(stack));
    register long r2 __asm__("r2") = 0;
    register long r3 __asm__("r3") = (long)&tid;
    register long r4 __asm__("r4") = 0;

    tid = 1;
    __asm__ volatile("trap0(#1)\n { p0 = cmp.eq(r0,#0)\n if (!p0.new) jump:t 1f }\n"
                     "{ jump thread }\n 1:\n"
                     : "+r"(r0) : "r"(r6), "r"(r1), "r"(r2), "r"(r3), "r"(r4)
                     : "p0", "memory");
    check("a thread", r0 > 0, 1);
}

/* Threads wait for one another */
static void threads(void)
{
    spawn();
    tiles();
    store(shared);
    question = 1;
    if (HAS(ANSWER)) {
        wait_for(&answer, 1);
    }
    store(shared);
    if (HAS(END)) {
        wait_for(&tid, 0);
    }
    load(result);
    while (*(volatile u32 *)&tid) {
        sys3(124, 0, 0, 0);
    }
}

void run(void)
{
    copies();
    threads();
}
