# Proof of `numaloc record` on programs that were not made for it, and under faults.

TEST_EXTRA += test-ci-programs test-ci-faults

.PHONY: test-programs test-ci-programs test-faults test-ci-faults
test-programs: build ## 16 Debian programs natively and recorded: same output, the table of docs/programs.md
	make/install-packages make/programs/packages
	$(CARGO) build --locked --release --quiet -p numaloc-qemu -p numaloc-native
	NUMALOC_PLUGIN_DIR=$(abspath target/release) make/programs/run all

test-ci-programs: build
	make/programs/run quick

FAULTS ?= 300
LAB_FAULTS ?= 10
test-faults: build ## kill -9 of every command and of what it runs, and full disks, at 300 random moments: outputs whole or absent (root)
	make/faults/run $(FAULTS)
	make/faults/run $(LAB_FAULTS) "" lab

# One of each kind, the same ones each time; lab boots a virtual machine and stays out.
test-ci-faults: build
	make/faults/run 24 $(or $(SEED),1)

.PHONY: mutate
mutate: build ## 5,000 damaged files of every kind, read by the real program: no panic, no hang, 1 GiB (10 minutes; MUTATIONS=N, SEED=N)
	NUMALOC_MUTATIONS=$(or $(MUTATIONS),5000) NUMALOC_SEED=$(or $(SEED),1) $(TEST) --test mutations -- --nocapture

.PHONY: fuzz
fuzz: build ## each reader called with committed and damaged files for 60 s: no panic, 5 s, 1 GiB (22 minutes; SECONDS=N, READER=NAME, SEED=N)
	NUMALOC_FUZZ_SECONDS=$(or $(SECONDS),60) NUMALOC_SEED=$(or $(SEED),1) $(if $(READER),NUMALOC_FUZZ_READER="$(READER)") \
	    $(TEST) --test mutations readers_called -- --nocapture

TEST_EXTRA += test-ci-miri

.PHONY: miri test-ci-miri
miri: ## the lock-free queues and the unit tests of the pure crates under miri (nightly toolchain)
	@make/miri all

test-ci-miri: # the lock-free queues alone
	@make/miri queues
