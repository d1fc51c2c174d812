/*
 * Descriptors that overtake one another: run with HEXAGON_DMA=shuffle.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "dma.h"

#define COUNT 12
#define BYTES 256

static u8 src[COUNT * BYTES], dst[COUNT * BYTES];
static Desc d[COUNT];

static u32 is_done(u32 i)
{
    return d[i][1] >> 31;
}

static void prepare(u32 i, u32 flags)
{
    set(d[i], 0, flags | BYTES, src + BYTES * i, dst + BYTES * i, 0, 0, 0, 0);
    memset(dst + BYTES * i, 0xee, BYTES);
}

/* Bytes that are not as the done bits say */
static u32 wrong(void)
{
    u32 wrong = 0;
    for (u32 i = 0; i < sizeof(dst); i++) {
        wrong += dst[i] != (is_done(i / BYTES) ? src[i] : 0xee);
    }
    return wrong;
}

/* Links all of them, and polls until none is left; counts what overtook */
static u32 chain(u32 ordered)
{
    u32 polls = 0, overtaken = 0;

    for (u32 i = 0; i < COUNT; i++) {
        prepare(i, i == ordered ? ORDERED : 0);
        dmlink(i ? d[i - 1] : 0, d[i]);
    }
    while (1) {
        u32 before = 0, after = 0, state = dmpoll();
        polls++;
        for (u32 i = 0; i < COUNT; i++) {
            overtaken += i && is_done(i) && !is_done(i - 1);
            before += i < ordered && !is_done(i);
            after += i > ordered && is_done(i);
        }
        if (ordered < COUNT && ((is_done(ordered) && before) ||
                                (after && !is_done(ordered)))) {
            check("nothing passes the ordered one", polls, 0);
        }
        if (wrong()) {
            check("done bits are true", wrong(), 0);
        }
        if (!state) {
            break;
        }
    }
    check("one poll for each", polls, COUNT);
    for (u32 i = 0; i < COUNT; i++) {
        check("done", is_done(i), 1);
    }
    return overtaken;
}

void run(void)
{
    u32 last = 0;

    for (u32 i = 0; i < sizeof(src); i++) {
        src[i] = i * 7 + (i >> 8);
        src[i] = src[i] == 0xee ? 0 : src[i];
    }
    check("some overtake others", chain(COUNT) != 0, 1);
    chain(5);
    chain(0);

    /* A slot is used again as soon as it is done, whatever is before it */
    for (u32 i = 0; i < COUNT; i++) {
        prepare(i, 0);
        dmlink(i ? d[i - 1] : 0, d[i]);
        last = i;
    }
    for (u32 again = 0; again < 40; again++) {
        for (u32 i = 0; i < COUNT; i++) {
            if (i != last && is_done(i)) {
                prepare(i, 0);
                dmlink(d[last], d[i]);
                last = i;
                break;
            }
        }
        dmpoll();
        if (wrong()) {
            check("done bits are true", wrong(), 0);
        }
    }
    /* What was begun is finished by a pause, and the rest goes on later */
    u32 state = dmpause();
    check("nothing is half done", wrong(), 0);
    dmresume(state);
    check("wait", dmwait(), 0);
    check("all is there", wrong(), 0);
    for (u32 i = 0; i < COUNT; i++) {
        check("done", is_done(i), 1);
    }
    prepare(0, 0);
    prepare(1, 0);
    d[1][2] = 16;
    dmlink(0, d[0]);
    dmlink(d[0], d[1]);
    check("an error stops at its descriptor", dmwait(), (u32)d[1] | 2);
    dmpause();
}
