/* Tasks that wait inside themselves: waits CASE
 *   served       the event comes, from a task that has to run meanwhile; many such waits
 *   never        for an event that nobody satisfies
 *   shutdown     ocrShutdown comes from another task
 *   held         for a task that needs a block which the waiting one holds
 *   two          two tasks, each for what the other would do after its wait
 *   label        for a label under which nothing is created
 *   turns        pairs of tasks whose waits are over alternately, as those of MPI ranks
 *   many         a thousand tasks that wait at a time, with a block and local storage each, satisfied oldest first
 */
#include <extensions/ocr-legacy.h>
#include <extensions/ocr-runtime-itf.h>
#include <ocr.h>
#include <string.h>

static const char *what;

static ocrGuid_t satisfier(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t event = {(intptr_t)paramv[0]};
    (void)paramc, (void)depc, (void)depv;
    ocrEventSatisfy(event, NULL_GUID);
    return NULL_GUID;
}

static ocrGuid_t stopper(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    ocrShutdown();
    return NULL_GUID;
}

static ocrGuid_t sticky(void) {
    ocrGuid_t event;
    ocrEventCreate(&event, OCR_EVENT_STICKY_T, EVT_PROP_NONE);
    return event;
}

static void create(ocrEdt_t function, const char *name, ocrGuid_t event, ocrGuid_t other, ocrGuid_t source) {
    ocrGuid_t template, edt;
    u64 params[2] = {(u64)event.guid, (u64)other.guid};
    ocrEdtTemplateCreate_internal(&template, function, 2, 1, name);
    ocrEdtCreate(&edt, template, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAddDependence(source, edt, 0, DB_MODE_RW);
}

/* params: the event to wait for, the event to satisfy afterwards. */
static ocrGuid_t waiter(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t event = {(intptr_t)paramv[0]}, then = {(intptr_t)paramv[1]};
    (void)paramc, (void)depc;
    if (strcmp(what, "held") == 0) {
        create(satisfier, "needs_the_block", event, event, depv[0].guid);
    }
    if (strcmp(what, "label") == 0) {
        ocrLegacyBlockProgress(event, NULL, NULL, NULL, LEGACY_PROP_WAIT_FOR_CREATE);
    } else {
        ocrWait(event);
    }
    if (!ocrGuidIsNull(then)) ocrEventSatisfy(then, NULL_GUID);
    return NULL_GUID;
}

enum { TURNS = 8, PAIRS = 10, MANY = 1000 };

/* params: which of a pair this is, the pair's events. */
static ocrGuid_t rank(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc, (void)depv;
    for (u64 turn = 0; turn < TURNS; turn++) {
        ocrGuid_t event = {(intptr_t)paramv[1 + turn]};
        if (turn % 2 == paramv[0]) ocrEventSatisfy(event, NULL_GUID);
        else ocrWait(event);
    }
    return NULL_GUID;
}

static ocrGuid_t last(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    ocrPrintf("all ended\n");
    ocrShutdown();
    return NULL_GUID;
}

static void turns(ocrGuid_t end) {
    ocrGuid_t template, edt, output;
    ocrEdtTemplateCreate(&template, rank, 1 + TURNS, 0);
    for (u32 pair = 0; pair < PAIRS; pair++) {
        u64 params[1 + TURNS];
        for (int turn = 0; turn < TURNS; turn++) params[1 + turn] = (u64)sticky().guid;
        for (u32 of = 0; of < 2; of++) {
            params[0] = of;
            output = NULL_GUID;
            ocrEventCreate(&output, OCR_EVENT_STICKY_T, EVT_PROP_NONE);
            ocrEdtCreate(&edt, template, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL, EDT_PROP_OEVT_VALID, NULL_HINT, &output);
            ocrAddDependence(output, end, 2 * pair + of, DB_MODE_NULL);
        }
    }
}

/* params: the events of all, its own number. It satisfies its successor's event and then waits for its own. */
static ocrGuid_t one_of_many(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t own = {(intptr_t)paramv[0]}, next = {(intptr_t)paramv[1]}, block, stored = {(intptr_t)paramv[2] + 1};
    u64 *memory;
    (void)paramc, (void)depc, (void)depv;
    ocrDbCreate(&block, (void **)&memory, 64, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    memory[0] = paramv[2];
    ocrElsUserSet(3, stored);
    ocrWait(own);
    ocrAssert(memory[0] == paramv[2]);
    ocrAssert(ocrElsUserGet(3).guid == stored.guid);
    ocrAssert(ocrDbRelease(block) == 0);
    ocrAssert(ocrDbDestroy(block) == 0);
    ocrEventSatisfy(next, NULL_GUID);
    return NULL_GUID;
}

static ocrGuid_t opener(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    return satisfier(paramc, paramv, depc, depv);
}

static void many(ocrGuid_t end) {
    ocrGuid_t template, edt, own = sticky(), first = own;
    ocrEdtTemplateCreate(&template, one_of_many, 3, 0);
    for (u64 at = 0; at < MANY; at++) {
        ocrGuid_t next = sticky();
        u64 params[3] = {(u64)own.guid, (u64)next.guid, at};
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
        own = next;
    }
    ocrAddDependence(own, end, 0, DB_MODE_NULL);
    create(opener, "opener", first, first, NULL_GUID);
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc;
    what = strdup(ocrGetArgv(depv[0].ptr, 1));
    if (strcmp(what, "served") == 0) {
        for (int i = 0; i < 200; i++) {
            ocrGuid_t there = sticky(), back = sticky();
            create(waiter, "waiter", there, back, NULL_GUID);
            create(satisfier, "satisfier", there, there, NULL_GUID);
            ocrWait(back);
        }
        ocrShutdown();
    } else if (strcmp(what, "turns") == 0 || strcmp(what, "many") == 0) {
        ocrGuid_t template, end;
        u32 slots = strcmp(what, "turns") == 0 ? 2 * PAIRS : 1;
        ocrEdtTemplateCreate(&template, last, 0, slots);
        ocrEdtCreate(&end, template, 0, NULL, slots, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
        if (slots == 1) many(end);
        else turns(end);
    } else if (strcmp(what, "held") == 0) {
        ocrGuid_t block, template, edt;
        void *memory;
        u64 params[2] = {(u64)sticky().guid, 0};
        ocrDbCreate(&block, &memory, 64, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
        ocrDbRelease(block);
        ocrEdtTemplateCreate(&template, waiter, 2, 1);
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
        ocrAddDependence(block, edt, 0, DB_MODE_EW);
    } else if (strcmp(what, "two") == 0) {
        ocrGuid_t first = sticky(), second = sticky();
        create(waiter, "one", first, second, NULL_GUID);
        create(waiter, "other", second, first, NULL_GUID);
    } else if (strcmp(what, "label") == 0) {
        ocrGuid_t range, label;
        ocrGuidRangeCreate(&range, 1, GUID_USER_EVENT_STICKY);
        ocrGuidFromIndex(&label, range, 0);
        create(waiter, "waiter", label, NULL_GUID, NULL_GUID);
    } else {
        create(waiter, "waiter", sticky(), NULL_GUID, NULL_GUID);
        if (strcmp(what, "shutdown") == 0) create(stopper, "stopper", NULL_GUID, NULL_GUID, NULL_GUID);
    }
    return NULL_GUID;
}
