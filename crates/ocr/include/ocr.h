/*
 * ocr.h - the Open Community Runtime, version 1.1, as implemented by numaloc's task runtime.
 *
 * Write `ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])`, include this
 * header, link with -lnumaloc_ocr (which provides main), or let `numaloc tasks cc` do both.
 *
 * General rules
 * - Threads: any task may make any call at any time.
 * - Ownership: objects are identified by GUID and belong to the runtime. Memory of a data block is valid
 *   from its hand-over (depv, ocrDbCreate) to ocrDbRelease or the end of the task.
 * - NULL: an out-parameter may be NULL if the caller does not need the value.
 * - Errors: 0 or an OCR_E code; on error the out-parameters are unchanged. A GUID of a destroyed object
 *   gives OCR_EINVAL, not a crash. NUMALOC_OCR_CHECKED=1 also reports the task that made the error, with objects and slots.
 * - Names from 1.1 and from 1.2 (ocrPrintf, ocrGetArgc, ocrHintSetValue) are both declared, and so are
 *   the extensions: labels, event parameters, counted, channel and collective events, hints,
 *   affinities, legacy waiting, dependences by value, the interface for runtimes on top.
 */
#ifndef NUMALOC_OCR_H
#define NUMALOC_OCR_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- numbers ---------------------------------------------------------------------------------- */

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef int64_t s64;
typedef int32_t s32;
typedef int16_t s16;
typedef int8_t s8;

#ifndef TRUE
#define TRUE 1
#define FALSE 0
#endif

/* ---- error codes ------------------------------------------------------------------------------ */

#define OCR_EPERM 1
#define OCR_ENOENT 2
#define OCR_EINTR 4
#define OCR_EIO 5
#define OCR_ENXIO 6
#define OCR_E2BIG 7
#define OCR_ENOEXEC 8
#define OCR_EAGAIN 11
#define OCR_ENOMEM 12
#define OCR_EACCES 13
#define OCR_EFAULT 14
#define OCR_EBUSY 16
#define OCR_ENODEV 19
#define OCR_EINVAL 22
#define OCR_ENOSPC 28
#define OCR_ESPIPE 29
#define OCR_EROFS 30
#define OCR_EDOM 33
#define OCR_ERANGE 34
#define OCR_ENOSYS 38
#define OCR_ENOTEMPTY 39
#define OCR_ENOTSUP 95
#define OCR_EGUIDEXISTS 100
#define OCR_EACQ 101
#define OCR_EPEND 102
#define OCR_ENOP 103
#define OCR_EDEFERRED 104
#define OCR_ECANCELED 125

/* ---- GUIDs ------------------------------------------------------------------------------------ */

#define GUID_BIT_COUNT 64
typedef struct {
    intptr_t guid;
} ocrGuid_t;

#define NULL_GUID_INITIALIZER {0}
#define UNINITIALIZED_GUID_INITIALIZER {-2}
#define ERROR_GUID_INITIALIZER {-1}
#ifdef __cplusplus
#define NULL_GUID (ocrGuid_t NULL_GUID_INITIALIZER)
#define UNINITIALIZED_GUID (ocrGuid_t UNINITIALIZED_GUID_INITIALIZER)
#define ERROR_GUID (ocrGuid_t ERROR_GUID_INITIALIZER)
#else
#define NULL_GUID ((ocrGuid_t)NULL_GUID_INITIALIZER)
#define UNINITIALIZED_GUID ((ocrGuid_t)UNINITIALIZED_GUID_INITIALIZER)
#define ERROR_GUID ((ocrGuid_t)ERROR_GUID_INITIALIZER)
#endif

/* printf("guid " GUIDF "\n", GUIDA(guid)) */
#define GUIDF "0x%" PRIxPTR
#define GUIDA(g) ((uintptr_t)(g).guid)

static inline bool ocrGuidIsNull(ocrGuid_t guid) { return guid.guid == 0; }
static inline bool ocrGuidIsUninitialized(ocrGuid_t guid) { return guid.guid == -2; }
static inline bool ocrGuidIsError(ocrGuid_t guid) { return guid.guid == -1; }
static inline bool ocrGuidIsEq(ocrGuid_t a, ocrGuid_t b) { return a.guid == b.guid; }
static inline bool ocrGuidIsLt(ocrGuid_t a, ocrGuid_t b) { return a.guid < b.guid; }
/* Names from before 1.1. */
#define IS_GUID_NULL(g) ocrGuidIsNull(g)
#define IS_GUID_UNINITIALIZED(g) ocrGuidIsUninitialized(g)
#define IS_GUID_ERROR(g) ocrGuidIsError(g)
#define IS_GUID_EQUAL(a, b) ocrGuidIsEq(a, b)
#define IS_GUID_LESS_THAN(a, b) ocrGuidIsLt(a, b)
#define GUID_ASSIGN_VALUE(to, from) ((to) = (from))
#define GUID_SIZE(g) (8 * sizeof(g))
#define GUIDSx GUIDF
#define GUIDLx GUIDF
#define GUIDFS(g) GUIDA(g)
#define GUIDFL(g) GUIDA(g)

/* The last argument of creations was an affinity in 1.0 and is a hint since 1.1. */
#define PICK_1_1(since_1_1, in_1_0) (since_1_1)

#define GUID_PROP_NONE ((u16)0x000)
#define GUID_PROP_IS_LABELED ((u16)0x100)
/* Get or create: OCR_EGUIDEXISTS if an object exists there already. Implies IS_LABELED. */
#define GUID_PROP_CHECK ((u16)0x300)
/* Waits until the label is free. Implies IS_LABELED. */
#define GUID_PROP_BLOCK ((u16)0x500)

/* ---- data blocks ------------------------------------------------------------------------------ */

typedef enum {
    DB_MODE_NULL = 0x0,  /* no access: a control dependence */
    DB_MODE_CONST = 0x1, /* shared with CONST only: the contents do not change */
    DB_MODE_RW = 0x2,    /* shared with RW and RO: the program synchronises */
    DB_MODE_EW = 0x4,    /* exclusive */
    DB_MODE_RO = 0x8     /* shared with RW and RO */
} ocrDbAccessMode_t;
#define DB_DEFAULT_MODE DB_MODE_RW
#define DB_MODE_ITW DB_MODE_RW

typedef enum { NO_ALLOC = 0 } ocrInDbAllocator_t;

#define DB_PROP_NONE ((u16)0x00)
/* The creator does not need the memory: the address returned is NULL. */
#define DB_PROP_NO_ACQUIRE ((u16)0x10)
#define DB_PROP_SINGLE_ASSIGNMENT ((u16)0x20)
#define DB_PROP_NO_HINT ((u16)0x40)

/* ---- tasks ------------------------------------------------------------------------------------ */

typedef struct {
    ocrGuid_t guid;         /* the data block, or NULL_GUID */
    void *ptr;              /* its memory, or NULL */
    ocrDbAccessMode_t mode; /* how it is held */
} ocrEdtDep_t;

typedef ocrGuid_t (*ocrEdt_t)(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]);

#define EDT_PROP_NONE ((u16)0x0)
/* The output event fires when the task and all tasks created below it have ended. */
#define EDT_PROP_FINISH ((u16)0x1)
#define EDT_PROP_NO_HINT ((u16)0x2)
#define EDT_PROP_LONG ((u16)0x4)
/* *outputEvent is an existing event. */
#define EDT_PROP_OEVT_VALID ((u16)0x8)

#define EDT_PARAM_UNK ((u32)-1) /* template: specified when the task is created */
#define EDT_PARAM_DEF ((u32)-2) /* task: as specified by the template */

/* ---- events ----------------------------------------------------------------------------------- */

typedef enum {
    OCR_EVENT_ONCE_T = 1,   /* destroyed when it fires */
    OCR_EVENT_IDEM_T = 2,   /* fires once, ignores later satisfactions */
    OCR_EVENT_STICKY_T = 3, /* fires once, OCR_EINVAL the second time */
    OCR_EVENT_LATCH_T = 4,  /* fires and is destroyed when its two slots are equal */
    OCR_EVENT_COUNTED_T = 5, /* destroyed after it fired and served nbDeps dependences */
    OCR_EVENT_CHANNEL_T = 6, /* pairs the n-th satisfaction with the n-th dependence */
    OCR_EVENT_COLLECTIVE_T = 7, /* repeated reduction over its slots */
    OCR_EVENT_T_MAX
} ocrEventTypes_t;

typedef enum { OCR_EVENT_LATCH_DECR_SLOT = 0, OCR_EVENT_LATCH_INCR_SLOT = 1 } ocrLatchEventSlot_t;

#define EVT_PROP_NONE ((u16)0x0)
#define EVT_PROP_TAKES_ARG ((u16)0x1)

typedef u16 redOp_t;
typedef enum { COL_REDUCE, COL_ALLREDUCE, COL_BROADCAST } collectiveType_t;

/* The unnamed union is C11; before that, and its unnamed members in C++, an extension that all compilers have. */
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpedantic"
#pragma clang diagnostic ignored "-Wnested-anon-types"
#endif
__extension__ typedef struct {
    union {
        struct {
            u64 counter; /* initial count */
        } EVENT_LATCH;
        struct {
            u64 nbDeps; /* dependences after which it is destroyed; at least 1 */
        } EVENT_COUNTED;
        struct {
            u32 maxGen; /* how far one side may run ahead; EVENT_CHANNEL_UNBOUNDED: unlimited */
            u32 nbSat;  /* 1 */
            u32 nbDeps; /* 1 */
        } EVENT_CHANNEL;
        struct {
            u32 maxGen;
            u32 nbContribs; /* contributors: slots 0 to nbContribs-1 */
            u32 nbContribsPd;
            u16 nbDatum; /* values in a contribution */
            u16 arity;
            redOp_t op;
            collectiveType_t type;
            bool reuseDbPerGen;
        } EVENT_COLLECTIVE;
    };
} ocrEventParams_t;
#ifdef __clang__
#pragma clang diagnostic pop
#endif
#define EVENT_CHANNEL_UNBOUNDED ((u32)-1)

/* Reduction operators: operator in bits 7-9, real in 6, signed in 5, size-1 in 2-4. */
#define REDOP_ASSOCIATIVE (1 << 0)
#define REDOP_COMMUTATIVE (1 << 1)
#define REDOP_BS1 (0 << 2)
#define REDOP_BS2 (1 << 2)
#define REDOP_BS4 (3 << 2)
#define REDOP_BS8 (7 << 2)
#define REDOP_UNSIGNED 0
#define REDOP_SIGNED (1 << 5)
#define REDOP_INTEGER 0
#define REDOP_REAL (1 << 6)
#define REDOP_ADD (0 << 7)
#define REDOP_MULT (1 << 7)
#define REDOP_MIN (2 << 7)
#define REDOP_MAX (3 << 7)
#define REDOP_BITAND (4 << 7)
#define REDOP_BITOR (5 << 7)
#define REDOP_BITXOR (6 << 7)
#define NUMALOC_REDOP_F8 (3 | REDOP_BS8 | REDOP_SIGNED | REDOP_REAL)
#define NUMALOC_REDOP_F4 (3 | REDOP_BS4 | REDOP_SIGNED | REDOP_REAL)
#define NUMALOC_REDOP_U8 (3 | REDOP_BS8)
#define NUMALOC_REDOP_U4 (3 | REDOP_BS4)
#define NUMALOC_REDOP_S8 (3 | REDOP_BS8 | REDOP_SIGNED)
#define NUMALOC_REDOP_S4 (3 | REDOP_BS4 | REDOP_SIGNED)
#define REDOP_F8_ADD (NUMALOC_REDOP_F8 | REDOP_ADD)
#define REDOP_F8_MULT (NUMALOC_REDOP_F8 | REDOP_MULT)
#define REDOP_F8_MIN (NUMALOC_REDOP_F8 | REDOP_MIN)
#define REDOP_F8_MAX (NUMALOC_REDOP_F8 | REDOP_MAX)
#define REDOP_F4_ADD (NUMALOC_REDOP_F4 | REDOP_ADD)
#define REDOP_F4_MULT (NUMALOC_REDOP_F4 | REDOP_MULT)
#define REDOP_F4_MIN (NUMALOC_REDOP_F4 | REDOP_MIN)
#define REDOP_F4_MAX (NUMALOC_REDOP_F4 | REDOP_MAX)
#define REDOP_U8_ADD (NUMALOC_REDOP_U8 | REDOP_ADD)
#define REDOP_U8_MULT (NUMALOC_REDOP_U8 | REDOP_MULT)
#define REDOP_U8_MIN (NUMALOC_REDOP_U8 | REDOP_MIN)
#define REDOP_U8_MAX (NUMALOC_REDOP_U8 | REDOP_MAX)
#define REDOP_U8_BITAND (NUMALOC_REDOP_U8 | REDOP_BITAND)
#define REDOP_U8_BITOR (NUMALOC_REDOP_U8 | REDOP_BITOR)
#define REDOP_U8_BITXOR (NUMALOC_REDOP_U8 | REDOP_BITXOR)
#define REDOP_S8_MIN (NUMALOC_REDOP_S8 | REDOP_MIN)
#define REDOP_S8_MAX (NUMALOC_REDOP_S8 | REDOP_MAX)
#define REDOP_U4_ADD (NUMALOC_REDOP_U4 | REDOP_ADD)
#define REDOP_U4_MULT (NUMALOC_REDOP_U4 | REDOP_MULT)
#define REDOP_U4_MIN (NUMALOC_REDOP_U4 | REDOP_MIN)
#define REDOP_U4_MAX (NUMALOC_REDOP_U4 | REDOP_MAX)
#define REDOP_U4_BITAND (NUMALOC_REDOP_U4 | REDOP_BITAND)
#define REDOP_U4_BITOR (NUMALOC_REDOP_U4 | REDOP_BITOR)
#define REDOP_U4_BITXOR (NUMALOC_REDOP_U4 | REDOP_BITXOR)
#define REDOP_S4_MIN (NUMALOC_REDOP_S4 | REDOP_MIN)
#define REDOP_S4_MAX (NUMALOC_REDOP_S4 | REDOP_MAX)

/* ---- hints ------------------------------------------------------------------------------------ */

typedef enum {
    OCR_HINT_UNDEF_T,
    OCR_HINT_EDT_T,
    OCR_HINT_DB_T,
    OCR_HINT_EVT_T,
    OCR_HINT_GROUP_T
} ocrHintType_t;

typedef enum {
    OCR_HINT_EDT_PROP_START,
    OCR_HINT_EDT_PRIORITY,
    OCR_HINT_EDT_SLOT_MAX_ACCESS,
    OCR_HINT_EDT_AFFINITY, /* honoured: where the task runs */
    OCR_HINT_EDT_DISPERSE,
    OCR_HINT_EDT_SPACE,
    OCR_HINT_EDT_TIME,
    OCR_HINT_EDT_PROP_END,
    OCR_HINT_DB_PROP_START,
    OCR_HINT_DB_AFFINITY, /* honoured: where the memory is */
    OCR_HINT_DB_NEAR,
    OCR_HINT_DB_INTER,
    OCR_HINT_DB_FAR,
    OCR_HINT_DB_HIGHBW,
    OCR_HINT_DB_EAGER,
    OCR_HINT_DB_LAZY,
    OCR_HINT_DB_PROP_END,
    OCR_HINT_EVT_PROP_START,
    OCR_HINT_EVT_PROP_END,
    OCR_HINT_GROUP_PROP_START,
    OCR_HINT_GROUP_PROP_END
} ocrHintProp_t;

typedef u64 ocrHintVal_t;
typedef struct {
    ocrHintType_t type;
    u64 propMask;
    u64 args[8];
} ocrHint_t;
#define NULL_HINT ((ocrHint_t *)0)
#define OCR_HINT_EDT_DISPERSE_FAR 0
#define OCR_HINT_EDT_DISPERSE_NEAR 1

u8 ocrHintInit(ocrHint_t *hint, ocrHintType_t hintType);
u8 ocrHintSetValue(ocrHint_t *hint, ocrHintProp_t property, ocrHintVal_t value);
u8 ocrHintUnsetValue(ocrHint_t *hint, ocrHintProp_t property);
u8 ocrHintGetValue(ocrHint_t *hint, ocrHintProp_t property, ocrHintVal_t *value);
u8 ocrSetHintValue(ocrHint_t *hint, ocrHintProp_t property, u64 value);
u8 ocrUnsetHintValue(ocrHint_t *hint, ocrHintProp_t property);
u8 ocrGetHintValue(ocrHint_t *hint, ocrHintProp_t property, u64 *value);
/* On a template (for tasks made from it later) or a data block (before its memory is first used). */
u8 ocrSetHint(ocrGuid_t guid, ocrHint_t *hint);
u8 ocrGetHint(ocrGuid_t guid, ocrHint_t *hint);

/* ---- the core --------------------------------------------------------------------------------- */

/* Defined by the program. Not declared in C, so that it may also be written without parameters: `ocrGuid_t mainEdt()`. */
#ifdef __cplusplus
ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]);
#endif

u8 ocrEdtTemplateCreate_internal(ocrGuid_t *guid, ocrEdt_t function, u32 paramc, u32 depc,
                                 const char *name);
#define ocrEdtTemplateCreate(guid, function, paramc, depc) \
    ocrEdtTemplateCreate_internal((guid), (function), (paramc), (depc), #function)
u8 ocrEdtTemplateDestroy(ocrGuid_t guid);
u8 ocrEdtCreate(ocrGuid_t *guid, ocrGuid_t templateGuid, u32 paramc, u64 *paramv, u32 depc,
                ocrGuid_t *depv, u16 properties, ocrHint_t *hint, ocrGuid_t *outputEvent);
u8 ocrEdtDestroy(ocrGuid_t guid);

u8 ocrEventCreate(ocrGuid_t *guid, ocrEventTypes_t eventType, u16 properties);
u8 ocrEventCreateParams(ocrGuid_t *guid, ocrEventTypes_t eventType, u16 properties,
                        ocrEventParams_t *params);
u8 ocrEventDestroy(ocrGuid_t guid);
u8 ocrEventSatisfy(ocrGuid_t eventGuid, ocrGuid_t dataGuid);
u8 ocrEventSatisfySlot(ocrGuid_t eventGuid, ocrGuid_t dataGuid, u32 slot);
/* Contributes nbDatum values at dataPtr. */
u8 ocrEventCollectiveSatisfySlot(ocrGuid_t eventGuid, void *dataPtr, u32 islot);

u8 ocrAddDependence(ocrGuid_t source, ocrGuid_t destination, u32 slot, ocrDbAccessMode_t mode);
u8 ocrAddDependenceSlot(ocrGuid_t source, u32 sslot, ocrGuid_t destination, u32 dslot,
                        ocrDbAccessMode_t mode);
/* The destination gets a copy of the block's current contents. */
u8 ocrAddDependenceByValue(ocrGuid_t sourceDb, ocrGuid_t destination, u32 slot,
                           ocrDbAccessMode_t mode);
u8 ocrGroupBegin(void);
u8 ocrGroupEnd(void);

u8 ocrDbCreate(ocrGuid_t *db, void **addr, u64 len, u16 flags, ocrHint_t *hint,
               ocrInDbAllocator_t allocator);
u8 ocrDbRelease(ocrGuid_t db);
/* Size of a block that the task holds; OCR_EACCES otherwise. */
u8 ocrDbGetSize(ocrGuid_t db, u64 *size);
/* A task that destroys a block it holds releases it; other tasks hold it until they end. */
u8 ocrDbDestroy(ocrGuid_t db);
/* Creates a task that copies. *completionEvent, if requested, fires with the destination: a STICKY event, so that a
 * dependence may be added after the copy is done; the caller destroys it. OCR_ENOMEM if a block is too small; OCR_EPERM if
 * both are the same. */
u8 ocrDbCopy(ocrGuid_t destination, u64 destinationOffset, ocrGuid_t source, u64 sourceOffset, u64 size,
             u64 copyType, ocrGuid_t *completionEvent);
/* Always OCR_EINVAL: no block supports allocation, because NO_ALLOC is the only allocator. */
u8 ocrDbMalloc(ocrGuid_t db, u64 size, void **addr);
u8 ocrDbMallocOffset(ocrGuid_t db, u64 size, u64 *offset);
u8 ocrDbFree(ocrGuid_t db, void *addr);
u8 ocrDbFreeOffset(ocrGuid_t db, u64 offset);

void ocrShutdown(void);
void ocrAbort(u8 errorCode);

/* ---- labels ----------------------------------------------------------------------------------- */

typedef enum {
    GUID_USER_NONE,
    GUID_USER_DB,
    GUID_USER_EDT,
    GUID_USER_EDT_TEMPLATE,
    GUID_USER_EVENT_ONCE,
    GUID_USER_EVENT_IDEM,
    GUID_USER_EVENT_STICKY,
    GUID_USER_EVENT_LATCH,
    GUID_USER_EVENT_COUNTED,
    GUID_USER_EVENT_CHANNEL,
    GUID_USER_EVENT_COLLECTIVE
} ocrGuidUserKind;

u8 ocrGuidRangeCreate(ocrGuid_t *rangeGuid, u64 numberGuid, ocrGuidUserKind kind);
u8 ocrGuidFromIndex(ocrGuid_t *outGuid, ocrGuid_t rangeGuid, u64 idx);
/* A range whose labels are found from tuples: ocrGuidFromLabel returns the result of mapFunc for the first label's GUID, the
 * distance between two labels' GUIDs, a copy of params, and the tuple. */
u8 ocrGuidMapCreate(ocrGuid_t *mapGuid, u32 numParams,
                    ocrGuid_t (*mapFunc)(ocrGuid_t startGuid, u64 skipGuid, s64 *params, s64 *tuple),
                    s64 *params, u64 numberGuid, ocrGuidUserKind kind);
u8 ocrGuidFromLabel(ocrGuid_t *outGuid, ocrGuid_t mapGuid, s64 *tuple);
/* Destroys a range or a map. */
u8 ocrGuidMapDestroy(ocrGuid_t mapGuid);
/* Kind of an object, or of the object created under a label; GUID_USER_NONE for any other GUID. */
u8 ocrGetGuidKind(ocrGuidUserKind *outKind, ocrGuid_t guid);

/* ---- affinities: one for each NUMA node ------------------------------------------------------- */

typedef enum { AFFINITY_CURRENT, AFFINITY_PD, AFFINITY_PD_MASTER, AFFINITY_GUID } ocrAffinityKind;

u8 ocrAffinityCount(ocrAffinityKind kind, u64 *count);
u8 ocrAffinityGet(ocrAffinityKind kind, u64 *count, ocrGuid_t *affinities);
u8 ocrAffinityGetAt(ocrAffinityKind kind, u64 idx, ocrGuid_t *affinity);
u8 ocrAffinityGetCurrent(ocrGuid_t *affinity);
/* The node of a task or data block. */
u8 ocrAffinityQuery(ocrGuid_t guid, u64 *count, ocrGuid_t *affinities);
u64 ocrAffinityToHintValue(ocrGuid_t affinity);

/* ---- waiting inside a task (legacy): other tasks run meanwhile --------------------------------- */

#define LEGACY_PROP_NONE ((u16)0x0)
#define LEGACY_PROP_WAIT_FOR_CREATE ((u16)0x1)
#define LEGACY_PROP_WAIT_IF_CREATED ((u16)0x2)
#define LEGACY_PROP_CHECK ((u16)0x4)

/* STICKY and IDEM events only. The memory stays valid until the task ends. Waiting for an event that never fires
 * ends the run with a report. */
u8 ocrLegacyBlockProgress(ocrGuid_t event, ocrGuid_t *guid, void **result, u64 *size,
                          u16 properties);
ocrGuid_t ocrWait(ocrGuid_t event);

/* ---- for runtimes on top of this one (extensions/ocr-runtime-itf.h) ----------------------------- */

/* Task-local storage: 256 GUIDs, initially NULL_GUID, freed when the task ends. */
ocrGuid_t ocrElsUserGet(u8 offset);
void ocrElsUserSet(u8 offset, ocrGuid_t data);
/* The running task; NULL_GUID outside tasks. */
ocrGuid_t currentEdtUserGet(void);
/* The same as a result; OCR_EINVAL outside tasks. */
u8 ocrCurrentEdtGet(ocrGuid_t *edt);
u64 ocrNbWorkers(void);
/* Identifies the current worker; has no other use. */
ocrGuid_t ocrCurrentWorkerGuid(void);
/* A hint without effect here: the other workers continue in any case. */
u8 ocrInformLegacyCodeBlocking(void);

/* ---- arguments, printing, assertions ----------------------------------------------------------- */

/* Data block 0 of mainEdt: u64 count, u64 offsets[count], strings. */
static inline u64 ocrGetArgc(void *block) { return ((u64 *)block)[0]; }
static inline char *ocrGetArgv(void *block, u64 at) { return (char *)block + ((u64 *)block)[1 + at]; }
#define getArgc(block) ocrGetArgc(block)
#define getArgv(block, at) ocrGetArgv(block, at)

/* Whether this is a replay of a profiling run, which will be undone. */
u8 numaloc_ocr_replaying(void);

__attribute__((format(printf, 1, 2))) static inline u32 ocrPrintf(const char *format, ...) {
    va_list arguments;
    int written;
    if (numaloc_ocr_replaying()) return 0;
    va_start(arguments, format);
    written = vprintf(format, arguments);
    va_end(arguments);
    return written < 0 ? 0 : (u32)written;
}
#ifndef PRINTF
#define PRINTF ocrPrintf
#endif

#define ocrAssert(condition)                                                                      \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fflush(stdout);                                                                       \
            fprintf(stderr, "%s:%d: assertion failed: %s\n", __FILE__, __LINE__, #condition);     \
            ocrAbort(1);                                                                          \
        }                                                                                         \
    } while (0)
#ifndef ASSERT
#define ASSERT(condition) ocrAssert(condition)
#endif

/* Prints whether a condition holds, and continues: VERIFY(sum == 10, "the sum is %d\n", sum). */
#define VERIFY(condition, ...)                                                                    \
    do {                                                                                          \
        ocrPrintf("%s @ '%s:%d' ", (condition) ? "PASSED" : "FAILURE", __FILE__, __LINE__);       \
        ocrPrintf(__VA_ARGS__);                                                                   \
    } while (0)

/* For programs with their own main: runs mainEdt to the end, returns the exit status. */
int numaloc_ocr_run(int argc, char **argv, ocrEdt_t mainFunction);

#ifdef __cplusplus
}
#endif
#endif
