// Vectors of VL floats. Everything is written once over these; one header per instruction set supplies what C cannot say.
// Sums keep one order whatever the number of tokens: that is what makes M=1 and M=4 bitwise equal.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#if defined(__clang__)      // to which a count is advice for the very end, when arrays of vectors have long gone to memory
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
// Else the compiler keeps loaded activations in registers that it lacks, and spills them
#define KEEP_LOADS_HERE __asm__ volatile("" ::: "memory")
// Nor may it turn a running sum into a tree, which needs more registers
#if defined(__x86_64__)
#define PIN(v) __asm__("" : "+x"(v))
#else
#define PIN(v) __asm__("" : "+w"(v))
#endif
#define TILE 16              // rows of a packed tile, in every variant, so that the packed layout is the same
#define FP8_BLOCK 128        // an e4m3 scale covers 128 x 128 weights
#define FP4_GROUP 32         // an MXFP4 scale covers 32 weights of a row

#if defined(VARIANT_AVX512BF16)
#define VARIANT_AVX512
#define BF16_PAIRS
#endif
#if defined(VARIANT_NEONBF16)
#define VARIANT_NEON
#define BF16_PAIRS
#endif
#if defined(VARIANT_AVX512)
#define VL 16
#elif defined(VARIANT_AVX2)
#define VL 8
#else
#define VL 4
#endif
#define NV (TILE / VL)       // vectors of a tile

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef int16_t vh __attribute__((vector_size(4 * VL)));

INLINE vf vf_load(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }
INLINE void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
INLINE vi vi_load(const void *p) { vi v; memcpy(&v, p, sizeof v); return v; }
INLINE int32_t four_of(const int8_t *p) { int32_t v; memcpy(&v, p, sizeof v); return v; }
INLINE vf vf_zero(void) { return (vf){0}; }
#if defined(VARIANT_AVX512)
#include "simd_avx512.h"
#elif defined(VARIANT_AVX2)
#include "simd_avx2.h"
#elif defined(VARIANT_NEON)
#include "simd_neon.h"
#else
#include "simd_portable.h"
#endif

// bfloat16 is the upper half of a float; E8M0 is a float's exponent (0 gives 0 rather than 2^-127, which no weight needs)
INLINE vf vf_from_bf16(const uint16_t *p) { return (vf)(vi_from_u16(p) << 16); }
INLINE vf vf_from_e8m0(const uint8_t *p) { return (vf)(vi_from_u8(p) << 23); }

// Four e4m3 weights of a row per 32-bit lane (byte 3 is the first in k order, then 1, 2, 0) -> four vectors. The payload lands on a
// float's low exponent bits, so each value is scaled by 2^-120: activations carry FP8_X and block scales FP8_S, 2^120 together.
// Bytes 3 and 1 need one shift; bytes 2 and 0 are in their place when the same lanes are loaded from one byte earlier, which costs
// less than a second shift does: a shift takes a multiply-add's place, a load takes nobody's. So p[-1] must be readable.
#define FP8_X 0x1p64f
#define FP8_S 0x1p56f
#define FP8_MASK vi_set1((int32_t)0x87f00000)
INLINE vi fp8_pair(const uint8_t *p) { return (vi)((vh)vi_load(p) >> 4); }      // sign and payload in place
INLINE vf fp8_upper(vi pair) { return (vf)(pair & FP8_MASK); }
INLINE vf fp8_lower(vi pair) { return (vf)((pair << 16) & FP8_MASK); }
INLINE void fp8_decode(const uint8_t *p, vf out[4]) {
    vi first = fp8_pair(p), second = fp8_pair(p - 1);
    out[0] = fp8_upper(first), out[1] = fp8_lower(first), out[2] = fp8_upper(second), out[3] = fp8_lower(second);
}

// Two bfloat16 values per 32-bit lane: the lower and the upper one (of weights, the upper one is the first in k order)
INLINE vf bf16_0(vi q) { return (vf)(q << 16); }
INLINE vf bf16_1(vi q) { return (vf)(q & vi_set1((int32_t)0xffff0000)); }

// exp to about 1 ulp: 2^n times a degree-6 polynomial on |r| <= ln2/2; below -87 it gives 0
INLINE vf vf_exp(vf x) {
    x = vf_min(x, vf_set1(88.0f));
    vf keep = (vf)((vi)x & (vi)(x > vf_set1(-87.0f))), live = (vf)((vi)vf_set1(1.0f) & (vi)(x > vf_set1(-87.0f)));
    vf n = vf_round(keep * vf_set1(1.44269504088896341f));
    vf r = vf_fma(n, vf_set1(-0.693359375f), keep);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.0f / 720);
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return p * (vf)((vi_from(n) + 127) << 23) * live;
}
INLINE vf vf_sigmoid(vf x) { return vf_set1(1.0f) / (vf_set1(1.0f) + vf_exp(-x)); }
INLINE vf vf_silu(vf x) { return x / (vf_set1(1.0f) + vf_exp(-x)); }
