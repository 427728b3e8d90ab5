/* H23 H28 H68: the shared library as a file and as a guest in a process.  Argument:
 * its path.  Nothing here links to it. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tileglu/tileglu.h>

#include "cmocka_all.h"

static const char *library_path;

/* ---- the file: dynamic symbols and needed libraries ---- */

typedef struct elf_file {
  const unsigned char *base;
  size_t bytes;
  const Elf64_Sym *symbols;
  size_t symbol_count;
  const char *symbol_names;
  const Elf64_Dyn *dynamic;
  size_t dynamic_count;
  const char *dynamic_names;
} elf_file;

static void elf_open(elf_file *f) {
  struct stat status;
  const int fd = open(library_path, O_RDONLY);
  assert_true(fd >= 0 && fstat(fd, &status) == 0);
  memset(f, 0, sizeof *f);
  f->bytes = (size_t)status.st_size;
  f->base = mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  assert_true(f->base != MAP_FAILED && memcmp(f->base, ELFMAG, SELFMAG) == 0);
  const Elf64_Ehdr *header = (const void *)f->base;
  const Elf64_Shdr *sections = (const void *)(f->base + header->e_shoff);
  for (int i = 0; i < header->e_shnum; i++) {
    const Elf64_Shdr *s = &sections[i];
    const char *strings = (const char *)f->base + sections[s->sh_link].sh_offset;
    if (s->sh_type == SHT_DYNSYM) {
      f->symbols = (const void *)(f->base + s->sh_offset);
      f->symbol_count = s->sh_size / sizeof(Elf64_Sym);
      f->symbol_names = strings;
    } else if (s->sh_type == SHT_DYNAMIC) {
      f->dynamic = (const void *)(f->base + s->sh_offset);
      f->dynamic_count = s->sh_size / sizeof(Elf64_Dyn);
      f->dynamic_names = strings;
    }
  }
  assert_true(f->symbol_count > 10 && f->dynamic_count > 3);
}

static void elf_close(elf_file *f) {
  munmap((void *)(uintptr_t)f->base, f->bytes);
}

static void h28_needs_no_driver(void **state) {
  (void)state;
  elf_file f;
  elf_open(&f);
  for (size_t i = 0; i < f.dynamic_count && f.dynamic[i].d_tag != DT_NULL; i++) {
    if (f.dynamic[i].d_tag != DT_NEEDED) continue;
    const char *name = f.dynamic_names + f.dynamic[i].d_un.d_val;
    if (strstr(name, "cuda") != NULL || strstr(name, "nvidia") != NULL ||
        strstr(name, "gomp") != NULL) {
      fail_msg("the library needs %s", name);
    }
  }
  for (size_t i = 0; i < f.symbol_count; i++) {
    const char *name = f.symbol_names + f.symbols[i].st_name;
    const bool undefined = f.symbols[i].st_shndx == SHN_UNDEF;
    if (undefined && strncmp(name, "cu", 2) == 0 && (name[2] >= 'A' && name[2] <= 'Z')) {
      fail_msg("undefined driver symbol %s", name);
    }
    if (undefined && strncmp(name, "cuda", 4) == 0) fail_msg("undefined symbol %s", name);
  }
  elf_close(&f);
}

/* Names that linkers and sanitizers add. */
static bool foreign_name(const char *name) {
  static const char *const allowed[] = {"_init", "_fini", "_edata", "_end", "__bss_start",
                                        "__odr_asan", "__asan", "__ubsan", "__tsan",
                                        "__start_", "__stop_", "___asan"};
  for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
    if (strncmp(name, allowed[i], strlen(allowed[i])) == 0) return true;
  }
  return false;
}

static void h68_exports_the_c_api_alone(void **state) {
  (void)state;
  elf_file f;
  int exported = 0;
  elf_open(&f);
  for (size_t i = 1; i < f.symbol_count; i++) {
    const Elf64_Sym *s = &f.symbols[i];
    const char *name = f.symbol_names + s->st_name;
    if (s->st_shndx == SHN_UNDEF || ELF64_ST_BIND(s->st_info) == STB_LOCAL) continue;
    if (foreign_name(name)) continue;
    if (strncmp(name, "tglu_", 5) != 0 || name[5] == '_') fail_msg("exports %s", name);
    exported++;
  }
  assert_true(exported >= 40);
  elf_close(&f);
}

/* ---- the guest ---- */

typedef struct api {
  void *handle;
  uint32_t (*version)(void);
  const char *(*cpu_isa)(void);
  const char *(*last_error)(void);
  void (*options_init)(tglu_context_options *);
  tglu_status (*context_create)(const tglu_context_options *, tglu_context **);
  void (*context_destroy)(tglu_context *);
  void (*info_init)(tglu_context_info *);
  tglu_status (*get_info)(const tglu_context *, tglu_context_info *);
  void (*desc_init)(tglu_glu_desc *);
  tglu_status (*glu_create)(tglu_context *, const tglu_glu_desc *, tglu_glu **);
  void (*glu_destroy)(tglu_glu *);
  void (*args_init)(tglu_run_args *);
  tglu_status (*run)(const tglu_glu *, const tglu_run_args *);
} api;

static void load_symbol(api *a, void *slot, const char *name) {
  void *symbol = dlsym(a->handle, name);
  if (symbol == NULL) fail_msg("dlsym: %s", dlerror());
  memcpy(slot, &symbol, sizeof symbol);
}

static void api_load(api *a, const char *path, int flags) {
  a->handle = dlopen(path, flags);
  if (a->handle == NULL) fail_msg("dlopen: %s", dlerror());
  load_symbol(a, &a->version, "tglu_version");
  load_symbol(a, &a->cpu_isa, "tglu_cpu_isa");
  load_symbol(a, &a->last_error, "tglu_last_error");
  load_symbol(a, &a->options_init, "tglu_context_options_init");
  load_symbol(a, &a->context_create, "tglu_context_create");
  load_symbol(a, &a->context_destroy, "tglu_context_destroy");
  load_symbol(a, &a->info_init, "tglu_context_info_init");
  load_symbol(a, &a->get_info, "tglu_context_get_info");
  load_symbol(a, &a->desc_init, "tglu_glu_desc_init");
  load_symbol(a, &a->glu_create, "tglu_glu_create");
  load_symbol(a, &a->glu_destroy, "tglu_glu_destroy");
  load_symbol(a, &a->args_init, "tglu_run_args_init");
  load_symbol(a, &a->run, "tglu_glu_run");
}

static tglu_status open_context(const api *a, tglu_backend backend, const char *driver,
                                tglu_context **context) {
  tglu_context_options options;
  a->options_init(&options);
  options.backend = backend;
  options.cuda_library = driver;
  options.threads = 2;
  return a->context_create(&options, context);
}

/* relu(2 * 3) * (2 * 5) on the CPU. */
static void compute(const api *a, tglu_context *context) {
  const float x[1] = {2}, gate[1] = {3}, up[1] = {5};
  float out[1] = {-1};
  tglu_glu_desc desc;
  tglu_glu *glu;
  tglu_run_args args;
  a->desc_init(&desc);
  desc.hidden = desc.intermediate = 1;
  desc.dtype = TGLU_DTYPE_F32;
  desc.activation = TGLU_ACTIVATION_RELU;
  desc.layout = TGLU_LAYOUT_SEPARATE;
  desc.gate = gate;
  desc.up = up;
  if (a->glu_create(context, &desc, &glu) != TGLU_OK) fail_msg("%s", a->last_error());
  a->args_init(&args);
  args.x = x;
  args.tokens = 1;
  args.out = out;
  if (a->run(glu, &args) != TGLU_OK) fail_msg("%s", a->last_error());
  a->glu_destroy(glu);
  assert_true(out[0] == 60);
}

static bool driver_is_mapped(void) {
  char line[4096];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps) != NULL) {
    if (strstr(line, "libcuda") != NULL || strstr(line, "/dev/nvidia") != NULL) found = true;
  }
  fclose(maps);
  return found;
}

static void h23_cpu_use_leaves_the_driver_alone(void **state) {
  (void)state;
  api a;
  tglu_context *context;
  assert_false(driver_is_mapped());
  api_load(&a, library_path, RTLD_NOW | RTLD_LOCAL);
  assert_int_equal(a.version(), TGLU_VERSION_MAJOR * 10000 + TGLU_VERSION_MINOR * 100 +
                                    TGLU_VERSION_PATCH);
  assert_non_null(a.cpu_isa());
  assert_int_equal(open_context(&a, TGLU_BACKEND_CPU, NULL, &context), TGLU_OK);
  compute(&a, context);
  a.context_destroy(context);
  assert_false(driver_is_mapped());
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver != NULL) {
    int (*count)(int *) = NULL;
    int devices = 0;
    void *symbol = dlsym(driver, "cuDeviceGetCount");
    memcpy(&count, &symbol, sizeof symbol);
    assert_int_equal(count(&devices), 3); /* CUDA_ERROR_NOT_INITIALIZED */
    dlclose(driver);
  } else {
    printf("no driver on this machine: its state could not be asked\n");
  }
  dlclose(a.handle);
}

static void h28_a_missing_driver_is_named(void **state) {
  (void)state;
  static const char missing[] = "/nonexistent/libcuda-of-nobody.so.1";
  api a;
  tglu_context *context = (tglu_context *)1;
  api_load(&a, library_path, RTLD_NOW | RTLD_LOCAL);
  assert_int_equal(open_context(&a, TGLU_BACKEND_CUDA, missing, &context),
                   TGLU_ERR_NO_DRIVER);
  assert_null(context);
  assert_non_null(strstr(a.last_error(), missing));
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == NULL) {
    assert_int_equal(open_context(&a, TGLU_BACKEND_CUDA, NULL, &context),
                     TGLU_ERR_NO_DRIVER);
    assert_non_null(strstr(a.last_error(), "libcuda.so.1"));
  } else {
    dlclose(driver);
  }
  /* auto: the CPU, and why. */
  assert_int_equal(open_context(&a, TGLU_BACKEND_AUTO, missing, &context), TGLU_OK);
  tglu_context_info info;
  a.info_init(&info);
  assert_int_equal(a.get_info(context, &info), TGLU_OK);
  assert_int_equal(info.backend, TGLU_BACKEND_CPU);
  assert_non_null(strstr(info.reason, missing));
  compute(&a, context);
  a.context_destroy(context);
  dlclose(a.handle);
}

static void copy_library(const char *to) {
  char block[65536];
  ssize_t bytes;
  const int in = open(library_path, O_RDONLY), out = open(to, O_WRONLY | O_TRUNC);
  assert_true(in >= 0 && out >= 0);
  while ((bytes = read(in, block, sizeof block)) > 0) {
    assert_int_equal(write(out, block, (size_t)bytes), bytes);
  }
  close(in);
  close(out);
}

static void h68_two_copies_in_one_process(void **state) {
  (void)state;
  char other[] = "/tmp/tileglu-copy-XXXXXX";
  const int fd = mkstemp(other);
  assert_true(fd >= 0);
  close(fd);
  copy_library(other);
  api first, second;
  tglu_context *one, *two;
  api_load(&first, library_path, RTLD_NOW | RTLD_GLOBAL);
  api_load(&second, other, RTLD_NOW | RTLD_GLOBAL);
  assert_ptr_not_equal(first.handle, second.handle);
  assert_int_equal(open_context(&first, TGLU_BACKEND_CPU, NULL, &one), TGLU_OK);
  assert_int_equal(open_context(&second, TGLU_BACKEND_CPU, NULL, &two), TGLU_OK);
  for (int i = 0; i < 10; i++) {
    compute(&first, one);
    compute(&second, two);
  }
  first.context_destroy(one);
  compute(&second, two);
  second.context_destroy(two);
  dlclose(first.handle);
  dlclose(second.handle);
  unlink(other);
}

static void h68_loading_again_and_again(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    api a;
    tglu_context *context;
    api_load(&a, library_path, RTLD_NOW | RTLD_LOCAL);
    assert_int_equal(open_context(&a, TGLU_BACKEND_CPU, NULL, &context), TGLU_OK);
    compute(&a, context);
    a.context_destroy(context);
    dlclose(a.handle);
  }
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s libtileglu.so\n", argv[0]);
    return 2;
  }
  library_path = argv[1];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h28_needs_no_driver),
      cmocka_unit_test(h68_exports_the_c_api_alone),
      cmocka_unit_test(h23_cpu_use_leaves_the_driver_alone),
      cmocka_unit_test(h28_a_missing_driver_is_named),
      cmocka_unit_test(h68_two_copies_in_one_process),
      cmocka_unit_test(h68_loading_again_and_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
