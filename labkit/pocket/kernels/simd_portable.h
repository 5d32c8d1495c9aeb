// Plain C (GCC and Clang vectors, 4 lanes): any machine; no fused multiply-add is assumed
INLINE vf vf_set1(float x) { return (vf){x, x, x, x}; }
INLINE vi vi_set1(int32_t x) { return (vi){x, x, x, x}; }
INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vf vf_max(vf a, vf b) { vi m = a > b; return (vf)(((vi)a & m) | ((vi)b & ~m)); }
INLINE vf vf_min(vf a, vf b) { vi m = a < b; return (vf)(((vi)a & m) | ((vi)b & ~m)); }
// Adding and taking away 1.5 * 2^23 rounds to the nearest even integer for |a| < 2^22, which is all that is asked here.
INLINE vf vf_round(vf a) { return (a + vf_set1(12582912.0f)) - vf_set1(12582912.0f); }
INLINE vi vi_from(vf a) { return __builtin_convertvector(vf_round(a), vi); }
INLINE vf vf_from(vi a) { return __builtin_convertvector(a, vf); }
INLINE vi vi_from_u16(const uint16_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
INLINE vi vi_from_u8(const uint8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
INLINE float vf_sum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
INLINE float vf_largest(vf a) { float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3]; return x > y ? x : y; }
INLINE int32_t vi_sum(vi a) { return (a[0] + a[2]) + (a[1] + a[3]); }
INLINE int vi_any(vi a) { return a[0] | a[1] | a[2] | a[3]; }
INLINE void store_int8(int8_t *q, const vi r[8]) {      // 32 integers of -127 .. 127
    for (int i = 0; i < 32; i++) q[i] = (int8_t)r[i / 4][i % 4];
}
INLINE void prefetch(const void *p) { __builtin_prefetch(p); }
INLINE void prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }
INLINE void relax(void) {}

// See simd_avx2.h for the layout.
INLINE void fp4_dot(const uint8_t *w, const int8_t *x, int ldx, const int32_t *bias, int ldb, const int M, vi *out) {
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    (void)bias, (void)ldb;
    for (int row = 0; row < VL; row++) {
        int32_t sum[4] = {0};
        for (int g = 0; g < 4; g++)
            for (int j = 0; j < 4; j++) {
                uint8_t q = w[g * 64 + row * 4 + j];
                for (int m = 0; m < M; m++)
                    sum[m] += twice[q & 15] * x[m * ldx + g * 8 + j] + twice[q >> 4] * x[m * ldx + g * 8 + 4 + j];
            }
        for (int m = 0; m < M; m++) out[m][row] = sum[m];
    }
}

// One group of 32 INT8 weights for 4 rows; see simd_avx2.h for the layout.
INLINE void int8_dot(const uint8_t *w, const int8_t *x, int ldx, const int32_t *bias, int ldb, const int M, vi *out) {
    (void)bias, (void)ldb;
    for (int row = 0; row < VL; row++)
        for (int m = 0; m < M; m++) {
            int32_t sum = 0;
            for (int k = 0; k < 32; k++) sum += (int8_t)w[k / 4 * 64 + row * 4 + k % 4] * x[m * ldx + k];
            out[m][row] = sum;
        }
}
