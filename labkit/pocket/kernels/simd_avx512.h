// AVX-512 F, BW, VL, DQ and VNNI: 16 lanes; and, in the variant of that name, BF16
#include <immintrin.h>

INLINE vf vf_set1(float x) { return (vf)_mm512_set1_ps(x); }
INLINE vi vi_set1(int32_t x) { return (vi)_mm512_set1_epi32(x); }
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vf vf_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf vf_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf vf_round(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vi vi_from(vf a) { return (vi)_mm512_cvtps_epi32((__m512)a); }
INLINE vf vf_from(vi a) { return (vf)_mm512_cvtepi32_ps((__m512i)a); }
INLINE vi vi_from_u16(const void *p) { return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)); }
INLINE vi vi_from_u8(const void *p) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
INLINE float vf_sum(vf a) { return _mm512_reduce_add_ps((__m512)a); }
INLINE float vf_largest(vf a) { return _mm512_reduce_max_ps((__m512)a); }
INLINE int32_t vi_sum(vi a) { return _mm512_reduce_add_epi32((__m512i)a); }
INLINE int vi_any(vi a) { return _mm512_movepi32_mask((__m512i)a); }
INLINE void store_int8(int8_t *q, const vi r[2]) {      // 32 integers of -127 .. 127
    for (int i = 0; i < 2; i++) _mm_storeu_si128((void *)(q + 16 * i), _mm512_cvtepi32_epi8((__m512i)r[i]));
}
#if defined(BF16_PAIRS)
// sum + w.upper * x.upper, then + w.lower * x.lower; subnormal values count as zero
INLINE vf vf_dot_pairs(vi w, uint32_t x, vf sum) {
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)_mm512_set1_epi32((int)x));
}
// n floats (a multiple of 32) to n / 2 words of two, nearest, ties to even; the first in the upper half
INLINE void bf16_pairs(const float *x, int n, uint32_t *to) {
    for (int i = 0; i < n; i += 32) {
        __m512i v = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + 16), _mm512_loadu_ps(x + i));
        _mm512_storeu_si512(to + i / 2, _mm512_rol_epi32(v, 16));
    }
}
#endif
INLINE void prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
INLINE void prefetch_far(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }
INLINE void relax(void) { _mm_pause(); }

// See simd_avx2.h; VNNI sums four products straight into 32 bits.
INLINE void fp4_dot(const uint8_t *w, const int8_t *x, int ldx, const int32_t *bias, int ldb, const int M, vi *out) {
    const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i a[4], b[4];
    UNROLL for (int m = 0; m < M; m++) a[m] = _mm512_set1_epi32(-bias[m * ldb]), b[m] = _mm512_setzero_si512();
#define EIGHT_K(g) {                                                                                                  \
        __m512i q = _mm512_loadu_si512(w + g * 64);                                                                   \
        __m512i lo = _mm512_shuffle_epi8(table, _mm512_and_si512(q, nibble));                                         \
        __m512i hi = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(q, 4), nibble));                   \
        UNROLL for (int m = 0; m < M; m++) {                                                                          \
            a[m] = _mm512_dpbusd_epi32(a[m], lo, _mm512_set1_epi32(four_of(x + m * ldx + g * 8)));                    \
            b[m] = _mm512_dpbusd_epi32(b[m], hi, _mm512_set1_epi32(four_of(x + m * ldx + g * 8 + 4)));                \
        }                                                                                                             \
    }
    EIGHT_K(0) EIGHT_K(1) EIGHT_K(2) EIGHT_K(3)
    UNROLL for (int m = 0; m < M; m++) out[m] = (vi)_mm512_add_epi32(a[m], b[m]);
}

// One group of 32 INT8 weights for 16 rows: out[m] = sum over k of w * x, exact. A group is 8 x 64 bytes (16 rows x 4 k). VNNI wants the
// weights unsigned: 128 is added to each, and bias[m] = 128 * sum of x takes it back.
INLINE void int8_dot(const uint8_t *w, const int8_t *x, int ldx, const int32_t *bias, int ldb, const int M, vi *out) {
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i a[4], b[4];
    UNROLL for (int m = 0; m < M; m++) a[m] = _mm512_set1_epi32(-bias[m * ldb]), b[m] = _mm512_setzero_si512();
#define FOUR_K(g, s) {                                                                                                \
        __m512i q = _mm512_xor_si512(_mm512_loadu_si512(w + (g) * 64), sign);                                         \
        UNROLL for (int m = 0; m < M; m++) s[m] = _mm512_dpbusd_epi32(s[m], q, _mm512_set1_epi32(four_of(x + m * ldx + (g) * 4))); \
    }
    FOUR_K(0, a) FOUR_K(1, b) FOUR_K(2, a) FOUR_K(3, b) FOUR_K(4, a) FOUR_K(5, b) FOUR_K(6, a) FOUR_K(7, b)
#undef FOUR_K
    UNROLL for (int m = 0; m < M; m++) out[m] = (vi)_mm512_add_epi32(a[m], b[m]);
}
