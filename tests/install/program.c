/* A user's first program: one GLU of one token on the CPU.  relu(11) * 17 = 187. */
#include <stdio.h>
#include <tileglu/tileglu.h>
#ifdef HAVE_MODEL
#include <tileglu/model.h>
#endif

int main(void)
{
  const float gate[2] = {3, 4}, up[2] = {5, 6}, x[2] = {1, 2};
  float h = 0;
  tglu_context *context;
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  if (tglu_context_create(&options, &context)) {
    fprintf(stderr, "%s\n", tglu_last_error());
    return 1;
  }
  tglu_glu *glu;
  tglu_glu_desc desc;
  tglu_glu_desc_init(&desc);
  desc.hidden = 2;
  desc.intermediate = 1;
  desc.dtype = TGLU_DTYPE_F32;
  desc.activation = TGLU_ACTIVATION_RELU;
  desc.layout = TGLU_LAYOUT_SEPARATE;
#ifdef HAVE_MODEL
  if (tglu_model_activation("relu", &desc)) return 1;
#endif
  desc.gate = gate;
  desc.up = up;
  if (tglu_glu_create(context, &desc, &glu)) {
    fprintf(stderr, "%s\n", tglu_last_error());
    return 1;
  }
  tglu_run_args args;
  tglu_run_args_init(&args);
  args.x = x;
  args.tokens = 1;
  args.out = &h;
  if (tglu_glu_run(glu, &args)) {
    fprintf(stderr, "%s\n", tglu_last_error());
    return 1;
  }
  tglu_glu_destroy(glu);
  tglu_context_destroy(context);
  printf("tileglu %s: %g\n", tglu_version_string(), (double)h);
  return h == 187.0f ? 0 : 1;
}
