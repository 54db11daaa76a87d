# The native frontend: what it costs, and its test with random programs.

NATIVE_BENCH := $(addprefix target/bench/,objects sparse stencil blocks exchange atomics graph mesh)
$(addprefix target/bench/,blocks exchange atomics graph mesh): OPENMP := -fopenmp

.PHONY: bench-native
bench-native: $(NATIVE_BENCH) ## what translation and recording cost: programs natively, from the code cache, recorded and sampled, interleaved (release, 30 minutes; QEMU=1 for the QEMU frontend; RESULTS=FILE LIMIT=SECONDS in pieces)
	@$(CARGO) build --locked -q --release -p numaloc-native
	@make/bench-native target/release/numaloc-native $(or $(REPEATS),5) $(PROGRAMS)

TEST_EXTRA += test-native

.PHONY: test-native
test-native: ## random blocks of instructions natively and translated: same registers, flags, memory (BLOCKS=10000, SEED=1, SEEDS=1, PROCESSOR=a list)
	@NUMALOC_BLOCKS=$(or $(BLOCKS),10000) NUMALOC_SEED=$(or $(SEED),1) NUMALOC_SEEDS=$(or $(SEEDS),1) \
	  $(addprefix NUMALOC_PROCESSOR=,$(PROCESSOR)) $(TEST) --test torture

.PHONY: test-torture
test-torture: ## the same for the instructions of several processors, ten seeds each (hours; the same variables)
	@$(MAKE) --no-print-directory test-native BLOCKS=$(or $(BLOCKS),100000) SEED=$(or $(SEED),1) SEEDS=$(or $(SEEDS),10) \
	  PROCESSOR=$(or $(PROCESSOR),all)

.PHONY: compare-native
compare-native: build workloads ## the native frontend against QEMU, valgrind, native runs: counts, matrices, programs, host load, faults (15 minutes)
	@$(WITH_QEMU) $(TEST) --test recording native::
	@$(WITH_QEMU) make/compare-native target/debug/numaloc 4
	@FRONTEND=native make/programs/run all
	@python3 make/fidelity target/debug/numaloc 16 native
	@python3 make/fidelity target/debug/numaloc 64 native
	@make/faults/run $(or $(FAULTS),100) 1 'record, native' 'record --mpi, native'

target/bench/%: crates/native/benches/programs/%.cc
	@mkdir -p $(@D)
	$(CXX) -O2 -Wall -std=c++17 $(OPENMP) -o $@ $<

target/bench/%: crates/native/benches/programs/%.f90
	@mkdir -p $(@D)
	gfortran -O2 -Wall $(OPENMP) -o $@ $<
