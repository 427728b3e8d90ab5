/* What the tests on the fake driver share: its state, and checks on it. */
#ifndef TGLU_TEST_CUDA_FAKE_H
#define TGLU_TEST_CUDA_FAKE_H

#include "../support/cmocka_all.h"
#include "fake_cuda.h"
#include "internal.h"

extern fake_cuda *fake;

void fake_open(void);  /* once, in main: finds the state                         */
void fake_begin(void); /* a fresh machine with nothing recorded                  */
int fake_count(const char *call); /* how often it was called since               */
int32_t fake_depth(void);         /* of this thread's context stack              */
int32_t fake_mode(void);          /* this thread's capture mode                  */
/* Nothing left behind: modules unloaded, contexts released, stack and capture mode
 * as at the beginning. */
void fake_expect_balance(void);
/* The calling thread has (fake) device's primary context current. */
void fake_push(int32_t device);
void fake_pop(void);

/* tglu_last_error() contains the word. */
void expect_message(const char *word);

/* 1 if this build has kernels; tests that need them skip with a reason otherwise. */
int kernels_built(void);

#endif /* TGLU_TEST_CUDA_FAKE_H */
