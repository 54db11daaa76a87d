/*
 * Conjugate gradients for the 1-D Poisson equation, P ranks: conjugate-gradient [POINTS-PER-RANK [RANKS [ITERATIONS]]]
 *
 * A strand of tasks per rank. Dot products go through two COLLECTIVE events (all-reduce), the rows at the rank's ends through
 * CHANNEL events between neighbours. Checked by the residual, computed again from the solution.
 *
 * Pattern: nearest neighbours, 16 bytes, and reductions of 8 bytes; a rank's vectors are used by its own tasks.
 */
#include "../common/workload.h"
#include <math.h>

static u64 points, ranks, iterations;
static ocrGuid_t vectors, channels, sums;

struct rank {
    double rho;
    double v[]; /* x, r, p, q */
};

static ocrGuid_t channel(u64 from, u64 to_right) {
    ocrGuid_t guid;
    ocrGuidFromIndex(&guid, channels, 2 * from + to_right);
    return guid;
}

static ocrGuid_t sum(u64 which) {
    ocrGuid_t guid;
    ocrGuidFromIndex(&guid, sums, which);
    return guid;
}

/* Parameters of all tasks of a strand: rank, iterations left. */
static ocrGuid_t productEdt(u32, u64 *, u32, ocrEdtDep_t[]);

static void send_ends(u64 rank, const double *p) {
    for (u64 right = 0; right < 2; right++) {
        ocrGuid_t block;
        double *end;
        ocrDbCreate(&block, (void **)&end, sizeof(double), DB_PROP_NONE, NULL_HINT, NO_ALLOC);
        *end = right ? p[points - 1] : p[0];
        ocrDbRelease(block);
        ocrEventSatisfy(channel(rank, right), block);
    }
}

static void start_product(u64 rank, u64 left) {
    u64 params[2] = {rank, left};
    ocrGuid_t edt = TASK(productEdt, 2, params, 3, EDT_PROP_NONE, NULL, rank, ranks);
    needs(vectors, rank, edt, 0, DB_MODE_RW);
    ocrAddDependence(channel((rank + ranks - 1) % ranks, 1), edt, 1, DB_MODE_RO);
    ocrAddDependence(channel((rank + 1) % ranks, 0), edt, 2, DB_MODE_RO);
}

static void reduce_then(ocrGuid_t edt, u64 rank, u64 which, double part) {
    ocrAddDependenceSlot(sum(which), (u32)rank, edt, 1, DB_MODE_RO);
    ocrEventCollectiveSatisfySlot(sum(which), &part, (u32)rank);
}

/* Slot 1: r.r over all ranks, new. */
static ocrGuid_t directionEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    struct rank *me = depv[0].ptr;
    double *r = me->v + points, *p = r + points, rho = *(double *)depv[1].ptr;
    double beta = me->rho > 0 ? rho / me->rho : 0;
    (void)paramc, (void)depc;
    for (u64 i = 0; i < points; i++) p[i] = r[i] + beta * p[i];
    me->rho = rho;
    ocrDbDestroy(depv[1].guid);
    send_ends(paramv[0], p);
    start_product(paramv[0], paramv[1]);
    return NULL_GUID;
}

static ocrGuid_t checkEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    double residual = 0, before = 0;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 rank = 0; rank < ranks; rank++) {
        const double *x = ((struct rank *)depv[rank].ptr)->v;
        const double *left = ((struct rank *)depv[(rank + ranks - 1) % ranks].ptr)->v;
        const double *right = ((struct rank *)depv[(rank + 1) % ranks].ptr)->v;
        for (u64 i = 0; i < points; i++) {
            double l = i > 0 ? x[i - 1] : left[points - 1], r = i + 1 < points ? x[i + 1] : right[0];
            double rhs = sin((double)(rank * points + i));
            residual += pow(rhs - (2.1 * x[i] - l - r), 2);
            before += rhs * rhs;
        }
    }
    int wrong = !(residual < before * 0.25 * pow(0.5, (double)iterations < 30 ? (double)iterations : 30));
    PRINTF("conjugate-gradient %" PRIu64 " %" PRIu64 " %" PRIu64 ": residual %g of %g, %s\n", points, ranks, iterations,
           sqrt(residual), sqrt(before), wrong ? "WRONG" : "correct");
    if (wrong) ocrAbort(1);
    ocrShutdown();
    return NULL_GUID;
}

/* Slot 1: p.q over all ranks. */
static ocrGuid_t updateEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    struct rank *me = depv[0].ptr;
    double *x = me->v, *r = x + points, *p = r + points, *q = p + points, part = 0;
    double alpha = me->rho / *(double *)depv[1].ptr;
    u64 params[2] = {paramv[0], paramv[1] - 1};
    (void)paramc, (void)depc;
    for (u64 i = 0; i < points; i++) x[i] += alpha * p[i], r[i] -= alpha * q[i], part += r[i] * r[i];
    ocrDbDestroy(depv[1].guid);
    if (params[1] == 0) {
        ocrGuid_t done;
        ocrGuidFromIndex(&done, sums, 2);
        ocrDbRelease(depv[0].guid);
        ocrEventSatisfySlot(done, NULL_GUID, OCR_EVENT_LATCH_DECR_SLOT);
        return NULL_GUID;
    }
    ocrGuid_t edt = TASK(directionEdt, 2, params, 2, EDT_PROP_NONE, NULL, paramv[0], ranks);
    needs(vectors, paramv[0], edt, 0, DB_MODE_RW);
    reduce_then(edt, paramv[0], 1, part);
    return NULL_GUID;
}

/* Slots 1 and 2: the neighbours' ends of p. */
static ocrGuid_t productEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    struct rank *me = depv[0].ptr;
    double *p = me->v + 2 * points, *q = p + points, part = 0;
    (void)paramc, (void)depc;
    for (u64 i = 0; i < points; i++) {
        double l = i > 0 ? p[i - 1] : *(double *)depv[1].ptr;
        double r = i + 1 < points ? p[i + 1] : *(double *)depv[2].ptr;
        q[i] = 2.1 * p[i] - l - r;
        part += p[i] * q[i];
    }
    ocrDbDestroy(depv[1].guid), ocrDbDestroy(depv[2].guid);
    ocrGuid_t edt = TASK(updateEdt, 2, paramv, 2, EDT_PROP_NONE, NULL, paramv[0], ranks);
    needs(vectors, paramv[0], edt, 0, DB_MODE_RW);
    reduce_then(edt, paramv[0], 0, part);
    return NULL_GUID;
}

static ocrGuid_t rankEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 rank = paramv[0], params[2] = {rank, iterations};
    double part = 0;
    (void)paramc, (void)depc, (void)depv;
    ocrEventParams_t reduction = {.EVENT_COLLECTIVE = {.maxGen = 2, .nbContribs = (u32)ranks, .nbContribsPd = (u32)ranks,
                                                       .nbDatum = 1, .arity = 2, .op = REDOP_F8_ADD, .type = COL_ALLREDUCE}};
    for (u64 which = 0; which < 2; which++) {
        ocrGuid_t guid = sum(which);
        ocrEventCreateParams(&guid, OCR_EVENT_COLLECTIVE_T, GUID_PROP_IS_LABELED, &reduction);
    }
    struct rank *me = block_near(vectors, rank, sizeof *me + 4 * points * sizeof(double), rank, ranks);
    me->rho = 0;
    for (u64 i = 0; i < points; i++) {
        double rhs = sin((double)(rank * points + i));
        me->v[i] = 0, me->v[points + i] = rhs, me->v[2 * points + i] = 0, me->v[3 * points + i] = 0;
        part += rhs * rhs;
    }
    ocrGuid_t edt = TASK(directionEdt, 2, params, 2, EDT_PROP_NONE, NULL, rank, ranks);
    needs(vectors, rank, edt, 0, DB_MODE_RW);
    reduce_then(edt, rank, 1, part);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc;
    points = argument(&depv[0], 1, 1024), ranks = argument(&depv[0], 2, 8), iterations = argument(&depv[0], 3, 8);
    if (points == 0 || ranks == 0 || iterations == 0) {
        fprintf(stderr, "conjugate-gradient: all arguments must be at least 1\n");
        ocrAbort(2);
    }
    ocrGuidRangeCreate(&vectors, ranks, GUID_USER_DB);
    ocrGuidRangeCreate(&channels, 2 * ranks, GUID_USER_EVENT_CHANNEL);
    ocrGuidRangeCreate(&sums, 3, GUID_USER_EVENT_COLLECTIVE);
    ocrEventParams_t one = {.EVENT_CHANNEL = {.maxGen = EVENT_CHANNEL_UNBOUNDED, .nbSat = 1, .nbDeps = 1}};
    for (u64 at = 0; at < 2 * ranks; at++) {
        ocrGuid_t guid = channel(at / 2, at % 2);
        ocrEventCreateParams(&guid, OCR_EVENT_CHANNEL_T, GUID_PROP_CHECK, &one);
    }
    ocrEventParams_t all = {.EVENT_LATCH = {.counter = ranks}};
    ocrGuid_t done;
    ocrGuidFromIndex(&done, sums, 2);
    ocrEventCreateParams(&done, OCR_EVENT_LATCH_T, GUID_PROP_CHECK, &all);
    /* The vectors do not exist yet: the dependences wait for them, and the last slot for the end of all ranks. */
    ocrGuid_t check = TASK(checkEdt, 0, NULL, (u32)ranks + 1, EDT_PROP_NONE, NULL, 0, 0);
    for (u64 rank = 0; rank < ranks; rank++) needs(vectors, rank, check, (u32)rank, DB_MODE_RO);
    ocrAddDependence(done, check, (u32)ranks, DB_MODE_NULL);
    for (u64 rank = 0; rank < ranks; rank++) TASK(rankEdt, 1, &rank, 0, EDT_PROP_NONE, NULL, rank, ranks);
    return NULL_GUID;
}
