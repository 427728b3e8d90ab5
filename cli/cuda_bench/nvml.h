/* Clock, energy and driver version by NVML, where its library is found; else nothing. */
#ifndef BENCH_NVML_H
#define BENCH_NVML_H

typedef struct nvml {
  void *library;
  void *device;
  int (*shutdown)(void);
  int (*clock)(void *device, unsigned kind, unsigned *mhz);
  int (*energy)(void *device, unsigned long long *millijoules); /* NULL: not there */
  char driver[96];       /* "580.159.04", "" where it is not known */
} nvml;

/* Never fails: without the library sm clocks are NaN.  NULL: "libnvidia-ml.so.1". */
void nvml_open(nvml *n, const char *library, const char *pci);
double nvml_sm_mhz(const nvml *n);
double nvml_millijoules(const nvml *n);  /* since the driver was loaded; NaN: unknown */
void nvml_close(nvml *n);

#endif /* BENCH_NVML_H */
