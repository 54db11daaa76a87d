# The OpenMP and Pthreads workloads of workloads/*.c, built into target/workloads.

WORKLOADS := $(patsubst workloads/%.c,target/workloads/%,$(wildcard workloads/*.c))
# Kernels of the verdict table: `first` were there when thresholds were chosen, `second` were written afterwards.
VERDICT_WORKLOADS := $(addprefix target/workloads/verdict/,$(notdir $(basename $(wildcard workloads/verdict/*/*.c))))
# Kernels of the classes that the papers' benchmarks have, for studies/.
STUDY_WORKLOADS := $(patsubst workloads/studies/%.c,target/workloads/studies/%,$(wildcard workloads/studies/*.c))
WORKLOAD_CFLAGS ?= -O2 -g -Wall -Wextra -std=gnu11

.PHONY: workloads
workloads: $(WORKLOADS) $(VERDICT_WORKLOADS) $(STUDY_WORKLOADS) ## build the workloads into target/workloads

target/workloads/%: workloads/%.c workloads/workload.h
	@mkdir -p $(@D)
	$(CC) $(WORKLOAD_CFLAGS) -fopenmp -o $@ $< -pthread

target/workloads/verdict/%: workloads/verdict/first/%.c workloads/workload.h
	@mkdir -p $(@D)
	$(CC) $(WORKLOAD_CFLAGS) -fopenmp -o $@ $< -pthread

target/workloads/verdict/%: workloads/verdict/second/%.c workloads/workload.h
	@mkdir -p $(@D)
	$(CC) $(WORKLOAD_CFLAGS) -fopenmp -o $@ $< -pthread

target/workloads/studies/%: workloads/studies/%.c workloads/workload.h
	@mkdir -p $(@D)
	$(CC) $(WORKLOAD_CFLAGS) -fopenmp -o $@ $< -pthread
