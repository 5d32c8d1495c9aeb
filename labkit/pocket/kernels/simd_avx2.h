// AVX2 + FMA (x86-64-v3): 8 lanes
#include <immintrin.h>

INLINE vf vf_set1(float x) { return (vf)_mm256_set1_ps(x); }
INLINE vi vi_set1(int32_t x) { return (vi)_mm256_set1_epi32(x); }
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vf vf_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf vf_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf vf_round(vf a) { return (vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vi vi_from(vf a) { return (vi)_mm256_cvtps_epi32((__m256)a); }
INLINE vf vf_from(vi a) { return (vf)_mm256_cvtepi32_ps((__m256i)a); }
INLINE vi vi_from_u16(const void *p) { return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128(p)); }
INLINE vi vi_from_u8(const void *p) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
INLINE float vf_sum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INLINE float vf_largest(vf a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
INLINE int32_t vi_sum(vi a) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
INLINE int vi_any(vi a) { return _mm256_movemask_ps((__m256)a); }
INLINE void store_int8(int8_t *q, const vi r[4]) {      // 32 integers of -127 .. 127
    __m256i lo = _mm256_packs_epi32((__m256i)r[0], (__m256i)r[1]), hi = _mm256_packs_epi32((__m256i)r[2], (__m256i)r[3]);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((void *)q, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), order));
}
INLINE void prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
INLINE void prefetch_far(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }
INLINE void relax(void) { _mm_pause(); }

// One group of 32 weights for 8 rows: out[m] = sum over k of 2 * e2m1 * x, exact integers. A group is 4 x 64 bytes (16 rows x 4
// bytes; low nibbles are k 0..3, high nibbles k 4..7). The table holds 2 * value + 12, all unsigned, so that maddubs needs no
// sign work; bias[m] = 12 * sum of x takes the offset back. Four products of at most 24 * 127 * 2 fit in 16 bits.
INLINE void fp4_dot(const uint8_t *w, const int8_t *x, int ldx, const int32_t *bias, int ldb, const int M, vi *out) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i nibble = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    __m256i a[4], b[4];
#define EIGHT_K(g) {                                                                                                  \
        __m256i q = _mm256_loadu_si256((const void *)(w + g * 64));                                                   \
        __m256i lo = _mm256_shuffle_epi8(table, _mm256_and_si256(q, nibble));                                         \
        __m256i hi = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(q, 4), nibble));                   \
        UNROLL for (int m = 0; m < M; m++) {                                                                          \
            __m256i p = _mm256_maddubs_epi16(lo, _mm256_set1_epi32(four_of(x + m * ldx + g * 8)));                    \
            __m256i r = _mm256_maddubs_epi16(hi, _mm256_set1_epi32(four_of(x + m * ldx + g * 8 + 4)));                \
            a[m] = g ? _mm256_add_epi16(a[m], p) : p;                                                                 \
            b[m] = g ? _mm256_add_epi16(b[m], r) : r;                                                                 \
            PIN(a[m]);                                                                                                \
            PIN(b[m]);                                                                                                \
        }                                                                                                             \
    }
    EIGHT_K(0) EIGHT_K(1) EIGHT_K(2) EIGHT_K(3)
    UNROLL for (int m = 0; m < M; m++)
        out[m] = (vi)_mm256_add_epi32(_mm256_madd_epi16(a[m], one), _mm256_madd_epi16(b[m], one)) - vi_set1(bias[m * ldb]);
}

// One group of 32 INT8 weights for 8 rows: out[m] = sum over k of w * x, exact. A group is 8 x 64 bytes (16 rows x 4 k). maddubs takes
// the weights' sizes, and the activations with the weights' signs; two products of at most 127 * 127 fit in 16 bits.
INLINE void int8_dot(const uint8_t *w, const int8_t *x, int ldx, const int32_t *bias, int ldb, const int M, vi *out) {
    const __m256i one = _mm256_set1_epi16(1);
    __m256i a[4];
    (void)bias, (void)ldb;
#define FOUR_K(g) {                                                                                                   \
        const __m256i q = _mm256_loadu_si256((const void *)(w + g * 64)), size = _mm256_abs_epi8(q);                  \
        UNROLL for (int m = 0; m < M; m++) {                                                                          \
            const __m256i by = _mm256_sign_epi8(_mm256_set1_epi32(four_of(x + m * ldx + g * 4)), q);                  \
            const __m256i p = _mm256_madd_epi16(_mm256_maddubs_epi16(size, by), one);                                 \
            a[m] = g ? _mm256_add_epi32(a[m], p) : p;                                                                 \
            PIN(a[m]);                                                                                                \
        }                                                                                                             \
    }
    FOUR_K(0) FOUR_K(1) FOUR_K(2) FOUR_K(3) FOUR_K(4) FOUR_K(5) FOUR_K(6) FOUR_K(7)
#undef FOUR_K
    UNROLL for (int m = 0; m < M; m++) out[m] = (vi)a[m];
}
