/* The cost model: where the time of a launch goes, in cycles and bytes.
 *
 * Rows with tiles:
 *   time  = fixed + longer (1 + both (shorter / longer)^power) of busy and floor
 *   busy  = cycles of the busiest cluster / clock
 *   floor = bytes that must come from memory / bandwidth; of a down projection / what the SMs at
 *           work take in, if that is less, and hypot() of that and the bytes that all CTAs fetch
 *           from L2 / its rate
 * A tile's mainloop is stages of 64 k.  A stage takes the tensor cores' time, always that of a
 * whole tile, and what it costs beside it, a fixed part and a part per row of X and weights; or, if
 * that is longer, what TMA takes for its rows of 128 bytes.  The busiest cluster walks
 * ceil(tiles / clusters) tiles (wave quantisation).
 *
 * Rows of X and weights are those that are fetched, see rows_of().  The busiest cluster has whole
 * tiles, but for a single row or column of them and for a last wave within the last column.
 *
 * Rows that stream (few tokens): fixed + bytes / bandwidth, and for X, whose lines all CTAs read
 * at the same time, a time per element.
 *
 * The constants were fitted to 2,558 times of rows on an H200 (2026-11-29): 114 shapes of the
 * seven Qwen-2.5 sizes, M = 1 ... 8192; docs/notes/hopper_ladder.md, step 24.  Of the rows
 * measured there, the one chosen was slower than the best by 0.9 % (GLU) and 0.8 % (down) in
 * geometric mean, 11 % at worst.  Set anew by hand since: those of rows that stream, what an
 * MLP's halves cost each other and general_factor from 563 times (step 27); low_factor and
 * single_factor from 697 (step 36; the choice of a GLU's row costs 0.45 % since); those of down
 * projections with tiles from 1,331 times of 119 shapes, K = 4864 and more (steps 47 and 52: their
 * choice costs 0.7 %, 6.9 % at worst).  A card with other numbers of clusters than that one, about
 * 66, 30 and 15 of 2, 4 and 8 CTAs, has other waves.  paired_coop is spared the cluster factor,
 * since at K = 8192 its clusters were faster. */
#include "plan/choose.h"

#include <math.h>

#include "../kernels/sm90/down_diag_launch.h"
#include "../kernels/sm90/stream_launch.h"

static const double flop_per_cycle = 4096.0; /* dense bf16 and fp16 of an SM */
static const double least_us = 2.5;          /* of a launch with tiles, however little it does:
                                                set by hand, an empty kernel takes 1.7 */
static const double general_factor = 2.8;    /* mainloop of the general loader, odd strides */

/* Rows with tiles, by operation: down projections were measured on cooler cards. */
static const struct {
  double clock_mhz;         /* SM clock under load                                  */
  double fixed_us;          /* launch, first stage, last store                      */
  double bytes_per_us;      /* from memory                                          */
  double stage_cycles;      /* of a stage beside its wgmma                          */
  double row_cycles;        /* of a stage for each row that it brings               */
  double row_us;            /* of TMA for each row                                  */
  double cluster_factor;    /* mainloop of warpgroups in turns in a cluster of two: the two
                               CTAs wait for each other                             */
  double tall_factor;       /* mainloop with tiles of more than 128 rows            */
  double low_factor;        /* and of 64 rows, at every M; it tells at M = 129...192, where
                               less of them lies empty, and the power goes elsewhere */
  double gate_first_factor; /* mainloop of gate_first: half as wide a wgmma         */
  double coop_epilogue;     /* exposed cycles for 128 outputs, two warpgroups       */
  double turn_epilogue;     /* cycles for 64 outputs, one warpgroup                 */
  double single_factor;     /* of the last epilogue where the other warpgroup never had a
                               tile: two would share it                             */
  double split_low_factor;  /* down_split: wgmma of 64 rows and half the columns    */
  double exchange_cycles;   /* down_split: of an exchange between up to 4 CTAs      */
  double sm_bytes_per_us;   /* the most that one SM takes in from memory; 0: no limit met */
  double l2_bytes_per_us;   /* that all CTAs together take in from L2; 0: no limit met */
  double split_row_cycles;  /* down_split: of a stage for each row that it brings, times the
                               part of the SMs at work.  Its CTAs got 8...11 TB/s out of L2
                               where those of down_coop got 13...15                  */
  double both, both_power;  /* of busy and floor, see above                          */
} tiles[] = {
  [tglu__op_glu] = {.clock_mhz = 1356.0, .fixed_us = 2.90, .bytes_per_us = 3.94e6,
                    .stage_cycles = 23.6, .row_cycles = 0.092, .row_us = 1.54e-3,
                    .cluster_factor = 1.011, .tall_factor = 1.012, .low_factor = 0.93,
                    .gate_first_factor = 1.03, .coop_epilogue = 14.8,
                    .turn_epilogue = 7.4, .single_factor = 2.0, .both = 0.12, .both_power = 6.0},
  [tglu__op_down] = {.clock_mhz = 1439.0, .fixed_us = 0.8, .bytes_per_us = 4.65e6,
                     .row_us = 0.94e-3, .cluster_factor = 1.16, .tall_factor = 1.095,
                     .low_factor = 1.0, .coop_epilogue = 52.0, .turn_epilogue = 24.6,
                     .single_factor = 1.0, .split_low_factor = 1.36,
                     .exchange_cycles = 1260.0, .split_row_cycles = 0.28,
                     .sm_bytes_per_us = 60e3, .l2_bytes_per_us = 19.2e6, .both = 0.23,
                     .both_power = 3.9},
};

/* Of an exchange between 8 CTAs.  Set by hand: without it 0.5B, M = 4, alone, has one where
 * down_diag is 17 % faster (step 41). */
static const double eight_factor = 1.15;

static const struct {
  double fixed_us;        /* launch, first bytes, last store: a read takes 1.7 */
  double bytes_per_us;    /* from memory                                      */
  double sm_bytes_per_us; /* the most that one SM takes in                    */
  double element_us;      /* of X, a tile of tokens                           */
  double wide_pass_us;    /* for each 16 outputs of a pass beyond 16          */
  double general_factor;  /* of the general loader: 2 bytes a load            */
  double short_us;        /* for each stage short of a warp's turns of K-blocks in a
                             pass, with more than 2 tokens of one more              */
  double deep_us;         /* for each stage beyond that                       */
  int64_t most_stages;    /* that are of use, however many turns              */
} stream[] = {
  [tglu__op_glu] = {2.85, 4.42e6, 60e3, 0.11e-3, 0.3, 6.0, 0.1, 0.06, 4},
  [tglu__op_down] = {2.2, 4.33e6, 60e3, 0.08e-3, 0.3, 6.0, 0.0, 0.1, 6},
};

/* Rows of down_diag, set by hand after 112 times (step 41). */
static const struct {
  double fixed_us, bytes_per_us;
  double ring_bytes;    /* with this much on its way a CTA has 1 - 1 / e of the rate   */
  double empty_outputs; /* of what empty places of a pass cost, over tile_n            */
  double element_us;    /* of X, which all CTAs read at the same time                  */
} diag = {2.1, 4.5e6, 36e3, 3.0, 1.2e-5};

/* For each tile of tokens beyond the first: its CTAs are fewer, and read the same weights at the
 * same time.  Set by hand; two tiles were measured, more were not. */
static const double stream_tile_us = 0.1;

/* Op mlp: as those that stream, with one start for both halves.  X and H wait longer for
 * their turn behind a deeper ring. */
static const struct {
  double fixed_us, bytes_per_us, sm_bytes_per_us;
  double element_us; /* of X and of H, which all CTAs read at the same time  */
  double deep_us;    /* for each stage beyond 2                              */
} one_launch = {6.0, 4.42e6, 60e3, 0.057e-3, 0.1};

/* Of an MLP in two launches: what of the second one's start is hidden behind the first.  Few
 * tokens, of the down projection: what a row that streams gains on one with tiles, whose ring
 * takes longer to start; and which part of its time one with tiles loses that leaves a quarter of
 * the SMs idle, since its CTAs go to the SMs that the GLU leaves first, not to those that lie best
 * (2.4 us at 3B, 4.5 at 7B).  Of a GLU that streams more than 4 tokens: what it loses before a row
 * with tiles. */
static const double mlp_hidden_us = 1.2, mlp_stream_us[] = {0.8, 0.4}, mlp_idle_part = 0.14,
                    mlp_before_us = 2.0;

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* Bytes of weights, X and the result. */
static double bytes_of(tglu__op op, tglu__shape shape, int64_t tokens) {
  double weights = (op == tglu__op_glu ? 4.0 : 2.0) * (double)shape.n * (double)shape.k;
  return weights + 2.0 * (double)tokens * ((double)shape.n + (double)shape.k);
}

/* ---- tiles ---- */

static bool in_turns(const tglu__row *row) {
  return row->schedule == tglu__schedule_paired_pingpong ||
         row->schedule == tglu__schedule_gate_first ||
         row->schedule == tglu__schedule_down_pingpong;
}

/* Rows that a CTA fetches for each stage of a tile.  Down projections: of the last row of tiles
 * only the rows of X that are left, of the last column only those of the weights, rounded up to 8;
 * where the CTAs of a cluster share the weights, all of them (down_launch.h).  A GLU: whole tiles,
 * but of X in a single row of them (launch.h). */
typedef struct fetched {
  double x, x_last; /* of X: of a whole tile, and in the last row  */
  double w, w_last; /* of the weights, and in the last column      */
} fetched;

static double up_to_8(int64_t rows, int64_t most) {
  int64_t needed = ceil_div(rows, 8) * 8;
  return (double)(needed < most ? needed : most);
}

static fetched rows_of(const tglu__choice *choice, const tglu__row *row, tglu__shape shape,
                       int64_t tokens) {
  bool shared = row->cluster_m > 1 && row->schedule != tglu__schedule_down_split;
  bool whole = row->op == tglu__op_glu;
  int64_t outputs = shape.n - (int64_t)(choice->tile_columns - 1) * row->tile_n;
  int32_t matrices = tglu__row_b_rows(row) / row->tile_n;
  int64_t last = whole && tokens > row->tile_m ? row->tile_m : (tokens - 1) % row->tile_m + 1;
  fetched f = {.x = row->tile_m, .x_last = up_to_8(last, row->tile_m),
               .w = (double)tglu__row_b_rows(row) / (shared ? row->cluster_m : 1)};
  f.w_last = shared || whole ? f.w : up_to_8(outputs, row->tile_n) * matrices;
  return f;
}

/* Cycles of one stage: whole tiles for the tensor cores, whatever of them was fetched. */
static double stage_cycles(const tglu__choice *choice, const tglu__row *row, double rows) {
  bool split = row->schedule == tglu__schedule_down_split;
  double width = tglu__row_b_rows(row);
  double tensor = 2.0 * row->tile_m * width * TGLU_TILE_K / flop_per_cycle;
  double row_cycles = tiles[row->op].row_cycles;
  if (split) {
    double ctas = (double)choice->clusters * row->cluster_m;
    row_cycles += tiles[row->op].split_row_cycles * ctas / (ctas + choice->idle);
    if (row->tile_m == 64) tensor *= tiles[row->op].split_low_factor;
  }
  double stage = tensor + tiles[row->op].stage_cycles + row_cycles * rows;
  double tma = rows * tiles[row->op].row_us * tiles[row->op].clock_mhz;
  return stage > tma ? stage : tma;
}

/* Cycles of one tile's mainloop over all of K, or this CTA's share of it. */
static double mainloop_cycles(const tglu__choice *choice, const tglu__row *row, int64_t k,
                              double rows) {
  int64_t steps = ceil_div(k, TGLU_TILE_K);
  if (row->schedule == tglu__schedule_down_split) steps = ceil_div(steps, row->cluster_m);
  double cycles = (double)steps * stage_cycles(choice, row, rows);
  if (row->schedule == tglu__schedule_gate_first)
    cycles *= 2 * tiles[row->op].gate_first_factor;
  if (row->cluster_m > 1 && in_turns(row)) cycles *= tiles[row->op].cluster_factor;
  if (row->tile_m > 128) cycles *= tiles[row->op].tall_factor;
  if (row->tile_m < 128) cycles *= tiles[row->op].low_factor;
  return row->loader == tglu__loader_general ? cycles * general_factor : cycles;
}

/* Microseconds for what all tiles fetch, each its rows of X and of weights, through L2. */
static double l2_us(const tglu__choice *choice, const tglu__row *row, const fetched *f,
                    tglu__shape shape, int64_t tokens) {
  bool split = row->schedule == tglu__schedule_down_split;
  int64_t steps = ceil_div(shape.k, TGLU_TILE_K);
  if (split) steps = ceil_div(steps, row->cluster_m) * row->cluster_m;
  double x = (double)(ceil_div(tokens, row->tile_m) - 1) * f->x + f->x_last;
  double w = (choice->tile_columns - 1) * f->w + f->w_last;
  double ctas = (double)choice->tile_rows * (split ? 1 : row->cluster_m);
  return (choice->tile_columns * x + ctas * w) * (double)steps * (2 * TGLU_TILE_K) /
         tiles[row->op].l2_bytes_per_us;
}

/* Whether all tiles of the last wave lie in the last column: with the row running fastest in each
 * group of rows (tile_order.h), it comes last. */
static bool ends_in_last_column(const tglu__choice *choice) {
  int64_t total = (int64_t)choice->tile_rows * choice->tile_columns;
  int64_t left = total - (int64_t)(choice->waves - 1) * choice->clusters;
  return left <= (choice->tile_rows - 1) % choice->group + 1;
}

/* The busiest cluster walks tiles that are whole, but for those that all clusters have alike: a
 * single row or column of tiles, or a last wave in the last column.  (A cluster that comes by the
 * last row of tiles does so while others have a row before it.) */
static double tiles_us(const tglu__choice *choice, const tglu__row *row, tglu__shape shape,
                       int64_t tokens) {
  bool split = row->schedule == tglu__schedule_down_split;
  fetched f = rows_of(choice, row, shape, tokens);
  double x = choice->tile_rows == 1 && tokens <= row->tile_m ? f.x_last : f.x;
  double whole =
    mainloop_cycles(choice, row, shape.k, x + (choice->tile_columns == 1 ? f.w_last : f.w));
  double last = ends_in_last_column(choice)
                  ? mainloop_cycles(choice, row, shape.k, x + f.w_last)
                  : whole;
  /* paired_three: twice those of the warpgroup that has more. */
  double height = row->schedule == tglu__schedule_paired_three ? 256.0 : row->tile_m;
  /* down_split sends and stores the rows that there are, but takes as long as for half a tile at
   * least; that is 64 rows or more. */
  if (split && height > 64) height = fmax(x, height / 2);
  double outputs = height * row->tile_n / 128.0;
  double cycles;
  if (in_turns(row)) {
    /* Warpgroups in turns: one stores its tile while the other holds the tensor cores;
     * only the last store is exposed, unless a store outlasts a mainloop. */
    double epilogue = 2 * tiles[row->op].turn_epilogue * outputs;
    double pair = (whole + epilogue) / 2, last_pair = (last + epilogue) / 2;
    if (choice->waves == 1) epilogue *= tiles[row->op].single_factor;
    cycles = (choice->waves - 1) * (whole > pair ? whole : pair) +
             (last > last_pair ? last : last_pair) + epilogue;
  } else {
    double end = tiles[row->op].coop_epilogue * outputs;
    if (split) end += tiles[row->op].exchange_cycles * (row->cluster_m > 4 ? eight_factor : 1);
    cycles = (choice->waves - 1) * whole + last + choice->waves * end;
  }
  double rate = tiles[row->op].bytes_per_us;
  double taken_in = (double)choice->clusters * row->cluster_m * tiles[row->op].sm_bytes_per_us;
  if (taken_in > 0 && taken_in < rate) rate = taken_in;
  double floor_us = bytes_of(row->op, shape, tokens) / rate;
  if (tiles[row->op].l2_bytes_per_us > 0)
    floor_us = hypot(floor_us, l2_us(choice, row, &f, shape, tokens));
  double busy_us = cycles / tiles[row->op].clock_mhz;
  double longer = busy_us > floor_us ? busy_us : floor_us;
  double ratio = (busy_us + floor_us - longer) / longer;
  double us = tiles[row->op].fixed_us +
              longer * (1 + tiles[row->op].both * pow(ratio, tiles[row->op].both_power));
  return us > least_us ? us : least_us;
}

/* ---- stream ---- */

static double stream_us(const tglu__choice *choice, const tglu__row *row, tglu__shape shape,
                        int64_t tokens) {
  int64_t height = tokens < row->tile_m ? tokens : row->tile_m;
  double rate = (double)choice->tile_rows * choice->grid_y * stream[row->op].sm_bytes_per_us;
  if (rate > stream[row->op].bytes_per_us) rate = stream[row->op].bytes_per_us;
  /* Each tile of tokens reads the weights anew. */
  double bytes = bytes_of(row->op, shape, tokens) +
                 (choice->tile_rows - 1) * bytes_of(row->op, shape, 0);
  double memory = bytes / rate;
  double x = (double)height * (double)shape.k * stream[row->op].element_us +
             (choice->tile_rows - 1) * stream_tile_us;
  if (row->loader == tglu__loader_general) memory *= stream[row->op].general_factor;
  int64_t turns = ceil_div(ceil_div(shape.k, TGLU_TILE_K), TGLU_STREAM_WARPS) + (tokens > 2);
  int64_t most = stream[row->op].most_stages;
  int64_t spare = row->stages - (turns < most ? turns : most);
  double depth =
    (double)spare * (spare < 0 ? -stream[row->op].short_us : stream[row->op].deep_us);
  return stream[row->op].fixed_us + memory + x + depth +
         stream[row->op].wide_pass_us * (row->tile_n > 16 ? row->tile_n / 16 - 1 : 0);
}

/* Weights come at a rate that falls with the bytes that a CTA can keep on their way; a pass with
 * fewer outputs than others leaves a part of its stages empty. */
static double diag_us(const tglu__choice *choice, const tglu__row *row, tglu__shape shape,
                      int64_t tokens) {
  tglu_down_diag_launch part = {.n = (int32_t)shape.n, .k = (int32_t)shape.k};
  tglu_diag_divide(&part, choice->clusters, (int32_t)tokens, row->tile_n, row->stages);
  double units = part.share + (part.larger > 0);
  double empty = part.passes * part.height / units - 1;
  double ring = (double)part.stages * ((part.height + 1) / 2) * TGLU_DIAG_TILE_BYTES;
  double rate = diag.bytes_per_us * (1 - exp(-ring / diag.ring_bytes));
  double most = choice->clusters * stream[tglu__op_down].sm_bytes_per_us;
  if (rate > most) rate = most;
  return diag.fixed_us +
         bytes_of(tglu__op_down, shape, tokens) / rate *
           (1 + empty * diag.empty_outputs / row->tile_n) +
         (double)tokens * (double)shape.k * diag.element_us;
}

static double one_launch_us(const tglu__choice *choice, const tglu__row *row,
                            const tglu__problem *problem, int64_t tokens) {
  double weights = 6.0 * (double)problem->n * (double)problem->k;
  double rate = (double)choice->clusters * one_launch.sm_bytes_per_us;
  if (rate > one_launch.bytes_per_us) rate = one_launch.bytes_per_us;
  double elements = (double)tokens * (double)(problem->k + problem->n);
  return one_launch.fixed_us + weights / rate + one_launch.deep_us * (row->stages - 2) +
         elements * one_launch.element_us;
}

/* What a half of an MLP loses or gains beside the other, with few tokens. */
static double beside_us(const tglu__choice *choice, const tglu__row *row, int64_t tokens,
                        double alone_us) {
  bool streams =
    (tglu__row_is_stream(row) && row->loader == tglu__loader_tma) || tglu__row_is_diag(row);
  if (row->op == tglu__op_glu) return streams && tokens > 4 ? mlp_before_us : 0;
  if (tokens > 64) return 0;
  if (streams) return tokens > 4 ? 0 : -mlp_stream_us[tokens > 2];
  int64_t ctas = (int64_t)choice->clusters * row->cluster_m;
  return choice->idle > ctas / 3 ? mlp_idle_part * alone_us : 0;
}

double tglu__plan_alone_us(const tglu__choice *choice, const tglu__problem *problem,
                           int64_t tokens) {
  const tglu__row *row = &tglu__rows[choice->row];
  if (row->op == tglu__op_mlp) return one_launch_us(choice, row, problem, tokens);
  if (tglu__row_is_diag(row))
    return diag_us(choice, row, tglu__op_shape(row->op, problem), tokens);
  return (tglu__row_is_stream(row) ? stream_us : tiles_us)(
    choice, row, tglu__op_shape(row->op, problem), tokens);
}

double tglu__plan_cost_us(const tglu__choice *choice, const tglu__problem *problem,
                          int64_t tokens) {
  const tglu__row *row = &tglu__rows[choice->row];
  bool half = tglu__op_present(tglu__op_mlp, problem) && row->op != tglu__op_mlp;
  double alone_us = tglu__plan_alone_us(choice, problem, tokens);
  return alone_us + (half ? beside_us(choice, row, tokens, alone_us) : 0);
}

double tglu__plan_mlp_us(double glu_us, double down_us) {
  return glu_us + down_us - mlp_hidden_us;
}
