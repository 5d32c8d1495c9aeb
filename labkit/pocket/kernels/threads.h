// One or two threads run the same program, each on its part of the rows; they meet at barriers.
#pragma once
#include <sched.h>
#include "engine.h"

#define SPINS 4000      // then give the core away: on a busy machine the other thread may need it

INLINE void barrier(Engine *e) {
    if (e->set.threads == 1) return;
    int phase = atomic_load_explicit(&e->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&e->arrived, 1, memory_order_acq_rel) + 1 == e->set.threads) {
        atomic_store_explicit(&e->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&e->phase, phase + 1, memory_order_release);
        return;
    }
    for (int spin = 0; atomic_load_explicit(&e->phase, memory_order_acquire) == phase;)
        if (++spin > SPINS) sched_yield(); else relax();
}

static void *worker_main(void *arg) {
    Engine *e = arg;
    for (int last = 0;;) {
        int number, spin = 0;
        while ((number = atomic_load_explicit(&e->job_number, memory_order_acquire)) == last && !atomic_load(&e->quit)) {
            if (++spin < SPINS) { relax(); continue; }
            pthread_mutex_lock(&e->lock);           // between requests: sleep
            while (e->parked && !atomic_load(&e->quit)) pthread_cond_wait(&e->wake, &e->lock);
            pthread_mutex_unlock(&e->lock);
            sched_yield();
        }
        if (atomic_load(&e->quit)) return NULL;
        last = number;
        e->job(e, 1);
        atomic_store_explicit(&e->jobs_done, number, memory_order_release);
    }
}

static void run_job(Engine *e, void (*job)(Engine *, int)) {
    if (e->set.threads == 1) { job(e, 0); return; }
    e->job = job;
    int number = atomic_load_explicit(&e->job_number, memory_order_relaxed) + 1;
    atomic_store_explicit(&e->job_number, number, memory_order_release);
    job(e, 0);
    for (int spin = 0; atomic_load_explicit(&e->jobs_done, memory_order_acquire) != number;)
        if (++spin > SPINS) sched_yield(); else relax();
}

static void park(Engine *e, bool parked) {
    if (e->set.threads == 1) return;
    pthread_mutex_lock(&e->lock);
    e->parked = parked;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
}
