// NEON with the dot product instructions (Armv8.2-A and later): 4 lanes; and, in the variant of that name, BF16 (Armv8.6-A)
#include <arm_neon.h>

INLINE vf vf_set1(float x) { return (vf)vdupq_n_f32(x); }
INLINE vi vi_set1(int32_t x) { return (vi)vdupq_n_s32(x); }
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INLINE vf vf_max(vf a, vf b) { return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE vf vf_min(vf a, vf b) { return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE vf vf_round(vf a) { return (vf)vrndnq_f32((float32x4_t)a); }
INLINE vi vi_from(vf a) { return (vi)vcvtnq_s32_f32((float32x4_t)a); }
INLINE vf vf_from(vi a) { return (vf)vcvtq_f32_s32((int32x4_t)a); }
INLINE vi vi_from_u16(const uint16_t *p) { return (vi)vmovl_u16(vld1_u16(p)); }
INLINE vi vi_from_u8(const uint8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
INLINE float vf_sum(vf a) { return vaddvq_f32((float32x4_t)a); }
INLINE float vf_largest(vf a) { return vmaxvq_f32((float32x4_t)a); }
INLINE int32_t vi_sum(vi a) { return vaddvq_s32((int32x4_t)a); }
INLINE int vi_any(vi a) { return vmaxvq_u32((uint32x4_t)a) != 0; }
INLINE void store_int8(int8_t *q, const vi r[8]) {      // 32 integers of -127 .. 127
    for (int i = 0; i < 8; i += 2)
        vst1_s8(q + 4 * i, vmovn_s16(vcombine_s16(vmovn_s32((int32x4_t)r[i]), vmovn_s32((int32x4_t)r[i + 1]))));
}
#if defined(BF16_PAIRS)
// sum + (w.lower * x.lower + w.upper * x.upper), as the instruction rounds; subnormal values count as zero
INLINE vf vf_dot_pairs(vi w, uint32_t x, vf sum) {
    return (vf)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)w, (bfloat16x8_t)vdupq_n_u32(x));
}
// n floats (a multiple of 8) to n / 2 words of two, nearest, ties to even; the first in the upper half
INLINE void bf16_pairs(const float *x, int n, uint32_t *to) {
    for (int i = 0; i < n; i += 8) {
        const bfloat16x8_t v = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vld1q_f32(x + i)), vld1q_f32(x + i + 4));
        vst1q_u32(to + i / 2, vreinterpretq_u32_u16(vrev32q_u16((uint16x8_t)v)));
    }
}
#endif
INLINE void prefetch(const void *p) { __builtin_prefetch(p); }
INLINE void prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }
INLINE void relax(void) { __asm__ volatile("yield"); }

// See simd_avx2.h for the layout; the dot product here takes signed tables, so there is no offset to take back.
INLINE void fp4_dot(const uint8_t *w, const int8_t *x, int ldx, const int32_t *bias, int ldb, const int M, vi *out) {
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const int8x16_t table = vld1q_s8(twice);
    int32x4_t a[4];
    (void)bias, (void)ldb;
    UNROLL for (int m = 0; m < M; m++) a[m] = vdupq_n_s32(0);
#define EIGHT_K(g) {                                                                                                  \
        uint8x16_t q = vld1q_u8(w + g * 64);                                                                          \
        int8x16_t lo = vqtbl1q_s8(table, vandq_u8(q, vdupq_n_u8(15))), hi = vqtbl1q_s8(table, vshrq_n_u8(q, 4));      \
        UNROLL for (int m = 0; m < M; m++) {                                                                          \
            int8x16_t x0 = vreinterpretq_s8_s32(vdupq_n_s32(four_of(x + m * ldx + g * 8)));                           \
            int8x16_t x1 = vreinterpretq_s8_s32(vdupq_n_s32(four_of(x + m * ldx + g * 8 + 4)));                       \
            a[m] = vdotq_s32(vdotq_s32(a[m], lo, x0), hi, x1);                                                        \
        }                                                                                                             \
    }
    EIGHT_K(0) EIGHT_K(1) EIGHT_K(2) EIGHT_K(3)
    UNROLL for (int m = 0; m < M; m++) out[m] = (vi)a[m];
}

// One group of 32 INT8 weights for 4 rows; see simd_avx2.h for the layout.
INLINE void int8_dot(const uint8_t *w, const int8_t *x, int ldx, const int32_t *bias, int ldb, const int M, vi *out) {
    int32x4_t a[4];
    (void)bias, (void)ldb;
    UNROLL for (int m = 0; m < M; m++) a[m] = vdupq_n_s32(0);
#define FOUR_K(g) {                                                                                                   \
        const int8x16_t q = vreinterpretq_s8_u8(vld1q_u8(w + g * 64));                                                \
        UNROLL for (int m = 0; m < M; m++)                                                                            \
            a[m] = vdotq_s32(a[m], q, vreinterpretq_s8_s32(vdupq_n_s32(four_of(x + m * ldx + g * 4))));               \
    }
    FOUR_K(0) FOUR_K(1) FOUR_K(2) FOUR_K(3) FOUR_K(4) FOUR_K(5) FOUR_K(6) FOUR_K(7)
#undef FOUR_K
    UNROLL for (int m = 0; m < M; m++) out[m] = (vi)a[m];
}
