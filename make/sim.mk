.PHONY: bench-simulate
bench-simulate: ## how fast traces are simulated (RECORDS_M=20 million records, REPEATS=3)
	$(CARGO) bench --locked -q -p numaloc-sim --bench simulate

# The papers' experiments: PROGRAMS="./a 1;./b" for yours, whose tables are printed.
STUDIES := $(notdir $(patsubst %/run,%,$(wildcard studies/*/run)))
.PHONY: studies $(addprefix study-,$(STUDIES))
studies: $(addprefix study-,$(STUDIES)) ## the papers' experiments, simulated, one after the other

study-deloc: ## DeLoc's figures 7, 9 and 10, simulated, over our kernels (PROGRAMS="./a 1;./b" for yours)
study-data-mapping: ## figures 1 to 7 and tables I and II of the data mapping paper, simulated
study-cmlb: ## CMLB's tables I and II and figures 3 to 5, simulated
study-opt: ## OPT's figures 2 to 9 and 11 to 14 (static part), simulated
$(addprefix study-,$(STUDIES)): study-%: build workloads
	@studies/$*/run target/debug/numaloc

.PHONY: table-sampled
table-sampled: build workloads ## sampled simulations compared with whole ones, docs/commands/simulate.md ([KERNELS="cg ..."])
	make/table-sampled target/debug/numaloc $(KERNELS)

.PHONY: table-advice
table-advice: build ## what plans and verdicts are worth by the simulator on all machines, and the model's error ([ADVICE="--sample 150"])
	make/table-advice target/debug/numaloc $(ADVICE)

.PHONY: table-advice-drawn table-advice-lost table-advice-fresh
table-advice-drawn: build ## the same for 149 cells that were drawn at random, with candidates of each
	make/table-advice target/debug/numaloc --cells make/advice/drawn.txt --candidates 1 $(ADVICE)
table-advice-lost: build ## the same for 37 cells in which a plan lost once, and cells like those
	make/table-advice target/debug/numaloc --cells make/advice/lost.txt --candidates 1 $(ADVICE)
table-advice-fresh: build ## the same for 115 cells of another seed, by which nothing was chosen
	make/table-advice target/debug/numaloc --cells make/advice/fresh.txt --candidates 1 $(ADVICE)

.PHONY: table-tiers
table-tiers: ## page policies for memory of several kinds compared with the best of all placements of small programs
	@cargo test --locked --quiet --workspace --test simulated -- --nocapture tiers:: | grep '^|'

.PHONY: table-changes
table-changes: build ## gains that `advise` predicts against programs in which the change was made ([MACHINE=skylake-4s] [ONLY=words])
	@make/table-changes target/debug/numaloc $(MACHINE) --only "$(ONLY)"

.PHONY: table-changes-lab
table-changes-lab: build ## remote shares that `advise` predicts against those of changed programs in the virtual NUMA machine ([ONLY=words])
	@make/table-changes target/debug/numaloc --lab --only "$(ONLY)"

.PHONY: table-simulated
table-simulated: build workloads ## simulated placements compared with the virtual machine's counts ([ROWS="ring ..."])
	make/table-simulated target/debug/numaloc $(ROWS)

.PHONY: bench-contention
bench-contention: ## what two threads wait for a line that both change, measured here and by the rule of docs/tracing.md (REPEATS=5)
	@make/bench-contention $(REPEATS)
