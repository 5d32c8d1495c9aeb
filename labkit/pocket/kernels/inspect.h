// Windows for tests and for the benchmark: single kernels, and whole passes with their numbers laid open.
#pragma once

// kind: 0 FP8 with block scales, 1 FP8 with row scales, 2 BF16 with block scales, 3 BF16, 4 FP32, 5 INT8. x carries fp8_x() but for 4.
void inspect_gemv(int kind, const uint8_t *w, const float *scale, int tiles, int k, const float *x, int ldx, float *y, int ldy, int m) {
    const Mat mat = {w, scale, tiles, k};
    void (*const kernels[])(const Mat *, int, int, const act *, int, float *, int, int) = {gemv_fp8, gemv_fp8_rows, gemv_bf16_blocks, gemv_bf16};
    act room[PACK_ROOM(MAX_TOKENS)];
    if (kind == 5) {
        Rounded rounded;
        round_all(x, ldx, k, m, &rounded, NULL);
        gemv_int8(&mat, 0, tiles, &rounded, y, ldy, m, NULL);
        return;
    }
    if (kind == 4) { gemv_f32(&mat, 0, tiles, x, ldx, y, ldy, m); return; }
    const act *xs = packed(x, &ldx, k, m, room);
    kernels[kind](&mat, 0, tiles, xs, ldx, y, ldy, m);
}
// `copies` products in a row, each rounding its activations anew: for comparing with other libraries
void inspect_moe(moe_gemv *gemv, const uint8_t *w, int64_t stride, int copies, int n, int k, const float *x, float *y, int m) {
    int8_t *q = malloc((size_t)m * k);
    float *s = malloc((size_t)m * k / 8);
    int32_t *b = malloc((size_t)m * k / 8);
    for (int i = 0; i < copies; i++, w += stride) {
        quantise_fp4(x, q, s, b, m * k, NULL);
        gemv(w, n, k, 0, n, q, s, b, y, n, m, NULL);
    }
    free(q), free(s), free(b);
}
float inspect_fp8_x(void) { return FP8_X; }
void inspect_quantise(const float *x, int8_t *q, float *scale, int32_t *bias, int n) { quantise_fp4(x, q, scale, bias, n, NULL); }
void inspect_exp(const float *x, float *y, int n) { for (int i = 0; i < n; i += VL) vf_store(y + i, vf_exp(vf_load(x + i))); }
int inspect_sample(const float *logits, const Sampling *s, uint64_t index) {
    float *probs = malloc(VOCAB * sizeof *probs);
    Candidate *list = malloc(VOCAB * sizeof *list);
    int token = sample(logits, s, index, probs, list);
    free(probs), free(list);
    return token;
}

// The residual stream after each half layer of one pass over n <= MAX_TOKENS tokens: taps [2 * LAYERS][MAX_TOKENS][HIDDEN]
void inspect_layers(Engine *e, const int32_t *tokens, int n, float *taps) {
    forget(e);
    park(e, false);
    e->taps = taps;
    advance(e, tokens, n, 0);
    e->taps = NULL;
    park(e, true);
}

// Logits [n][VOCAB] and normalised hidden states [n][HIDDEN] of a text, `chunk` tokens a pass.
void inspect_text(Engine *e, const int32_t *tokens, int n, int chunk, float *logits, float *hidden) {
    forget(e);
    park(e, false);
    for (int at = 0, m; at < n; at += m) {
        m = n - at < chunk ? n - at : chunk;
        advance(e, tokens + at, m, at);
        memcpy(hidden + (size_t)at * HIDDEN, e->hidden, (size_t)m * HIDDEN * 4);
        head(e, e->hidden[0], m);
        memcpy(logits + (size_t)at * VOCAB, e->logits, (size_t)m * VOCAB * 4);
    }
    park(e, true);
}

// Teacher-forced drafting at the last position of tokens[0..n): step s reads token[n - 1 + s], so n + steps tokens are given.
// logits [steps][draft_rows]
void inspect_draft(Engine *e, const int32_t *tokens, int n, int steps, float *logits) {
    forget(e);
    park(e, false);
    for (int t = 0; t < n; t++) {
        float hidden[1][HIDDEN];
        advance(e, tokens + t, 1, t);
        memcpy(hidden, e->hidden, sizeof hidden);
        extend_draft(e, tokens + t + 1, hidden, 1, true);
    }
    for (int s = 1; s <= steps; s++) {
        if (s > 1) {
            e->pass.past = e->draft_past, e->pass.first = s - 2, e->pass.m = 1, e->pass.certain = false;
            e->pass.token[s - 2] = tokens[n - 1 + s], e->pass.depth[s - 2] = s - 2, e->pass.parent[s - 2] = s - 3;
            nextn_pass(e);
        }
        draft_head(e, e->mixin[0], 1);
        memcpy(logits + (size_t)(s - 1) * e->head_rows, e->logits[0], (size_t)e->head_rows * 4);
    }
    park(e, true);
}

// One verify pass of a given tree after a text: logits [m][VOCAB]. Nothing is committed.
void inspect_verify(Engine *e, const int32_t *tokens, int n, const int32_t *tree, const int32_t *parent, int m, float *logits) {
    forget(e);
    park(e, false);
    for (int t = 0; t < n; t++) advance(e, tokens + t, 1, t);
    e->pass.past = n, e->pass.first = 0, e->pass.m = m, e->pass.certain = false;
    for (int t = 0; t < m; t++) {
        e->pass.token[t] = tree[t], e->pass.parent[t] = parent[t];
        e->pass.depth[t] = t ? e->pass.depth[parent[t]] + 1 : 0;
    }
    model_pass(e);
    head(e, e->hidden[0], m);
    memcpy(logits, e->logits, (size_t)m * VOCAB * 4);
    park(e, true);
}

// `bytes` of this replica, as the kernels read it: forwards, prefetched
static void read_through(const Engine *e, int64_t bytes) {
    vi sum[8] = {0};
    for (int64_t at = 0; at + 8 * (int64_t)sizeof(vi) <= bytes; at += 8 * sizeof(vi)) {
        for (size_t line = 0; line < 8 * sizeof(vi); line += 64) prefetch(e->w + at + line + 4096);
        UNROLL for (int j = 0; j < 8; j++) sum[j] += vi_load(e->w + at + j * sizeof(vi));
    }
    for (int j = 1; j < 8; j++) sum[0] += sum[j];
    volatile int keep = sum[0][0];
    (void)keep;
}
// Seconds that `bytes` of the arena take to be read and nothing else, the next replica each time
double inspect_stream(Engine *e, int64_t bytes, int rounds) {
    const double start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < rounds; i++) {
        next_replica(e);
        read_through(e, bytes);
    }
    return seconds(CLOCK_MONOTONIC) - start;
}

// Seconds that the products of `pieces` matrices take, one after another, with m tokens: matrix i lies at w + at[i]. kind: as in
// inspect_gemv, 6: an expert's gate and up, 7: its down. Activations are rounded before the clock starts.
double inspect_products(Engine *e, int kind, const uint8_t *w, const int64_t *at, int pieces, int tiles, int k, int m) {
    static const float one = 1.0f;
    const int rows = tiles * TILE, experts = kind >= 6;
    float *x = malloc((size_t)m * k * 4), *y = malloc((size_t)m * rows * 4), *scale = malloc((size_t)rows * k / 4 + rows * 4);
    int8_t *q = malloc((size_t)m * k);
    float *s = malloc((size_t)m * k / 8);
    int32_t *b = malloc((size_t)m * k / 8);
    Rounded *rounded = malloc(sizeof *rounded);
    act room[PACK_ROOM(MAX_TOKENS)];
    int ldx = k;
    for (int i = 0; i < m * k; i++) x[i] = one;
    for (int i = 0; i < rows; i++) scale[i] = one;
    if (experts) quantise_fp4(x, q, s, b, m * k, NULL);
    else if (kind == 5) round_all(x, k, k, m, rounded, NULL);
    const act *xs = kind < 4 ? packed(x, &ldx, k, m, room) : (const act *)x;
    void (*const kernels[])(const Mat *, int, int, const act *, int, float *, int, int) = {gemv_fp8, gemv_fp8_rows, gemv_bf16_blocks, gemv_bf16};
    Stretch *list = malloc(pieces * sizeof *list);
    Ahead ahead = {.list = list, .n = pieces};
    const size_t bytes = experts ? (size_t)rows * k * 17 / 32 : (size_t)rows * k;
    for (int i = 0; i < pieces; i++) list[i] = (Stretch){w + at[i], w + at[i] + bytes};
    const double start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < pieces; i++) {
        const Mat mat = {w + at[i], scale, tiles, k};
        if (experts) (kind == 6 ? e->set.gate_up : e->set.down)(mat.w, rows, k, 0, rows, q, s, b, y, rows, m, &ahead);
        else if (kind == 5) gemv_int8(&mat, 0, tiles, rounded, y, rows, m, &ahead);
        else if (kind == 4) gemv_f32(&mat, 0, tiles, x, k, y, rows, m);
        else kernels[kind](&mat, 0, tiles, xs, ldx, y, rows, m);
    }
    const double took = seconds(CLOCK_MONOTONIC) - start;
    free(x), free(y), free(scale), free(q), free(s), free(b), free(rounded), free(list);
    return took;
}

// One piece of a pass on its own: one kind of half layer, in all layers that have it; what the NEXTN layer does with m tokens that
// were accepted, of which it drafts from the last; the head with the choice of a token; or what lies around the layers.
enum { PIECE_KDA, PIECE_MLA, PIECE_DENSE, PIECE_MOE, PIECE_MIX, PIECE_HEAD, PIECE_AROUND };
static void piece_job(Engine *e, int id) {
    if (id == 0) {      // within the piece it reads ahead as a pass does
        expect_nothing(e);
        for (int layer = 0; layer < LAYERS; layer++)
            if (e->piece == (is_mla(layer) ? PIECE_MLA : PIECE_KDA)) expect_half(e, layer);
        if (e->piece == PIECE_DENSE) expect_second(e, 0);
        if (e->piece == PIECE_MOE) expect_second(e, DENSE_LAYERS);
        if (e->piece == PIECE_MIX) expect(e, at(e, NEXTN, SLOT_EMBED_NORM), at(e, NEXTN, SLOT_INPUT_NORM));
    }
    switch (e->piece) {
    case PIECE_MIX: mix(e, id); break;
    case PIECE_HEAD: head_job(e, id); break;
    case PIECE_AROUND:
        if (id) break;
        plan_turns(e);
        for (int t = 0; t < e->pass.m; t++) {
            embed(e, e->pass.token[t], e->x[t]);
            rms_norm(e->x[t], floats(e, WHOLE, SLOT_FINAL_NORM), 1.0f, e->hidden[t], HIDDEN);
        }
        break;
    default:
        for (int layer = 0; layer < LAYERS; layer++) {
            if (e->piece == PIECE_KDA && !is_mla(layer)) kda(e, layer, id);
            if (e->piece == PIECE_MLA && is_mla(layer)) mla(e, layer, id);
            if (e->piece == PIECE_DENSE && !is_moe(layer)) dense_mlp(e, layer, id);
            if (e->piece == PIECE_MOE && is_moe(layer)) moe(e, layer, id);
        }
    }
}
static void primer_job(Engine *e, int id) {
    if (id == 0) expect_nothing(e);
    moe(e, DENSE_LAYERS, id);
}

// A piece `rounds` times, with the stopwatch on, for m tokens after `past` positions of an empty text; equal tokens share their
// experts. As in a pass, its weights come from memory: each round takes the next replica, once `between` bytes of this one were
// read, and what all pieces work with (activations, code) was used a moment ago, by another piece.
void inspect_piece(Engine *e, int piece, const int32_t *token, int m, int past, int rounds, int64_t between) {
    int path[MAX_TOKENS];
    forget(e);
    park(e, false);
    e->alone = true;
    for (int t = 0; t < m; t++) path[t] = t;
    for (int i = -1; i < rounds; i++) {         // one warms up
        read_through(e, between);
        chain(&e->pass, token, m, past);
        e->pass.certain = m == 1;
        for (int t = 0; t < m; t++) {
            embed(e, token[t], e->x[t]);
            for (int c = 0; c < HIDDEN; c++) e->hidden[t][c] = e->mixin[t][c] = e->x[t][c];
        }
        plan_turns(e);
        if (piece != PIECE_MOE) run_job(e, primer_job);
        next_replica(e);
        e->piece = piece;
        e->head_in = e->hidden[0], e->head_m = m, e->head_rows = VOCAB, e->head_kind = e->set.fp8_head ? HEAD_FP8 : HEAD_BF16;
        e->watch.on = i >= 0, e->watch.mark = ticks();
        phase(&e->watch, PHASE_PLAIN, m);
        if (piece == PIECE_MIX && m > 1) {
            chain(&e->pass, token, m - 1, past);
            run_job(e, nextn_cache_job);
            chain(&e->pass, token + m - 1, 1, past + m - 1);
        }
        run_job(e, piece_job);
        if (piece == PIECE_HEAD)
            for (int t = 0; t < m; t++) {
                volatile int token_of = argmax(e->logits[t], VOCAB);
                (void)token_of;
            }
        lap(&e->watch, 0, PART_SAMPLING);
        if (piece == PIECE_AROUND) kda_commit(e, path, m, 0);
        lap(&e->watch, 0, PART_REST);
        e->watch.on = false;
        if (piece == PIECE_KDA) kda_commit(e, path, m, 0);
    }
    e->alone = false;
    park(e, true);
}
