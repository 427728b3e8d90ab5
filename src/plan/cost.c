/* The cost model: where the time of a launch goes, in cycles and bytes.
 *
 *   time = fixed + max(tensor cores and epilogues of the busiest cluster,
 *                      bytes that must come from memory / bandwidth)
 *
 * A tile's mainloop is the tensor cores' time, plus a penalty for each byte that
 * the SM draws from L2 beyond what hides behind them.  Tiles are whole (tile
 * quantisation), and the busiest cluster walks ceil(tiles / clusters) of them
 * (wave quantisation). */
#include "plan/choose.h"

#include "../kernels/sm90/smem_layout.h"

/* Every constant with where it comes from.  The clock is the one that the card
 * holds under sustained load, so that fixed times weigh right against cycles. */
static const struct {
  double clock_mhz;            /* sustained SM clock, 1200-1400: H200, 2026-11-29   */
  double flop_per_cycle;       /* dense bf16 and fp16 of an SM: 1024 cycles for 128 x
                                  256 x 64, H200, 2026-11-29                        */
  double mainloop_efficiency;  /* 1019-1030 of 1024 cycles: H200, 2026-11-29        */
  double hidden_l2_bytes;      /* bytes per cycle that hide behind the tensor cores:
                                  32 (multicast) do, 48 (none) cost 4.5-8 %: H200,
                                  2026-11-29                                        */
  double exposed_l2_cycles;    /* cycles per byte beyond that, from the same pair   */
  double epilogue_cycles;      /* 128 x 128 outputs, exposed: H200, 2026-11-29      */
  double pingpong_tax;         /* share of time that a hidden epilogue costs: about
                                  1 %, H200, 2026-11-29                             */
  double fixed_us;             /* ~2.5 between kernels in a graph and ~2 until the
                                  first stage is there: H200, 2026-11-29            */
  double bytes_per_us;         /* a plain copy moves 4.25 TB/s: H200, 2026-11-29    */
  double general_factor;       /* the general loader's mainloop: a guess, to be
                                  measured; the goal is to stay below 2             */
} model = {
  .clock_mhz = 1350.0,
  .flop_per_cycle = 4096.0,
  .mainloop_efficiency = 0.985,
  .hidden_l2_bytes = 36.0,
  .exposed_l2_cycles = 0.005,
  .epilogue_cycles = 2500.0,
  .pingpong_tax = 0.01,
  .fixed_us = 4.5,
  .bytes_per_us = 4.25e6,
  .general_factor = 1.5,
};

/* Cycles of one tile's mainloop over all of K. */
static double mainloop_cycles(const tglu__row *row, int64_t k) {
  double blocks = (double)(k / TGLU_TILE_K + (k % TGLU_TILE_K != 0));
  double flop = 2.0 * row->tile_m * (2.0 * row->tile_n) * TGLU_TILE_K;
  double tensor = flop / model.flop_per_cycle;
  int32_t x_passes = row->schedule == tglu__schedule_gate_first ? 2 : 1;
  double bytes = 2.0 * TGLU_TILE_K *
                 (x_passes * row->tile_m + 2.0 * row->tile_n / row->cluster_m);
  double excess = bytes - model.hidden_l2_bytes * tensor;
  double cycles = tensor / model.mainloop_efficiency;
  if (excess > 0) cycles += excess * model.exposed_l2_cycles;
  if (row->loader == tglu__loader_general) cycles *= model.general_factor;
  return blocks * cycles;
}

double tglu__plan_cost_us(const tglu__choice *choice, const tglu__problem *problem,
                          int64_t tokens) {
  const tglu__row *row = &tglu__rows[choice->row];
  double mainloop = mainloop_cycles(row, problem->k);
  double epilogue = model.epilogue_cycles * row->tile_m * row->tile_n / (128.0 * 128.0);
  double cycles;
  if (row->schedule == tglu__schedule_paired_pingpong ||
      row->schedule == tglu__schedule_gate_first) {
    /* Warpgroups in turns: one stores its tile, twice as long as two would, while the
     * other holds the tensor cores; only the last store is exposed. */
    epilogue *= 2;
    double turn = mainloop * (1 + model.pingpong_tax);
    double pair = (mainloop + epilogue) / 2;
    cycles = choice->waves * (turn > pair ? turn : pair) + epilogue;
  } else {
    cycles = choice->waves * (mainloop + epilogue);
  }
  double n = (double)problem->n, k = (double)problem->k, m = (double)tokens;
  double floor_us = 2.0 * (2.0 * n * k + m * k + m * n) / model.bytes_per_us;
  double busy_us = cycles / model.clock_mhz;
  return model.fixed_us + (busy_us > floor_us ? busy_us : floor_us);
}
