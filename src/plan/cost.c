/* The cost model: where the time of a launch goes, in cycles and bytes.
 *
 * Rows that walk tiles (TMA and wgmma):
 *   time = fixed + max(busy, floor) + overlap * min(busy, floor)
 *   busy  = cycles of the busiest cluster / clock
 *   floor = bytes that must come from memory / bandwidth
 *
 * A tile's mainloop is the tensor cores' time, plus what each stage of the ring costs
 * beside it: a fixed part and a part per row of X and weights that it brings.  Tiles are
 * whole (tile quantisation).  The busiest cluster walks ceil(tiles / clusters) of them
 * (wave quantisation), but SMs that stand idle in the last wave leave their power to the
 * others, so a share of the time goes by the mean number of tiles.
 *
 * The same rows for up to 64 tokens, where the weights come from memory once:
 *   time = fixed + max(busy, floor) + overlap * min(busy, floor)
 *   busy  = a time for each row of 128 bytes that TMA brings, of X only as many as there are
 *           tokens, plus the ends of tiles
 *
 * Rows that stream:
 *   time = fixed + tokens + passes + max(memory, flight, cache, issue)
 *   tokens = the X that a CTA holds / what an SM gets of lines that all of them read
 *   passes = ends of a CTA's passes, when nothing is asked for
 *   flight = weights / what the rings keep under way within a latency
 *   memory = weights, X and result once / bandwidth
 *   cache  = what all CTAs ask for / bandwidth of the L2: the weights once for each tile of
 *            tokens, X once for each CTA
 *   issue  = cycles of the busiest SM / clock: stages of its warps
 *
 * The constants of tiles, for more tokens, were fitted to 440 ratios of rows within 40 shapes
 * (seven Qwen-2.5 sizes, M = 128 ... 8192; docs/notes/hopper_ladder.md, step 9): of the rows
 * measured, the one chosen is 0.9 % slower than the best in geometric mean, 7 % at worst.
 * One exception: paired_coop is spared the cluster factor, since at K = 8192 its clusters
 * were faster (results/h200, run 1).  Those for few tokens follow from single figures of the
 * same notes (steps 17 to 23), those of a down projection's ends and of `issue` are estimates. */
#include "plan/choose.h"

#include "../kernels/sm90/stream_launch.h"

/* H200, 2026-11-29, where nothing else is said. */
static const struct {
  double clock_mhz;          /* SM clock under sustained load, 1200-1400             */
  double flop_per_cycle;     /* dense bf16 and fp16 of an SM                         */
  double stage_cycles;       /* of a stage beside its wgmma                          */
  double row_cycles;         /* of a stage for each row that it brings               */
  double cluster_factor;     /* mainloop of warpgroups in turns in a cluster of two: the
                                two CTAs wait for each other; paired_coop does not mind */
  double tall_factor;        /* mainloop with tiles of 256 rows                      */
  double gate_first_factor;  /* mainloop of gate_first: half as wide a wgmma         */
  double general_factor;     /* mainloop of the general loader, odd strides          */
  double whole_waves;        /* share of the time that goes by whole waves           */
  double fixed_us;           /* ~2.5 between kernels in a graph, ~2 to the first stage */
  double bytes_per_us;       /* a plain copy                                         */
  double overlap;            /* what of the shorter of busy and floor still shows    */
} tiles = {
  .clock_mhz = 1350.0,
  .flop_per_cycle = 4096.0,
  .stage_cycles = 45.6,
  .row_cycles = 0.112,
  .cluster_factor = 1.028,
  .tall_factor = 1.024,
  .gate_first_factor = 1.061,
  .general_factor = 2.8,
  .whole_waves = 0.86,
  .fixed_us = 4.5,
  .bytes_per_us = 4.25e6,
  .overlap = 0.2,
};

/* Ends of tiles, by operation: a GLU's activation makes its own longer. */
static const struct {
  double coop_epilogue;      /* exposed cycles for 128 outputs, two warpgroups       */
  double turn_epilogue;      /* cycles for 64 outputs, one warpgroup                 */
  double exchange_cycles;    /* down_split: of an exchange between CTAs              */
  double exchange_output;    /* and for each 128 outputs and CTA of the cluster      */
} ends[] = {
  [tglu__op_glu] = {.coop_epilogue = 26.8, .turn_epilogue = 20.8},
  [tglu__op_down] = {.coop_epilogue = 16.0, .turn_epilogue = 12.0,
                     .exchange_cycles = 1500.0, .exchange_output = 8.0},
};

/* Rows with tiles, few tokens. */
enum { FEW_TOKENS = 64 };
static const struct {
  double clock_mhz;          /* few tokens draw little power                         */
  double fixed_us;           /* launch, first stage                                  */
  double bytes_per_us;       /* from memory                                          */
  double row_us;             /* of TMA for a row of 128 bytes                        */
  double overlap;            /* what of the shorter of busy and floor still shows    */
} few = {
  .clock_mhz = 1755.0,
  .fixed_us = 3.0,
  .bytes_per_us = 4.45e6,
  .row_us = 2.7e-3,
  .overlap = 0.08,
};

static const struct {
  double clock_mhz;
  double fixed_us;           /* launch, first bytes, last store: a read takes 1.7    */
  double bytes_per_us;       /* from memory: a kernel that only reads                */
  double token_bytes_per_us; /* of an SM for lines that all SMs read                 */
  double latency_us;         /* of memory under load                                 */
  double cache_bytes_per_us; /* from the L2                                          */
  double stage_cycles;       /* of an SM for a warp's stage of 64 k                  */
  double block_cycles;       /* more for each m16 weight tile: 2 KB in and out       */
  double group_cycles;       /* more for each 8 tokens: 1 KB out                     */
  double multiply_cycles;    /* more for each weight tile and 8 tokens               */
  double pass_us;            /* of the end of a pass                                 */
  double output_us;          /* more for each output of its tile                     */
  double general_factor;     /* issue of the general loader: 2 bytes a load          */
} stream = {
  .clock_mhz = 1755.0,
  .fixed_us = 1.8,
  .bytes_per_us = 4.60e6,
  .token_bytes_per_us = 18e3,
  .latency_us = 0.9,
  .cache_bytes_per_us = 5.5e6,
  .stage_cycles = 10.0,
  .block_cycles = 20.0,
  .group_cycles = 4.0,
  .multiply_cycles = 4.0,
  .pass_us = 0.25,
  .output_us = 0.9e-3,
  .general_factor = 6.0,
};

/* Of an MLP: what of the second launch's start is hidden behind the first (with
 * programmatic stream serialization, which is the default). */
static const double mlp_hidden_us = 1.2;

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* Bytes of weights, and of X and the result. */
static double weight_bytes(tglu__op op, tglu__shape shape) {
  return (op == tglu__op_glu ? 4.0 : 2.0) * (double)shape.n * (double)shape.k;
}

static double token_bytes(tglu__shape shape, int64_t tokens) {
  return 2.0 * (double)tokens * ((double)shape.n + (double)shape.k);
}

/* ---- tiles ---- */

/* Cycles of one tile's mainloop over all of K, or this CTA's share of it. */
static double mainloop_cycles(const tglu__row *row, int64_t k) {
  bool gate_first = row->schedule == tglu__schedule_gate_first;
  bool split = row->schedule == tglu__schedule_down_split;
  int64_t steps = ceil_div(k, TGLU_TILE_K);
  double blocks = (double)(split ? ceil_div(steps, row->cluster_m) : steps);
  double width = tglu__row_b_rows(row);
  double tensor = 2.0 * row->tile_m * width * TGLU_TILE_K / tiles.flop_per_cycle;
  double rows = row->tile_m + (split ? width : width / row->cluster_m);
  double cycles = blocks * (tensor + tiles.stage_cycles + tiles.row_cycles * rows);
  if (gate_first) cycles *= 2 * tiles.gate_first_factor;
  if (row->cluster_m > 1 && (row->schedule == tglu__schedule_paired_pingpong || gate_first ||
                             row->schedule == tglu__schedule_down_pingpong))
    cycles *= tiles.cluster_factor;
  if (row->tile_m > 128) cycles *= tiles.tall_factor;
  if (row->loader == tglu__loader_general) cycles *= tiles.general_factor;
  return cycles;
}

/* Cycles of the end of one tile, all of it exposed. */
static double end_cycles(const tglu__row *row) {
  double outputs = row->tile_m * row->tile_n / 128.0;
  double end = ends[row->op].coop_epilogue * outputs;
  if (row->schedule != tglu__schedule_down_split) return end;
  return end / row->cluster_m + ends[row->op].exchange_cycles +
         ends[row->op].exchange_output * outputs;
}

static bool in_turns(const tglu__row *row) {
  return row->schedule == tglu__schedule_paired_pingpong ||
         row->schedule == tglu__schedule_gate_first ||
         row->schedule == tglu__schedule_down_pingpong;
}

/* Cycles of the busiest cluster. */
static double busy_cycles(const tglu__choice *choice, const tglu__row *row, int64_t k) {
  double mainloop = mainloop_cycles(row, k);
  double mean = (double)choice->tile_rows * choice->tile_columns / choice->clusters;
  double waves = tiles.whole_waves * choice->waves + (1 - tiles.whole_waves) * mean;
  if (!in_turns(row)) return waves * (mainloop + end_cycles(row));
  /* Warpgroups in turns: one stores its tile while the other holds the tensor cores;
   * only the last store is exposed, unless a store outlasts a mainloop. */
  double epilogue = 2 * ends[row->op].turn_epilogue * row->tile_m * row->tile_n / 128.0;
  double pair = (mainloop + epilogue) / 2;
  return waves * (mainloop > pair ? mainloop : pair) + epilogue;
}

/* Few tokens: what TMA must bring, row by row. */
static double few_busy_us(const tglu__choice *choice, const tglu__row *row, int64_t k,
                          int64_t tokens) {
  bool split = row->schedule == tglu__schedule_down_split;
  bool twice = row->schedule == tglu__schedule_gate_first;
  int64_t steps = ceil_div(k, TGLU_TILE_K);
  double blocks = (double)(split ? ceil_div(steps, row->cluster_m) : twice ? 2 * steps : steps);
  double width = tglu__row_b_rows(row);
  double x_rows = (double)(tokens < row->tile_m ? ceil_div(tokens, 8) * 8 : row->tile_m);
  double rows = x_rows + (split ? width : width / row->cluster_m);
  double tile = blocks * rows * few.row_us;
  if (row->loader == tglu__loader_general) tile *= tiles.general_factor;
  double end = end_cycles(row) / few.clock_mhz;
  return in_turns(row) ? choice->waves * tile + end : choice->waves * (tile + end);
}

static double tiles_us(const tglu__choice *choice, const tglu__row *row, tglu__shape shape,
                       int64_t tokens) {
  bool is_few = tokens <= FEW_TOKENS;
  double busy = is_few ? few_busy_us(choice, row, shape.k, tokens)
                       : busy_cycles(choice, row, shape.k) / tiles.clock_mhz;
  double bytes = weight_bytes(row->op, shape) + token_bytes(shape, tokens);
  double floor_us = bytes / (is_few ? few.bytes_per_us : tiles.bytes_per_us);
  double longer = busy > floor_us ? busy : floor_us;
  return (is_few ? few.fixed_us : tiles.fixed_us) + longer +
         (is_few ? few.overlap : tiles.overlap) * (busy + floor_us - longer);
}

/* ---- stream ---- */

/* Time of the busiest SM for what its warps do. */
static double issue_us(const tglu__choice *choice, const tglu__row *row, int64_t k,
                       double ctas) {
  int32_t warps = tglu_stream_warps(row->schedule == tglu__schedule_stream_wide);
  double blocks = tglu_stream_blocks(row->tile_n, row->op == tglu__op_glu);
  double groups = row->tile_m / 8;
  double stages = (double)(ceil_div(ceil_div(k, TGLU_TILE_K), warps) * warps);
  double stage = stream.stage_cycles + stream.block_cycles * blocks +
                 stream.group_cycles * groups + stream.multiply_cycles * blocks * groups;
  if (row->loader == tglu__loader_general) stage *= stream.general_factor;
  return ctas * choice->waves * stages * stage / stream.clock_mhz;
}

static double larger(double a, double b) { return a > b ? a : b; }

static double stream_us(const tglu__choice *choice, const tglu__row *row, tglu__shape shape,
                        int64_t tokens, const tglu__device_facts *device) {
  double weights = weight_bytes(row->op, shape), k_bytes = 2.0 * (double)shape.k;
  double memory = (weights + token_bytes(shape, tokens)) / stream.bytes_per_us;
  double asked = weights * choice->tile_rows; /* by all CTAs */
  double cache = (asked + k_bytes * (double)tokens * choice->grid_y) / stream.cache_bytes_per_us;

  int64_t grid = (int64_t)choice->clusters * choice->grid_y;
  double resident = (double)(grid < device->sm_count ? grid : device->sm_count);
  double ring = (double)tglu_stream_warps(row->schedule == tglu__schedule_stream_wide) *
                tglu_stream_blocks(row->tile_n, row->op == tglu__op_glu) * row->stages * 2048;
  double flight = asked * stream.latency_us / (resident * ring);

  double ctas = (double)ceil_div(grid, device->sm_count);
  double held = (double)(tokens < row->tile_m ? tokens : row->tile_m);
  double fetch = ctas * held * k_bytes / stream.token_bytes_per_us;
  double passes =
    ctas * choice->waves * (stream.pass_us + stream.output_us * row->tile_m * row->tile_n);
  double issue = issue_us(choice, row, shape.k, ctas);
  return stream.fixed_us + fetch + passes + larger(larger(memory, flight), larger(cache, issue));
}

double tglu__plan_cost_us(const tglu__choice *choice, const tglu__problem *problem,
                          int64_t tokens, const tglu__device_facts *device) {
  const tglu__row *row = &tglu__rows[choice->row];
  tglu__shape shape = tglu__op_shape(row->op, problem);
  if (tglu__row_is_stream(row)) return stream_us(choice, row, shape, tokens, device);
  return tiles_us(choice, row, shape, tokens);
}

double tglu__plan_mlp_us(double glu_us, double down_us) {
  return glu_us + down_us - mlp_hidden_us;
}
