// Speculation: the NEXTN layer proposes a tree of tokens, one pass of the model checks it.
#pragma once
#include "model.h"
#include "sample.h"

typedef struct { int token, parent, depth, slot; float score; } Node;      // slot: its place in the NEXTN pass, -1 not run

typedef struct {
    Node node[1 + MAX_TOPK + (MAX_DEPTH - 2) * MAX_TOPK * MAX_TOPK];       // node 0 is the root: the token just decided
    int n;
    float hidden[MAX_NODES][HIDDEN];        // NEXTN outputs by slot
} Drafts;

// The k largest logits of n with their log-probabilities, largest first (lower row first among equals)
static void best_rows(const float *logits, int n, int k, int *row, float *logp) {
    if (k == 1) { row[0] = argmax(logits, n), logp[0] = 0; return; }      // a chain needs no scores
    float found[MAX_TOPK];
    int have = 0;
    double mass = 0;
    for (int i = 0; i < n; i++) {
        int j = have;
        for (; j > 0 && logits[i] > found[j - 1]; j--) if (j < k) found[j] = found[j - 1], row[j] = row[j - 1];
        if (j < k) found[j] = logits[i], row[j] = i, have += have < k;
    }
    for (int i = 0; i < n; i += VL) mass += vf_sum(vf_exp(vf_load(logits + i) - vf_set1(found[0])));
    for (int j = 0; j < k; j++) logp[j] = found[j] - found[0] - (float)log(mass);
}

static void add_children(Engine *e, Drafts *d, int parent, const float *logits, int rows) {
    int row[MAX_TOPK];
    float logp[MAX_TOPK];
    best_rows(logits, rows, e->set.topk, row, logp);
    for (int j = 0; j < e->set.topk; j++)
        d->node[d->n++] = (Node){draft_token(e, row[j]), parent, d->node[parent].depth + 1, -1, d->node[parent].score + logp[j]};
}

// Indices of the k best-scored nodes among [from, n), in ascending index order
static int best_nodes(const Drafts *d, int from, int k, int *out) {
    bool taken[sizeof d->node / sizeof *d->node] = {false};
    int count = 0;
    for (; count < k; count++) {
        int best = -1;
        for (int i = from; i < d->n; i++) if (!taken[i] && (best < 0 || d->node[i].score > d->node[best].score)) best = i;
        if (best < 0) break;
        taken[best] = true;
    }
    for (int i = from, j = 0; i < d->n; i++) if (taken[i]) out[j++] = i;
    return count;
}

// Fill the NEXTN cache for m committed positions: token[i] is the one after the position whose hidden state is hidden[i].
// `output`: the last one's is wanted, in e->mixin[0].
static void extend_draft(Engine *e, const int32_t *token, float (*hidden)[HIDDEN], int m, bool output) {
    const int quiet = output ? m - 1 : m;
    if (output) phase(&e->watch, PHASE_DRAFT, 1);
    next_replica(e);
    if (quiet) {
        chain(&e->pass, token, quiet, e->draft_past);
        memcpy(e->mixin, hidden, (size_t)quiet * HIDDEN * 4);
        run_job(e, nextn_cache_job);
    }
    if (output) {
        chain(&e->pass, token + quiet, 1, e->draft_past + quiet);
        memcpy(e->mixin, hidden[quiet], sizeof hidden[0]);
        run_job(e, nextn_job);
    }
    e->draft_past += m;
}

// Step 1 has just run. Grow the tree to `steps` levels.
static void grow(Engine *e, Drafts *d, int root) {
    int frontier[MAX_TOPK], width = 1, ran = 0;
    float input[MAX_TOPK][HIDDEN];
    d->n = 1;
    d->node[0] = (Node){root, -1, 0, -1, 0};
    draft_head(e, e->mixin[0], 1);
    add_children(e, d, 0, e->logits[0], e->head_rows);
    lap(&e->watch, 0, PART_SAMPLING);
    memcpy(d->hidden[MAX_NODES - 1], e->mixin, sizeof d->hidden[0]);      // what the root's children continue from
    for (int step = 2, level = 1; step <= e->set.steps; step++) {
        Pass *pass = &e->pass;
        const int from = level;
        level = d->n;
        width = best_nodes(d, from, e->set.topk, frontier);
        pass->past = e->draft_past, pass->first = ran, pass->m = width, pass->certain = false;
        for (int i = 0; i < width; i++) {
            Node *node = &d->node[frontier[i]];
            node->slot = ran + i;
            pass->token[ran + i] = node->token;
            pass->depth[ran + i] = node->depth - 1;
            pass->parent[ran + i] = node->parent ? d->node[node->parent].slot : -1;
            memcpy(input[i], d->hidden[node->parent ? d->node[node->parent].slot : MAX_NODES - 1], sizeof input[i]);
        }
        memcpy(e->mixin, input, (size_t)width * HIDDEN * 4);
        phase(&e->watch, PHASE_DRAFT + step - 1, width);
        nextn_pass(e);
        memcpy(d->hidden[ran], e->mixin, (size_t)width * HIDDEN * 4);
        ran += width;
        draft_head(e, e->mixin[0], width);
        for (int i = 0; i < width; i++) add_children(e, d, frontier[i], e->logits[i], e->head_rows);
        lap(&e->watch, 0, PART_SAMPLING);
    }
}

// The best draft_tokens - 1 nodes, with the root, become the pass that the model checks. A parent scores at least as well as its
// children and comes first among equals, so that no kept node lacks its parent.
static void plan_verify(Engine *e, const Drafts *d, int past) {
    int kept[MAX_VERIFY], place[sizeof d->node / sizeof *d->node] = {0};
    const int n = best_nodes(d, 1, e->set.draft_tokens - 1, kept);
    Pass *pass = &e->pass;
    pass->past = past, pass->first = 0, pass->m = n + 1, pass->certain = false;
    pass->token[0] = d->node[0].token, pass->parent[0] = -1, pass->depth[0] = 0;
    for (int i = 0; i < n; i++) {
        const Node *node = &d->node[kept[i]];
        place[kept[i]] = i + 1;
        pass->token[i + 1] = node->token, pass->depth[i + 1] = node->depth;
        pass->parent[i + 1] = place[node->parent];
    }
}

// The child of `node` that holds `token`, or -1. `any`: the first child whatever it holds (a forced accept length).
static int child(const Pass *pass, int node, int token, bool any) {
    for (int i = node + 1; i < pass->m; i++) if (pass->parent[i] == node && (any || pass->token[i] == token)) return i;
    return -1;
}
