// Where a token's time goes: the main thread's wall time by part of the model and by kind of pass. Off unless asked for; about a
// hundred laps in a step. What is prefetched meanwhile counts where it is waited for.
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

typedef struct {
    bool on;
    int phase;
    uint64_t mark, began, ticks[PHASES][PARTS];
    double began_s, tick_s;         // tick_s: 0 while it runs
    Profile sum;                    // its seconds are filled in when somebody looks
} Stopwatch;

static inline double wall_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
// A counter of constant rate, read without waiting for the loads that are under way: clock_gettime waits for them, which takes
// away what two parts overlap.
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return (uint64_t)(wall_clock() * 1e9);
#endif
}
static inline void lap(Stopwatch *w, int id, int part) {
    if (!w->on || id) return;
    const uint64_t now = ticks();
    w->ticks[w->phase][part] += now - w->mark;
    w->mark = now;
}
static inline double tick_s(const Stopwatch *w) {
    const uint64_t ran = ticks() - w->began;
    return ran ? (wall_clock() - w->began_s) / ran : 0;
}
static inline const Profile *read_off(Stopwatch *w) {
    const double each = w->tick_s > 0 ? w->tick_s : tick_s(w);
    for (int i = 0; i < PHASES; i++)
        for (int j = 0; j < PARTS; j++) w->sum.seconds[i][j] = w->ticks[i][j] * each;
    return &w->sum;
}
// What came before belongs to the phase that ends here.
static inline void phase(Stopwatch *w, int phase, int tokens) {
    if (!w->on) return;
    lap(w, 0, PART_REST);
    w->phase = phase;
    w->sum.passes[phase]++;
    w->sum.tokens[phase] += tokens;
}
