// Runs the NEON variant under an emulator: reads one problem from stdin, writes the result to stdout. Without an argument the
// problem is a single kernel; with one, which names a file with a packed model, it is a text or a request.
#include "decode.c"
#include <fcntl.h>

moe_gemv jit_gate_up, jit_down, generic_gate_up, generic_down;      // moe_gate_up and moe_down of the two units, renamed to link both

static void read_all(void *to, size_t bytes) { if (fread(to, 1, bytes, stdin) != bytes) exit(3); }

static void one_kernel(void) {
    int32_t head[5];    // kind, rows, k, m, bytes of weights; see the table below
    read_all(head, sizeof head);
    const int kind = head[0], rows = head[1], k = head[2], m = head[3];
    const bool int8 = kind == 11, dense = kind < 5 || int8;
    uint8_t *w = calloc(1, head[4] + 65536);
    float *scale = malloc(rows * (size_t)(k + 1) * 4 + 64), *x = malloc((size_t)m * k * 4), *y = malloc((size_t)m * (rows + k) * 4);
    int8_t *q = malloc((size_t)m * k);
    float *s = malloc((size_t)m * k);
    int32_t *b = malloc((size_t)m * k);
    read_all(w, head[4]);
    if (dense) read_all(scale, (size_t)rows * 4 * 6);
    read_all(x, (size_t)m * k * 4);
    for (int i = 0; (kind < 4 || int8) && i < m * k; i++) x[i] *= FP8_X;
    if (dense) inspect_gemv(int8 ? 5 : kind, w, scale, rows / TILE, k, x, k, y, rows, m);
    else if (kind == 8) inspect_exp(x, y, k);
    else for (int i = 0; i < m; i++) quantise_fp4(x + i * k, q + i * k, s + i * (k / 32), b + i * (k / 32), k, NULL);
    // 5, 6: jit experts; 7: rounding to int8; 8: exp; 9, 10: generic experts; 11: dense INT8
    moe_gemv *const experts[] = {[5] = jit_gate_up, jit_down, [9] = generic_gate_up, generic_down, [11] = NULL};
    if (!dense && experts[kind]) experts[kind](w, rows, k, 0, rows, q, s, b, y, rows, m, NULL);
    if (kind == 7) fwrite(q, 1, (size_t)m * k, stdout);
    else fwrite(y, 4, kind == 8 ? (size_t)k : (size_t)m * rows, stdout);
}

// The file: the arena's copies, the embedding, the draft ids. Setup and Request come as binding.py filled them, so their fields are
// held to engine.h's and decode.c's here too; only the pointers are another process's.
static int whole_model(const char *path) {
    int32_t head[5];    // bytes of Setup and Request there, 1 = generic experts, tokens, tokens a pass (0: answer the request)
    Setup set;
    const int file = open(path, O_RDONLY);
    read_all(head, sizeof head);
    if (head[0] != sizeof(Setup) || head[1] != sizeof(Request)) return 4;
    read_all(&set, sizeof set);
    const size_t weights = (size_t)set.stride * set.replicas, rows = (size_t)VOCAB * HIDDEN * 2;
    uint8_t *map = mmap(NULL, weights + rows + (size_t)set.draft_rows * 4, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED) return 5;
    set.arena = map;
    set.embedding = (const uint16_t *)(map + weights);
    set.draft_ids = set.draft_ids ? (const int32_t *)(map + weights + rows) : NULL;
    set.gate_up = head[2] ? generic_gate_up : jit_gate_up;
    set.down = head[2] ? generic_down : jit_down;
    Engine *e = engine_new(&set);
    if (!e) return 6;
    const int n = head[3], chunk = head[4];
    int32_t *tokens = malloc(n * 4);
    read_all(tokens, (size_t)n * 4);
    if (chunk) {
        float *logits = malloc((size_t)n * VOCAB * 4), *hidden = malloc((size_t)n * HIDDEN * 4);
        inspect_text(e, tokens, n, chunk, logits, hidden);
        fwrite(logits, 4, (size_t)n * VOCAB, stdout);
    } else {
        Request r;
        read_all(&r, sizeof r);
        r.prompt = tokens;
        r.tokens = calloc(r.max_new, 4);
        r.times = calloc(r.max_new, 8);
        r.fd = -1;
        generate(e, &r);
        fwrite(&r, sizeof r, 1, stdout);
        fwrite(r.tokens, 4, request_count(&r), stdout);
    }
    engine_free(e);
    return 0;
}

int main(int count, char **words) {
    if (count > 1) return whole_model(words[1]);
    one_kernel();
    return 0;
}
