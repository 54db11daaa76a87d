# The virtual NUMA machine: its end-to-end tests boot real kernels under QEMU.

TEST_EXTRA += test-ci-lab

LAB_TEST = $(TEST) --test lab -- --ignored --test-threads 1

.PHONY: test-ci-lab test-lab
test-ci-lab: build ## known answers in the virtual NUMA machine (three minutes)
	$(LAB_TEST) ci_

test-lab: build workloads ## all tests of the virtual NUMA machine, and its documented commands
	$(LAB_TEST)
	$(TEST) --test typed -- --ignored

.PHONY: table-lab
table-lab: build workloads ## the table of docs/lab.md: remote shares of all workloads under six placements (RUNS=1 [ROWS="ring ..."])
	make/table-lab target/debug/numaloc $(or $(RUNS),1) $(ROWS)

# What was measured stays in target/table-truth and is not measured again.
.PHONY: table-truth
table-truth: build ## predicted against counted remote shares of Fortran, Rust, Python, C++, Go and huge pages ([PROGRAMS="columns ..."]); resumes
	make/table-truth target/debug/numaloc target/table-truth $(PROGRAMS)

# What was measured stays in target/table-deal and is not measured again.
.PHONY: table-deal
table-deal: build ## remote shares of programs with dynamic loops: as they are, interleaved, planned, dealt and planned ([PROGRAMS="scale ..."]); resumes
	make/table-deal target/debug/numaloc target/table-deal $(PROGRAMS)

.PHONY: table-dynamics
table-dynamics: build workloads ## the table of docs/online.md: planned moves, online placement and AutoNUMA ([ROWS="'two_phase planned' ..."])
	make/table-dynamics target/debug/numaloc $(ROWS)

.PHONY: table-detectors
table-detectors: ## precision and recall of the detectors of phases on generated series, docs/online.md
	$(CARGO) test --locked -q -p numaloc-plan a_detector_does_not_see -- --nocapture | grep precision

.PHONY: bench-online
bench-online: build workloads ## what `run --online` costs a program natively, in pairs of runs (REPEATS=7)
	make/bench-online target/debug/numaloc $(or $(REPEATS),7)

.PHONY: test-online-programs
test-online-programs: build ## pigz, xz, zstd, sqlite3, Go, Java and Fortran under `run --online` and `attach`, interrupted and killed: outputs as without ([ROUNDS=3])
	make/online-programs target/debug/numaloc $(ROUNDS)

.PHONY: test-kills
test-kills: build workloads ## 200 random kills of numaloc while it places a program in the virtual machine (KILLS=200 [SEED=1])
	make/kills target/debug/numaloc $(or $(KILLS),200) $(or $(SEED),1)

.PHONY: table-predictions
table-predictions: build ## predicted remote shares beside those of the virtual machine, docs/tracing.md (four minutes)
	make/table-predictions target/debug/numaloc
