// Routed experts with shapes known only at run time, as a prebuilt library would have to: one function for every model.
// Row-major as in a checkpoint: [n][k/2] codes (a group's byte i holds element i low and element i + 16 high, so that one
// load unpacks in order), then [n][k/32] scales. k is a multiple of 64, n of 4. Four rows at a time, the usual int8 dot: table,
// pairwise products, horizontal sums.
#include "moe_abi.h"
#include "simd.h"

#define ROWS 4

#if defined(VARIANT_AVX2) || defined(VARIANT_AVX512)
// Two groups at once, one in each half of a vector. The table holds 2 * value + 12, so that the weights are the unsigned operand
// and need no sign work; xb = 12 * sum of xq is taken back.
typedef __m128 Four;            // a value for each of four rows
#define STEP 2
typedef struct { __m256i low[ROWS], high[ROWS]; } Group;        // elements 0-15 and 16-31 of both groups
typedef __m256 Scales;

INLINE Group unpack(const uint8_t *w, size_t row) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i nibble = _mm256_set1_epi8(15);
    Group g;
    UNROLL for (int r = 0; r < ROWS; r++) {
        __m256i q = _mm256_loadu_si256((const void *)(w + r * row));
        g.low[r] = _mm256_shuffle_epi8(table, _mm256_and_si256(q, nibble));
        g.high[r] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(q, 4), nibble));
    }
    return g;
}
INLINE Scales scales_of(const uint8_t *s, size_t row) {
    uint16_t pair[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) memcpy(&pair[r], s + r * row, 2);
    __m128i both = _mm_cvtsi64_si128((long long)(pair[0] | (uint64_t)pair[1] << 16 | (uint64_t)pair[2] << 32 | (uint64_t)pair[3] << 48));
    both = _mm_shuffle_epi8(both, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(both), 23));
}
INLINE __m256i products(const Group *g, int r, __m256i low, __m256i high) {
    __m256i p = _mm256_add_epi16(_mm256_maddubs_epi16(g->low[r], low), _mm256_maddubs_epi16(g->high[r], high));
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
}
INLINE Four add_group(const Group *g, const int8_t *xq, Scales scale, const float *xs, const int32_t *xb, Four sum) {
    const __m256i x0 = _mm256_loadu_si256((const void *)xq), x1 = _mm256_loadu_si256((const void *)(xq + FP4_GROUP));
    const __m256i low = _mm256_permute2x128_si256(x0, x1, 0x20), high = _mm256_permute2x128_si256(x0, x1, 0x31);
    __m256i a = _mm256_hadd_epi32(products(g, 0, low, high), products(g, 1, low, high));
    __m256i b = _mm256_hadd_epi32(products(g, 2, low, high), products(g, 3, low, high));
    a = _mm256_sub_epi32(_mm256_hadd_epi32(a, b), _mm256_set_m128i(_mm_set1_epi32(xb[1]), _mm_set1_epi32(xb[0])));
    const __m256 dot = _mm256_cvtepi32_ps(a), by = _mm256_mul_ps(scale, _mm256_set_m128(_mm_set1_ps(xs[1]), _mm_set1_ps(xs[0])));
    sum = _mm_fmadd_ps(_mm256_castps256_ps128(dot), _mm256_castps256_ps128(by), sum);
    return _mm_fmadd_ps(_mm256_extractf128_ps(dot, 1), _mm256_extractf128_ps(by, 1), sum);
}
INLINE Four none(void) { return _mm_setzero_ps(); }
INLINE void store_four(float *y, Four v) { _mm_storeu_ps(y, v); }
#else
typedef float Four __attribute__((vector_size(16)));
typedef Four Scales;
#define STEP 1
typedef struct { int8_t row[ROWS][32]; } Group;

INLINE Group unpack(const uint8_t *w, size_t row) {
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    Group g;
    for (int r = 0; r < ROWS; r++) {
#if defined(VARIANT_NEON)
        const uint8x16_t q = vld1q_u8(w + r * row);
        vst1q_s8(g.row[r], vqtbl1q_s8(vld1q_s8(twice), vandq_u8(q, vdupq_n_u8(15))));
        vst1q_s8(g.row[r] + 16, vqtbl1q_s8(vld1q_s8(twice), vshrq_n_u8(q, 4)));
#else
        for (int i = 0; i < 16; i++) g.row[r][i] = twice[w[r * row + i] & 15], g.row[r][i + 16] = twice[w[r * row + i] >> 4];
#endif
    }
    return g;
}
INLINE Four scales_of(const uint8_t *s, size_t row) {
    const int32_t bits[4] = {s[0] << 23, s[row] << 23, s[2 * row] << 23, s[3 * row] << 23};
    Four f;
    memcpy(&f, bits, sizeof f);
    return f;
}
INLINE Four add_group(const Group *g, const int8_t *xq, Scales scale, const float *xs, const int32_t *xb, Four sum) {
    Four dot;
    (void)xb;
    for (int r = 0; r < ROWS; r++) {
#if defined(VARIANT_NEON)
        int32x4_t s = vdotq_s32(vdupq_n_s32(0), vld1q_s8(g->row[r]), vld1q_s8(xq));
        dot[r] = (float)vaddvq_s32(vdotq_s32(s, vld1q_s8(g->row[r] + 16), vld1q_s8(xq + 16)));
#else
        int32_t s = 0;
        for (int i = 0; i < 32; i++) s += g->row[r][i] * xq[i];
        dot[r] = (float)s;
#endif
    }
#if defined(VARIANT_NEON)
    return (Four)vfmaq_f32((float32x4_t)sum, (float32x4_t)dot, (float32x4_t)(scale * *xs));
#else
    return dot * (scale * *xs) + sum;
#endif
}
INLINE Four none(void) { return (Four){0}; }
INLINE void store_four(float *y, Four v) { memcpy(y, &v, sizeof v); }
#endif

// Four rows, M tokens: a group is unpacked once for all of them
INLINE void four_rows(const uint8_t *w, const uint8_t *scales, int k, const int8_t *xq, const float *xs, const int32_t *xb, float *y,
                      int ldy, const int M) {
    const int groups = k / FP4_GROUP;
    Four sum[4];
    UNROLL for (int m = 0; m < M; m++) sum[m] = none();
    for (int g = 0; g < groups; g += STEP) {
        const Group group = unpack(w + g * 16, (size_t)k / 2);
        const Scales scale = scales_of(scales + g, groups);
        UNROLL for (int m = 0; m < M; m++)
            sum[m] = add_group(&group, xq + (size_t)m * k + g * FP4_GROUP, scale, xs + m * groups + g, xb + m * groups + g, sum[m]);
    }
    UNROLL for (int m = 0; m < M; m++) store_four(y + (size_t)m * ldy, sum[m]);
}

static void rows(const uint8_t *w, int n, int k, int row0, int row1, const int8_t *xq, const float *xs, const int32_t *xb, float *y,
                 int ldy, int M) {
    const int groups = k / FP4_GROUP;
    const size_t row = (size_t)k / 2;
    const uint8_t *scales = w + (size_t)n * row;
    for (int r = row0; r < row1; r += ROWS) {
        for (size_t line = 0; line < ROWS * row; line += 64) prefetch(w + (r + 2 * ROWS) * row + line);
        for (int m = 0; m < M; m += 4) {
            const int8_t *q = xq + (size_t)m * k;
            const float *s = xs + m * groups;
            const int32_t *b = xb + m * groups;
            float *out = y + (size_t)m * ldy + r;
            switch (M - m) {
            case 1: four_rows(w + r * row, scales + (size_t)r * groups, k, q, s, b, out, ldy, 1); break;
            case 2: four_rows(w + r * row, scales + (size_t)r * groups, k, q, s, b, out, ldy, 2); break;
            case 3: four_rows(w + r * row, scales + (size_t)r * groups, k, q, s, b, out, ldy, 3); break;
            default: four_rows(w + r * row, scales + (size_t)r * groups, k, q, s, b, out, ldy, 4);
            }
        }
    }
}

void moe_gate_up(const uint8_t *w, int n, int k, int row0, int row1, const int8_t *xq, const float *xs, const int32_t *xb,
                 float *y, int ldy, int M, Ahead *ahead) {
    (void)ahead;
    rows(w, n, k, row0, row1, xq, xs, xb, y, ldy, M);
}

void moe_down(const uint8_t *w, int n, int k, int row0, int row1, const int8_t *xq, const float *xs, const int32_t *xb,
              float *y, int ldy, int M, Ahead *ahead) {
    (void)ahead;
    rows(w, n, k, row0, row1, xq, xs, xb, y, ldy, M);
}
