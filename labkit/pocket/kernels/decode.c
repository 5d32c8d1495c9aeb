// The pocket engine's core: a whole request in one call. Built once per model shape and instruction set; see build.py.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "draft.h"

enum { RUNNING, STOPPED, LENGTH, CANCELLED, FAILED };
#define MAX_STOP 64

typedef struct {                    // shared with Python while the call runs; see binding.py
    const int32_t *prompt;
    int32_t *tokens;                // [max_new] the output
    double *times;                  // [max_new] CLOCK_MONOTONIC seconds of each
    int32_t n_prompt, max_new, n_stop, fd;
    int32_t stop[MAX_STOP];
    Sampling sampling;
    atomic_int count, cancel;
    int32_t finish, stop_token, steps, verify_ct, correct, proposed;
    int32_t histogram[MAX_DEPTH];
    double prefill_s, decode_s, cpu_s;
    // Log-probabilities, when logprob is not NULL: a row for each prompt token from score_from on (at least 1: the first has no past),
    // then one for each output token; and of each row's n_top likeliest tokens, likeliest first
    float *logprob, *top_logprob;   // [rows], [rows][n_top]
    int32_t *top_id;
    int32_t score_from, n_top;
    // Called before output token `count` is chosen: sets what a grammar forbids to -INFINITY. NULL: nothing is forbidden
    void (*restrict_logits)(int count, float *logits);
} Request;

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

Engine *engine_new(const Setup *setup) {
    const size_t cache = (size_t)(setup->context + MAX_TOKENS) * LATENT * 2;
    Engine *e = mmap(NULL, sizeof *e, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (e == MAP_FAILED) return NULL;
#if defined(MADV_HUGEPAGE)
    madvise(e, sizeof *e, MADV_HUGEPAGE);       // state and activations lie scattered: with small pages each is looked up anew
#endif
    e->set = *setup;
    e->w = setup->arena;
    for (int i = 0; i <= MLA_LAYERS; i++) {
        e->kv[i] = mmap(NULL, cache, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (e->kv[i] == MAP_FAILED) return NULL;
    }
    for (int i = 0; i < ROPE_DIM / 2; i++) e->rope_rate[i] = powf((float)ROPE_THETA, -2.0f * i / ROPE_DIM);
    e->parked = true;
    expect_nothing(e);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    if (setup->threads > 1 && pthread_create(&e->worker, NULL, worker_main, e)) return NULL;
    return e;
}

void engine_free(Engine *e) {
    if (e->set.threads > 1) {
        atomic_store(&e->quit, true);
        park(e, false);
        pthread_join(e->worker, NULL);
    }
    for (int i = 0; i <= MLA_LAYERS; i++) munmap(e->kv[i], (size_t)(e->set.context + MAX_TOKENS) * LATENT * 2);
    munmap(e, sizeof *e);
}

int request_count(Request *r) { return atomic_load_explicit(&r->count, memory_order_acquire); }
void request_cancel(Request *r) { atomic_store(&r->cancel, 1); }

static void notify(const Request *r) {
    const uint64_t one = 1;
    if (r->fd >= 0 && write(r->fd, &one, sizeof one) < 0) return;       // a full pipe is already readable
}

// Row `row` of the request's log-probabilities: of `token` among `logits` at this temperature (0 counts as 1, as on SGLang).
static void note(Request *r, const float *logits, int token, int row, float temperature) {
    const float scale = temperature > 0 ? 1 / temperature : 1, top = logits[argmax(logits, VOCAB)];
    double mass = 0;
    for (int i = 0; i < VOCAB; i++) mass += exp(scale * (logits[i] - top));
    const double shift = log(mass);
    float *best = r->top_logprob + (size_t)row * r->n_top;
    int32_t *id = r->top_id + (size_t)row * r->n_top;
    int n = 0;
    for (int i = 0; i < VOCAB && r->n_top; i++) {
        const float p = scale * (logits[i] - top) - shift;
        if (n == r->n_top && p <= best[n - 1]) continue;
        int j = n < r->n_top ? n++ : n - 1;
        for (; j > 0 && p > best[j - 1]; j--) best[j] = best[j - 1], id[j] = id[j - 1];
        best[j] = p, id[j] = i;
    }
    r->logprob[row] = scale * (logits[token] - top) - shift;
}

static int choose(Request *r, float *logits, float *probs, Candidate *list) {
    const int index = request_count(r);
    if (r->restrict_logits) r->restrict_logits(index, logits);
    return sample(logits, &r->sampling, index, probs, list);
}

// Append a token, which was chosen from `logits`; true when it ends the request.
static bool push(Request *r, int token, const float *logits) {
    const int n = atomic_load_explicit(&r->count, memory_order_relaxed);
    if (r->logprob) note(r, logits, token, r->n_prompt - r->score_from + n, r->sampling.temperature);
    r->tokens[n] = token;
    r->times[n] = seconds(CLOCK_MONOTONIC);
    atomic_store_explicit(&r->count, n + 1, memory_order_release);
    for (int i = 0; i < r->n_stop; i++)
        if (r->stop[i] == token) { r->finish = STOPPED, r->stop_token = token; return true; }
    if (n + 1 == r->max_new) r->finish = LENGTH;
    return r->finish != RUNNING;
}

static bool cancelled(Request *r) {
    if (atomic_load_explicit(&r->cancel, memory_order_relaxed)) r->finish = CANCELLED;
    return r->finish == CANCELLED;
}

typedef struct {                    // what lies between two rounds
    float probs[VOCAB];
    Candidate list[VOCAB];
    Drafts drafts;
    float hidden[MAX_TOKENS][HIDDEN];       // hidden states of the positions that the NEXTN layer has not seen
    int32_t follow[MAX_TOKENS];             // and the token after each
    int fresh, past;
} Round;

// Log-probabilities of the prompt's tokens that the pass over positions [at, at + m) predicts.
static void score_prompt(Engine *e, Request *r, int at, int m) {
    if (!r->logprob || at + m < r->score_from || r->score_from == r->n_prompt) return;
    head(e, e->hidden[0], m);
    for (int t = 0; t < m; t++) {
        const int next = at + t + 1;
        if (next >= r->score_from && next < r->n_prompt) note(r, e->logits[t], r->prompt[next], next - r->score_from, 0);
    }
}

// The prompt in chunks, and the NEXTN layer one position behind, because it needs each position's next token. Leaves the last
// position's hidden state in round->hidden[0] and its logits in e->logits[0]. -> false when cancelled
static bool prefill(Engine *e, Request *r, Round *round) {
    for (int at = 0, m; at < r->n_prompt; at += m) {
        if (cancelled(r)) return false;
        m = r->n_prompt - at < MAX_TOKENS - 1 ? r->n_prompt - at : MAX_TOKENS - 1;     // a row is left for the one held back
        phase(&e->watch, PHASE_PREFILL, m);
        advance(e, r->prompt + at, m, at);
        score_prompt(e, r, at, m);
        const int held = at > 0;
        float last[HIDDEN];
        memcpy(last, e->hidden[m - 1], sizeof last);
        memcpy(round->hidden[held], e->hidden, (size_t)(m - 1) * HIDDEN * 4);
        if (e->set.speculative && held + m - 1) extend_draft(e, r->prompt + at + 1 - held, round->hidden, held + m - 1, false);
        memcpy(round->hidden[0], last, sizeof last);
    }
    for (int t = 0; t < r->n_prompt; t++) meet(e, r->prompt[t]);
    head(e, round->hidden[0], 1);
    round->past = r->n_prompt;
    return true;
}

static void plain_round(Engine *e, Request *r, Round *round) {
    phase(&e->watch, PHASE_PLAIN, 1);
    advance(e, &r->tokens[request_count(r) - 1], 1, round->past++);
    head(e, e->hidden[0], 1);
    push(r, choose(r, e->logits[0], round->probs, round->list), e->logits[0]);
    lap(&e->watch, 0, PART_SAMPLING);
}

// How many drafts to accept when the accept length is forced: two neighbouring whole numbers with the mean asked for
static int forced(const Engine *e, const Request *r) {
    const float drafts = e->set.simulate - 1;
    const int low = (int)drafts;
    return low + (uniform(r->sampling.seed ^ 0x5eed, r->verify_ct) < drafts - low);
}

static void speculative_round(Engine *e, Request *r, Round *round) {
    const int root = r->tokens[request_count(r) - 1], wanted = e->set.simulate >= 0 ? forced(e, r) : -1;
    int path[MAX_DEPTH] = {0}, n = 1, accepted = 0;
    for (int i = 0; i < round->fresh; i++) meet(e, round->follow[i]);
    extend_draft(e, round->follow, round->hidden, round->fresh, true);
    grow(e, &round->drafts, root);
    if (cancelled(r)) return;
    plan_verify(e, &round->drafts, round->past);
    phase(&e->watch, PHASE_VERIFY, e->pass.m);
    model_pass(e);
    head(e, e->hidden[0], e->pass.m);
    for (int node = 0;;) {
        float *logits = e->logits[node];
        int token = choose(r, logits, round->probs, round->list);
        int next = wanted < 0 ? child(&e->pass, node, token, false) : accepted < wanted ? child(&e->pass, node, 0, true) : -1;
        if (wanted >= 0 && next >= 0) token = e->pass.token[next];
        memcpy(round->hidden[n - 1], e->hidden[node], sizeof round->hidden[0]);
        round->follow[n - 1] = token;
        accepted += next >= 0;
        if (push(r, token, logits) || next < 0) break;
        path[n++] = node = next;
    }
    lap(&e->watch, 0, PART_SAMPLING);
    kda_commit(e, path, n, 0);
    for (int i = 0; i < MLA_LAYERS; i++) kv_commit(e, i, path, n);
    round->past += n;
    round->fresh = n;
    r->verify_ct++;
    r->correct += accepted;
    r->proposed += e->pass.m - 1;
    r->histogram[accepted]++;
}

void generate(Engine *e, Request *r) {
    const double start = seconds(CLOCK_MONOTONIC);
    Round *round = malloc(sizeof *round);
    if (!round) { r->finish = FAILED; return; }
    forget(e);
    park(e, false);
    r->steps = e->set.speculative ? e->set.steps : 0;
    e->decoding = false;
    e->watch.mark = ticks();
    if (prefill(e, r, round)) {
        if (r->max_new == 0) r->finish = LENGTH;
        else push(r, choose(r, e->logits[0], round->probs, round->list), e->logits[0]);
        notify(r);
        round->follow[0] = r->max_new ? r->tokens[0] : 0, round->fresh = 1;
    }
    const double first = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
    e->decoding = true;
    while (r->finish == RUNNING && !cancelled(r)) {
        if (e->set.speculative) speculative_round(e, r, round); else plain_round(e, r, round);
        notify(r);
    }
    lap(&e->watch, 0, PART_REST);
    park(e, true);
    free(round);
    r->prefill_s = first - start;
    r->decode_s = seconds(CLOCK_MONOTONIC) - first;
    r->cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
}

void record_experts(Engine *e, int on) {
    if (on) memset(&e->experts, 0, sizeof e->experts);
    e->recording = on;
}
// Start (clearing the sums) or stop the stopwatch
void profile_parts(Engine *e, int on) {
    if (on) {
        memset(&e->watch, 0, sizeof e->watch);
        e->watch.began = ticks(), e->watch.began_s = wall_clock();
    } else if (!e->watch.tick_s) e->watch.tick_s = tick_s(&e->watch);
    e->watch.on = on;
}
const Profile *part_profile(Engine *e) { return read_off(&e->watch); }
const ExpertRecord *expert_record(const Engine *e) { return &e->experts; }
#include "inspect.h"
