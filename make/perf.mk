# Proof of `numaloc record` on programs that were not made for it, and under faults.

TEST_EXTRA += test-ci-programs test-ci-faults

.PHONY: test-programs test-ci-programs test-faults test-ci-faults
test-programs: build ## 16 Debian programs natively and recorded: same output, the table of docs/programs.md
	make/install-packages make/programs/packages
	$(CARGO) build --release --quiet -p numaloc-qemu
	NUMALOC_PLUGIN_DIR=$(abspath target/release) make/programs/run all

test-ci-programs: build
	make/programs/run quick

FAULTS ?= 300
test-faults: build ## kill -9 and full disks at 300 random moments: profiles whole or absent, never corrupt (root)
	make/faults/run $(FAULTS)

test-ci-faults: build
	make/faults/run 12

.PHONY: mutate
mutate: build ## 5,000 damaged files of every kind, read by the real program: no panic, no hang, 1 GiB (10 minutes; MUTATIONS=N, SEED=N)
	NUMALOC_MUTATIONS=$(or $(MUTATIONS),5000) NUMALOC_SEED=$(or $(SEED),1) $(CARGO) test -q -p numaloc --test mutations -- --nocapture
