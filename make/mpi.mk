# The MPI workloads of workloads/mpi, built for each MPI into target/workloads/mpi/{openmpi,mpich}.

MPI_SOURCES := $(wildcard workloads/mpi/*.c workloads/mpi/*.f workloads/mpi/*.f90)
MPI_NAMES := $(basename $(notdir $(MPI_SOURCES)))
MPI_WORKLOADS := $(foreach mpi,openmpi mpich,$(addprefix target/workloads/mpi/$(mpi)/,$(MPI_NAMES)))

.PHONY: workloads-mpi
workloads-mpi: $(MPI_WORKLOADS) ## build the MPI workloads for Open MPI and MPICH

define MPI_RULES
target/workloads/mpi/$(1)/%: workloads/mpi/%.c workloads/mpi/workload.h
	@mkdir -p $$(@D)
	mpicc.$(1) -O2 -g -fopenmp -Wall -Wextra -Wno-stringop-overflow -std=gnu11 -o $$@ $$<
target/workloads/mpi/$(1)/%: workloads/mpi/%.f
	@mkdir -p $$(@D)
	mpifort.$(1) -O2 -g -Wall -o $$@ $$<
target/workloads/mpi/$(1)/%: workloads/mpi/%.f90
	@mkdir -p $$(@D)
	mpifort.$(1) -O2 -g -Wall -o $$@ $$<
endef
$(foreach mpi,openmpi mpich,$(eval $(call MPI_RULES,$(mpi))))

.PHONY: bench-mpi
bench-mpi: target/workloads/mpi/openmpi/pingpong target/workloads/mpi/mpich/pingpong ## what tracing costs a ping-pong (latency, bandwidth); BENCH_MPI=rounds
	$(CARGO) build --locked -q -p numaloc
	workloads/mpi/bench-pingpong target/debug/numaloc target/workloads/mpi $(BENCH_MPI)

.PHONY: bench-mpi-mapping
bench-mpi-mapping: ## 65,536 ranks of a 3-D halo on 1,024 hosts: traffic between hosts, time, memory
	$(CARGO) bench --locked -q -p numaloc-mapping --bench halo -- $(BENCH_MPI_MAPPING)

.PHONY: bench-mpi-hpcc
bench-mpi-hpcc: ## which of hpcc's 16 benchmarks are phases of their own in the profile (one to three minutes)
	$(CARGO) build --locked -q -p numaloc
	workloads/mpi/hpcc-sections target/debug/numaloc fixtures/mpi/hpccinf.txt

.PHONY: bench-merge
bench-merge: ## merging 1,024 and 4,096 rank files by one process and by 1, 2 and 4: time, memory, same bytes (6 GB of disk); BENCH_MERGE=rounds
	$(CARGO) build --locked -q -p numaloc
	$(CARGO) build --locked -q -p numaloc-mpi --example generate-ranks
	workloads/mpi/bench-merge target/debug/numaloc target/debug/examples/generate-ranks target/bench-merge $(BENCH_MERGE)

.PHONY: check-rank-times
check-rank-times: target/workloads/mpi/openmpi/steps target/workloads/mpi/openmpi/pingpong target/workloads/mpi/openmpi/pairs target/workloads/mpi/openmpi/transpose ## predicted against measured seconds of mappings on two emulated hosts with a limited link; CHECK_RANK_TIMES="ROUNDS PROGRAM..."
	$(CARGO) build --locked -q -p numaloc
	make/check-rank-times target/debug/numaloc target/workloads/mpi/openmpi $(CHECK_RANK_TIMES)

.PHONY: test-mpi-hosts
test-mpi-hosts: build workloads workloads-mpi ## MPI programs on two emulated hosts: also the tests that `make test` leaves out
	$(TEST) --test mpi hosts:: -- --include-ignored
