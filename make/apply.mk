# What `numaloc run` costs a program, against the bare program and numactl.

.PHONY: bench-apply
bench-apply: target/bench/cost ## what running under a plan costs: bare, numactl, numaloc run (release build)
	@$(CARGO) build --locked -q --release -p numaloc -p numaloc-qemu -p numaloc-native
	@python3 make/bench-apply target/release/numaloc $(REPEATS)

.PHONY: bench-marks
bench-marks: ## what counting marks costs a native run: ns a mark, and a program with a barrier each half millisecond
	@$(CARGO) build --locked -q --release -p numaloc-agent -p numaloc
	@make/bench-marks target/release/libnumaloc_marks.so $(or $(REPEATS),9) target/release/numaloc

.PHONY: bench-deal
bench-deal: ## what a chunk of a dynamic loop costs, the run-time system's own and dealt by node, in turns (REPEATS=9)
	@$(CARGO) build --locked -q --release -p numaloc-deal
	@make/bench-deal target/release/libnumaloc_deal.so $(or $(REPEATS),9)

target/bench/cost: crates/apply/benches/programs/cost.c
	@mkdir -p $(@D)
	$(CC) -O2 -g -Wall -Wextra -std=gnu11 -o $@ $<
