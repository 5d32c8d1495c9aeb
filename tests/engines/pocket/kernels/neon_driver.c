// Runs kernels of the NEON variant under an emulator: reads one problem from stdin, writes the result to stdout.
#include "decode.c"
#undef ONE_VECTOR
#include "moe_jit.c"

static void read_all(void *to, size_t bytes) { if (fread(to, 1, bytes, stdin) != bytes) exit(3); }

int main(void) {
    int32_t head[5];    // kind, rows, k, m, bytes of weights; kind 5, 6: moe_gate_up, moe_down; kind 7: rounding to int8; 8: exp
    read_all(head, sizeof head);
    const int kind = head[0], rows = head[1], k = head[2], m = head[3];
    uint8_t *w = calloc(1, head[4] + 65536);
    float *scale = malloc(rows * (size_t)(k + 1) * 4 + 64), *x = malloc((size_t)m * k * 4), *y = malloc((size_t)m * (rows + k) * 4);
    int8_t *q = malloc((size_t)m * k);
    float *s = malloc((size_t)m * k);
    int32_t *b = malloc((size_t)m * k);
    read_all(w, head[4]);
    if (kind < 5) read_all(scale, (size_t)rows * 4 * 6);
    read_all(x, (size_t)m * k * 4);
    for (int i = 0; kind < 4 && i < m * k; i++) x[i] *= FP8_X;
    if (kind < 5) inspect_gemv(kind, w, scale, rows / TILE, k, x, k, y, rows, m);
    else if (kind == 8) inspect_exp(x, y, k);
    else for (int i = 0; i < m; i++) quantise(x + i * k, q + i * k, s + i * (k / 32), b + i * (k / 32), k);
    if (kind == 5) moe_gate_up(w, rows, k, 0, rows, q, s, b, y, rows, m, w);
    if (kind == 6) moe_down(w, rows, k, 0, rows, q, s, b, y, rows, m, w);
    if (kind == 7) fwrite(q, 1, (size_t)m * k, stdout);
    else fwrite(y, 4, kind == 8 ? (size_t)k : (size_t)m * rows, stdout);
    return 0;
}
