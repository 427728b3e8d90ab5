// The same from C++11: an MLP of one token, relu(11) * 17 * 2 + 1 = 375.
#include <cstdio>
#include <memory>
#include <tileglu/tileglu.h>
#ifdef HAVE_MODEL
#include <tileglu/model.h>
#endif

static int fail() {
  std::fprintf(stderr, "%s\n", tglu_last_error());
  return 1;
}

int main() {
  const float gate[2] = {3, 4}, up[2] = {5, 6}, x[2] = {1, 2}, down[2] = {2, 0};
  const float bias[2] = {1, 7};
  float y[2] = {0, 0};
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  tglu_context *opened = nullptr;
  if (tglu_context_create(&options, &opened)) return fail();
  std::unique_ptr<tglu_context, void (*)(tglu_context *)> context(opened,
                                                                  tglu_context_destroy);
  tglu_mlp_desc desc;
  tglu_mlp_desc_init(&desc);
  desc.glu.hidden = 2;
  desc.glu.intermediate = 1;
  desc.glu.dtype = TGLU_DTYPE_F32;
  desc.glu.activation = TGLU_ACTIVATION_RELU;
  desc.glu.layout = TGLU_LAYOUT_SEPARATE;
#ifdef HAVE_MODEL
  if (tglu_model_activation("relu", &desc.glu)) return fail();
#endif
  desc.glu.gate = gate;
  desc.glu.up = up;
  desc.down = down;
  desc.down_bias = bias;
  tglu_mlp *created = nullptr;
  if (tglu_mlp_create(context.get(), &desc, &created)) return fail();
  std::unique_ptr<tglu_mlp, void (*)(tglu_mlp *)> mlp(created, tglu_mlp_destroy);
  std::size_t bytes = 0;
  if (tglu_mlp_workspace_bytes(mlp.get(), 1, &bytes)) return fail();
  std::unique_ptr<char[]> workspace(new char[bytes + 1]);
  tglu_run_args args;
  tglu_run_args_init(&args);
  args.x = x;
  args.tokens = 1;
  args.out = y;
  args.workspace = bytes ? workspace.get() : nullptr;
  args.workspace_bytes = bytes;
  if (tglu_mlp_run(mlp.get(), &args)) return fail();
  std::printf("tileglu %s: %g %g\n", tglu_version_string(), double(y[0]), double(y[1]));
  return y[0] == 375.0f && y[1] == 7.0f ? 0 : 1;
}
