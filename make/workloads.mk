# The OpenMP and Pthreads workloads of workloads/*.c, built into target/workloads.

WORKLOADS := $(patsubst workloads/%.c,target/workloads/%,$(wildcard workloads/*.c))
WORKLOAD_CFLAGS ?= -O2 -g -Wall -Wextra -std=gnu11

.PHONY: workloads
workloads: $(WORKLOADS) ## build the workloads into target/workloads

target/workloads/%: workloads/%.c workloads/workload.h
	@mkdir -p $(@D)
	$(CC) $(WORKLOAD_CFLAGS) -fopenmp -o $@ $< -pthread
