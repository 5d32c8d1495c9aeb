// Routed experts with shapes known only at run time, as a prebuilt library would have to: one function for every model.
// Row-major as in a checkpoint: [n][k/2] codes (a group's byte i holds element i low and element i + 16 high, so that one
// load unpacks in order), then [n][k/32] scales. Four rows at a time, the usual int8 dot: table, |w| * sign(x, w), pairwise sums.
#include "moe_abi.h"
#include "simd.h"

#if defined(VARIANT_AVX2) || defined(VARIANT_AVX512)
// Sixteen bytes -> 32 weights (times 2) in order
INLINE __m256i unpack(const uint8_t *w) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    __m128i q = _mm_loadu_si128((const void *)w);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(q), _mm_srli_epi16(q, 4), 1);
    return _mm256_shuffle_epi8(table, _mm256_and_si256(both, _mm256_set1_epi8(15)));
}
INLINE __m256i products(__m256i w, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), _mm256_set1_epi16(1));
}
INLINE void four_dots(const uint8_t *w, size_t row, const int8_t *x, float out[4]) {
    __m256i q = _mm256_loadu_si256((const void *)x);
    __m256i a = _mm256_hadd_epi32(products(unpack(w), q), products(unpack(w + row), q));
    __m256i b = _mm256_hadd_epi32(products(unpack(w + 2 * row), q), products(unpack(w + 3 * row), q));
    a = _mm256_hadd_epi32(a, b);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storeu_ps(out, _mm_cvtepi32_ps(s));
}
#elif defined(VARIANT_NEON)
INLINE void four_dots(const uint8_t *w, size_t row, const int8_t *x, float out[4]) {
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const int8x16_t table = vld1q_s8(twice), x0 = vld1q_s8(x), x1 = vld1q_s8(x + 16);
    for (int r = 0; r < 4; r++) {
        uint8x16_t q = vld1q_u8(w + r * row);
        int32x4_t s = vdotq_s32(vdupq_n_s32(0), vqtbl1q_s8(table, vandq_u8(q, vdupq_n_u8(15))), x0);
        out[r] = (float)vaddvq_s32(vdotq_s32(s, vqtbl1q_s8(table, vshrq_n_u8(q, 4)), x1));
    }
}
#else
INLINE void four_dots(const uint8_t *w, size_t row, const int8_t *x, float out[4]) {
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int r = 0; r < 4; r++) {
        int32_t s = 0;
        for (int i = 0; i < 16; i++) s += twice[w[r * row + i] & 15] * x[i] + twice[w[r * row + i] >> 4] * x[i + 16];
        out[r] = (float)s;
    }
}
#endif

INLINE float scale_of(uint8_t s) { uint32_t bits = (uint32_t)s << 23; float f; memcpy(&f, &bits, 4); return f; }

static void rows(const uint8_t *w, int n, int k, int row0, int row1, const int8_t *xq, const float *xs, float *y, int ldy, int M) {
    const int groups = k / FP4_GROUP;
    const size_t row = (size_t)k / 2;
    const uint8_t *scales = w + (size_t)n * row;
    for (int r = row0; r < row1; r += 4)
        for (int m = 0; m < M; m++) {
            float sum[4] = {0}, dot[4];
            for (int g = 0; g < groups; g++) {
                four_dots(w + r * row + g * 16, row, xq + (size_t)m * k + g * FP4_GROUP, dot);
                for (int i = 0; i < 4; i++) {
                    float s = scale_of(scales[(size_t)(r + i) * groups + g]) * xs[m * groups + g];
#if defined(VARIANT_PORTABLE)
                    sum[i] = dot[i] * s + sum[i];
#else
                    sum[i] = __builtin_fmaf(dot[i], s, sum[i]);
#endif
                }
            }
            memcpy(y + (size_t)m * ldy + r, sum, sizeof sum);
        }
}

void moe_gate_up(const uint8_t *w, int n, int k, int row0, int row1, const int8_t *xq, const float *xs, const int32_t *xb,
                 float *y, int ldy, int M, const uint8_t *next) {
    (void)xb, (void)next;
    rows(w, n, k, row0, row1, xq, xs, y, ldy, M);
}

void moe_down(const uint8_t *w, int n, int k, int row0, int row1, const int8_t *xq, const float *xs, const int32_t *xb,
              float *y, int ldy, int M, const uint8_t *next) {
    (void)xb, (void)next;
    rows(w, n, k, row0, row1, xq, xs, y, ldy, M);
}
