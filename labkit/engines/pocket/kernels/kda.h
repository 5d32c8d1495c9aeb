// Kimi delta attention: S = diag(decay) S; S += beta k (v - k^T S)^T; o = S^T q, per head, S [key][value] in FP32.
#pragma once
#include "mlp.h"

#define COLUMNS (HEAD_DIM / VL < 4 ? HEAD_DIM / VL : 4)     // vectors of a state row handled at once

typedef struct { const float *decay, *key, *change; } Update;

// A state is kept as it is read: [value columns in strips of COLUMNS vectors][key][columns of the strip].
// One read does everything: apply the waiting updates, write the result to `to` (when given), and with the new token's decay
// compute p = k^T S and r = S^T q. Its own update then waits, and o = r + (k . q) change.
INLINE void read_state(const float *from, float *to, const Update *waiting, const int n, const float *decay, const float *key,
                       const float *query, float *p, float *r) {
    for (int c = 0; c < HEAD_DIM; c += COLUMNS * VL) {
        vf ps[COLUMNS], rs[COLUMNS];
        UNROLL for (int v = 0; v < COLUMNS; v++) ps[v] = rs[v] = vf_zero();
        for (int i = 0; i < HEAD_DIM; i++) {
            const int row = c * HEAD_DIM + i * COLUMNS * VL;
            vf s[COLUMNS];
            UNROLL for (int v = 0; v < COLUMNS; v++) s[v] = vf_load(from + row + v * VL);
            UNROLL for (int u = 0; u < n; u++)
                UNROLL for (int v = 0; v < COLUMNS; v++)
                    s[v] = vf_fma(vf_set1(waiting[u].key[i]), vf_load(waiting[u].change + c + v * VL), s[v] * vf_set1(waiting[u].decay[i]));
            if (to) UNROLL for (int v = 0; v < COLUMNS; v++) vf_store(to + row + v * VL, s[v]);
            UNROLL for (int v = 0; v < COLUMNS; v++) {
                vf d = s[v] * vf_set1(decay[i]);
                ps[v] = vf_fma(vf_set1(key[i]), d, ps[v]);
                rs[v] = vf_fma(vf_set1(query[i]), d, rs[v]);
            }
        }
        UNROLL for (int v = 0; v < COLUMNS; v++) vf_store(p + c + v * VL, ps[v]), vf_store(r + c + v * VL, rs[v]);
    }
}

// The projected q, k, v of node t's ancestor `back` tokens earlier
INLINE const float *projected(const Engine *e, const Kda *a, int t, int back) {
    for (; back && t >= 0; back--) t = e->pass.parent[t];
    return t >= 0 ? a->projected[t] : a->conv[CONV_TAPS - 2 - back];
}

// Causal depthwise convolution over the last taps, then SiLU, for one head of q, k or v
INLINE void convolve(const Engine *e, const Kda *a, const float *taps, int t, int column, float *out) {
    const float *x[CONV_TAPS];
    for (int i = 0; i < CONV_TAPS; i++) x[i] = projected(e, a, t, CONV_TAPS - 1 - i);
    for (int c = column; c < column + HEAD_DIM; c += VL) {
        vf s = vf_zero();
        for (int i = 0; i < CONV_TAPS; i++) s = vf_fma(vf_load(taps + i * 3 * WIDTH + c), vf_load(x[i] + c), s);
        vf_store(out + c - column, vf_silu(s));
    }
}

INLINE void l2_normalise(float *x, float by) { scaled(x, by / sqrtf(dot(x, x, HEAD_DIM) + 1e-6f), x, HEAD_DIM); }

static void kda_head(Engine *e, Room *room, int layer, int head) {
    Kda *a = &e->kda[layer];
    const Pass *pass = &e->pass;
    fetch(e->kda[layer].state[head + e->set.threads < HEADS ? head + e->set.threads : head], sizeof a->state[0]);
    const int c = head * HEAD_DIM, now = e->parity, before = !now;
    const float rate = floats(e, layer, SLOT_DECAY_RATE)[head], *bias = floats(e, layer, SLOT_DECAY_BIAS) + c;
    const uint16_t *w_beta = (const uint16_t *)at(e, layer, SLOT_BETA) + head * HIDDEN;
    float *state = a->state[head][0], *branch[MAX_TOKENS] = {0};
    int children[MAX_TOKENS] = {0}, used = 0;
    for (int t = 1; t < pass->m; t++) children[pass->parent[t]]++;
    for (int t = 0; t < pass->m; t++) {
        float q[HEAD_DIM], v[HEAD_DIM], p[HEAD_DIM], r[HEAD_DIM];
        float *k = a->key[now][t] + c, *decay = a->decay[now][t] + c, *change = a->change[now][t] + c, *out = e->mixed[t] + c;
        const float *y = a->projected[t];
        convolve(e, a, floats(e, layer, SLOT_CONV), t, c, q);
        convolve(e, a, floats(e, layer, SLOT_CONV), t, WIDTH + c, k);
        convolve(e, a, floats(e, layer, SLOT_CONV), t, 2 * WIDTH + c, v);
        l2_normalise(q, 1.0f / sqrtf(HEAD_DIM));
        l2_normalise(k, 1.0f);
        for (int i = 0; i < HEAD_DIM; i += VL)
            vf_store(decay + i, vf_exp(vf_set1(GATE_FLOOR) * vf_sigmoid(vf_set1(rate) * (vf_load(y + 3 * WIDTH + c + i) + vf_load(bias + i)))));
        const float beta = 1.0f / (1.0f + expf(-dot_bf16(w_beta, room->h[t], HIDDEN)));
        Update list[MAX_TOKENS], *waiting = list;
        int n = 1, up = pass->parent[t];
        const float *from = state;
        float *to = state;
        if (t == 0) {
            for (n = 0; n < e->waiting; n++) {
                int node = e->waiting_node[n];
                list[n] = (Update){a->decay[before][node] + c, a->key[before][node] + c, a->change[before][node] + c};
            }
        } else {
            list[0] = (Update){a->decay[now][up] + c, a->key[now][up] + c, a->change[now][up] + c};
            if (!pass->certain) {       // drafts work on copies; the last child may take its parent's
                from = up ? branch[up] : state;
                children[up]--;
                to = !children[t] ? NULL : up && !children[up] ? branch[up] : room->branch[used++];
                branch[t] = to;
            }
        }
        switch (n) {        // known counts are unrolled; up to 4 wait after a round with 3 drafts
        case 1: read_state(from, to, waiting, 1, decay, k, q, p, r); break;
        case 2: read_state(from, to, waiting, 2, decay, k, q, p, r); break;
        case 3: read_state(from, to, waiting, 3, decay, k, q, p, r); break;
        case 4: read_state(from, to, waiting, 4, decay, k, q, p, r); break;
        default: read_state(from, to, waiting, n, decay, k, q, p, r);
        }
        const float kq = dot(k, q, HEAD_DIM);
        for (int i = 0; i < HEAD_DIM; i += VL) {
            vf u = vf_set1(beta) * (vf_load(v + i) - vf_load(p + i));
            vf_store(change + i, u);
            vf_store(p + i, vf_fma(vf_set1(kq), u, vf_load(r + i)));
        }
        rms_norm(p, floats(e, layer, SLOT_HEAD_NORM), FP8_X, out, HEAD_DIM);
        for (int i = 0; i < HEAD_DIM; i += VL) vf_store(out + i, vf_load(out + i) * vf_sigmoid(vf_load(y + 4 * WIDTH + c + i)));
    }
}

static void kda(Engine *e, int layer, int id) {
    Room *room = &e->room[id];
    const int m = e->pass.m;
    const Mat in = mat(e, layer, SLOT_ATTN_IN, KDA_ROWS, HIDDEN), out = mat(e, layer, SLOT_ATTN_OUT, HIDDEN, WIDTH);
    int first, end;
    fetch_first(&in, id, e->set.threads);
    normalise(e, room, layer, SLOT_INPUT_NORM, m);
    part(in.tiles, id, e->set.threads, &first, &end);
    dense(e, &in, first, end, room->hx[0], 2 * HIDDEN, e->kda[layer].projected[0], KDA_ROWS, m);
    fetch(e->kda[layer].state[id], sizeof e->kda[layer].state[0]);
    barrier(e);
    for (int head = id; head < HEADS; head += e->set.threads) kda_head(e, room, layer, head);
    barrier(e);
    part(out.tiles, id, e->set.threads, &first, &end);
    dense(e, &out, first, end, e->mixed[0], sizeof e->mixed[0] / 4, room->out[0], HIDDEN, m);
    add_rows(e, room, first, end, m);
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
