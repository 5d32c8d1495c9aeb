// One walk through many matrices of one shape with one of the engine's own expert kernels (MOE_KERNEL names its source),
// activations rounded to int8 anew for every matrix, as the library beside it does.
#include MOE_KERNEL
#include "norm.h"

// w: `copies` matrices of n rows and k columns, `stride` bytes apart. x [m][k]. y [copies][m][n]. xq, xs, xb: room for m rows.
void walk(const uint8_t *w, int64_t stride, int copies, int n, int k, const float *x, int m, float *y, int8_t *xq, float *xs,
          int32_t *xb) {
    for (int i = 0; i < copies; i++, w += stride, y += (size_t)m * n) {
        for (int t = 0; t < m; t++)
            quantise_fp4(x + (size_t)t * k, xq + (size_t)t * k, xs + t * (k / FP4_GROUP), xb + t * (k / FP4_GROUP), k, NULL);
        moe_gate_up(w, n, k, 0, n, xq, xs, xb, y, n, m, NULL);
    }
}
