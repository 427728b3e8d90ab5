#include "nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

enum { CLOCK_SM = 1 }; /* nvmlClockType_t */

static void *find(void *library, const char *name) { return dlsym(library, name); }

void nvml_open(nvml *n, const char *library, const char *pci) {
  memset(n, 0, sizeof *n);
  void *handle = dlopen(library ? library : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!handle) return;
  int (*init)(void);
  int (*by_pci)(const char *, void **);
  int (*version)(char *, unsigned);
  *(void **)&init = find(handle, "nvmlInit_v2");
  *(void **)&by_pci = find(handle, "nvmlDeviceGetHandleByPciBusId_v2");
  *(void **)&version = find(handle, "nvmlSystemGetDriverVersion");
  *(void **)&n->shutdown = find(handle, "nvmlShutdown");
  *(void **)&n->clock = find(handle, "nvmlDeviceGetClockInfo");
  *(void **)&n->energy = find(handle, "nvmlDeviceGetTotalEnergyConsumption");
  if (!init || !by_pci || !version || !n->shutdown || !n->clock || init() != 0) {
    dlclose(handle);
    memset(n, 0, sizeof *n);
    return;
  }
  n->library = handle;
  if (version(n->driver, sizeof n->driver) != 0) n->driver[0] = 0;
  if (by_pci(pci, &n->device) != 0) n->device = NULL;
}

double nvml_sm_mhz(const nvml *n) {
  unsigned mhz = 0;
  if (!n->device || n->clock(n->device, CLOCK_SM, &mhz) != 0) return NAN;
  return mhz;
}

double nvml_millijoules(const nvml *n) {
  unsigned long long total = 0;
  if (!n->device || !n->energy || n->energy(n->device, &total) != 0) return NAN;
  return (double)total;
}

void nvml_close(nvml *n) {
  if (!n->library) return;
  n->shutdown();
  dlclose(n->library);
  memset(n, 0, sizeof *n);
}
