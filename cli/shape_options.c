/* The options that describe a problem: see options.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "options.h"

static const int64_t most = INT64_C(1) << 40;

static const struct argp_option shape_options[] = {
  {NULL, 0, NULL, 0, "What to run (what a list has twice counts once):", 2},
  {"model", OPTION_MODEL, "NAME,...", 0,
   "shapes, activation and layout of a known model (\"tileglu bench --list\")", 2},
  {"models", OPTION_MODEL, NULL, OPTION_ALIAS, NULL, 2},
  {"hidden", OPTION_HIDDEN_SIZE, "K", 0, "hidden size, the columns of X", 2},
  {"k", OPTION_HIDDEN_SIZE, NULL, OPTION_ALIAS, NULL, 2},
  {"intermediate", OPTION_INTERMEDIATE, "N", 0, "intermediate size, the rows of Wg", 2},
  {"n", OPTION_INTERMEDIATE, NULL, OPTION_ALIAS, NULL, 2},
  {"tokens", OPTION_TOKENS, "M,...", 0, "tokens, the rows of X", 2},
  {"m", OPTION_TOKENS, NULL, OPTION_ALIAS, NULL, 2},
  {"op", OPTION_OP, "glu|mlp", 0, "the GLU alone, or the whole MLP", 2},
  {"dtype", OPTION_DTYPE, "TYPE,...", 0, "bf16 (default), f16, f32", 2},
  {"activation", OPTION_ACTIVATION, "NAME", 0,
   "silu (default), gelu_tanh, gelu_erf, relu, sigmoid, swigluoai", 2},
  {"alpha", OPTION_ALPHA, "X", 0, "swigluoai's alpha (1.702)", 2},
  {"limit", OPTION_LIMIT, "X", 0, "swigluoai's limit (7; inf: none)", 2},
  {"offset", OPTION_OFFSET, "X", 0, "swigluoai's offset (1)", 2},
  {"layout", OPTION_LAYOUT, "NAME", 0,
   "separate (default), stacked_gate_first, stacked_up_first, interleaved", 2},
  {"bias", OPTION_BIAS, NULL, 0, "with biases on gate, up and down", 2},
  {"residual", OPTION_RESIDUAL, NULL, 0, "with a residual (op mlp)", 2},
  {"pad", OPTION_PAD, "ELEMENTS", 0, "gap between the rows of every matrix (0)", 2},
  {"misalign", OPTION_MISALIGN, "BYTES", 0, "every matrix begins this far off 64 (0)", 2},
  {0},
};

void shape_init(shape_args *args, op_kind op, int64_t tokens) {
  memset(args, 0, sizeof *args);
  args->tokens[0] = tokens;
  args->token_count = 1;
  args->dtypes[0] = TGLU_DTYPE_BF16;
  args->dtype_count = 1;
  args->hidden = args->intermediate = -1;
  args->alpha = args->limit = args->offset = NAN;
  args->op = op;
}

/* The next item of a comma-separated list, copied; 0 at its end.  An empty item is
 * returned as "" and refused by whoever parses it. */
static int next_item(const char **list, char *item, size_t bytes) {
  if (!*list) return 0;
  const char *comma = strchr(*list, ',');
  size_t length = comma ? (size_t)(comma - *list) : strlen(*list);
  if (length >= bytes) length = bytes - 1;
  memcpy(item, *list, length);
  item[length] = 0;
  *list = comma ? comma + 1 : NULL;
  return 1;
}

/* Of the three lists: an item given before counts once, where it first stood. */

static void parse_models(shape_args *args, const char *list, struct argp_state *state) {
  char item[64];
  args->model_count = 0;
  while (next_item(&list, item, sizeof item)) {
    const model_shape *shape = model_shape_find(item);
    if (!shape) {
      argp_error(state, "--model: no model \"%s\" in the table (\"tileglu bench --list\" "
                 "prints it)", item);
      return;
    }
    size_t at = 0;
    while (at < args->model_count && args->models[at] != shape) at++;
    if (at == SHAPE_LIST) argp_error(state, "--model: more than %d", SHAPE_LIST);
    args->models[at] = shape;
    if (at == args->model_count) args->model_count++;
  }
}

static void parse_tokens(shape_args *args, const char *list, struct argp_state *state) {
  char item[32];
  args->token_count = 0;
  while (next_item(&list, item, sizeof item)) {
    int64_t tokens = 0;
    if (!parse_int(item, 0, most, &tokens)) {
      argp_error(state, "--tokens: \"%s\" is not a number from 0 to 2^40", item);
    }
    size_t at = 0;
    while (at < args->token_count && args->tokens[at] != tokens) at++;
    if (at == SHAPE_LIST) argp_error(state, "--tokens: more than %d", SHAPE_LIST);
    args->tokens[at] = tokens;
    if (at == args->token_count) args->token_count++;
  }
}

static void parse_dtypes(shape_args *args, const char *list, struct argp_state *state) {
  _Static_assert(sizeof args->dtypes / sizeof args->dtypes[0] >= 3, "a place for each type");
  char item[32];
  args->dtype_count = 0;
  while (next_item(&list, item, sizeof item)) {
    tglu_dtype dtype = TGLU_DTYPE_BF16;
    if (tglu_dtype_from_name(item, &dtype) != TGLU_OK) {
      argp_error(state, "--dtype: %s", tglu_last_error());
    }
    size_t at = 0;
    while (at < args->dtype_count && args->dtypes[at] != dtype) at++;
    args->dtypes[at] = dtype;
    if (at == args->dtype_count) args->dtype_count++;
  }
}

static int64_t size_option(const char *name, const char *text, int64_t least,
                           struct argp_state *state) {
  int64_t value = least;
  if (!parse_int(text, least, most, &value)) {
    argp_error(state, "--%s: \"%s\" is not a number from %d to 2^40", name, text, (int)least);
  }
  return value;
}

static double real_option(const char *name, const char *text, struct argp_state *state) {
  double value = 0;
  if (!parse_real(text, &value) || isnan(value)) {
    argp_error(state, "--%s: \"%s\" is not a number", name, text);
  }
  return value;
}

static error_t parse_shape(int key, char *text, struct argp_state *state) {
  shape_args *args = state->input;
  if (key >= OPTION_MODEL && key <= OPTION_MISALIGN) args->given |= SHAPE_BIT(key);
  switch (key) {
  case OPTION_MODEL: parse_models(args, text, state); return 0;
  case OPTION_TOKENS: parse_tokens(args, text, state); return 0;
  case OPTION_DTYPE: parse_dtypes(args, text, state); return 0;
  case OPTION_HIDDEN_SIZE: args->hidden = size_option("hidden", text, 1, state); return 0;
  case OPTION_INTERMEDIATE:
    args->intermediate = size_option("intermediate", text, 0, state);
    return 0;
  case OPTION_PAD: args->pad = size_option("pad", text, 0, state); return 0;
  case OPTION_MISALIGN:
    if (!parse_int(text, 0, 63, &args->misalign)) {
      argp_error(state, "--misalign: \"%s\" is not a number from 0 to 63", text);
    }
    return 0;
  case OPTION_ALPHA: args->alpha = real_option("alpha", text, state); return 0;
  case OPTION_LIMIT: args->limit = real_option("limit", text, state); return 0;
  case OPTION_OFFSET: args->offset = real_option("offset", text, state); return 0;
  case OPTION_BIAS: args->bias = 1; return 0;
  case OPTION_RESIDUAL: args->residual = 1; return 0;
  case OPTION_OP:
    if (strcmp(text, "down") == 0 && args->op_down) {
      args->op = OP_DOWN;
      return 0;
    }
    if (strcmp(text, "glu") != 0 && strcmp(text, "mlp") != 0) {
      argp_error(state, args->op_down ? "--op: \"%s\" is none of glu, mlp, down"
                                      : "--op: \"%s\" is neither glu nor mlp", text);
    }
    args->op = strcmp(text, "mlp") == 0 ? OP_MLP : OP_GLU;
    return 0;
  case OPTION_ACTIVATION:
    if (tglu_activation_from_name(text, &args->activation) != TGLU_OK) {
      argp_error(state, "--activation: %s", tglu_last_error());
    }
    return 0;
  case OPTION_LAYOUT:
    if (tglu_layout_from_name(text, &args->layout) != TGLU_OK) {
      argp_error(state, "--layout: %s", tglu_last_error());
    }
    return 0;
  case ARGP_KEY_END:
    if ((args->hidden < 0) != (args->intermediate < 0) && !args->model_count) {
      argp_error(state, "--hidden and --intermediate are given together");
    }
    if (args->model_count && (args->hidden >= 0 || args->intermediate >= 0)) {
      argp_error(state, "--model names the sizes: give it, or --hidden and "
                 "--intermediate");
    }
    if (args->residual && args->op == OP_GLU) {
      argp_error(state, "--residual: only op mlp takes one");
    }
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

const struct argp shape_argp = {shape_options, parse_shape, NULL, NULL, NULL, NULL, NULL};

void offer_shape(offered_argp *offered, const shape_args *args, const int *refused) {
  offer_argp(offered, &shape_argp, refused);
  for (struct argp_option *o = offered->options; args->op_down && (o->name || o->doc); o++) {
    if (o->key != OPTION_OP) continue;
    o->arg = "glu|down|mlp";
    o->doc = "the GLU alone, the down projection alone, or the whole MLP";
  }
}

int shape_given(const shape_args *args) {
  return args->model_count > 0 || args->hidden >= 0;
}

const char *shape_stranger(const shape_args *args, unsigned allowed) {
  for (const struct argp_option *o = shape_options; o->name || o->doc; o++) {
    if (o->key < OPTION_MODEL || o->key > OPTION_MISALIGN) continue;
    if (args->given & ~allowed & SHAPE_BIT(o->key)) return o->name;
  }
  return NULL;
}

size_t shape_count(const shape_args *args) {
  size_t shapes = args->model_count ? args->model_count : args->hidden >= 0;
  return shapes * args->dtype_count * args->token_count;
}

spec shape_at(const shape_args *args, size_t index) {
  tglu_glu_desc defaults;
  tglu_glu_desc_init(&defaults);
  spec s = {.op = args->op, .hidden = args->hidden, .intermediate = args->intermediate,
            .activation = TGLU_ACTIVATION_SILU, .layout = TGLU_LAYOUT_SEPARATE,
            .bias = args->bias, .residual = args->residual, .pad = args->pad,
            .misalign = args->misalign};
  s.tokens = args->tokens[index % args->token_count];
  index /= args->token_count;
  s.dtype = args->dtypes[index % args->dtype_count];
  index /= args->dtype_count;
  if (args->model_count) {
    const model_shape *model = args->models[index];
    s.model = model->name;
    s.hidden = model->hidden;
    s.intermediate = model->intermediate;
    s.activation = model->activation;
    s.layout = model->layout;
  }
  if (args->activation) s.activation = args->activation;
  if (args->layout) s.layout = args->layout;
  s.alpha = isnan(args->alpha) ? defaults.alpha : (float)args->alpha;
  s.limit = isnan(args->limit) ? defaults.limit : (float)args->limit;
  s.offset = isnan(args->offset) ? defaults.offset : (float)args->offset;
  return s;
}

int shape_check_row(const shape_args *args, const place_args *place,
                    const tglu_context *context, int every) {
  size_t served = 0, refused = 0;
  for (size_t i = args->dtype_count; i-- > 0;) {
    if (place_row_serves(place, context, args->op, args->dtypes[i])) served++;
    else refused = i;
  }
  if (served == args->dtype_count || (served && !every)) return CLI_OK;
  return place_check_row(place, context, args->op, args->dtypes[refused], "the type asked for");
}

void spec_text(const spec *s, char *buffer, size_t bytes) {
  snprintf(buffer, bytes, "%s m %lld n %lld k %lld %s %s %s%s%s", op_name(s->op),
           (long long)s->tokens, (long long)s->intermediate, (long long)s->hidden,
           tglu_dtype_name(s->dtype), tglu_activation_name(s->activation),
           tglu_layout_name(s->layout), s->bias ? " bias" : "",
           s->residual ? " residual" : "");
  size_t length = strlen(buffer);
  if (s->pad) snprintf(buffer + length, bytes - length, " pad %lld", (long long)s->pad);
  length = strlen(buffer);
  if (s->misalign) {
    snprintf(buffer + length, bytes - length, " misalign %lld", (long long)s->misalign);
  }
}
