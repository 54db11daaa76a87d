/*
 * Sums over all ranks, again and again, by a collective event (all-reduce).
 *
 *   reduction [RANKS [ROUNDS]]      default 8 20
 *
 * Pattern to show: all to all through the runtime. Each rank is a strand of tasks; a round's task
 * contributes its value and its successor gets the sum.
 * Checks every sum.
 */
#include "../common/workload.h"

typedef struct {
    u64 ranks, rounds, round, rank, collective, template, done;
} Rank;
#define PARAMS (sizeof(Rank) / sizeof(u64))

static ocrGuid_t rank(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Rank r = *(Rank *)paramv;
    (void)paramc, (void)depc;
    if (r.round > 0) {
        double n = (double)r.ranks, expected = n * (n - 1) / 2 + n * (double)(r.round - 1);
        const double *sum = depv[0].ptr;
        ocrAssert(sum[0] == expected && sum[1] == -expected);
        ocrDbDestroy(depv[0].guid);
    }
    if (r.round == r.rounds) {
        ocrEventSatisfySlot(guid_of(r.done), NULL_GUID, OCR_EVENT_LATCH_DECR_SLOT);
        return NULL_GUID;
    }
    double mine = (double)(r.rank + r.round), values[2] = {mine, -mine};
    ocrGuid_t next;
    ocrHint_t hint;
    r.round++;
    ocrEdtCreate(&next, guid_of(r.template), EDT_PARAM_DEF, (u64 *)&r, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                 near_part(&hint, OCR_HINT_EDT_T, r.rank, r.ranks), NULL);
    ocrAddDependenceSlot(guid_of(r.collective), (u32)r.rank, next, 0, DB_MODE_RO);
    ocrEventCollectiveSatisfySlot(guid_of(r.collective), values, (u32)r.rank);
    return NULL_GUID;
}

static ocrGuid_t finish(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc, (void)depv;
    PRINTF("reduction ranks %" PRIu64 " rounds %" PRIu64 " ok\n", paramv[0], paramv[1]);
    ocrEventDestroy(guid_of(paramv[2]));
    ocrShutdown();
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Rank r = {0};
    ocrGuid_t template, finish_template, edt, collective, done;
    ocrEventParams_t params;
    ocrHint_t hint;
    (void)paramc, (void)paramv, (void)depc;
    r.ranks = argument(depv, 1, 8);
    r.rounds = argument(depv, 2, 20);
    if (r.ranks == 0) {
        fprintf(stderr, "reduction: at least one rank\n");
        ocrAbort(2);
    }
    params.EVENT_COLLECTIVE.maxGen = 1;
    params.EVENT_COLLECTIVE.nbContribs = (u32)r.ranks;
    params.EVENT_COLLECTIVE.nbContribsPd = (u32)r.ranks;
    params.EVENT_COLLECTIVE.nbDatum = 2;
    params.EVENT_COLLECTIVE.arity = 2;
    params.EVENT_COLLECTIVE.op = REDOP_F8_ADD;
    params.EVENT_COLLECTIVE.type = COL_ALLREDUCE;
    params.EVENT_COLLECTIVE.reuseDbPerGen = false;
    ocrEventCreateParams(&collective, OCR_EVENT_COLLECTIVE_T, EVT_PROP_TAKES_ARG, &params);
    params.EVENT_LATCH.counter = r.ranks;
    ocrEventCreateParams(&done, OCR_EVENT_LATCH_T, EVT_PROP_NONE, &params);
    ocrEdtTemplateCreate(&template, rank, PARAMS, 1);
    ocrEdtTemplateCreate(&finish_template, finish, 3, 1);
    u64 finish_params[3] = {r.ranks, r.rounds, (u64)collective.guid};
    ocrEdtCreate(&edt, finish_template, EDT_PARAM_DEF, finish_params, EDT_PARAM_DEF, &done, EDT_PROP_NONE,
                 NULL_HINT, NULL);
    r.collective = (u64)collective.guid;
    r.template = (u64)template.guid;
    r.done = (u64)done.guid;
    for (r.rank = 0; r.rank < r.ranks; r.rank++) {
        ocrGuid_t nothing = NULL_GUID;
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, (u64 *)&r, EDT_PARAM_DEF, &nothing, EDT_PROP_NONE,
                     near_part(&hint, OCR_HINT_EDT_T, r.rank, r.ranks), NULL);
    }
    return NULL_GUID;
}
