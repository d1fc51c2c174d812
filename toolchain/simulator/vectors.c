/* Written by `cargo xtask vectors --update`: float instructions of HVX with what they must give.
 *
 * It prints a line for each form, and the lanes that differ. With the vendor's tools:
 *
 *   hexagon-clang -O1 -mv73 -mhvx -mhvx-length=128B -mhvx-qfloat -mhvx-ieee-fp vectors.c -o vectors
 *   hexagon-sim -mv73 --simulated_returnval --usefs . -- vectors
 *
 * A processor of v79 and later has no IEEE arithmetic: leave -mhvx-ieee-fp out there. */

#ifdef BARE /* a Linux process without a C library, for an emulator in user mode */
static int sys(int number, int a, const void *b, int c) {
    register int r6 __asm__("r6") = number;
    register int r0 __asm__("r0") = a;
    register const void *r1 __asm__("r1") = b;
    register int r2 __asm__("r2") = c;
    __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r6) : "memory");
    return r0;
}
static void put(char c) { sys(64, 1, &c, 1); }
#else
#include <stdio.h>
static void put(char c) { putchar(c); }
#endif

typedef int vector __attribute__((vector_size(128)));
typedef int pair __attribute__((vector_size(256)));
typedef unsigned int word;

static void text(const char *s) { while (*s) put(*s++); }
static void hex(word x) { for (int i = 28; i >= 0; i -= 4) put("0123456789abcdef"[x >> i & 15]); }

static word u[32] __attribute__((aligned(128))), v[32] __attribute__((aligned(128)));
static word x[64] __attribute__((aligned(256))), d[64] __attribute__((aligned(256)));

static int wrong;

/* Lanes lie in memory as operands and then results, `takes` and `gives` words of each. */
static void load(const word *lanes, int n, int takes, int gives) {
    for (int i = 0; i < 32; i++) {
        const word *lane = lanes + i * (takes + gives);
        u[i] = i < n ? lane[0] : 0;
        v[i] = i < n && takes > 1 ? lane[1] : 0;
        x[i] = i < n && takes > 2 ? lane[2] : 0;
        x[32 + i] = i < n && takes > 3 ? lane[3] : 0;
        d[i] = d[32 + i] = 0;
    }
}

static void compare(const char *form, const char *question, const word *lanes, int n, int takes, int gives) {
    int differ = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < gives; k++)
            differ += d[32 * k + i] != lanes[i * (takes + gives) + takes + k];
    text(form);
    text(differ == 0 ? ": as expected\n" : *question ? ": otherwise; " : ": WRONG\n");
    if (differ && *question) { text(question); put('\n'); }
    if (!differ) return;
    wrong += !*question;
    for (int i = 0; i < n; i++) {
        const word *lane = lanes + i * (takes + gives);
        text("   ");
        for (int k = 0; k < takes; k++) { put(' '); hex(lane[k]); }
        text(" : expected");
        for (int k = 0; k < gives; k++) { put(' '); hex(lane[takes + k]); }
        text(", given");
        for (int k = 0; k < gives; k++) { put(' '); hex(d[32 * k + i]); }
        put('\n');
    }
}

int main(void) {
    vector *U = (vector *)u, *V = (vector *)v, *D = (vector *)d;
    pair *X = (pair *)x, *DD = (pair *)d;
    (void)X; (void)DD;
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40400000,
            0x3f800000, 0xbf800000, 0x00000000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x40600000,
            0xc0200000, 0x3e800000, 0xc0100000,
            0x4b800000, 0x3f800000, 0x4b800000,
            0x4b800000, 0x40400000, 0x4b800002,
            0x4b7fffff, 0x3f000000, 0x4b800000,
            0x3f800000, 0x33800000, 0x3f800000,
            0x3f800000, 0x34000000, 0x3f800001,
            0xbf800000, 0x33000000, 0xbf800000,
            0x3dcccccd, 0x3e4ccccd, 0x3e99999a,
            0x3dcccccd, 0xbe99999a, 0xbe4cccce,
            0x3f800001, 0xbf800000, 0x34000000,
            0x40490fdb, 0x402df854, 0x40bb8418,
            0xd037f707, 0x3c21d139, 0xd037f707,
            0x66ff0aa8, 0xe6feffd0, 0x60ad8000,
            0x0df36390, 0x0e4ad2f8, 0x0ea24260,
            0x477fe000, 0x4b400000, 0x4b40ffe0,
            0xbf400000, 0xbe000000, 0xbf600000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "%0.sf = vadd(%1.sf,%2.sf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=vadd(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0xbf800000,
            0x3f800000, 0xbf800000, 0x40000000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0xc0600000,
            0xc0200000, 0x3e800000, 0xc0300000,
            0x4b800000, 0x3f800000, 0x4b7fffff,
            0x4b800000, 0x40400000, 0x4b7ffffd,
            0x4b7fffff, 0x3f000000, 0x4b7ffffe,
            0x3f800000, 0x33800000, 0x3f7fffff,
            0x3f800000, 0x34000000, 0x3f7ffffe,
            0xbf800000, 0x33000000, 0xbf800000,
            0x3dcccccd, 0x3e4ccccd, 0xbdcccccd,
            0x3dcccccd, 0xbe99999a, 0x3ecccccd,
            0x3f800001, 0xbf800000, 0x40000000,
            0x40490fdb, 0x402df854, 0x3ed8bc38,
            0xd037f707, 0x3c21d139, 0xd037f707,
            0x66ff0aa8, 0xe6feffd0, 0x677f053c,
            0x0df36390, 0x0e4ad2f8, 0x8da24260,
            0x477fe000, 0x4b400000, 0xcb3f0020,
            0xbf400000, 0xbe000000, 0xbf200000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "%0.sf = vsub(%1.sf,%2.sf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=vsub(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40000000,
            0x3f800000, 0xbf800000, 0xbf800000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x00000000,
            0xc0200000, 0x3e800000, 0xbf200000,
            0x4b800000, 0x3f800000, 0x4b800000,
            0x4b800000, 0x40400000, 0x4c400000,
            0x4b7fffff, 0x3f000000, 0x4affffff,
            0x3f800000, 0x33800000, 0x33800000,
            0x3f800000, 0x34000000, 0x34000000,
            0xbf800000, 0x33000000, 0xb3000000,
            0x3dcccccd, 0x3e4ccccd, 0x3ca3d70b,
            0x3dcccccd, 0xbe99999a, 0xbcf5c290,
            0x3f800001, 0xbf800000, 0xbf800001,
            0x40490fdb, 0x402df854, 0x4108a2c0,
            0xd037f707, 0x3c21d139, 0xcce8916a,
            0x66ff0aa8, 0xe6feffd0, 0xff800000,
            0x0df36390, 0x0e4ad2f8, 0x00000000,
            0x477fe000, 0x4b400000, 0x533fe800,
            0xbf400000, 0xbe000000, 0x3dc00000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "%0.sf = vmpy(%1.sf,%2.sf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=vmpy(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3c004000, 0x42003800, 0x3f800000, 0x40000000, 0x40000000, 0x40a00000,
            0x00003c00, 0x3c000000, 0x3f800000, 0xbf800000, 0x3f800000, 0xbf800000,
            0xbc004100, 0x4500c200, 0x00000000, 0x00000000, 0xc0f00000, 0xc0a00000,
            0x35552e66, 0x32663555, 0x00000000, 0x40600000, 0x3d087778, 0x406443bc,
            0x7bff3c01, 0x3c003c01, 0xc0200000, 0x3e800000, 0xbfbfbff8, 0x477fe040,
            0x56405a00, 0x4248c170, 0x461c4000, 0x3f800000, 0x46141800, 0x439d8800,
            0x3bff3bff, 0x3bff3c02, 0x461c4000, 0x40400000, 0x461c4401, 0x407ff001,
            0xc000c000, 0x3800b800, 0x461c4000, 0x3f000000, 0x461c4400, 0xbf000000,
            0x49004d00, 0x2c002800, 0x3f800000, 0x33800000, 0x3fd00000, 0x3f200001,
            0x3e003e01, 0x3e003e03, 0x3f800000, 0x34000000, 0x4050600c, 0x40100000,
            0x14001801, 0x64006801, 0xbf800000, 0x33000000, 0x40408010, 0x3f800000,
            0x40003c00, 0x3c00c000, 0x3dcccccd, 0x3e4ccccd, 0xbff33333, 0x400ccccd,
        };
        load(lanes, 12, 4, 2);
        *DD = *X; __asm__ volatile(
            "%0.sf += vmpy(%1.hf,%2.hf)"
            : "+&v"(*DD) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf+=vmpy(hf,hf)", "", lanes, 12, 4, 2);
    }
#endif
#if __HVX_ARCH__ >= 73 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3c004000, 0x42003800, 0x42003c00,
            0x00003c00, 0x3c000000, 0x00000000,
            0xbc004100, 0x4500c200, 0xc500c780,
            0x35552e66, 0x32663555, 0x2c442844,
            0x7bff3c01, 0x3c003c01, 0x7bff3c02,
            0x56405a00, 0x4248c170, 0x5ce8e014,
            0x3bff3bff, 0x3bff3c02, 0x3bfe3c01,
            0xc000c000, 0x3800b800, 0xbc003c00,
            0x49004d00, 0x2c002800, 0x39003900,
            0x3e003e01, 0x3e003e03, 0x40804083,
            0x14001801, 0x64006801, 0x3c004402,
            0x40003c00, 0x3c00c000, 0x4000c000,
        };
        load(lanes, 12, 2, 1);
        __asm__ volatile(
            "%0.hf = vmpy(%1.hf,%2.hf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("hf=vmpy(hf,hf)", "", lanes, 12, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3c004000, 0x40000000, 0x3f800000,
            0x00003c00, 0x3f800000, 0x00000000,
            0xbc004100, 0x40200000, 0xbf800000,
            0x35552e66, 0x3dccc000, 0x3eaaa000,
            0x7bff3c01, 0x3f802000, 0x477fe000,
            0x56405a00, 0x43400000, 0x42c80000,
            0x3bff3bff, 0x3f7fe000, 0x3f7fe000,
            0xc000c000, 0xc0000000, 0xc0000000,
            0x49004d00, 0x41a00000, 0x41200000,
            0x3e003e01, 0x3fc02000, 0x3fc00000,
            0x14001801, 0x3b002000, 0x3a800000,
            0x40003c00, 0x3f800000, 0x40000000,
            0x00018001, 0xb3800000, 0x33800000,
            0x03ff0200, 0x38000000, 0x387fc000,
            0x040083ff, 0xb87fc000, 0x38800000,
            0x7bfffbff, 0xc77fe000, 0x477fe000,
        };
        load(lanes, 16, 1, 2);
        __asm__ volatile(
            "%0.sf = vcvt(%1.hf)"
            : "=&v"(*DD) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=vcvt(hf)", "", lanes, 16, 1, 2);
    }
#endif
#if __HVX_ARCH__ >= 73 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0xc0000000, 0xc0003c00,
            0x3f801000, 0x3f803000, 0x3c023c00,
            0x45001000, 0x45003000, 0x68026800,
            0x477fe000, 0x477fef00, 0x7bff7bff,
            0xc77fe000, 0x3eaaaaab, 0x3555fbff,
            0x38800000, 0x387fda40, 0x03ff0400,
            0x33800000, 0x33c00000, 0x00020001,
            0x3dcccccd, 0xbe4ccccd, 0xb2662e66,
            0x00000000, 0x2edbe6ff, 0x00000000,
            0x40490fdb, 0xc02df854, 0xc1704248,
        };
        load(lanes, 10, 2, 1);
        __asm__ volatile(
            "%0.hf = vcvt(%1.sf,%2.sf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("hf=vcvt(sf,sf)", "", lanes, 10, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 73 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x00017f80, 0x57f0d800, 0x00003c00,
            0xff02fe03, 0xc0004200, 0xbc004000,
            0x81807e7f, 0x57e057f0, 0xd7f0d800,
            0x10203040, 0x52005400, 0x4c005000,
            0xc0d0e0f0, 0xd000cc00, 0xd400d200,
        };
        load(lanes, 5, 1, 2);
        __asm__ volatile(
            "%0.hf = vcvt(%1.b)"
            : "=&v"(*DD) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("hf=vcvt(b)", "", lanes, 5, 1, 2);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40400001,
            0x3f800000, 0xbf800000, 0x00000000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x40600001,
            0xc0200000, 0x3e800000, 0xc00fffff,
            0x4b800000, 0x3f800000, 0x4b800001,
            0x4b800000, 0x40400000, 0x4b800001,
            0x4b7fffff, 0x3f000000, 0x4b7fffff,
            0x3f800000, 0x33800000, 0x3f800001,
            0x3f800000, 0x34000000, 0x3f800001,
            0xbf800000, 0x33000000, 0xbf7ffffe,
            0x3dcccccd, 0x3e4ccccd, 0x3e999999,
            0x3dcccccd, 0xbe99999a, 0xbe4cccce,
            0x3f800001, 0xbf800000, 0x34000000,
            0x40490fdb, 0x402df854, 0x40bb8417,
            0xd037f707, 0x3c21d139, 0xd037f707,
            0x66ff0aa8, 0xe6feffd0, 0x60ad9000,
            0x0df36390, 0x0e4ad2f8, 0x0ea24261,
            0x477fe000, 0x4b400000, 0x4b40ffe1,
            0xbf400000, 0xbe000000, 0xbf600001,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "v0.qf32 = vadd(%1.sf,%2.sf)\n%0.sf = v0.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf32=vadd(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0xbf7ffffc,
            0x3f800000, 0xbf800000, 0x40000001,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0xc05fffff,
            0xc0200000, 0x3e800000, 0xc0300001,
            0x4b800000, 0x3f800000, 0x4b7ffffe,
            0x4b800000, 0x40400000, 0x4b7ffffc,
            0x4b7fffff, 0x3f000000, 0x4b7ffffe,
            0x3f800000, 0x33800000, 0x3f7ffffe,
            0x3f800000, 0x34000000, 0x3f7ffffe,
            0xbf800000, 0x33000000, 0xbf800001,
            0x3dcccccd, 0x3e4ccccd, 0xbdccccce,
            0x3dcccccd, 0xbe99999a, 0x3ecccccd,
            0x3f800001, 0xbf800000, 0x40000001,
            0x40490fdb, 0x402df854, 0x3ed8bc38,
            0xd037f707, 0x3c21d139, 0xd037f707,
            0x66ff0aa8, 0xe6feffd0, 0x677f053d,
            0x0df36390, 0x0e4ad2f8, 0x8da2425e,
            0x477fe000, 0x4b400000, 0xcb3f001f,
            0xbf400000, 0xbe000000, 0xbf1fffff,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "v0.qf32 = vsub(%1.sf,%2.sf)\n%0.sf = v0.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf32=vsub(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40000001,
            0x3f800000, 0xbf800000, 0xbf800001,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x00000000,
            0xc0200000, 0x3e800000, 0xbf200001,
            0x4b800000, 0x3f800000, 0x4b800001,
            0x4b800000, 0x40400000, 0x4c400001,
            0x4b7fffff, 0x3f000000, 0x4affffff,
            0x3f800000, 0x33800000, 0x33800001,
            0x3f800000, 0x34000000, 0x34000001,
            0xbf800000, 0x33000000, 0xb3000001,
            0x3dcccccd, 0x3e4ccccd, 0x3ca3d70b,
            0x3dcccccd, 0xbe99999a, 0xbcf5c291,
            0x3f800001, 0xbf800000, 0xbf800001,
            0x40490fdb, 0x402df854, 0x4108a2c1,
            0xd037f707, 0x3c21d139, 0xcce8916a,
            0x66ff0aa8, 0xe6feffd0, 0xffffffff,
            0x0df36390, 0x0e4ad2f8, 0x00000000,
            0x477fe000, 0x4b400000, 0x533fe801,
            0xbf400000, 0xbe000000, 0x3dc00001,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "v0.qf32 = vmpy(%1.sf,%2.sf)\n%0.sf = v0.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf32=vmpy(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3c004000, 0x42003800, 0x3f800001, 0x40400001,
            0x00003c00, 0x3c000000, 0x00000000, 0x00000000,
            0xbc004100, 0x4500c200, 0xc0f00001, 0xc0a00001,
            0x35552e66, 0x32663555, 0x3d087779, 0x3d887779,
            0x7bff3c01, 0x3c003c01, 0x3f804009, 0x477fe001,
            0x56405a00, 0x4248c170, 0xc4028001, 0x439d0801,
            0x3bff3bff, 0x3bff3c02, 0x3f802ff9, 0x3f7fc005,
            0xc000c000, 0x3800b800, 0x3f800001, 0xbf800001,
            0x49004d00, 0x2c002800, 0x3f200001, 0x3f200001,
            0x3e003e01, 0x3e003e03, 0x4010600d, 0x40100001,
            0x14001801, 0x64006801, 0x40804009, 0x3f800001,
            0x40003c00, 0x3c00c000, 0xc0000001, 0x40000001,
        };
        load(lanes, 12, 2, 2);
        __asm__ volatile(
            "v1:0.qf32 = vmpy(%1.hf,%2.hf)\nv0.sf = v0.qf32\nv1.sf = v1.qf32\n%0 = vcombine(v1,v0)"
            : "=&v"(*DD) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf32=vmpy(hf,hf)", "", lanes, 12, 2, 2);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3c004000, 0x42003800, 0x42003c00,
            0x00003c00, 0x3c000000, 0x00000000,
            0xbc004100, 0x4500c200, 0xc500c780,
            0x35552e66, 0x32663555, 0x2c442844,
            0x7bff3c01, 0x3c003c01, 0x7bff3c02,
            0x56405a00, 0x4248c170, 0x5ce8e014,
            0x3bff3bff, 0x3bff3c02, 0x3bfe3c01,
            0xc000c000, 0x3800b800, 0xbc003c00,
            0x49004d00, 0x2c002800, 0x39003900,
            0x3e003e01, 0x3e003e03, 0x40804083,
            0x14001801, 0x64006801, 0x3c004402,
            0x40003c00, 0x3c00c000, 0x4000c000,
        };
        load(lanes, 12, 2, 1);
        __asm__ volatile(
            "v1:0.qf32 = vmpy(%1.hf,%2.hf)\n%0.hf = v1:0.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("hf=qf32", "", lanes, 12, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40000000,
            0x3f800000, 0xbf800000, 0x3f800000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x40600000,
            0xc0200000, 0x3e800000, 0x3e800000,
            0x4b800000, 0x3f800000, 0x4b800000,
            0x4b800000, 0x40400000, 0x4b800000,
            0x4b7fffff, 0x3f000000, 0x4b7fffff,
            0x3f800000, 0x33800000, 0x3f800000,
            0x3f800000, 0x34000000, 0x3f800000,
            0xbf800000, 0x33000000, 0x33000000,
            0x3dcccccd, 0x3e4ccccd, 0x3e4ccccd,
            0x3dcccccd, 0xbe99999a, 0x3dcccccd,
            0x3f800001, 0xbf800000, 0x3f800001,
            0x40490fdb, 0x402df854, 0x40490fdb,
            0xd037f707, 0x3c21d139, 0x3c21d139,
            0x66ff0aa8, 0xe6feffd0, 0x66ff0aa8,
            0x0df36390, 0x0e4ad2f8, 0x0e4ad2f8,
            0x477fe000, 0x4b400000, 0x4b400000,
            0xbf400000, 0xbe000000, 0xbe000000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "%0.sf = vmax(%1.sf,%2.sf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=vmax(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x3f800000,
            0x3f800000, 0xbf800000, 0xbf800000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x00000000,
            0xc0200000, 0x3e800000, 0xc0200000,
            0x4b800000, 0x3f800000, 0x3f800000,
            0x4b800000, 0x40400000, 0x40400000,
            0x4b7fffff, 0x3f000000, 0x3f000000,
            0x3f800000, 0x33800000, 0x33800000,
            0x3f800000, 0x34000000, 0x34000000,
            0xbf800000, 0x33000000, 0xbf800000,
            0x3dcccccd, 0x3e4ccccd, 0x3dcccccd,
            0x3dcccccd, 0xbe99999a, 0xbe99999a,
            0x3f800001, 0xbf800000, 0xbf800000,
            0x40490fdb, 0x402df854, 0x402df854,
            0xd037f707, 0x3c21d139, 0xd037f707,
            0x66ff0aa8, 0xe6feffd0, 0xe6feffd0,
            0x0df36390, 0x0e4ad2f8, 0x0df36390,
            0x477fe000, 0x4b400000, 0x477fe000,
            0xbf400000, 0xbe000000, 0xbf400000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "%0.sf = vmin(%1.sf,%2.sf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=vmin(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 73 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x00000000, 0x00000000,
            0x00000001, 0x3f800000,
            0xffffffff, 0xbf800000,
            0x00000007, 0x40e00000,
            0xffffff80, 0xc3000000,
            0x01000001, 0x4b800000,
            0xfdfffffd, 0xcc000001,
            0x7fffffff, 0x4f000000,
        };
        load(lanes, 8, 1, 1);
        __asm__ volatile(
            "%0.sf = %1.w"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=w", "", lanes, 8, 1, 1);
    }
#endif
#if __HVX_ARCH__ >= 73 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x00000001, 0x00003c00,
            0xffff007f, 0xbc0057f0,
            0x0801f7ff, 0x6800e800,
            0x7fff8000, 0x7800f800,
            0x1234fedc, 0x6c8ddc90,
        };
        load(lanes, 5, 1, 1);
        __asm__ volatile(
            "%0.hf = %1.h"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("hf=h", "", lanes, 5, 1, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40400000,
            0x3f800000, 0xbf800000, 0x00000000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x40600000,
            0xc0200000, 0x3e800000, 0xc0100000,
            0x4b800000, 0x3f800000, 0x4b800000,
            0x4b800000, 0x40400000, 0x4b800002,
            0x4b7fffff, 0x3f000000, 0x4b800000,
            0x3f800000, 0x33800000, 0x3f800000,
            0x3f800000, 0x34000000, 0x3f800001,
            0xbf800000, 0x33000000, 0xbf800000,
            0x3dcccccd, 0x3e4ccccd, 0x3e99999a,
            0x3dcccccd, 0xbe99999a, 0xbe4cccce,
            0x3f800001, 0xbf800000, 0x34000000,
            0x40490fdb, 0x402df854, 0x40bb8418,
            0xd037f707, 0x3c21d139, 0xd037f707,
            0x66ff0aa8, 0xe6feffd0, 0x60ad8000,
            0x0df36390, 0x0e4ad2f8, 0x0ea24260,
            0x477fe000, 0x4b400000, 0x4b40ffe0,
            0xbf400000, 0xbe000000, 0xbf600000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "v0.qf32 = vadd(%1.sf,%2.sf)\n%0.sf = v0.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf32=vadd(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0xbf800000,
            0x3f800000, 0xbf800000, 0x40000000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0xc0600000,
            0xc0200000, 0x3e800000, 0xc0300000,
            0x4b800000, 0x3f800000, 0x4b7fffff,
            0x4b800000, 0x40400000, 0x4b7ffffd,
            0x4b7fffff, 0x3f000000, 0x4b7ffffe,
            0x3f800000, 0x33800000, 0x3f7fffff,
            0x3f800000, 0x34000000, 0x3f7ffffe,
            0xbf800000, 0x33000000, 0xbf800000,
            0x3dcccccd, 0x3e4ccccd, 0xbdcccccd,
            0x3dcccccd, 0xbe99999a, 0x3ecccccd,
            0x3f800001, 0xbf800000, 0x40000000,
            0x40490fdb, 0x402df854, 0x3ed8bc38,
            0xd037f707, 0x3c21d139, 0xd037f707,
            0x66ff0aa8, 0xe6feffd0, 0x677f053c,
            0x0df36390, 0x0e4ad2f8, 0x8da24260,
            0x477fe000, 0x4b400000, 0xcb3f0020,
            0xbf400000, 0xbe000000, 0xbf200000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "v0.qf32 = vsub(%1.sf,%2.sf)\n%0.sf = v0.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf32=vsub(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40000000,
            0x3f800000, 0xbf800000, 0xbf800000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x00000000,
            0xc0200000, 0x3e800000, 0xbf200000,
            0x4b800000, 0x3f800000, 0x4b800000,
            0x4b800000, 0x40400000, 0x4c400000,
            0x4b7fffff, 0x3f000000, 0x4affffff,
            0x3f800000, 0x33800000, 0x33800000,
            0x3f800000, 0x34000000, 0x34000000,
            0xbf800000, 0x33000000, 0xb3000000,
            0x3dcccccd, 0x3e4ccccd, 0x3ca3d70b,
            0x3dcccccd, 0xbe99999a, 0xbcf5c290,
            0x3f800001, 0xbf800000, 0xbf800001,
            0x40490fdb, 0x402df854, 0x4108a2c0,
            0xd037f707, 0x3c21d139, 0xcce8916a,
            0x66ff0aa8, 0xe6feffd0, 0xff800000,
            0x0df36390, 0x0e4ad2f8, 0x00000000,
            0x477fe000, 0x4b400000, 0x533fe800,
            0xbf400000, 0xbe000000, 0x3dc00000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "v0.qf32 = vmpy(%1.sf,%2.sf)\n%0.sf = v0.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf32=vmpy(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x3c004000, 0x42003800, 0x3f800000, 0x40400000,
            0x00003c00, 0x3c000000, 0x00000000, 0x00000000,
            0xbc004100, 0x4500c200, 0xc0f00000, 0xc0a00000,
            0x35552e66, 0x32663555, 0x3d087778, 0x3d887778,
            0x7bff3c01, 0x3c003c01, 0x3f804008, 0x477fe000,
            0x56405a00, 0x4248c170, 0xc4028000, 0x439d0800,
            0x3bff3bff, 0x3bff3c02, 0x3f802ff8, 0x3f7fc004,
            0xc000c000, 0x3800b800, 0x3f800000, 0xbf800000,
            0x49004d00, 0x2c002800, 0x3f200000, 0x3f200000,
            0x3e003e01, 0x3e003e03, 0x4010600c, 0x40100000,
            0x14001801, 0x64006801, 0x40804008, 0x3f800000,
            0x40003c00, 0x3c00c000, 0xc0000000, 0x40000000,
        };
        load(lanes, 12, 2, 2);
        __asm__ volatile(
            "v1:0.qf32 = vmpy(%1.hf,%2.hf)\nv0.sf = v0.qf32\nv1.sf = v1.qf32\n%0 = vcombine(v1,v0)"
            : "=&v"(*DD) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf32=vmpy(hf,hf)", "", lanes, 12, 2, 2);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x3c004000, 0x42003800, 0x42003c00,
            0x00003c00, 0x3c000000, 0x00000000,
            0xbc004100, 0x4500c200, 0xc500c780,
            0x35552e66, 0x32663555, 0x2c442844,
            0x7bff3c01, 0x3c003c01, 0x7bff3c02,
            0x56405a00, 0x4248c170, 0x5ce8e014,
            0x3bff3bff, 0x3bff3c02, 0x3bfe3c01,
            0xc000c000, 0x3800b800, 0xbc003c00,
            0x49004d00, 0x2c002800, 0x39003900,
            0x3e003e01, 0x3e003e03, 0x40804083,
            0x14001801, 0x64006801, 0x3c004402,
            0x40003c00, 0x3c00c000, 0x4000c000,
        };
        load(lanes, 12, 2, 1);
        __asm__ volatile(
            "v1:0.qf32 = vmpy(%1.hf,%2.hf)\n%0.hf = v1:0.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("hf=qf32", "", lanes, 12, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40000000,
            0x3f800000, 0xbf800000, 0x3f800000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x40600000,
            0xc0200000, 0x3e800000, 0x3e800000,
            0x4b800000, 0x3f800000, 0x4b800000,
            0x4b800000, 0x40400000, 0x4b800000,
            0x4b7fffff, 0x3f000000, 0x4b7fffff,
            0x3f800000, 0x33800000, 0x3f800000,
            0x3f800000, 0x34000000, 0x3f800000,
            0xbf800000, 0x33000000, 0x33000000,
            0x3dcccccd, 0x3e4ccccd, 0x3e4ccccd,
            0x3dcccccd, 0xbe99999a, 0x3dcccccd,
            0x3f800001, 0xbf800000, 0x3f800001,
            0x40490fdb, 0x402df854, 0x40490fdb,
            0xd037f707, 0x3c21d139, 0x3c21d139,
            0x66ff0aa8, 0xe6feffd0, 0x66ff0aa8,
            0x0df36390, 0x0e4ad2f8, 0x0e4ad2f8,
            0x477fe000, 0x4b400000, 0x4b400000,
            0xbf400000, 0xbe000000, 0xbe000000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "%0.sf = vmax(%1.sf,%2.sf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=vmax(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x3f800000,
            0x3f800000, 0xbf800000, 0xbf800000,
            0x00000000, 0x00000000, 0x00000000,
            0x00000000, 0x40600000, 0x00000000,
            0xc0200000, 0x3e800000, 0xc0200000,
            0x4b800000, 0x3f800000, 0x3f800000,
            0x4b800000, 0x40400000, 0x40400000,
            0x4b7fffff, 0x3f000000, 0x3f000000,
            0x3f800000, 0x33800000, 0x33800000,
            0x3f800000, 0x34000000, 0x34000000,
            0xbf800000, 0x33000000, 0xbf800000,
            0x3dcccccd, 0x3e4ccccd, 0x3dcccccd,
            0x3dcccccd, 0xbe99999a, 0xbe99999a,
            0x3f800001, 0xbf800000, 0xbf800000,
            0x40490fdb, 0x402df854, 0x402df854,
            0xd037f707, 0x3c21d139, 0xd037f707,
            0x66ff0aa8, 0xe6feffd0, 0xe6feffd0,
            0x0df36390, 0x0e4ad2f8, 0x0df36390,
            0x477fe000, 0x4b400000, 0x477fe000,
            0xbf400000, 0xbe000000, 0xbf400000,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "%0.sf = vmin(%1.sf,%2.sf)"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=vmin(sf,sf)", "", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x00000000, 0x00000000,
            0x00000001, 0x3f800000,
            0xffffffff, 0xbf800000,
            0x00000007, 0x40e00000,
            0xffffff80, 0xc3000000,
            0x01000001, 0x4b800000,
            0xfdfffffd, 0xcc000001,
            0x7fffffff, 0x4f000000,
        };
        load(lanes, 8, 1, 1);
        __asm__ volatile(
            "%0.sf = %1.w"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("sf=w", "", lanes, 8, 1, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x00000001, 0x00003c00,
            0xffff007f, 0xbc0057f0,
            0x0801f7ff, 0x6800e800,
            0x7fff8000, 0x7800f800,
            0x1234fedc, 0x6c8ddc90,
        };
        load(lanes, 5, 1, 1);
        __asm__ volatile(
            "%0.hf = %1.h"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("hf=h", "", lanes, 5, 1, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x3f800000, 0x40000000, 0x40000001,
            0x3f800000, 0xbf800000, 0xbf800001,
            0x00000000, 0x00000000, 0x34800000,
            0x00000000, 0x40600000, 0x34800000,
            0xc0200000, 0x3e800000, 0xbf200001,
            0x4b800000, 0x3f800000, 0x4b800001,
            0x4b800000, 0x40400000, 0x4c400001,
            0x4b7fffff, 0x3f000000, 0x4affffff,
            0x3f800000, 0x33800000, 0x33800001,
            0x3f800000, 0x34000000, 0x34000001,
            0xbf800000, 0x33000000, 0xb3000001,
            0x3dcccccd, 0x3e4ccccd, 0x3ca3d70b,
            0x3dcccccd, 0xbe99999a, 0xbcf5c291,
            0x3f800001, 0xbf800000, 0xbf800001,
            0x40490fdb, 0x402df854, 0x4108a2c1,
            0xd037f707, 0x3c21d139, 0xcce8916b,
            0x66ff0aa8, 0xe6feffd0, 0x8e7e0b6d,
            0x0df36390, 0x0e4ad2f8, 0x5cc0d523,
            0x477fe000, 0x4b400000, 0x533fe801,
            0xbf400000, 0xbe000000, 0x3dc00001,
        };
        load(lanes, 20, 2, 1);
        __asm__ volatile(
            "v0.qf32 = vmpy(%1.sf,%2.sf)\nv1 = v0\n%0.sf = v1.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("copied qf32", "does a copy of a register lose the bits beside it?", lanes, 20, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 79 && __HVX_ARCH__ <= 81
    {
        static const word lanes[] = {
            0x43c80000, 0x43c77dbb, 0x3f84a000,
            0x43cc8000, 0x43cc341a, 0x3eb58000,
            0x43d10000, 0x43d0ea7a, 0x3ce80000,
            0x43d58000, 0x43d5a0d9, 0x3d860000,
            0x43da0000, 0x43da5738, 0x3eed8000,
            0x43de8000, 0x43df0d97, 0x3f9ca000,
            0x43e30000, 0x43e3c3f6, 0x40163000,
            0x43e78000, 0x43e6e836, 0x3fb3a000,
            0x43ec0000, 0x43eb9e95, 0x3f14c000,
            0x43f08000, 0x43f054f4, 0x3de60000,
            0x43f50000, 0x43f50b53, 0x3c300000,
            0x43f98000, 0x43f9c1b2, 0x3e868000,
        };
        load(lanes, 12, 2, 1);
        __asm__ volatile(
            "v0.qf32 = vsub(%1.sf,%2.sf)\nv1.qf32 = vmpy(v0.qf32,v0.qf32)\n%0.sf = v1.qf32"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("squared qf32", "is a qf32 difference normalised before it is multiplied?", lanes, 12, 2, 1);
    }
#endif
#if __HVX_ARCH__ >= 68 && __HVX_ARCH__ <= 75
    {
        static const word lanes[] = {
            0x3c004000, 0x42003800, 0x44014101,
            0x00003c00, 0x3c000000, 0x3c013c01,
            0xbc004100, 0x4500c200, 0x4401b7f8,
            0x35552e66, 0x32663555, 0x384536ee,
            0x7bff3c01, 0x3c003c01, 0x7bff4001,
            0x56405a00, 0x4248c170, 0x567259ea,
            0x3bff3bff, 0x3bff3c02, 0x3fff4001,
            0xc000c000, 0x3800b800, 0xbdfec101,
            0x49004d00, 0x2c002800, 0x49094d02,
            0x3e003e01, 0x3e003e03, 0x42014201,
            0x14001801, 0x64006801, 0x64016801,
            0x40003c00, 0x3c00c000, 0x4201bbfc,
        };
        load(lanes, 12, 2, 1);
        __asm__ volatile(
            "v0.qf16 = vadd(%1.hf,%2.hf)\n%0.hf = v0.qf16"
            : "=&v"(*D) : "v"(*U), "v"(*V) : "v0", "v1");
        compare("qf16=vadd(hf,hf)", "how does a qf16 sum of two halves round?", lanes, 12, 2, 1);
    }
#endif
    text(wrong ? "something is WRONG\n" : "nothing is wrong\n");
    return wrong != 0;
}

#ifdef BARE
void begin(void) { sys(94, main(), 0, 0); }
__asm__(".globl _start\n_start:\nr29 = and(r29,#-256)\ncall begin\n");
void *memset(void *to, int c, unsigned n) {
    for (volatile char *p = to; n--;) *p++ = (char)c;
    return to;
}
void *memcpy(void *to, const void *from, unsigned n) {
    volatile char *p = to;
    for (const char *q = from; n--;) *p++ = *q++;
    return to;
}
#endif
