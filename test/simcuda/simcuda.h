// SPDX-License-Identifier: BSD-3-Clause
// Controls of the simulated CUDA driver, for tests that run in the same process. Look the symbols
// up with dlsym: the real driver does not have them. All are thread safe and work before cuInit.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Calls of an entry point since the process began or since simcuda_reset_counts. All forms of a
// function count together: "cuMemcpyDtoD", "cuMemcpyDtoD_v2" and "cuMemcpyDtoD_v2_ptds" name the
// same count. 0 for a function that was never called or does not exist. "": all functions together.
unsigned long simcuda_call_count(const char *function);

// Sets all counts to 0. Does not change the n of SIMCUDA_FAIL.
void simcuda_reset_counts(void);

// Pages of managed memory that left the CPU's page table because a device touched them, since the
// process began.
unsigned long simcuda_migrated_pages(void);

// Changes one of the variables that may change while the driver runs: SIMCUDA_DELAY_US,
// SIMCUDA_BANDWIDTH_GBS, SIMCUDA_SEED, SIMCUDA_MAX_PINNED_BYTES, SIMCUDA_PEER_ACCESS, SIMCUDA_FAIL
// (which counts its calls from now on; "" ends it), SIMCUDA_KERNEL_START_US,
// SIMCUDA_KERNEL_TIME_SCALE, SIMCUDA_KERNEL_DIES (of kernels that start from now on; "" ends it).
// Returns 0, or -1 if the variable or its value is refused.
int simcuda_set(const char *variable, const char *value);

#ifdef __cplusplus
}
#endif
