// The routed experts' matrix-vector product, the one kernel that exists twice: `generic` (shapes at run time) and `jit`
// (shapes compiled in). Both do the same arithmetic in the same order: 32 products summed exactly as an integer, times
// (weight scale * activation scale), added group by group.
#pragma once
#include "ahead.h"

// y[m][row] for rows [row0, row1) of a matrix of n rows and k columns. xq [M][k] int8, xs [M][k/32] scale / 2 (the integer sum is
// of twice the values), xb [M][k/32] = 12 * sum of xq. `ahead`: what to ask for meanwhile, or NULL.
typedef void moe_gemv(const uint8_t *w, int n, int k, int row0, int row1, const int8_t *xq, const float *xs, const int32_t *xb,
                      float *y, int ldy, int M, Ahead *ahead);
