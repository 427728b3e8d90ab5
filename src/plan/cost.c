/* The cost model: where the time of a launch goes, in cycles and bytes.
 *
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
 * The constants were fitted to 440 ratios of rows within 40 shapes (seven Qwen-2.5 sizes,
 * M = 128 ... 8192; docs/notes/hopper_ladder.md, step 9): of the rows measured, the one
 * chosen is 0.9 % slower than the best in geometric mean, 7 % at worst.  One exception:
 * paired_coop is spared the cluster factor, since at K = 8192 its clusters were faster
 * (results/h200, run 1). */
#include "plan/choose.h"

#include "../kernels/sm90/smem_layout.h"

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
  double coop_epilogue;      /* exposed cycles for 128 outputs, two warpgroups       */
  double turn_epilogue;      /* cycles for 64 outputs, one warpgroup                 */
  double whole_waves;        /* share of the time that goes by whole waves           */
  double fixed_us;           /* ~2.5 between kernels in a graph, ~2 to the first stage */
  double bytes_per_us;       /* a plain copy                                         */
  double overlap;            /* what of the shorter of busy and floor still shows    */
} model = {
  .clock_mhz = 1350.0,
  .flop_per_cycle = 4096.0,
  .stage_cycles = 45.6,
  .row_cycles = 0.112,
  .cluster_factor = 1.028,
  .tall_factor = 1.024,
  .gate_first_factor = 1.061,
  .general_factor = 2.8,
  .coop_epilogue = 26.8,
  .turn_epilogue = 20.8,
  .whole_waves = 0.86,
  .fixed_us = 4.5,
  .bytes_per_us = 4.25e6,
  .overlap = 0.2,
};

/* Cycles of one tile's mainloop over all of K. */
static double mainloop_cycles(const tglu__row *row, int64_t k) {
  bool gate_first = row->schedule == tglu__schedule_gate_first;
  double blocks = (double)(k / TGLU_TILE_K + (k % TGLU_TILE_K != 0));
  double width = gate_first ? row->tile_n : 2.0 * row->tile_n;
  double tensor = 2.0 * row->tile_m * width * TGLU_TILE_K / model.flop_per_cycle;
  double rows = row->tile_m + width / row->cluster_m;
  double cycles = blocks * (tensor + model.stage_cycles + model.row_cycles * rows);
  if (gate_first) cycles *= 2 * model.gate_first_factor;
  if (row->cluster_m > 1 && row->schedule != tglu__schedule_paired_coop)
    cycles *= model.cluster_factor;
  if (row->tile_m > 128) cycles *= model.tall_factor;
  if (row->loader == tglu__loader_general) cycles *= model.general_factor;
  return cycles;
}

double tglu__plan_cost_us(const tglu__choice *choice, const tglu__problem *problem,
                          int64_t tokens) {
  const tglu__row *row = &tglu__rows[choice->row];
  double mainloop = mainloop_cycles(row, problem->k);
  double outputs = row->tile_m * row->tile_n / 128.0;
  double mean = (double)choice->tile_rows * choice->tile_columns / choice->clusters;
  double waves = model.whole_waves * choice->waves + (1 - model.whole_waves) * mean;
  double cycles;
  if (row->schedule == tglu__schedule_paired_pingpong ||
      row->schedule == tglu__schedule_gate_first) {
    /* Warpgroups in turns: one stores its tile while the other holds the tensor cores;
     * only the last store is exposed, unless a store outlasts a mainloop. */
    double epilogue = 2 * model.turn_epilogue * outputs;
    double pair = (mainloop + epilogue) / 2;
    cycles = waves * (mainloop > pair ? mainloop : pair) + epilogue;
  } else {
    cycles = waves * (mainloop + model.coop_epilogue * outputs);
  }
  double n = (double)problem->n, k = (double)problem->k, m = (double)tokens;
  double floor_us = 2.0 * (2.0 * n * k + m * k + m * n) / model.bytes_per_us;
  double busy_us = cycles / model.clock_mhz;
  double longer = busy_us > floor_us ? busy_us : floor_us;
  return model.fixed_us + longer + model.overlap * (busy_us + floor_us - longer);
}
