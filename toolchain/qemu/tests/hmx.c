/*
 * The matrix unit: what is stored after products of tiles, and what is refused.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "guest.h"

#define HMX_CALL 0x484d58
#define TILE 2048
#define ENODEV 19
#define EINVAL 22

static u8 memory[40 * TILE] ALIGNED(4096);
static u16 *const rows = (u16 *)memory;
static u16 *const columns = (u16 *)(memory + 16 * TILE);
static u16 *const out = (u16 *)(memory + 32 * TILE);
static u32 *const table = (u32 *)(memory + 36 * TILE);
__attribute__((unused)) static u16 outside[TILE / 2] ALIGNED(2048);

static u16 *at_rows(int r, int k)
{
    return rows + k / 32 * 1024 + (r >> 1) * 64 + 2 * (k & 31) + (r & 1);
}

static u16 *at_columns(int k, int n)
{
    return columns + (k >> 1) * 64 + 2 * n + (k & 1);
}

static u16 at_out(int r, int n)
{
    return out[(r >> 1) * 64 + 2 * n + (r & 1)];
}

static void clear(void)
{
    __asm__ volatile(".word 0xa6e0c013" : : : "memory");
}

static void load_table(const void *at)
{
    register const void *r16 __asm__("r16") = at;
    __asm__ volatile(".word 0x9210c3fe" : : "r"(r16) : "memory");
}

/* { activation.hf = mxmem(r16,r17):deep ; weight.hf = mxmem(r18,r17) } */
static void multiply_deep(const void *a, const void *w, int tiles)
{
    register const void *r16 __asm__("r16") = a;
    register u32 r17 __asm__("r17") = TILE * tiles - 1;
    register const void *r18 __asm__("r18") = w;
    __asm__ volatile(".word 0x921051e2\n .word 0x9212f1ef"
                     : : "r"(r16), "r"(r17), "r"(r18) : "memory");
}

/* The same of one tile */
static void multiply(const void *a, const void *w)
{
    register const void *r16 __asm__("r16") = a;
    register u32 r17 __asm__("r17") = TILE - 1;
    register const void *r18 __asm__("r18") = w;
    __asm__ volatile(".word 0x921051e4\n .word 0x9212f1ef"
                     : : "r"(r16), "r"(r17), "r"(r18) : "memory");
}

static void store(void *at)
{
    register void *r16 __asm__("r16") = at;
    register u32 r17 __asm__("r17") = 0;
    __asm__ volatile(".word 0xa6f0f104" : : "r"(r16), "r"(r17) : "memory");
}

static void store_and_keep(void *at)
{
    register void *r16 __asm__("r16") = at;
    register u32 r17 __asm__("r17") = 0;
    __asm__ volatile(".word 0xa6f0f10c" : : "r"(r16), "r"(r17) : "memory");
}

static void swap(void)
{
    __asm__ volatile(".word 0xa6e0c015" : : : "memory");
}

/* Rows of zeros but for one, and as many weights: sum of a[i] * w[i] */
static u16 sum(int n, const u16 *a, const u16 *w)
{
    memset(memory, 0, 32 * TILE);
    for (int i = 0; i < n; i++) {
        *at_rows(5, i) = a[i];
        *at_columns(i, 9) = w[i];
    }
    clear();
    multiply_deep(rows, columns, (n + 31) / 32);
    store(out);
    return at_out(5, 9);
}

static void neutral(u32 word)
{
    for (int n = 0; n < 32; n++) {
        table[n] = word;
        table[32 + n] = 0;
    }
    load_table(table);
}

static u32 random_state = 1;

static u16 random_half(void)
{
    random_state = random_state * 1664525 + 1013904223;
    return random_state >> 16;
}

static void values(void)
{
    static u16 a[32], w[32];
    neutral(0x3c00);
    a[0] = 0x5cb0, w[0] = 0x5cb0;       /* 300 * 300: exponent 31 */
    check("300 * 300", sum(1, a, w), 0x7d7e);
    for (int i = 0; i < 32; i++) {
        a[i] = 0x5cb0, w[i] = 0x5cb0;
    }
    check("300 * 300 * 32 is the largest", sum(32, a, w), 0x7fff);
    w[0] = 0xdcb0;
    for (int i = 1; i < 32; i++) {
        w[i] = 0xdcb0;
    }
    check("and the other way", sum(32, a, w), 0xffff);
    a[0] = 0x6800, w[0] = 0x3c00;       /* 2048 + 1 and 2048 + 3: ties */
    a[1] = 0x3c00, w[1] = 0x3c00;
    check("a tie to even, down", sum(2, a, w), 0x6800);
    a[1] = 0x4200;
    check("a tie to even, up", sum(2, a, w), 0x6802);
    a[0] = 0x0001, w[0] = 0x3c00;
    check("the smallest half", sum(1, a, w), 0x0001);
    w[0] = 0x3800;
    check("half of it: to even", sum(1, a, w), 0x0000);
    w[0] = 0xb800;
    check("the same below zero", sum(1, a, w), 0x8000);
    w[0] = 0x3a00;
    check("three quarters of it", sum(1, a, w), 0x0001);
    a[0] = 0x8000, w[0] = 0x3c00;
    check("minus zero", sum(1, a, w), 0x0000);
    a[0] = 0x7c00, w[0] = 0x3400;       /* 65536 / 4 */
    check("exponent 31 is a number", sum(1, a, w), 0x7400);
    a[0] = 0x63d0, w[0] = 0x3c00;       /* 1000 - 1000 + 2^-10 */
    a[1] = 0xe3d0, w[1] = 0x3c00;
    a[2] = 0x1400, w[2] = 0x3c00;
    check("what is left of a cancelled sum", sum(3, a, w), 0x1400);

    neutral(0x3c003c00);
    check("the upper half of a table's word is added", sum(3, a, w), 0x3c01);
    neutral(0xc4003800);
    a[0] = 0x4500;                      /* 5 * 0.5 - 4 */
    check("scale and bias", sum(1, a, w), 0xbe00);
}

static void layout(void)
{
    int wrong = 0;
    neutral(0x3c00);
    for (int i = 0; i < 32; i++) {
        int r = i, k = (7 * i + 3) & 31, n = (11 * i + 5) & 31;
        memset(memory, 0, 32 * TILE);
        *at_rows(r, k) = 0x3c00;
        *at_columns(k, n) = 0x4000;
        clear();
        multiply(rows, columns);
        store(out);
        for (int at = 0; at < 1024; at++) {
            int r_at = at >> 5, n_at = at & 31;
            u16 want = r_at == r && n_at == n ? 0x4000 : 0;
            wrong += at_out(r_at, n_at) != want;
        }
    }
    check("one product each, where it belongs", wrong, 0);
}

static void sets(void)
{
    static u16 first[TILE / 2];
    int wrong = 0, same = 0;
    for (int i = 0; i < 16 * TILE / 2; i++) {
        rows[i] = random_half();
        columns[i] = random_half();
    }
    neutral(0x1c00);
    clear();
    multiply_deep(rows, columns, 16);
    store(out);
    memcpy(first, out, TILE);
    for (int i = 0; i < 16; i++) {
        multiply((u8 *)rows + i * TILE, (u8 *)columns + i * TILE);
    }
    store(out);
    for (int i = 0; i < 1024; i++) {
        wrong += out[i] != first[i];
    }
    check("sixteen tiles at once or one by one", wrong, 0);

    multiply(rows, columns);            /* the other set by now, and cleared */
    store_and_keep(out);
    memcpy(first, out, TILE);
    store_and_keep(out + 1024);
    swap();
    multiply((u8 *)rows + TILE, columns);
    store(out + 2048);
    store(out);                         /* swapped by the store: the first */
    for (int i = 0; i < 1024; i++) {
        wrong += out[i] != first[i] || out[1024 + i] != first[i];
        same += out[2048 + i] == first[i];
    }
    check("what is kept is stored again", wrong, 0);
    check("and is not the other set's", same < 512, 1);
    store(out);
    for (int i = 0; i < 1024; i++) {
        wrong += out[i] != 0;
    }
    check("what is stored is cleared", wrong, 0);
}

void run(void)
{
#ifdef REFUSED
    check("there is no unit", sys3(HMX_CALL, 1, (long)memory, sizeof memory), -ENODEV);
#elif !defined(WITHOUT)
    check("VTCM that wraps", sys3(HMX_CALL, 1, (long)memory, 0xffff0000), -EINVAL);
    check("the unit is given", sys3(HMX_CALL, 1, (long)memory, sizeof memory), 0);
    check("again", sys3(HMX_CALL, 1, (long)memory, sizeof memory), 0);
#endif
    clear();
#if defined(MISALIGNED)
    multiply((u8 *)rows + 128, columns);
#elif defined(OUTSIDE)
    multiply(rows, outside);
#elif defined(BEYOND)
    multiply_deep(rows, (u8 *)memory + 30 * TILE, 16);
#elif defined(DEEP)
    multiply_deep(rows, columns, 33);
#elif defined(TABLE)
    load_table((u8 *)table + 128);
#elif defined(SHAPE)
    table[35] = 0x100;
    load_table(table);
#elif defined(STORED)
    store(outside);
#elif defined(SPLIT)
    __asm__ volatile("r16 = %0\n r17 = ##2047\n .word 0x9210d1e4"
                     : : "r"(rows) : "r16", "r17");
#elif defined(TURNED)
    __asm__ volatile("r16 = %0\n r17 = ##2047\n"
                     ".word 0x921071ef\n .word 0x9210d1e4"
                     : : "r"(rows) : "r16", "r17");
#elif defined(GIVEN_BACK)
    sys3(HMX_CALL, 0, 0, 0);
    clear();
#elif defined(INTEGER)
    __asm__ volatile(".word 0xa6e0c011");
#else
    values();
    layout();
    sets();
#endif
}
