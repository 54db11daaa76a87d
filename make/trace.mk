# The recorder's benchmark: native, bare QEMU, QEMU with an empty callback and with the plugin, instrumented, in one run.

# QEMU=FOLDER: measure with that folder's qemu-x86_64 (`make newer-qemu` builds one in target/qemu).
WITH_QEMU = $(if $(QEMU),PATH="$(abspath $(QEMU)):$$PATH")

.PHONY: bench-trace
bench-trace: workloads ## what recording costs: native, QEMU bare, with an empty callback, with the plugin; instrumented (release)
	@$(CARGO) build --locked -q -p numaloc && $(CARGO) build --locked -q --release -p numaloc-qemu -p numaloc-instrument
	@$(WITH_QEMU) python3 make/bench-trace target/release $(or $(REPEATS),5)

.PHONY: sample-accuracy
sample-accuracy: workloads ## how well --sample 5% estimates the matrix of each OpenMP workload (about 2 minutes)
	@$(CARGO) build --locked -q --release -p numaloc -p numaloc-qemu -p numaloc-native
	@python3 make/sample-accuracy target/release/numaloc 5% 8 lines

.PHONY: bench-access
bench-access: ## what one access costs the engine, in CPU nanoseconds: same line, same page, random, changing hands, sampled
	@$(CARGO) bench --locked -q -p numaloc-trace --bench access

.PHONY: bench-instructions
bench-instructions: ## instructions that one access costs the engine, counted by valgrind (release, 2 minutes)
	@make/bench-instructions "$$($(CARGO) bench --locked -q -p numaloc-trace --bench access --no-run --message-format=json \
		| sed -n 's/.*"executable":"\([^"]*access-[^"]*\)".*/\1/p')"

.PHONY: bench-sample
bench-sample: workloads ## what --sample saves: instrumented and emulated programs exactly and at 5 % (release, 3 minutes)
	@$(CARGO) build --locked -q --release -p numaloc -p numaloc-instrument -p numaloc-qemu
	@$(WITH_QEMU) python3 make/bench-sample target/release $(or $(REPEATS),5)

.PHONY: bench-loops
bench-loops: ## cost of a loop with one call per loop and per access, by its length (release, 1 minute)
	@$(CARGO) build --locked -q --release -p numaloc -p numaloc-instrument
	@python3 make/bench-loops target/release $(or $(REPEATS),3)

.PHONY: bench-fidelity
bench-fidelity: workloads ## what the host's load and pinning change in each workload's matrix, 16 and 64 threads (release, 2 minutes)
	@$(CARGO) build --locked -q --release -p numaloc -p numaloc-qemu -p numaloc-native
	@$(WITH_QEMU) python3 make/fidelity target/release/numaloc 16 qemu
	@$(WITH_QEMU) python3 make/fidelity target/release/numaloc 64 qemu

TEST_EXTRA += test-ci-fidelity-rule
NIGHTLY += test-tsan

.PHONY: test-tsan
test-tsan: ## ThreadSanitizer on the engine and the task runtime, with a standard library built for it (9 minutes of processor time the first time)
	@make/tsan

.PHONY: test-ci-fidelity-rule
test-ci-fidelity-rule: # the rule of bench-fidelity, on matrices whose answer is known
	@python3 make/fidelity --check

.PHONY: bench-trace-writer
bench-trace-writer: ## records of the access trace a second: filter, socket, compression, disk, and reading back (release, 2 minutes)
	@mkdir -p target/bench
	@$(CARGO) bench --locked -q -p numaloc-formats --bench access_trace -- $(CURDIR)/target/bench

.PHONY: fuzz-loops
fuzz-loops: ## random loops, announced at once and access by access: same output, same accesses (100 programs, 3 minutes)
	@$(CARGO) build --locked -q -p numaloc -p numaloc-instrument
	@python3 make/fuzz-loops target/debug/numaloc $(or $(PROGRAMS),100) $(or $(SEED),1)
