// Where a token's time goes: the main thread's wall time by part of the model and by kind of pass. Off unless asked for; a lap
// reads the clock once (some 25 ns, about a hundred of them in a step). What is prefetched meanwhile counts where it is waited for.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {      // layout.py reads these names
    PART_KDA_PROJECTIONS, PART_KDA_INPUT, PART_KDA_STATE, PART_MLA_PROJECTIONS, PART_MLA_ATTENTION, PART_MLP, PART_ROUTER,
    PART_EXPERTS, PART_NEXTN_MIX, PART_HEAD, PART_SAMPLING, PART_REST, PARTS
};
#define MAX_DRAFTS 8
enum { PHASE_PREFILL, PHASE_PLAIN, PHASE_VERIFY, PHASE_DRAFT, PHASES = PHASE_DRAFT + MAX_DRAFTS };     // a draft's passes one by one

typedef struct {
    double seconds[PHASES][PARTS];
    int64_t passes[PHASES], tokens[PHASES];
    int64_t experts[PHASES];        // experts read: distinct ones of a pass, summed over layers
    int64_t positions[PHASES];      // cache positions read, summed over MLA layers
} Profile;

typedef struct { bool on; int phase; double mark; Profile sum; } Stopwatch;

static inline double wall_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
static inline void lap(Stopwatch *w, int id, int part) {
    if (!w->on || id) return;
    const double now = wall_clock();
    w->sum.seconds[w->phase][part] += now - w->mark;
    w->mark = now;
}
// What came before belongs to the phase that ends here.
static inline void phase(Stopwatch *w, int phase, int tokens) {
    if (!w->on) return;
    lap(w, 0, PART_REST);
    w->phase = phase;
    w->sum.passes[phase]++;
    w->sum.tokens[phase] += tokens;
}
