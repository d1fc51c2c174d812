// Put in front of ggml's test-backend-ops.cpp: lines for a program to read, and values that depend on the
// case.
//
// The build writes calls of these into a copy of that file:
//
//   @case OP(PARAMETERS)      a case begins
//   @error OP VALUE LIMIT     a tensor was compared: its error, and how much ggml allows
//   @end ok | @end wrong      the case has ended, by ggml's own judgement
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace phone_proven {
// Where test-backend-ops asks the system for random numbers it gets these: the same for a case each time.
inline uint32_t seed;
struct Seeds {
    using result_type = uint32_t;
    result_type operator()() { return seed = seed * 1664525u + 1013904223u; }
};

inline void begin(const std::string &op, const std::string &parameters) {
    seed = 2166136261u;
    for (unsigned char c : op + parameters) seed = (seed ^ c) * 16777619u;
    srand(seed);
    printf("\n@case %s(%s)\n", op.c_str(), parameters.c_str());
    // The library may end the process.
    fflush(stdout);
}
inline void compared(const char *op, double error, double limit) {
    printf("\n@error %s %.4e %.4e\n", op, error, limit);
}
inline void end(bool ok) { printf("\n@end %s\n", ok ? "ok" : "wrong"); }
} // namespace phone_proven
