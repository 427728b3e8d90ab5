/* tileglu: the gated MLP of a large language model with the activation fused
 * into the matrix multiply at the tile level.
 *
 *     H = act(X Wg^T + bg) * (X Wu^T + bu)      the GLU,  tglu_glu_*
 *     O = H Wd^T + bd (+ R)                     the MLP,  tglu_mlp_*
 *
 * X is [tokens, hidden], Wg and Wu are [intermediate, hidden], H is
 * [tokens, intermediate], Wd is [hidden, intermediate], O and the optional
 * residual R are [tokens, hidden].  All matrices are row-major: element (i, j)
 * lies at base + (i * ld + j) elements.  In papers: M = tokens, N =
 * intermediate, K = hidden.  The two intermediates of the GLU are never written
 * to memory.  (Jangda et al., "Tile-Level Activation Overlap for Efficient LLM
 * Inference", 2026; this library's `gate_first` and `paired` kernels.)
 *
 * Quick start (see README.md for the whole program)
 *
 *     tglu_context *ctx;  tglu_glu *glu;
 *     tglu_context_create(NULL, &ctx);                   // best backend here
 *     tglu_glu_desc d;    tglu_glu_desc_init(&d);
 *     d.hidden = K; d.intermediate = N; d.dtype = TGLU_DTYPE_BF16;
 *     d.activation = TGLU_ACTIVATION_SILU; d.layout = TGLU_LAYOUT_SEPARATE;
 *     d.gate = Wg; d.up = Wu;
 *     tglu_glu_create(ctx, &d, &glu);                    // slow: plans
 *     tglu_run_args a;    tglu_run_args_init(&a);
 *     a.x = X; a.tokens = M; a.out = H;
 *     tglu_glu_run(glu, &a);                             // fast: one launch
 *
 * CONVENTIONS
 *
 * Errors.  Every call that can fail returns a tglu_status; TGLU_OK is 0.  On
 * failure tglu_last_error() gives, on the same thread, a sentence that names the
 * argument and the rule it broke.  A failed call changes nothing: no output
 * argument is set (handles are set to NULL), no result is half-written.  The
 * library never exits, aborts or prints.
 *
 * Structs.  Each has a `size` field and an init function which sets every field
 * to its default.  Always call the init function: fields added later then have
 * their default.  A struct smaller than the first published one, or larger than
 * this library's with a non-zero tail, is refused.
 *
 * Units.  Strides (ld...) are in elements, sizes ending in _bytes in bytes.
 * ld = 0 means tight (equal to the number of columns).
 *
 * Ownership.  Weights, biases, x, out, residual and workspace belong to the
 * caller.  Weights and biases are bound, not copied: they must stay valid, and
 * where they are, for the life of the object.  Changing their contents between
 * runs is allowed; the next run uses the new contents.  On the CPU backend all
 * pointers are host memory at any address; on the CUDA backend all are memory of
 * the context's device, at multiples of the element size, and 16-byte-aligned
 * pointers with strides that are multiples of 8 elements take the fast path.
 *
 * Threads.  Contexts, glu and mlp objects are immutable once created: any number
 * of threads may run the same object at once.  Create and destroy are safe to
 * call from any thread, but an object must not be destroyed while a call on it
 * is running.  On CUDA a call has ended once run returns, since what its kernels
 * need belongs to the context: that one must outlive the stream work and every
 * graph that captured it.  A context is freed with its last object.  On the CPU
 * backend a context owns one pool of threads; calls that arrive at once take the
 * pool in turn.  After fork() a child may go on using a CPU context: it runs
 * single-threaded there.
 *
 * Streams.  On CUDA `stream` is a CUstream (cudaStream_t); NULL is the legacy
 * default stream.  Work is ordered on that stream only.  run is legal during
 * stream capture, also as the first call.  On the CPU it must be NULL.
 *
 * Numbers.  Products accumulate in fp32.  Activation and product are computed in
 * fp32 on the fp32 accumulators and rounded once to the object's type (nearest
 * even).  In an MLP, H is rounded once to the object's type; an fp16 H beyond
 * 65504 becomes +-inf.  NaN in gate or up gives NaN, also through min and clamp; a
 * gate of -inf gives the activation's limit, 0.  The same call repeated gives the
 * same bits, whatever the caller's floating-point environment, which is kept.
 */
#ifndef TILEGLU_TILEGLU_H
#define TILEGLU_TILEGLU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TGLU_API __attribute__((visibility("default")))
#else
#define TGLU_API
#endif

/* ---- Version ----------------------------------------------------------------
 * Until 1.0 a minor version may change the ABI (the soname carries it); from 1.0
 * on only a major one may. */
#define TGLU_VERSION_MAJOR 0
#define TGLU_VERSION_MINOR 1
#define TGLU_VERSION_PATCH 0

/* Version of the library at run time: major * 10000 + minor * 100 + patch, and
 * as text ("0.1.0").  Neither touches a driver. */
TGLU_API uint32_t tglu_version(void);
TGLU_API const char *tglu_version_string(void);

/* ---- Status -----------------------------------------------------------------
 * The one list of results: XX(NAME, value, text).  Values are pinned for good. */
#define TGLU_STATUS_MAP(XX)                                                       \
  XX(OK,                    0, "success")                                         \
  XX(ERR_INVALID_ARGUMENT,  1, "an argument breaks a rule of its documentation")  \
  XX(ERR_UNSUPPORTED,       2, "valid, but this backend or build cannot do it")   \
  XX(ERR_OUT_OF_MEMORY,     3, "memory could not be allocated")                   \
  XX(ERR_OVERLAP,           4, "an output overlaps an input or the workspace")    \
  XX(ERR_WORKSPACE,         5, "the workspace is missing or too small")           \
  XX(ERR_NO_DRIVER,         6, "the CUDA driver library is missing or too old")   \
  XX(ERR_NO_DEVICE,         7, "no device of the kind asked for is usable")       \
  XX(ERR_DEVICE,            8, "the device or its driver reported an error")      \
  XX(ERR_NOT_FOUND,         9, "the named thing does not exist")                  \
  XX(ERR_IO,               10, "a file could not be opened, read or written")     \
  XX(ERR_FORMAT,           11, "a file breaks the rules of its format")           \
  XX(ERR_BUFFER_TOO_SMALL, 12, "the text did not fit and was cut")                \
  XX(ERR_FORKED,           13, "this process was forked from the object's owner") \
  XX(ERR_INTERNAL,         14, "a bug in tileglu: please report it")

typedef enum tglu_status {
#define TGLU_STATUS_ENUM_(name, value, text) TGLU_##name = value,
  TGLU_STATUS_MAP(TGLU_STATUS_ENUM_)
#undef TGLU_STATUS_ENUM_
  TGLU_STATUS_FORCE_32_BITS_ = 0x7fffffff
} tglu_status;

/* "TGLU_ERR_OVERLAP" and "an output overlaps ..." for a status; for a number
 * that is none, "TGLU_UNKNOWN" and "unknown status".  Static strings. */
TGLU_API const char *tglu_status_name(tglu_status status);
TGLU_API const char *tglu_status_text(tglu_status status);

/* Message of the last failed call on this thread, "" if none failed yet.  Valid
 * until the next failing call on this thread. */
TGLU_API const char *tglu_last_error(void);

/* ---- Enumerations -----------------------------------------------------------
 * Values are pinned.  0 is never a valid value of dtype, activation or layout,
 * so that a forgotten field is refused rather than guessed. */
typedef enum tglu_dtype {
  TGLU_DTYPE_BF16 = 1, /* bfloat16                                          */
  TGLU_DTYPE_F16  = 2, /* IEEE binary16                                     */
  TGLU_DTYPE_F32  = 3  /* IEEE binary32; CPU backend only                   */
} tglu_dtype;

typedef enum tglu_activation {
  TGLU_ACTIVATION_SILU      = 1, /* g * sigma(g)                             */
  TGLU_ACTIVATION_GELU_TANH = 2, /* g * sigma(2 sqrt(2/pi)(g + 0.044715g^3)) */
  TGLU_ACTIVATION_GELU_ERF  = 3, /* g/2 * erfc(-g / sqrt 2)                  */
  TGLU_ACTIVATION_RELU      = 4, /* max(g, 0), NaN stays NaN                 */
  TGLU_ACTIVATION_SIGMOID   = 5, /* 1 / (1 + exp(-g))                        */
  TGLU_ACTIVATION_SWIGLUOAI = 6  /* g' = min(g, limit); u' = clamp(u, +-limit);
                                    g' * sigma(alpha g') * (u' + offset)     */
} tglu_activation;

/* How the caller's gate and up weights lie in memory.  Every one is read where
 * it lies.  `ld` is the row stride of the tensor named. */
typedef enum tglu_layout {
  TGLU_LAYOUT_SEPARATE           = 1, /* gate [N,K] and up [N,K], one ld      */
  TGLU_LAYOUT_STACKED_GATE_FIRST = 2, /* gate_up [2N,K]: N gate rows, N up    */
  TGLU_LAYOUT_STACKED_UP_FIRST   = 3, /* gate_up [2N,K]: N up rows, N gate    */
  TGLU_LAYOUT_INTERLEAVED        = 4  /* gate_up [2N,K]: row 2i gate, 2i+1 up */
} tglu_layout;

typedef enum tglu_backend {
  TGLU_BACKEND_AUTO = 0, /* a usable Hopper GPU, else the CPU                 */
  TGLU_BACKEND_CPU  = 1,
  TGLU_BACKEND_CUDA = 2
} tglu_backend;

/* Exact, case-sensitive names ("bf16" "f16" "f32"; "silu" "gelu_tanh"
 * "gelu_erf" "relu" "sigmoid" "swigluoai"; "separate" "stacked_gate_first"
 * "stacked_up_first" "interleaved"; "auto" "cpu" "cuda").  The _name calls
 * return NULL for a number that is none; the _from_name calls fail with
 * TGLU_ERR_INVALID_ARGUMENT and a message that lists the names. */
TGLU_API const char *tglu_dtype_name(tglu_dtype dtype);
TGLU_API size_t      tglu_dtype_bytes(tglu_dtype dtype); /* 0 if none */
TGLU_API const char *tglu_activation_name(tglu_activation activation);
TGLU_API const char *tglu_layout_name(tglu_layout layout);
TGLU_API const char *tglu_backend_name(tglu_backend backend);
TGLU_API tglu_status tglu_dtype_from_name(const char *name, tglu_dtype *out);
TGLU_API tglu_status tglu_activation_from_name(const char *name, tglu_activation *out);
TGLU_API tglu_status tglu_layout_from_name(const char *name, tglu_layout *out);
TGLU_API tglu_status tglu_backend_from_name(const char *name, tglu_backend *out);

/* ---- Context ----------------------------------------------------------------
 * A backend on one device.  Creating one is the only place where the
 * environment is read; an option that is set wins over its variable:
 *   TILEGLU_BACKEND  TILEGLU_DEVICE  TILEGLU_THREADS  TILEGLU_CPU_ISA
 *   TILEGLU_ROW  TILEGLU_SM_LIMIT  TILEGLU_PDL  TILEGLU_TUNE_CACHE
 *   TILEGLU_CUDA_LIBRARY
 * A variable with a value that its option would refuse is refused likewise, the
 * message naming the variable. */
typedef struct tglu_context tglu_context;

typedef enum tglu_log_level {
  TGLU_LOG_WARNING = 1, TGLU_LOG_INFO = 2, TGLU_LOG_DEBUG = 3
} tglu_log_level;

/* Called for warnings and notes, from the thread that made the call, never from
 * run.  The message is valid only during the call. */
typedef void (*tglu_log_fn)(void *user, tglu_log_level level, const char *message);

/* Host memory for the library's own use.  alloc gets a size > 0 and a power-of-
 * two alignment and returns NULL on failure; free gets what alloc returned, and
 * the same size.  Both must be thread-safe.  Never called from run. */
typedef void *(*tglu_alloc_fn)(void *user, size_t bytes, size_t alignment);
typedef void (*tglu_free_fn)(void *user, void *pointer, size_t bytes);

typedef struct tglu_context_options {
  size_t size;
  tglu_backend backend;     /* default AUTO                                      */
  int32_t device;           /* CUDA device ordinal; -1 (default): 0. CPU: -1 or 0 */
  int32_t threads;          /* CPU: 0 (default): one a CPU this process may use  */
  int32_t sm_limit;         /* CUDA: most SMs to occupy; 0 (default): all. A down
                               projection with operands off 16 bytes takes more:
                               one for each 8 tokens                             */
  int32_t batch_invariant;  /* 1: a token's bits do not depend on the others     */
  int32_t stable_weights;   /* 1: the caller promises that no work still in
                               flight on the stream writes the weights           */
  int32_t pdl;              /* CUDA: 1 (default): launches use programmatic stream
                               serialization, so that a kernel's start overlaps
                               the end of the one before (it still waits for that
                               one's results before it reads or writes memory,
                               stable weights excepted); 0: not so. The second launch
                               of an MLP always overlaps its first; an MLP in
                               one launch never overlaps what is before it       */
  int32_t sleep_threads;    /* CPU: 1: the pool's threads sleep between calls. 0
                               (default): they first spin for some milliseconds,
                               which starts a call that follows soon up to 20 us
                               sooner, and takes their CPUs from any other thread
                               of the program, such as another library's pool    */
  const char *row;          /* force this kernel row, by name; NULL: planner     */
  const char *cpu_isa;      /* "portable" "avx2" "avx512" "amx": use no more
                               than this; NULL: best that CPU and OS enable.
                               One that this CPU or build lacks is refused       */
  const char *tune_cache;   /* file of tuned rows (see "Tuning" below); NULL: the
                               default place; "": none                           */
  const char *cuda_library; /* driver library to open; NULL: "libcuda.so.1"      */
  tglu_log_fn log;          /* NULL: silent                                      */
  void *log_user;
  tglu_alloc_fn alloc;      /* both or neither                                   */
  tglu_free_fn free;
  void *alloc_user;
} tglu_context_options;

TGLU_API void tglu_context_options_init(tglu_context_options *options);

/* options may be NULL (all defaults).  *out is set to NULL on failure. */
TGLU_API tglu_status tglu_context_create(const tglu_context_options *options,
                                         tglu_context **out);
TGLU_API void tglu_context_destroy(tglu_context *context); /* accepts NULL */

typedef struct tglu_context_info {
  size_t size;
  tglu_backend backend;     /* the backend in use, never AUTO                    */
  int32_t device;           /* CUDA ordinal, -1 on the CPU                       */
  int32_t threads;          /* CPU threads, 0 on CUDA                            */
  int32_t sm_count;         /* SMs usable (after sm_limit), 0 on the CPU         */
  int32_t compute_capability; /* 90 for Hopper, 0 on the CPU                     */
  const char *device_name;  /* "NVIDIA H200", the CPU's name; lives with context */
  const char *cpu_isa;      /* ISA level in use, NULL on CUDA                    */
  const char *reason;       /* why this backend, in a sentence                   */
  const char *tune_cache;   /* path of its tuning cache, "" if it has none       */
  int32_t driver_version;   /* CUDA version that the driver serves, 13000 for 13.0;
                               0 on the CPU                                      */
} tglu_context_info;

/* Set info->size first (tglu_context_info_init does). */
TGLU_API void tglu_context_info_init(tglu_context_info *info);
TGLU_API tglu_status tglu_context_get_info(const tglu_context *context,
                                           tglu_context_info *info);

/* Best CPU ISA level that this CPU, this OS and this build have in common:
 * "portable", "avx2", ...  Static string. */
TGLU_API const char *tglu_cpu_isa(void);

/* ---- Kernel rows ------------------------------------------------------------
 * A row is one configuration of one kernel.  Rows are listed per backend; the
 * list is a property of the build, not of the machine. */
typedef struct tglu_row_info {
  size_t size;
  const char *name;    /* "glu_bf16_sm90_paired_pingpong_128x96_s5_c1", ...    */
  const char *op;      /* "glu", "down", or "mlp": both in one launch          */
  const char *schedule;/* "paired_pingpong", "gate_first", "dot", ...          */
  const char *isa;     /* "sm90", "avx2", "portable", ...                      */
  const char *hash;    /* hex hash over the row's sources; "" where not kept   */
  int32_t dtypes;      /* bit d set: serves dtype d, as 1 << TGLU_DTYPE_BF16   */
  int32_t usable;      /* 1 if the context it was asked with can run it        */
} tglu_row_info;

TGLU_API void tglu_row_info_init(tglu_row_info *info);
/* Number of rows of the context's backend, and the index-th of them. */
TGLU_API int32_t tglu_row_count(const tglu_context *context);
TGLU_API tglu_status tglu_row_get(const tglu_context *context, int32_t index,
                                  tglu_row_info *info);

/* ---- Tuning -----------------------------------------------------------------
 * Which row serves a number of tokens is decided when an object is created: by the
 * tuning cache where it holds a measured winner for this problem, else by the cost
 * model.  The cache is a text file, read once, when a context is created, and never
 * written but by tglu_tune_record (which `tileglu tune` calls).  Its place, unless
 * an option or TILEGLU_TUNE_CACHE says otherwise:
 *     $XDG_CACHE_HOME/tileglu/tune.txt, else $HOME/.cache/tileglu/tune.txt, else none
 * A winner counts only for the same version of this library, the same rows (their
 * hashes), backend, device name, SMs or threads in use, driver or ISA level, type,
 * operation, sizes, and bucket of token counts; and only if its row can serve the
 * problem.  A context with batch_invariant or a forced row reads no cache.  A file
 * that is missing counts as empty; so does, with one warning through the log, a file
 * that is damaged, larger than 4 MiB or none of ours.  Nothing ever fails for it. */
typedef struct tglu_tune_entry {
  size_t size;
  const char *op;        /* "glu"; "down": an MLP's second half, or a linear; or
                            "mlp", where the backend has rows of that op        */
  tglu_dtype dtype;
  int64_t hidden;        /* K; of a linear: out_features                         */
  int64_t intermediate;  /* N; of a linear: in_features                          */
  int64_t tokens;        /* 1 ... 2^31; the winner serves all counts which the
                            planner does not tell apart from this one            */
  const char *row;       /* the winner; usable in the context, of this op, dtype;
                            op "mlp": or of op "glu", when two launches, with
                            that row first, were faster than one                */
  double us;             /* its time in microseconds, > 0                        */
  const char *runner_up; /* the second, or NULL; for explain                     */
  double runner_up_us;   /* > 0 where runner_up is given                         */
} tglu_tune_entry;

TGLU_API void tglu_tune_entry_init(tglu_tune_entry *entry);

/* Stores a winner in the context's cache file, over a former one for the same key.
 * The file is replaced as a whole (written beside, renamed), under a lock on the file
 * PATH.lock beside it, so that any number of processes and threads may record at once
 * and a process that dies leaves the old file or the new one.  Of a symbolic link the
 * file behind it is meant, and its lock.  A damaged file is replaced; one larger than
 * 4 MiB, or which is no regular file, is left alone.  At most two missing folders are
 * made.  TGLU_ERR_IO: nothing was saved, the message says why.  Contexts, this one too,
 * that exist already do not see the winner. */
TGLU_API tglu_status tglu_tune_record(const tglu_context *context,
                                      const tglu_tune_entry *entry);

/* ---- GLU: H = act(X Wg^T + bg) * (X Wu^T + bu) ------------------------------- */
typedef struct tglu_glu tglu_glu;

typedef struct tglu_glu_desc {
  size_t size;
  int64_t hidden;             /* K >= 1                                          */
  int64_t intermediate;       /* N >= 0; with 0 a GLU's run writes nothing, an
                                 MLP's writes down_bias + residual (or 0)        */
  tglu_dtype dtype;           /* of X, weights, biases, residual and output      */
  tglu_activation activation; /* required                                        */
  float alpha;                /* swigluoai only (else refused unless default):   */
  float limit;                /*   alpha 1.702, limit 7 (INFINITY: none; > 0),   */
  float offset;               /*   offset 1; set by the init function            */
  tglu_layout layout;         /* required                                        */
  const void *gate;           /* [N,K], layout separate; else NULL               */
  const void *up;             /* [N,K], layout separate; else NULL               */
  const void *gate_up;        /* [2N,K], stacked and interleaved; else NULL      */
  int64_t ld;                 /* row stride of those, >= hidden; 0: hidden       */
  const void *gate_bias;      /* [N] or NULL, layout separate                    */
  const void *up_bias;        /* [N] or NULL, layout separate                    */
  const void *gate_up_bias;   /* [2N] or NULL, in the order of the layout's rows */
} tglu_glu_desc;

TGLU_API void tglu_glu_desc_init(tglu_glu_desc *desc);
TGLU_API tglu_status tglu_glu_create(tglu_context *context, const tglu_glu_desc *desc,
                                     tglu_glu **out);
TGLU_API void tglu_glu_destroy(tglu_glu *glu); /* accepts NULL */

/* ---- One call ---------------------------------------------------------------- */
typedef struct tglu_run_args {
  size_t size;
  const void *x;          /* [tokens, hidden]                                    */
  int64_t ldx;            /* >= hidden; 0: hidden                                */
  int64_t tokens;         /* M >= 0; 0 succeeds, launches and writes nothing, and
                             then every pointer may be NULL                      */
  void *out;              /* GLU: [tokens, intermediate]; MLP: [tokens, hidden]  */
  int64_t ldo;            /* >= columns of out; 0: tight                         */
  const void *residual;   /* MLP: [tokens, hidden] added to the result before the
                             one rounding, or NULL; GLU: NULL. May be `out`
                             itself with the same stride                         */
  int64_t ldr;            /* >= hidden; 0: tight                                 */
  void *workspace;        /* workspace_bytes(tokens) or more, at any address;
                             contents undefined; one call in flight at a time.
                             NULL where workspace_bytes is 0                     */
  size_t workspace_bytes;
  void *stream;           /* CUDA: CUstream; CPU: NULL                           */
} tglu_run_args;

TGLU_API void tglu_run_args_init(tglu_run_args *args);

/* Runs the GLU.  CPU: returns when the result is in `out`.  CUDA: enqueues one
 * launch on args->stream and returns.  No allocation, environment, text (unless
 * it fails), host-device copy or synchronisation.  Refused with TGLU_ERR_OVERLAP:
 * out overlapping x, a weight, a bias, the workspace, or the residual (unless
 * equal), and the workspace overlapping any of them; exactly where strides are
 * equal, and where they differ as soon as the ranges from first to last element
 * meet.  Bytes between the rows of out (ldo > columns) are left as they are. */
TGLU_API tglu_status tglu_glu_run(const tglu_glu *glu, const tglu_run_args *args);

/* Workspace that run needs for this many tokens, alignment slack included. */
TGLU_API tglu_status tglu_glu_workspace_bytes(const tglu_glu *glu, int64_t tokens,
                                              size_t *bytes);

/* Says in words which kernel row would run for these args and why; nothing is
 * read or written through the args' pointers, but their alignment counts.  The
 * text is always NUL-terminated; if it had to be cut the result is
 * TGLU_ERR_BUFFER_TOO_SMALL.  4 KiB always suffices. */
TGLU_API tglu_status tglu_glu_explain(const tglu_glu *glu, const tglu_run_args *args,
                                      char *buffer, size_t buffer_bytes);

/* What an object is and holds. */
typedef struct tglu_object_info {
  size_t size;
  int64_t hidden;
  int64_t intermediate;
  tglu_dtype dtype;
  tglu_activation activation;
  size_t weight_bytes;   /* bytes of the caller's weights that a run reads       */
  size_t copied_bytes;   /* bytes of weights copied by the object: 0 unless it is
                            a packed snapshot                                    */
} tglu_object_info;

TGLU_API void tglu_object_info_init(tglu_object_info *info);
TGLU_API tglu_status tglu_glu_get_info(const tglu_glu *glu, tglu_object_info *info);

/* The choice for a number of tokens, for programs (explain is for people). */
typedef struct tglu_plan_info {
  size_t size;
  const char *row;       /* row that run would use with aligned operands; an MLP
                            names its GLU's row here ... NULL if nothing would
                            run (tokens or intermediate 0)                       */
  const char *down_row;  /* ... and its down projection's here; NULL for a GLU, and
                            for an MLP whose row (of op mlp) computes both       */
  int32_t tuned;         /* 1: from the tuning cache (of an MLP: at least one of
                            its rows), 0: from the cost model or by rule         */
  double predicted_us;   /* the cost model's time, 0 if it has none              */
} tglu_plan_info;

TGLU_API void tglu_plan_info_init(tglu_plan_info *info);
TGLU_API tglu_status tglu_glu_get_plan(const tglu_glu *glu, int64_t tokens,
                                       tglu_plan_info *info);

/* ---- MLP: O = GLU(X) Wd^T + bd (+ R) ----------------------------------------- */
typedef struct tglu_mlp tglu_mlp;

typedef struct tglu_mlp_desc {
  size_t size;
  tglu_glu_desc glu;      /* the first half                                      */
  const void *down;       /* Wd [hidden, intermediate]                           */
  int64_t ld_down;        /* >= intermediate; 0: intermediate                    */
  const void *down_bias;  /* [hidden] or NULL                                    */
} tglu_mlp_desc;

TGLU_API void tglu_mlp_desc_init(tglu_mlp_desc *desc);
TGLU_API tglu_status tglu_mlp_create(tglu_context *context, const tglu_mlp_desc *desc,
                                     tglu_mlp **out);
TGLU_API void tglu_mlp_destroy(tglu_mlp *mlp); /* accepts NULL */
TGLU_API tglu_status tglu_mlp_run(const tglu_mlp *mlp, const tglu_run_args *args);
TGLU_API tglu_status tglu_mlp_workspace_bytes(const tglu_mlp *mlp, int64_t tokens,
                                              size_t *bytes);
TGLU_API tglu_status tglu_mlp_explain(const tglu_mlp *mlp, const tglu_run_args *args,
                                      char *buffer, size_t buffer_bytes);
TGLU_API tglu_status tglu_mlp_get_info(const tglu_mlp *mlp, tglu_object_info *info);
TGLU_API tglu_status tglu_mlp_get_plan(const tglu_mlp *mlp, int64_t tokens,
                                       tglu_plan_info *info);

/* ---- Linear: O = X W^T + b (+ R) ----------------------------------------------
 * The down projection's machinery by itself, for what stands beside a GLU: X is
 * [tokens, in_features], W is [out_features, in_features], O and R are [tokens,
 * out_features].  Same rules as an MLP's down projection (one rounding; residual
 * may be `out`).  Three of these and an activation pass are the unfused MLP which
 * `tileglu run` and `tileglu bench` compare with. */
typedef struct tglu_linear tglu_linear;

typedef struct tglu_linear_desc {
  size_t size;
  int64_t in_features;    /* >= 1                                                */
  int64_t out_features;   /* >= 1                                                */
  tglu_dtype dtype;
  const void *weight;     /* [out_features, in_features]                         */
  int64_t ld;             /* >= in_features; 0: in_features                      */
  const void *bias;       /* [out_features] or NULL                              */
} tglu_linear_desc;

TGLU_API void tglu_linear_desc_init(tglu_linear_desc *desc);
TGLU_API tglu_status tglu_linear_create(tglu_context *context,
                                        const tglu_linear_desc *desc, tglu_linear **out);
TGLU_API void tglu_linear_destroy(tglu_linear *linear); /* accepts NULL */
TGLU_API tglu_status tglu_linear_run(const tglu_linear *linear, const tglu_run_args *args);
TGLU_API tglu_status tglu_linear_workspace_bytes(const tglu_linear *linear,
                                                 int64_t tokens, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif /* TILEGLU_TILEGLU_H */
