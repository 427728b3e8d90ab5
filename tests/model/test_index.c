/* Sharded folders: the index decides (hard case H40 and its kind). */
#include "files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX "model.safetensors.index.json"
#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"
#define G "model.layers.0.mlp.gate_proj.weight"
#define U "model.layers.0.mlp.up_proj.weight"
#define D "model.layers.0.mlp.down_proj.weight"

static const double gate[] = {2, 0, 0, 0}, up[] = {-1, 0, 0, 0}, down[] = {1, 0, 3, 0};

/* Shard 1: gate.  Shard 2: up and down, and one that the index does not name. */
static void write_shards(void **state, int with_up)
{
  st_file s;
  st_begin(&s);
  st_raw(&s, "\"__metadata__\":{\"format\":\"pt\"}");
  st_add(&s, G, "F32", "[2,2]", gate, 4);
  st_write(&s, in_folder(state, ONE));
  st_begin(&s);
  st_raw(&s, "\"__metadata__\":{\"format\":\"pt\"}");
  if (with_up) st_add(&s, U, "F32", "[2,2]", up, 4);
  st_add(&s, "model.stray", "F32", "[2,2]", up, 4);
  st_add(&s, D, "F32", "[2,2]", down, 4);
  st_write(&s, in_folder(state, TWO));
}

#define MAP(u) "{\"metadata\":{\"total_size\":48},\"weight_map\":{\"" G "\":\"" ONE "\",\"" U \
               "\":\"" u "\",\"" D "\":\"" TWO "\"}}"

static void good(void **state)
{
  write_shards(state, 1);
  write_text(in_folder(state, INDEX), MAP(TWO));
  const char *paths[] = {*state, in_folder(state, INDEX)};
  for (size_t i = 0; i < COUNT(paths); i++) {
    tglu_model_options options;
    tglu_model_options_init(&options);
    options.activation = "silu";
    tglu_model *model = open_ok(paths[i], &options);
    assert_int_equal(tglu_model_tensor_count(model), 3);
    tglu_model_mlp mlp = layer_ok(model, 0);
    for (size_t j = 0; j < 4; j++) {
      assert_true(value_at(TGLU_DTYPE_F32, mlp.desc.glu.gate, j) == gate[j]);
      assert_true(value_at(TGLU_DTYPE_F32, mlp.desc.glu.up, j) == up[j]);
      assert_true(value_at(TGLU_DTYPE_F32, mlp.desc.down, j) == down[j]);
    }
    tglu_tensor t;
    tglu_tensor_init(&t);
    assert_int_equal(tglu_model_find_tensor(model, "model.stray", &t), TGLU_ERR_NOT_FOUND);
    assert_int_equal(tglu_model_find_tensor(model, D, &t), TGLU_OK);
    assert_string_equal(t.file, in_folder(state, TWO));
    tglu_model_close(model);
  }
}

static void broken(void **state)
{
  const char *index = in_folder(state, INDEX);
  write_shards(state, 1);
  write_text(index, MAP(ONE));
  expect_open_fails(*state, NULL, TGLU_ERR_FORMAT, U, ONE, "lacks", NULL);
  write_shards(state, 0);
  write_text(index, MAP(TWO));
  expect_open_fails(*state, NULL, TGLU_ERR_FORMAT, U, TWO, "lacks", NULL);
  write_shards(state, 1);
  write_text(index, MAP("model-00003-of-00003.safetensors"));
  expect_open_fails(*state, NULL, TGLU_ERR_NOT_FOUND, U, "model-00003-of-00003", NULL);
  write_text(index, MAP(TWO));
  assert_int_equal(unlink(in_folder(state, TWO)), 0);
  expect_open_fails(*state, NULL, TGLU_ERR_NOT_FOUND, D, TWO, "does not exist", NULL);
  write_text(in_folder(state, TWO), "short");
  expect_open_fails(*state, NULL, TGLU_ERR_FORMAT, TWO, "too short", NULL);
}

/* A file that the index does not name is not read, not even if it is broken. */
static void stray_file(void **state)
{
  write_shards(state, 1);
  write_text(in_folder(state, INDEX), MAP(TWO));
  tglu_model_options options;
  tglu_model_options_init(&options);
  options.activation = "silu";
  for (int broken_file = 0; broken_file < 2; broken_file++) {
    const double other[] = {9, 9, 9, 9};
    st_file s;
    st_begin(&s);
    st_add(&s, G, "F32", "[2,2]", other, 4);
    st_write(&s, in_folder(state, "model.safetensors"));
    if (broken_file) write_text(in_folder(state, "model.safetensors"), "no");
    tglu_model *model = open_ok(*state, &options);
    tglu_model_mlp mlp = layer_ok(model, 0);
    assert_true(value_at(TGLU_DTYPE_F32, mlp.desc.glu.gate, 0) == 2);
    tglu_model_close(model);
  }
}

/* A link that leads nowhere is no absent file: nothing is used in its place. */
static void broken_links(void **state)
{
  static const char *const names[] = {INDEX, "config.json", "model.safetensors"};
  for (size_t i = 0; i < COUNT(names); i++) {
    for (int loop = 0; loop < 2; loop++) {
      assert_int_equal(folder_clean(state), 0);
      st_file s;
      st_begin(&s);
      st_add(&s, G, "F32", "[2,2]", gate, 4);
      st_write(&s, in_folder(state, "model.safetensors"));
      tglu_model_close(open_ok(*state, NULL));
      const char *path = in_folder(state, names[i]);
      unlink(path);
      assert_int_equal(symlink(loop ? names[i] : "../blobs/pruned", path), 0);
      expect_open_fails(*state, NULL, TGLU_ERR_IO, path, "broken link", NULL);
    }
  }
  assert_int_equal(folder_clean(state), 0);
  write_shards(state, 1);
  write_text(in_folder(state, "index.txt"), MAP(TWO));
  assert_int_equal(symlink("index.txt", in_folder(state, INDEX)), 0);
  tglu_model_close(open_ok(*state, NULL));
}

static const struct { const char *text, *message; } bad_indexes[] = {
  {"", "not valid JSON"},
  {"not json", "not valid JSON"},
  {"[]", "no object"},
  {"{}", "weight_map is missing"},
  {"{\"weight_map\":{}}", "weight_map is empty"},
  {"{\"weight_map\":[]}", "weight_map"},
  {"{\"weight_map\":null}", "weight_map"},
  {"{\"weight_map\":\"" ONE "\"}", "weight_map"},
  {"{\"weight_map\":{\"a\":1}}", "'a' must be a string"},
  {"{\"weight_map\":{\"a\":null}}", "'a' must be a string"},
  {"{\"weight_map\":{\"a\":\"\"}}", "tensor 'a' is empty"},
  {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "slash"},
  {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "slash"},
  {"{\"weight_map\":{\"a\":\"sub/x.safetensors\"}}", "slash"},
  {"{\"weight_map\":{\"a\":\"..\\\\x.safetensors\"}}", "slash"},
  {"{\"weight_map\":{\"a\":\"..\"}}", "is a folder"},
  {"{\"weight_map\":{\"a\":\".\"}}", "is a folder"},
  {"{\"weight_map\":{\"a\":\"x\\u0000y\"}}", "not valid JSON"},
  {"{\"weight_map\":{\"a\":\"" ONE "\",\"a\":\"" TWO "\"}}", "duplicate key a"},
  {"{\"weight_map\":{\"a\":\"" ONE "\",\"\\u0061\":\"" TWO "\"}}", "duplicate key a"},
  {"{\"weight_map\":{\"a\":\"" ONE "\"},\"weight_map\":{}}", "duplicate key weight_map"},
  {"{\"metadata\":{},\"metadata\":{},\"weight_map\":{\"a\":\"" ONE "\"}}",
   "duplicate key metadata"},
  {"{\"x\":1,\"x\":2,\"weight_map\":{\"a\":\"" ONE "\"}}", "duplicate key x"},
  {"{\"x\":1,\"weight_map\":{\"a\":\"" ONE "\"},\"y\":{},\"\\u0078\":null}",
   "duplicate key x"},
  {"{\"metadata\":{\"a\":NaN},\"weight_map\":{\"a\":\"" ONE "\"}}", "not valid JSON"},
  {"{\"metadata\":{\"a\":1,\"a\":2},\"weight_map\":{\"a\":\"" ONE "\"}}", "duplicate key a"},
  {"{\"weight_map\":{\"a\":\"" ONE "\"}} x", "follows"},
  {"{\"weight_map\":{\"a\":\"" ONE "\"}", "missing"},
  {"\xff\xfe{\"weight_map\":{}}", "not valid JSON"},
};

static void bad_index(void **state)
{
  write_shards(state, 1);
  const char *index = in_folder(state, INDEX);
  for (size_t i = 0; i < COUNT(bad_indexes); i++) {
    const char *text = bad_indexes[i].text;
    write_text(index, text);
    expect_open_fails(*state, NULL, TGLU_ERR_FORMAT, index, bad_indexes[i].message, NULL);
    expect_open_fails(index, NULL, TGLU_ERR_FORMAT, index, bad_indexes[i].message, NULL);
  }
  char deep[400];
  memset(deep, '[', sizeof deep);
  int at = snprintf(deep, sizeof deep, "{\"metadata\":");
  deep[at] = '[';
  deep[sizeof deep - 1] = '\0';
  write_text(index, deep);
  expect_open_fails(*state, NULL, TGLU_ERR_FORMAT, "too deeply", NULL);
  assert_int_equal(unlink(index), 0);
  assert_int_equal(mkdir(index, 0700), 0);
  expect_open_fails(*state, NULL, TGLU_ERR_IO, "folder", NULL);
  write_text(in_folder(state, "config.json"), "{\"hidden_size\":2}");
  expect_open_fails(in_folder(state, "config.json"), NULL, TGLU_ERR_FORMAT,
                    "weight_map is missing", NULL);
}

/* As many other members as may be, and one more. */
static void many_members(void **state)
{
  enum { LIMIT = 4096 };
  static char text[LIMIT * 16];
  write_shards(state, 1);
  for (int count = LIMIT; count <= LIMIT + 1; count++) {
    int at = snprintf(text, sizeof text, "{\"weight_map\":{\"" G "\":\"" ONE "\"}");
    for (int i = 0; i < count; i++) {
      at += snprintf(text + at, sizeof text - (size_t)at, ",\"k%d\":%d", i, i);
    }
    snprintf(text + at, sizeof text - (size_t)at, "}");
    write_text(in_folder(state, INDEX), text);
    if (count == LIMIT) tglu_model_close(open_ok(*state, NULL));
    else expect_open_fails(*state, NULL, TGLU_ERR_FORMAT, "4096", "weight_map", NULL);
  }
}

/* Numbers beyond any integer are fine where they are not used. */
static void large_total_size(void **state)
{
  write_shards(state, 1);
  write_text(in_folder(state, INDEX), "{\"metadata\":{\"total_size\":99999999999999999999},"
             "\"weight_map\":{\"" G "\":\"" ONE "\"}}");
  tglu_model *model = open_ok(*state, NULL);
  assert_int_equal(tglu_model_tensor_count(model), 1);
  tglu_model_close(model);
}

/* A shard cut after it was opened is found when one of its views is taken. */
static void shard_cut_after_open(void **state)
{
  write_shards(state, 1);
  write_text(in_folder(state, INDEX), MAP(TWO));
  tglu_model_options options;
  tglu_model_options_init(&options);
  options.activation = "silu";
  tglu_model *model = open_ok(*state, &options);
  assert_int_equal(truncate(in_folder(state, TWO), 100), 0);
  tglu_tensor t;
  tglu_tensor_init(&t);
  assert_int_equal(tglu_model_find_tensor(model, G, &t), TGLU_OK);
  assert_int_equal(tglu_model_find_tensor(model, U, &t), TGLU_ERR_IO);
  expect_layer_fails(model, 0, TGLU_ERR_IO, TWO, "100", NULL);
  tglu_model_close(model);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, folder_clean)
  const struct CMUnitTest tests[] = {
    TEST(good), TEST(broken), TEST(stray_file), TEST(broken_links), TEST(bad_index),
    TEST(many_members), TEST(large_total_size), TEST(shard_cut_after_open),
  };
  return cmocka_run_group_tests_name("index", tests, folder_setup, folder_teardown);
}
