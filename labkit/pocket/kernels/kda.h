// Kimi delta attention: S = diag(decay) S; S += beta k (v - k^T S)^T; o = S^T q, per head, S [key][value] in FP32.
#pragma once
#include "mlp.h"

#define COLUMNS (HEAD_DIM / VL < 4 ? HEAD_DIM / VL : 4)     // vectors of a state row handled at once

typedef struct { const float *decay, *key, *change; } Update;

#define STRIP (COLUMNS * VL)                                // values: a strip of a state, [key][STRIP], fits the first-level cache

// A state is kept as it is read, strip after strip. One read of a strip does everything: apply the waiting updates, write the
// result to `to` (when given), and with the new token's decay compute p = k^T S and r = S^T q. The token's own update,
// change = beta (v - p), then waits in its turn, and o = r + (k . q) change. c: the strip's first column.
INLINE void read_strip(const float *from, float *to, const Update *waiting, const int n, const float *decay, const float *key,
                       const float *query, vf *ps, vf *rs, int c, Ahead *ahead) {
    UNROLL for (int v = 0; v < COLUMNS; v++) ps[v] = rs[v] = vf_zero();
    for (int i = 0; i < HEAD_DIM; i++) {
        if (i & 1) ask(ahead);
        vf s[COLUMNS];
        UNROLL for (int v = 0; v < COLUMNS; v++) s[v] = vf_load(from + i * STRIP + v * VL);
        UNROLL for (int u = 0; u < n; u++)
            UNROLL for (int v = 0; v < COLUMNS; v++)
                s[v] = vf_fma(vf_set1(waiting[u].key[i]), vf_load(waiting[u].change + c + v * VL), s[v] * vf_set1(waiting[u].decay[i]));
        if (to) UNROLL for (int v = 0; v < COLUMNS; v++) vf_store(to + i * STRIP + v * VL, s[v]);
        UNROLL for (int v = 0; v < COLUMNS; v++) {
            vf d = s[v] * vf_set1(decay[i]);
            ps[v] = vf_fma(vf_set1(key[i]), d, ps[v]);
            rs[v] = vf_fma(vf_set1(query[i]), d, rs[v]);
        }
    }
}

// The projected q, k, v of node t's ancestor `back` tokens earlier
INLINE const float *projected(const Engine *e, const Kda *a, int t, int back) {
    for (; back && t >= 0; back--) t = e->pass.parent[t];
    return t >= 0 ? a->projected[t] : a->conv[CONV_TAPS - 2 - back];
}

// Causal depthwise convolution over the last taps, then SiLU, for one head of q, k or v
INLINE void convolve(Engine *e, const Kda *a, const float *taps, int t, int column, float *out) {
    const float *x[CONV_TAPS];
    for (int i = 0; i < CONV_TAPS; i++) x[i] = projected(e, a, t, CONV_TAPS - 1 - i);
    for (int c = column; c < column + HEAD_DIM; c += VL) {
        vf s = vf_zero();
        ask(ahead(e));
        for (int i = 0; i < CONV_TAPS; i++) s = vf_fma(vf_load(taps + i * 3 * WIDTH + c), vf_load(x[i] + c), s);
        vf_store(out + c - column, vf_silu(s));
    }
}

INLINE void l2_normalise(float *x, float by) { scaled(x, by / sqrtf(dot(x, x, HEAD_DIM) + 1e-6f), x, HEAD_DIM); }

typedef struct {                    // one head's input for each token of a pass
    LINE float query[MAX_TOKENS][HEAD_DIM], value[MAX_TOKENS][HEAD_DIM], out[MAX_TOKENS][HEAD_DIM], beta[MAX_TOKENS], kq[MAX_TOKENS];
} HeadInput;

static void head_input(Engine *e, Room *room, int layer, int head, HeadInput *in) {
    Kda *a = &e->kda[layer];
    const int c = head * HEAD_DIM, now = e->parity;
    const float rate = floats(e, layer, SLOT_DECAY_RATE)[head], *bias = floats(e, layer, SLOT_DECAY_BIAS) + c;
    const float *taps = floats(e, layer, SLOT_CONV);
    const uint16_t *w_beta = (const uint16_t *)at(e, layer, SLOT_BETA) + head * HIDDEN;
    for (int t = 0; t < e->pass.m; t++) {
        float *k = a->key[now][t] + c, *decay = a->decay[now][t] + c;
        const float *gate = a->projected[t] + 3 * WIDTH + c;
        convolve(e, a, taps, t, c, in->query[t]);
        convolve(e, a, taps, t, WIDTH + c, k);
        convolve(e, a, taps, t, 2 * WIDTH + c, in->value[t]);
        l2_normalise(in->query[t], 1.0f / sqrtf(HEAD_DIM));
        l2_normalise(k, 1.0f);
        in->kq[t] = dot(k, in->query[t], HEAD_DIM);
        in->beta[t] = 1.0f / (1.0f + expf(-dot_bf16(w_beta, room->h[t], HIDDEN)));
        for (int i = 0; i < HEAD_DIM; i += VL, ask(ahead(e)))
            vf_store(decay + i, vf_exp(vf_set1(GATE_FLOOR) * vf_sigmoid(vf_set1(rate) * (vf_load(gate + i) + vf_load(bias + i)))));
    }
}

// Where a node of an uncertain pass reads its parent's state and writes its own for its children: drafts work on copies, and the
// last child takes over its parent's.
typedef struct { int from[MAX_TOKENS], to[MAX_TOKENS]; } Branches;     // -1: the state itself (from), nowhere (to)

static void plan_branches(const Pass *pass, Branches *b) {
    int children[MAX_TOKENS] = {0}, used = 0;
    for (int t = 1; t < pass->m; t++) children[pass->parent[t]]++;
    for (int t = 1; t < pass->m; t++) {
        const int up = pass->parent[t];
        b->from[t] = up ? b->to[up] : -1;
        children[up]--;
        b->to[t] = !children[t] ? -1 : up && !children[up] ? b->to[up] : used++;
    }
}

static void kda_head(Engine *e, Room *room, int layer, int head) {
    Kda *a = &e->kda[layer];
    const Pass *pass = &e->pass;
    const int next = head + e->set.threads < HEADS ? head + e->set.threads : head, c = head * HEAD_DIM, now = e->parity, before = !now;
    HeadInput in;
    Branches b;
    if (e->set.threads > 1) fetch(a->state[next], sizeof a->state[0]);
    head_input(e, room, layer, head, &in);
    lap(&e->watch, room != e->room, PART_KDA_INPUT);
    if (!pass->certain) plan_branches(pass, &b);
    for (int column = 0; column < HEAD_DIM; column += STRIP) {
        float *state = a->state[head][0] + column * HEAD_DIM;
        for (int t = 0; t < pass->m; t++) {
            const float *k = a->key[now][t] + c, *decay = a->decay[now][t] + c, *from = state;
            float *to = state, *change = a->change[now][t] + c + column;
            Update list[MAX_TOKENS];
            int n = 1;
            vf p[COLUMNS], r[COLUMNS];
            if (t == 0) {
                for (n = 0; n < e->waiting; n++) {
                    const int node = e->waiting_node[n];
                    list[n] = (Update){a->decay[before][node] + c, a->key[before][node] + c, a->change[before][node] + c};
                }
            } else {
                const int up = pass->parent[t];
                list[0] = (Update){a->decay[now][up] + c, a->key[now][up] + c, a->change[now][up] + c};
                if (!pass->certain) {
                    from = b.from[t] < 0 ? state : room->branch[b.from[t]];
                    to = b.to[t] < 0 ? NULL : room->branch[b.to[t]];
                }
            }
            switch (n) {        // known counts are unrolled; up to 4 wait after a round with 3 drafts
            case 1: read_strip(from, to, list, 1, decay, k, in.query[t], p, r, column, ahead(e)); break;
            case 2: read_strip(from, to, list, 2, decay, k, in.query[t], p, r, column, ahead(e)); break;
            case 3: read_strip(from, to, list, 3, decay, k, in.query[t], p, r, column, ahead(e)); break;
            case 4: read_strip(from, to, list, 4, decay, k, in.query[t], p, r, column, ahead(e)); break;
            default: read_strip(from, to, list, n, decay, k, in.query[t], p, r, column, ahead(e));
            }
            UNROLL for (int v = 0; v < COLUMNS; v++) {
                vf u = vf_set1(in.beta[t]) * (vf_load(in.value[t] + column + v * VL) - p[v]);
                vf_store(change + v * VL, u);
                vf_store(in.out[t] + column + v * VL, vf_fma(vf_set1(in.kq[t]), u, r[v]));
            }
        }
    }
    for (int t = 0; t < pass->m; t++) {
        float *out = e->mixed[t] + c;
        const float *gate = a->projected[t] + 4 * WIDTH + c;
        ask(ahead(e));
        rms_norm(in.out[t], floats(e, layer, SLOT_HEAD_NORM), FP8_X, out, HEAD_DIM);
        for (int i = 0; i < HEAD_DIM; i += VL, ask(ahead(e))) vf_store(out + i, vf_load(out + i) * vf_sigmoid(vf_load(gate + i)));
    }
    if (ahead(e)) e->ahead.lead -= sizeof a->state[0];
    lap(&e->watch, room != e->room, PART_KDA_STATE);
}

static void kda(Engine *e, int layer, int id) {
    Room *room = &e->room[id];
    const int m = e->pass.m;
    const Mat in = mat(e, layer, SLOT_ATTN_IN, KDA_ROWS, HIDDEN), out = mat(e, layer, SLOT_ATTN_OUT, HIDDEN, WIDTH);
    int first, end;
    fetch_first(e, &in, id);
    normalise(e, room, layer, SLOT_INPUT_NORM, m);
    // Small arrays, scattered over the heads, that are needed right after the product: each would be waited for on its own
    if (e->set.threads > 1) fetch(at(e, layer, SLOT_BETA), (const char *)at(e, layer, SLOT_HEAD_NORM) - (const char *)at(e, layer, SLOT_BETA));
    part(in.tiles, id, e->set.threads, &first, &end);
    dense(e, &in, first, end, room->hx[0], 2 * HIDDEN, e->kda[layer].projected[0], KDA_ROWS, m);
    if (e->set.threads > 1) fetch(e->kda[layer].state[id], sizeof e->kda[layer].state[0]);
    barrier(e);
    lap(&e->watch, id, PART_KDA_PROJECTIONS);
    for (int head = id; head < HEADS; head += e->set.threads) kda_head(e, room, layer, head);
    barrier(e);
    part(out.tiles, id, e->set.threads, &first, &end);
    dense(e, &out, first, end, e->mixed[0], sizeof e->mixed[0] / 4, room->out[0], HIDDEN, m);
    add_rows(e, room, first, end, m);
    lap(&e->watch, id, PART_KDA_PROJECTIONS);
}

// Make nodes path[0..n) part of the past. The updates from `replay` on wait for the next pass; those before are in the state.
static void kda_commit(Engine *e, const int *path, int n, int replay) {
    for (int layer = 0; layer < LAYERS; layer++) {
        if (is_mla(layer)) continue;
        Kda *a = &e->kda[layer];
        for (int i = 0; i < CONV_TAPS - 1; i++) {
            int from = n - (CONV_TAPS - 1) + i;
            memcpy(a->conv[i], from >= 0 ? a->projected[path[from]] : a->conv[CONV_TAPS - 1 + from], sizeof a->conv[i]);
        }
    }
    e->waiting = n - replay;
    for (int i = replay; i < n; i++) e->waiting_node[i - replay] = path[i];
    e->parity = !e->parity;
}
