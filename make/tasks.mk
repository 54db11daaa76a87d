# The task runtime: libnumaloc_ocr, the OCR workloads, their benchmark and Table I.

OCR_BUILD ?= target/ocr
OCR_PROFILE ?= release
OCR_LIB := target/$(OCR_PROFILE)
OCR_WORKLOADS := stencil2d seismic fibonacci smith-waterman cholesky reduction sparse overhead \
  multigrid conjugate-gradient molecular-dynamics irregular fourier wavefront queens
OCR_CFLAGS := -O3 -Wall -Wextra -Icrates/ocr/include

.PHONY: ocr
ocr: packages ## build libnumaloc_ocr (release) and the OCR workloads into target/ocr
	$(CARGO) build --locked --$(OCR_PROFILE) -p numaloc-ocr
	@mkdir -p $(OCR_BUILD)
	@for w in $(OCR_WORKLOADS); do \
	  $(CC) $(OCR_CFLAGS) workloads/ocr/$$w/$$w.c -o $(OCR_BUILD)/$$w \
	    -L$(OCR_LIB) -lnumaloc_ocr -Wl,-rpath,$(CURDIR)/$(OCR_LIB) -lm || exit 1; done
	@$(CXX) -O2 -std=c++17 workloads/ocr/overhead/overhead_tbb.cpp -o $(OCR_BUILD)/overhead_tbb -ltbb

.PHONY: bench-tasks
bench-tasks: ocr ## cost of a task beside oneTBB, in one run (about a minute)
	workloads/ocr/overhead/bench $(OCR_BUILD)

.PHONY: bench-tasks-plan
bench-tasks-plan: ## cost of the plan's look-up per task
	$(CARGO) test --locked --release -q -p numaloc-tasks --lib cost_of_a_step -- --ignored --nocapture

.PHONY: table-tasks
table-tasks: ocr ## Table I of the OCR paper: remote traffic on the two described machines (simulated)
	$(CARGO) build --locked -p numaloc
	workloads/ocr/table1 target/debug/numaloc $(OCR_BUILD)

.PHONY: table-plans
table-plans: ocr ## no plan, hints and plan on every OCR workload (simulated, about a minute); fails where a plan is slower than none
	$(CARGO) build --locked -p numaloc
	workloads/ocr/plans target/debug/numaloc $(OCR_BUILD)

.PHONY: table-pairs
table-pairs: ocr ## plans of one number of parts in runs of another (simulated, minutes); fails where a plan is 2 % slower than none
	$(CARGO) build --locked -p numaloc
	workloads/ocr/pairs target/debug/numaloc $(OCR_BUILD)

.PHONY: bench-tasks-rows
bench-tasks-rows: ocr ## Table I's rows on this machine: wall time, which hints and plan should not change (minutes)
	$(CARGO) build --locked -p numaloc
	workloads/ocr/table1-wall target/debug/numaloc $(OCR_BUILD)

NIGHTLY += test-tasks-loom

.PHONY: test-tasks-loom
test-tasks-loom: ## model-check deque, inbox and finish latch (about a minute)
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --locked -p numaloc-task-queues --release --test loom

.PHONY: soak-tasks
soak-tasks: ocr ## ten million tasks: memory must not grow
	workloads/ocr/overhead/soak $(OCR_BUILD)
