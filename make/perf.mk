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
