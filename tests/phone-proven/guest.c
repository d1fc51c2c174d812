// A process that plays a phone's DSP process for one library of ggml-hexagon, under qemu-hexagon in user
// mode.
//
//   guest LIBRARY HOST_PID THREADS LOG
//
// It loads the library (segments, RELA relocations, imports), and serves what the host's stand-in for
// libcdsprpc (host/cdsprpc.cpp) asks over pipes: file descriptor 10 has requests, 11 answers of FastRPC's
// calls, 12 messages to the library's queue, 13 messages from it. Buffers are files of the host,
// /proc/HOST_PID/fd/N.
//
// LOG is a sum: 1 shows what the library logs, 2 what this process does; with 4 the matrix unit takes no
// time.
//
// QuRT, HAP, the resource manager, dspqueue and the C library that the libraries import are played here, as
// far as they import them. Freestanding C, written for this purpose; nothing of it is a vendor's.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef __builtin_va_list va_list;
#define NULL ((void *)0)

// ---------------------------------------------------------------- system calls

static inline i32 sys(u32 n, u32 a, u32 b, u32 c, u32 d, u32 e, u32 f) {
    register u32 r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c, r3 __asm__("r3") = d;
    register u32 r4 __asm__("r4") = e, r5 __asm__("r5") = f, r6 __asm__("r6") = n;
    __asm__ volatile("trap0(#1)"
                     : "+r"(r0)
                     : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5), "r"(r6)
                     : "memory");
    return (i32)r0;
}
enum {
    OPENAT = 56,
    CLOSE = 57,
    LSEEK = 62 /* _llseek */,
    READ = 63,
    WRITE = 64,
    PPOLL = 73,
    EXIT_GROUP = 94,
    FUTEX = 98,
    YIELD = 124,
    MUNMAP = 215,
    CLONE = 220,
    MMAP = 222,
    HMX = 0x484d58
};

void *memcpy(void *d, const void *s, u32 n) {
    u8 *a = d;
    const u8 *b = s;
    if ((((u32)a | (u32)b) & 7) == 0) {
        u32 w = n >> 3;
        n &= 7;
        u64 *x = (u64 *)a;
        const u64 *y = (const u64 *)b;
        while (w--) *x++ = *y++;
        a = (u8 *)x;
        b = (const u8 *)y;
    }
    while (n--) *a++ = *b++;
    return d;
}
void *memset(void *d, int v, u32 n) {
    u8 *a = d;
    u64 w = (u8)v * 0x0101010101010101ull;
    while (n && ((u32)a & 7)) {
        *a++ = (u8)v;
        n--;
    }
    for (; n >= 8; n -= 8, a += 8) *(u64 *)a = w;
    while (n--) *a++ = (u8)v;
    return d;
}
static void *memmove_(void *d, const void *s, u32 n) {
    if ((u32)d <= (u32)s || (u32)d >= (u32)s + n) return memcpy(d, s, n);
    u8 *a = (u8 *)d + n;
    const u8 *b = (const u8 *)s + n;
    while (n--) *--a = *--b;
    return d;
}
static int memcmp_(const void *p, const void *q, u32 n) {
    const u8 *a = p, *b = q;
    for (; n--; a++, b++)
        if (*a != *b) return *a - *b;
    return 0;
}
static u32 strlen_(const char *s) {
    u32 n = 0;
    while (s[n]) n++;
    return n;
}
static int same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}
static u32 strlcpy_(char *d, const char *s, u32 n) {
    u32 l = strlen_(s);
    if (n) {
        u32 k = l < n - 1 ? l : n - 1;
        memcpy(d, s, k);
        d[k] = 0;
    }
    return l;
}

// ---------------------------------------------------------------- text

static u32 put_number(char *o, u64 v, u32 base, int negative, int width, char pad) {
    char t[24];
    u32 n = 0, w = 0;
    do {
        u32 digit = (u32)(v % base);
        t[n++] = "0123456789abcdef"[digit];
        v /= base;
    } while (v);
    if (negative) t[n++] = '-';
    while ((int)n < width && n < sizeof t) t[n++] = pad;
    while (n) o[w++] = t[--n];
    return w;
}
static int format(char *out, u32 size, const char *f, va_list ap) {
    u32 n = 0;
    char t[32];
#define EMIT(c)                                                                                              \
    do {                                                                                                     \
        char c_ = (c);                                                                                       \
        if (n + 1 < size) out[n] = c_;                                                                       \
        n++;                                                                                                 \
    } while (0)
    for (; *f; f++) {
        if (*f != '%') {
            EMIT(*f);
            continue;
        }
        f++;
        char pad = ' ';
        int width = 0, longs = 0;
        if (*f == '0') pad = '0';
        while (*f >= '0' && *f <= '9') width = width * 10 + *f++ - '0';
        if (*f == '.') {
            f++;
            while (*f >= '0' && *f <= '9') f++;
        }
        while (*f == 'l' || *f == 'z' || *f == 'h') longs += *f == 'l', f++;
        u32 w = 0;
        switch (*f) {
        case 'd':
        case 'i': {
            i64 v = longs > 1 ? __builtin_va_arg(ap, i64) : __builtin_va_arg(ap, int);
            w = put_number(t, v < 0 ? -v : v, 10, v < 0, width, pad);
            break;
        }
        case 'u':
        case 'x':
        case 'X': {
            u64 v = longs > 1 ? __builtin_va_arg(ap, u64) : __builtin_va_arg(ap, u32);
            w = put_number(t, v, *f == 'u' ? 10 : 16, 0, width, pad);
            break;
        }
        case 'p':
            w = put_number(t, __builtin_va_arg(ap, u32), 16, 0, width, pad);
            break;
        case 'c':
            t[0] = (char)__builtin_va_arg(ap, int);
            w = 1;
            break;
        case 'f':
        case 'g':
        case 'e': {
            double v = __builtin_va_arg(ap, double);
            int neg = v < 0;
            if (neg) v = -v;
            if (!(v < 4e9)) {
                t[0] = 'B';
                w = 1;
                break;
            }
            w = put_number(t, (u32)v, 10, neg, 0, ' ');
            t[w++] = '.';
            w += put_number(t + w, (u32)((v - (double)(u32)v) * 1e6), 10, 0, 6, '0');
            break;
        }
        case 's': {
            const char *s = __builtin_va_arg(ap, const char *);
            if (!s) s = "(null)";
            while (*s) {
                EMIT(*s);
                s++;
            }
            break;
        }
        default:
            EMIT(*f);
        }
        for (u32 i = 0; i < w; i++) EMIT(t[i]);
    }
    if (size) out[n < size ? n : size - 1] = 0;
    return (int)n;
}
static int vsnprintf_(char *o, u32 n, const char *f, va_list ap) { return format(o, n, f, ap); }
static int snprintf_(char *o, u32 n, const char *f, ...) {
    va_list ap;
    __builtin_va_start(ap, f);
    int r = format(o, n, f, ap);
    __builtin_va_end(ap);
    return r;
}
static void say(const char *f, ...) {
    char t[512];
    va_list ap;
    __builtin_va_start(ap, f);
    int n = format(t, sizeof t, f, ap);
    __builtin_va_end(ap);
    if (n > (int)sizeof t - 1) n = sizeof t - 1;
    sys(WRITE, 2, (u32)t, n, 0, 0, 0);
}
static void die(const char *what, const char *name) {
    say("guest: %s %s\n", what, name);
    sys(EXIT_GROUP, 3, 0, 0, 0, 0, 0);
    for (;;);
}

// ---------------------------------------------------------------- arithmetic that compilers call

u32 __hexagon_udivsi3(u32 a, u32 b) {
    u32 q = 0;
    u64 r = 0;
    for (int i = 31; i >= 0; i--) {
        r = r << 1 | (a >> i & 1);
        if (r >= b) r -= b, q |= 1u << i;
    }
    return q;
}
u32 __hexagon_umodsi3(u32 a, u32 b) { return a - __hexagon_udivsi3(a, b) * b; }
i32 __hexagon_divsi3(i32 a, i32 b) {
    u32 q = __hexagon_udivsi3(a < 0 ? -(u32)a : (u32)a, b < 0 ? -(u32)b : (u32)b);
    return (a < 0) != (b < 0) ? (i32)-q : (i32)q;
}
i32 __hexagon_modsi3(i32 a, i32 b) { return a - __hexagon_divsi3(a, b) * b; }
u64 __hexagon_udivdi3(u64 a, u64 b) {
    u64 q = 0, r = 0;
    for (int i = 63; i >= 0; i--) {
        u64 top = r >> 63;
        r = r << 1 | (a >> i & 1);
        if (top || r >= b) r -= b, q |= 1ull << i;
    }
    return q;
}
u64 __hexagon_umoddi3(u64 a, u64 b) { return a - __hexagon_udivdi3(a, b) * b; }
i64 __hexagon_divdi3(i64 a, i64 b) {
    u64 q = __hexagon_udivdi3(a < 0 ? -(u64)a : (u64)a, b < 0 ? -(u64)b : (u64)b);
    return (a < 0) != (b < 0) ? (i64)-q : (i64)q;
}
i64 __hexagon_moddi3(i64 a, i64 b) { return a - __hexagon_divdi3(a, b) * b; }

static double from_bits(u64 x) {
    double d;
    __builtin_memcpy(&d, &x, 8);
    return d;
}
static u64 bits(double d) {
    u64 x;
    __builtin_memcpy(&x, &d, 8);
    return x;
}
static float from_bits32(u32 x) {
    float d;
    __builtin_memcpy(&d, &x, 4);
    return d;
}
static u32 bits32(float d) {
    u32 x;
    __builtin_memcpy(&x, &d, 4);
    return x;
}

// Division of doubles: significands by long division, round to nearest even. Subnormal results become zero.
double __hexagon_divdf3(double a, double b) {
    u64 x = bits(a), y = bits(b), sign = (x ^ y) & 1ull << 63;
    int ea = x >> 52 & 2047, eb = y >> 52 & 2047;
    if (ea == 2047 || eb == 2047) {
        if ((ea == 2047 && x << 12) || (eb == 2047 && y << 12) || (ea == 2047 && eb == 2047))
            return from_bits(0x7ff8000000000000ull);
        return from_bits(ea == 2047 ? sign | 0x7ff0000000000000ull : sign);
    }
    if (!ea) return eb ? from_bits(sign) : from_bits(0x7ff8000000000000ull);
    if (!eb) return from_bits(sign | 0x7ff0000000000000ull);
    u64 m = (x & ((1ull << 52) - 1)) | 1ull << 52, n = (y & ((1ull << 52) - 1)) | 1ull << 52;
    int e = ea - eb + 1023;
    if (m < n) m <<= 1, e--;
    u64 q = 0, r = m;
    for (int i = 0; i < 55; i++) {
        q <<= 1;
        if (r >= n) r -= n, q |= 1;
        r <<= 1;
    }
    q = q << 1 | (r != 0); // 53 bits, two more, sticky
    u64 up = (q & 7) > 4 || ((q & 7) == 4 && (q & 8));
    q = (q >> 3) + up;
    if (q >> 53) q >>= 1, e++;
    if (e >= 2047) return from_bits(sign | 0x7ff0000000000000ull);
    if (e <= 0) return from_bits(sign);
    return from_bits(sign | (u64)e << 52 | (q & ((1ull << 52) - 1)));
}
float __hexagon_divsf3(float a, float b) { return (float)__hexagon_divdf3(a, b); }

static float extendhfsf(u32 h) {
    u32 s = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return from_bits32(s | 0x7f800000 | m << 13);
    if (!e) {
        float f = (float)(int)m * 5.9604644775390625e-8f;
        return s ? -f : f;
    }
    return from_bits32(s | (e + 112) << 23 | m << 13);
}
static u32 truncsfhf(float f) {
    u32 x = bits32(f), s = x >> 16 & 0x8000, a = x & 0x7fffffff;
    if (a > 0x7f800000) return s | 0x7e00;
    if (a >= 0x47800000) return s | 0x7c00;
    if (a < 0x38800000) { // subnormal: a multiple of 2^-24
        if (a < 0x33000000) return s;
        u32 e = a >> 23, m = (a & 0x7fffff) | 0x800000, shift = 126 - e;
        u32 q = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
        return s | (q + (rest > half || (rest == half && (q & 1))));
    }
    u32 q = (a - 0x38000000) >> 13, rest = a & 0x1fff;
    return s | (q + (rest > 0x1000 || (rest == 0x1000 && (q & 1))));
}
static double pow2(int k) {
    return k < -1022 ? 0.0 : k > 1023 ? from_bits(0x7ff0000000000000ull) : from_bits((u64)(k + 1023) << 52);
}
static int nearest(double x) { return (int)(x < 0 ? x - 0.5 : x + 0.5); }
static double exp_(double x) {
    if (x != x) return x;
    if (x > 709) return from_bits(0x7ff0000000000000ull);
    if (x < -700) return 0;
    int k = nearest(x * 1.4426950408889634);
    double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10, s = 1, t = 1;
    static const double inv[] = {0,     1.0,     0.5, 1.0 / 3,  0.25,     0.2,      1.0 / 6, 1.0 / 7,
                                 0.125, 1.0 / 9, 0.1, 1.0 / 11, 1.0 / 12, 1.0 / 13, 1.0 / 14};
    for (int i = 1; i < 15; i++) t = t * r * inv[i], s += t;
    return s * pow2(k);
}
static double log_(double x) {
    if (x != x) return x;
    if (x < 0) return from_bits(0x7ff8000000000000ull);
    if (x == 0) return from_bits(0xfff0000000000000ull);
    u64 b = bits(x);
    int e = (int)(b >> 52) - 1023;
    if (e == 1024) return x;
    double m = from_bits((b & ((1ull << 52) - 1)) | 1023ull << 52);
    if (m > 1.4142135623730951) m = m * 0.5, e++;
    double t = __hexagon_divdf3(m - 1, m + 1), t2 = t * t, s = 0;
    static const double inv[] = {1,        1.0 / 3,  0.2,      1.0 / 7,  1.0 / 9,  1.0 / 11,
                                 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    for (int i = 11; i >= 0; i--) s = s * t2 + inv[i];
    return 2 * t * s + e * 0.6931471805599453;
}
static double sincos_(double x, int quarter) {
    int k = nearest(x * 0.6366197723675814);
    double r = ((x - k * 1.57079632673412561417e+00) - k * 6.07710050630396597660e-11) -
               k * 2.02226624879595063154e-21;
    int q = (k + quarter) & 3;
    double r2 = r * r, s;
    if (q & 1)
        s = 1 + r2 * (-0.5 + r2 * (1.0 / 24 +
                                   r2 * (-1.0 / 720 + r2 * (1.0 / 40320 + r2 * (-1.0 / 3628800 +
                                                                                r2 * (1.0 / 479001600))))));
    else
        s = r * (1 + r2 * (-1.0 / 6 +
                           r2 * (1.0 / 120 + r2 * (-1.0 / 5040 +
                                                   r2 * (1.0 / 362880 + r2 * (-1.0 / 39916800 +
                                                                              r2 * (1.0 / 6227020800.0)))))));
    return q & 2 ? -s : s;
}
static float expf_(float x) { return (float)exp_(x); }
static float exp2f_(float x) { return (float)exp_((double)x * 0.6931471805599453); }
static float logf_(float x) { return (float)log_(x); }
// Base 2, e, 10 for -1, 0, 1.
static double Log_(double x, int base) {
    return log_(x) * (base < 0 ? 1.4426950408889634 : base ? 0.4342944819032518 : 1);
}
static float sinf_(float x) { return (float)sincos_(x, 0); }
static float cosf_(float x) { return (float)sincos_(x, 1); }
static float sqrtf_(float x) {
    if (!(x > 0)) return x == 0 ? x : from_bits32(0x7fc00000);
    return (float)exp_(0.5 * log_(x));
}
static float powf_(float x, float y) {
    if (y == 0 || x == 1) return 1;
    if (x == 0) return y > 0 ? 0 : from_bits32(0x7f800000);
    if (x < 0) {
        double m = exp_(y * log_(-(double)x));
        int k = (int)y;
        return (float)((float)k != y ? from_bits(0x7ff8000000000000ull) : k & 1 ? -m : m);
    }
    return (float)exp_(y * log_(x));
}
static float tanhf_(float x) {
    double e = exp_(2.0 * x);
    if (x > 20) return 1;
    if (x < -20) return -1;
    return (float)__hexagon_divdf3(e - 1, e + 1);
}
static double floor_(double x) {
    if (!(x < 2e9 && x > -2e9)) return x;
    double t = (double)(int)x;
    return t > x ? t - 1 : t;
}
static float floorf_(float x) { return (float)floor_(x); }
static float ceilf_(float x) { return (float)-floor_(-(double)x); }

// ---------------------------------------------------------------- memory

static void *pages(u32 bytes, u32 fd, u32 flags) {
    i32 at = sys(MMAP, 0, bytes, 7, flags, fd, 0);
    return at < 0 && at > -4096 ? NULL : (void *)at;
}
static volatile u32 heap_lock;
static u8 *heap, *heap_end;
static void *memalign_(u32 align, u32 bytes) {
    while (__atomic_exchange_n(&heap_lock, 1, __ATOMIC_ACQUIRE)) sys(YIELD, 0, 0, 0, 0, 0, 0);
    if (align < 128) align = 128;
    u8 *at = (u8 *)(((u32)heap + align - 1) & -align);
    if (!heap || at + bytes > heap_end) {
        u32 more = bytes + align > (8u << 20) ? bytes + align : 8u << 20;
        heap = pages(more, -1, 0x22);
        heap_end = heap + more;
        at = (u8 *)(((u32)heap + align - 1) & -align);
    }
    heap = at + bytes;
    __atomic_store_n(&heap_lock, 0, __ATOMIC_RELEASE);
    return at;
}
static void *malloc_(u32 n) { return memalign_(128, n); }
static void *calloc_(u32 a, u32 b) {
    void *p = memalign_(128, a * b);
    memset(p, 0, a * b);
    return p;
}
static void free_(void *p) { (void)p; }

static u32 level, threads = 4;
static const char *host_pid;
static u32 size_of(i32 fd) {
    u64 end = 0;
    sys(LSEEK, fd, 0, 0, (u32)&end, 2, 0);
    u64 zero = 0;
    sys(LSEEK, fd, 0, 0, (u32)&zero, 0, 0);
    return (u32)end;
}
static struct {
    u32 fd, bytes;
    u8 *at;
} maps[64];
static u8 *map_fd(u32 fd, u32 *bytes) {
    for (u32 i = 0; i < 64; i++)
        if (maps[i].at && maps[i].fd == fd) {
            if (bytes) *bytes = maps[i].bytes;
            return maps[i].at;
        }
    char path[64];
    snprintf_(path, sizeof path, "/proc/%s/fd/%u", host_pid, fd);
    i32 file = sys(OPENAT, -100, (u32)path, 2, 0, 0, 0);
    if (file < 0) {
        say("guest: no %s (%d)\n", path, file);
        return (u8 *)-1;
    }
    u32 n = size_of(file);
    u8 *at = pages(n, file, 1);
    sys(CLOSE, file, 0, 0, 0, 0, 0);
    if (!at) return (u8 *)-1;
    for (u32 i = 0; i < 64; i++)
        if (!maps[i].at) {
            maps[i].fd = fd;
            maps[i].bytes = n;
            maps[i].at = at;
            break;
        }
    if (bytes) *bytes = n;
    if (level & 2) say("guest: fd %u of %u bytes at %x\n", fd, n, (u32)at);
    return at;
}
static void *HAP_mmap_(void *a, u32 len, int prot, int flags, int fd, int off) { return map_fd(fd, NULL); }
static int HAP_munmap_(void *a, u32 len) {
    for (u32 i = 0; i < 64; i++)
        if (maps[i].at == a) {
            sys(MUNMAP, (u32)a, maps[i].bytes, 0, 0, 0, 0);
            maps[i].at = NULL;
        }
    return 0;
}

// ---------------------------------------------------------------- QuRT

struct attr {
    char name[16];
    u8 tcb, stid;
    u16 priority;
    u8 autostack, bus;
    u16 timetest;
    u32 stack_bytes;
    u8 *stack;
    u16 detach;
};
struct start {
    void (*entry)(void *);
    void *argument;
    u32 id;
};
static volatile u32 alive[64];
static volatile u32 next_id = 1;
static char names[64][20];

__asm__(".text\n.globl clone_\n.p2align 4\nclone_:\n"
        "{ r6 = #220\n memw(r1+#4) = r5 }\n trap0(#1)\n"
        "{ p0 = cmp.eq(r0,#0)\n if (!p0.new) jumpr:t r31 }\n"
        "{ r1 = memw(r29+#4)\n r0 = memw(r29+#0)\n r30 = #0\n r31 = #0 }\n callr r1\n"
        "{ r6 = #93\n r0 = #0 }\n trap0(#1)\n1: jump 1b\n");
i32 clone_(u32 flags, u32 *stack, const void *set, volatile u32 *clear, u32 word, void (*entry)(void *));

static void set_id(u32 id) { __asm__ volatile("ugp = %0" : : "r"(id)); }
static u32 get_id(void) {
    u32 id;
    __asm__ volatile("%0 = ugp" : "=r"(id));
    return id;
}
static void thread_main(void *p) {
    struct start s = *(struct start *)p;
    set_id(s.id);
    s.entry(s.argument);
    if (level & 2) say("guest: thread %u (%s) ends\n", s.id, names[s.id & 63]);
}
static int thread_create(u32 *id, struct attr *a, void (*entry)(void *), void *argument) {
    u32 n = __atomic_fetch_add(&next_id, 1, __ATOMIC_SEQ_CST);
    for (u32 i = 0; i < 16; i++) names[n & 63][i] = a->name[i];
    u8 *end = (u8 *)(((u32)a->stack + a->stack_bytes) & ~127u);
    struct start *s = (struct start *)(end - 32);
    s->entry = entry;
    s->argument = argument;
    s->id = n;
    u32 *top = (u32 *)(end - 128);
    top[0] = (u32)s;
    alive[n & 63] = 1;
    *id = n;
    i32 r = clone_(0x250f00, top, NULL, &alive[n & 63], 0, thread_main);
    if (level & 2)
        say("guest: thread %u (%s), stack %x + %u: %d\n", n, names[n & 63], (u32)a->stack, a->stack_bytes, r);
    return r < 0 ? r : 0;
}
// With 4 in LOG a wake of the thread that drives the matrix unit waits until it sleeps again: as if the
// unit took no time.
static volatile u32 *unit_word, unit_done;
static int is_unit(u32 id) { return same(names[id & 63], "hmx-queue"); }
static int futex_wait(volatile u32 *w, u32 v) {
    if (level & 4 && is_unit(get_id())) {
        unit_word = w;
        unit_done = v;
    }
    sys(FUTEX, (u32)w, 128, v, 0, 0, 0);
    return 0;
}
static int futex_wake(volatile u32 *w, int n) {
    int r = sys(FUTEX, (u32)w, 129, n, 0, 0, 0);
    if (level & 4 && w == unit_word)
        while (unit_done != *w) sys(YIELD, 0, 0, 0, 0, 0, 0);
    return r;
}
static int thread_join(u32 id, int *status) {
    while (alive[id & 63]) sys(FUTEX, (u32)&alive[id & 63], 0, 1, 0, 0, 0);
    if (status) *status = 0;
    return 0;
}
static u32 thread_get_id(void) { return get_id(); }
static u32 get_priority(u32 id) { return 192; }
static int set_priority(u32 id, u16 p) { return 0; }
struct pollfd {
    i32 fd;
    u16 events, revents;
};
static int readable(i32 fd, u32 us) {
    struct pollfd p = {fd, 1, 0};
    u32 t[2] = {us / 1000000, us % 1000000 * 1000};
    return sys(PPOLL, (u32)&p, 1, (u32)t, 0, 0, 0) > 0;
}
static void sleep_(u64 us) {
    u32 t[2] = {0, (u32)us * 1000};
    sys(PPOLL, 0, 0, (u32)t, 0, 0, 0);
}
static int hvx_units(void) { return threads << 8 | 0; }
static int max_threads(u32 *n) {
    *n = threads < 6 ? 6 : threads;
    return 0;
}
static int zero(void) { return 0; }

// ---------------------------------------------------------------- HAP, resources

static void debug(int lvl, const char *file, int line, const char *f, ...) {
    if (!(level & 1)) return;
    char t[400];
    va_list ap;
    __builtin_va_start(ap, f);
    int n = format(t, sizeof t, f, ap);
    __builtin_va_end(ap);
    say("farf %d %s:%d: %s\n", lvl, file, line, t);
}
static u64 to_us(u64 ticks) { return __hexagon_udivdi3(ticks * 10, 192); }
#define VTCM_BYTES (8u << 20)
static u8 *vtcm;
static int attr_init(u64 *a) {
    memset(a, 0, 64);
    return 0;
}
static int vtcm_ptr(u64 *a, void **p, u32 *n) {
    *p = vtcm;
    *n = VTCM_BYTES;
    return 0;
}
static u32 acquire(u64 *a, u32 us) { return 77; }
static int query_vtcm(u32 app, u32 *total, void *a, void *b, void *c) {
    if (total) *total = VTCM_BYTES;
    return 0;
}
static int hmx_lock(u32 ctx) {
    i32 r;
    while ((r = sys(HMX, 1, (u32)vtcm, VTCM_BYTES, 0, 0, 0)) == -16) sys(YIELD, 0, 0, 0, 0, 0, 0);
    if (r) say("guest: no matrix unit (%d)\n", r);
    return r;
}
static int hmx_unlock(u32 ctx) { return sys(HMX, 0, 0, 0, 0, 0, 0); }
static void abort_(void) { die("the library called abort", ""); }

// ---------------------------------------------------------------- dspqueue

struct buffer {
    u32 fd, size, offset, flags;
    u64 ptr;
};
struct message {
    u32 flags, buffers, bytes, pad;
};
static void all(u32 call, i32 fd, void *p, u32 n) {
    u8 *a = p;
    while (n) {
        i32 k = sys(call, fd, (u32)a, n, 0, 0, 0);
        if (k == -4) continue;
        if (k <= 0) sys(EXIT_GROUP, 0, 0, 0, 0, 0, 0);
        a += k;
        n -= k;
    }
}
static int q_import(u64 id, void *cb, void *err, void *ctx, void **q) {
    *q = (void *)0x51;
    return 0;
}
static int q_read(void *q, u32 *flags, u32 max, u32 *n, struct buffer *b, u32 max_bytes, u32 *bytes, u8 *m) {
    if (!readable(12, 0)) return 516; // AEE_EWOULDBLOCK
    struct message h;
    all(READ, 12, &h, sizeof h);
    *flags = h.flags;
    *n = h.buffers;
    *bytes = h.bytes;
    all(READ, 12, b, h.buffers * sizeof *b);
    all(READ, 12, m, h.bytes);
    for (u32 i = 0; i < h.buffers; i++) b[i].ptr = (u32)map_fd(b[i].fd, NULL) + b[i].offset;
    return 0;
}
static int q_write(void *q, u32 flags, u32 n, struct buffer *b, u32 bytes, u8 *m, u32 us) {
    struct message h = {flags, n, bytes, 0};
    u8 t[1024];
    u32 k = 0;
    memcpy(t, &h, sizeof h);
    k = sizeof h;
    memcpy(t + k, b, n * sizeof *b);
    k += n * sizeof *b;
    memcpy(t + k, m, bytes);
    k += bytes;
    all(WRITE, 13, t, k);
    return 0;
}
static int q_peek(void *q, u32 *flags, u32 *n, u32 *bytes, u32 us) { return readable(12, us) ? 0 : 516; }

// ---------------------------------------------------------------- imports

static const struct {
    const char *name;
    void *at;
} IMPORTS[] = {
    {"memcpy", memcpy},
    {"memset", memset},
    {"memmove", memmove_},
    {"memcmp", memcmp_},
    {"strlen", strlen_},
    {"__hexagon_memcpy_likely_aligned_min32bytes_mult8bytes", memcpy},
    {"strlcpy", strlcpy_},
    {"snprintf", snprintf_},
    {"vsnprintf", vsnprintf_},
    {"abort", abort_},
    {"__hexagon_divsi3", __hexagon_divsi3},
    {"__hexagon_modsi3", __hexagon_modsi3},
    {"__hexagon_udivsi3", __hexagon_udivsi3},
    {"__hexagon_umodsi3", __hexagon_umodsi3},
    {"__hexagon_udivdi3", __hexagon_udivdi3},
    {"__hexagon_divdf3", __hexagon_divdf3},
    {"__extendhfsf2", extendhfsf},
    {"__truncsfhf2", truncsfhf},
    {"ceilf", ceilf_},
    {"floorf", floorf_},
    {"floor", floor_},
    {"cosf", cosf_},
    {"sinf", sinf_},
    {"expf", expf_},
    {"exp2f", exp2f_},
    {"logf", logf_},
    {"_Log", Log_},
    {"powf", powf_},
    {"sqrtf", sqrtf_},
    {"tanhf", tanhf_},
    {"__wrap_malloc", malloc_},
    {"__wrap_calloc", calloc_},
    {"__wrap_free", free_},
    {"__wrap_memalign", memalign_},
    {"HAP_mmap", HAP_mmap_},
    {"HAP_munmap", HAP_munmap_},
    {"HAP_mmap2", HAP_mmap_},
    {"HAP_munmap2", HAP_munmap_},
    {"HAP_perf_qtimer_count_to_us", to_us},
    {"HAP_power_set", zero},
    {"HAP_setFARFRuntimeLoggingParams", zero},
    {"sysmon_set_dcvs_v3_protected_bus_corners", zero},
    {"HAP_debug_v2", debug},
    {"HAP_debug", debug},
    {"compute_resource_acquire", acquire},
    {"compute_resource_acquire_cached", zero},
    {"compute_resource_attr_get_vtcm_ptr_v2", vtcm_ptr},
    {"compute_resource_attr_init", attr_init},
    {"compute_resource_attr_set_cache_mode", zero},
    {"compute_resource_attr_set_hmx_param", zero},
    {"compute_resource_attr_set_release_callback", zero},
    {"compute_resource_attr_set_serialize", zero},
    {"compute_resource_attr_set_vtcm_param_v2", zero},
    {"compute_resource_hmx_lock", hmx_lock},
    {"compute_resource_hmx_unlock", hmx_unlock},
    {"compute_resource_query_VTCM", query_vtcm},
    {"compute_resource_release", zero},
    {"compute_resource_release_cached", zero},
    {"compute_resource_update_priority", zero},
    {"dspqueue_close", zero},
    {"dspqueue_import", q_import},
    {"dspqueue_peek", q_peek},
    {"dspqueue_read_noblock", q_read},
    {"dspqueue_write", q_write},
    {"dspqueue_write_early_wakeup_noblock", zero},
    {"qurt_futex_wait", futex_wait},
    {"qurt_futex_wake", futex_wake},
    {"qurt_hvx_get_units", hvx_units},
    {"qurt_hvx_unlock", zero},
    {"qurt_mem_cache_clean", zero},
    {"qurt_pmu_enable", zero},
    {"qurt_pmu_get", zero},
    {"qurt_pmu_set", zero},
    {"qurt_sleep", sleep_},
    {"qurt_sysenv_get_max_hw_threads", max_threads},
    {"qurt_thread_create", thread_create},
    {"qurt_thread_get_id", thread_get_id},
    {"qurt_thread_get_priority", get_priority},
    {"qurt_thread_set_priority", set_priority},
    {"qurt_thread_join", thread_join},
    {"__register_frame_info_bases", zero},
    {"__deregister_frame_info_bases", zero},
    {"__cxa_finalize", zero},
};

// ---------------------------------------------------------------- loader

struct symbol {
    u32 name, value, size;
    u8 info, other;
    u16 section;
};
static u8 *base;
static struct symbol *symbols;
static const char *strings;
static u32 *hash;

static void *find(const char *name) {
    for (u32 i = 1; i < hash[1]; i++)
        if (symbols[i].section && same(strings + symbols[i].name, name)) return base + symbols[i].value;
    return NULL;
}
static u32 resolve(u32 i) {
    const char *name = strings + symbols[i].name;
    if (symbols[i].section) return (u32)base + symbols[i].value;
    for (u32 k = 0; k < sizeof IMPORTS / sizeof *IMPORTS; k++)
        if (same(IMPORTS[k].name, name)) return (u32)IMPORTS[k].at;
    if (symbols[i].info >> 4 == 2 || !*name) return 0;
    die("nobody has", name);
    return 0;
}
static void relocate(u32 *r, u32 bytes) {
    for (u32 i = 0; i < bytes / 12; i++, r += 3) {
        u32 *at = (u32 *)(base + r[0]);
        switch (r[1] & 255) {
        case 35:
            *at = (u32)base + r[2];
            break;
        case 6:
        case 33:
        case 34:
            *at = resolve(r[1] >> 8) + r[2];
            break;
        default:
            die("a relocation of another type", "");
        }
    }
}
static void load(const char *path) {
    i32 fd = sys(OPENAT, -100, (u32)path, 0, 0, 0, 0);
    if (fd < 0) die("no", path);
    u32 bytes = size_of(fd);
    u8 *file = pages(bytes, -1, 0x22);
    all(READ, fd, file, bytes);
    sys(CLOSE, fd, 0, 0, 0, 0, 0);
    u32 *ph = (u32 *)(file + *(u32 *)(file + 28));
    u32 n = *(u16 *)(file + 44), top = 0, dynamic = 0;
    for (u32 i = 0; i < n; i++) {
        u32 *p = ph + 8 * i;
        if (p[0] == 1 && p[2] + p[5] > top) top = p[2] + p[5];
        if (p[0] == 2) dynamic = p[2];
    }
    base = pages((top + 0xffff) & ~0xffffu, -1, 0x22);
    for (u32 i = 0; i < n; i++) {
        u32 *p = ph + 8 * i;
        if (p[0] == 1) memcpy(base + p[2], file + p[1], p[4]);
    }
    u32 *d = (u32 *)(base + dynamic), tag[32] = {0};
    for (; d[0]; d += 2)
        if (d[0] < 32) tag[d[0]] = d[1];
    hash = (u32 *)(base + tag[4]);
    symbols = (struct symbol *)(base + tag[6]);
    strings = (const char *)base + tag[5];
    relocate((u32 *)(base + tag[7]), tag[8]);
    relocate((u32 *)(base + tag[23]), tag[2]);
    if (level & 2) say("guest: %s at %x\n", path, (u32)base);
    if (tag[12]) ((void (*)(void))(base + tag[12]))();
}

// ---------------------------------------------------------------- FastRPC

struct arg {
    void *p;
    u32 n;
};
static u64 handle;
static void serve(void) {
    static struct {
        u32 what, scalars, n, pad;
    } q;
    struct arg args[16];
    for (;;) {
        all(READ, 10, &q, sizeof q);
        i32 result = 0;
        u32 in = q.scalars >> 16 & 255, out = q.scalars >> 8 & 255;
        if (q.what == 1) {
            int (*open)(const char *, u64 *) = find("htp_iface_open");
            result = open("file:///lib?x", &handle);
            all(WRITE, 11, &result, 4);
            continue;
        }
        if (q.what == 2) {
            int (*close)(u64) = find("htp_iface_close");
            result = close(handle);
            all(WRITE, 11, &result, 4);
            continue;
        }
        for (u32 i = 0; i < in + out; i++) {
            all(READ, 10, &args[i].n, 4);
            args[i].p = memalign_(128, args[i].n + 8);
            if (i < in) all(READ, 10, args[i].p, args[i].n);
        }
        int (*invoke)(u64, u32, struct arg *) = find("htp_iface_skel_handle_invoke");
        if (level & 2) say("guest: method %u, %u in, %u out\n", q.scalars >> 24 & 31, in, out);
        result = invoke(handle, q.scalars, args);
        if (level & 2) say("guest: gives %x\n", result);
        all(WRITE, 11, &result, 4);
        for (u32 i = in; i < in + out; i++) all(WRITE, 11, args[i].p, args[i].n);
    }
}

__asm__(".text\n.globl _start\n.p2align 4\n_start:\n{ r0 = r29\n r30 = #0\n r31 = #0 }\nr29 = "
        "and(r29,#-128)\ncall main_\n1: jump 1b\n");
static u32 number(const char *s) {
    u32 n = 0;
    while (*s >= '0' && *s <= '9') n = n * 10 + *s++ - '0';
    return n;
}
__attribute__((used)) void main_(u32 *sp) {
    char **argv = (char **)(sp + 1);
    if (sp[0] < 5) die("usage: guest LIBRARY HOST_PID THREADS LOG", "");
    host_pid = argv[2];
    threads = number(argv[3]);
    level = number(argv[4]);
    set_id(0);
    u8 *v = pages(VTCM_BYTES * 2, -1, 0x22);
    vtcm = (u8 *)(((u32)v + VTCM_BYTES - 1) & -VTCM_BYTES);
    load(argv[1]);
    serve();
}
