# The recorder's benchmark: native, bare QEMU, QEMU with the plugin, in one run.

.PHONY: bench-trace
bench-trace: workloads ## what recording costs: native, bare qemu-x86_64, with the plugin (release build)
	@$(CARGO) build -q --release -p numaloc-qemu
	@python3 make/bench-trace target/release/libnumaloc_qemu.so $(REPEATS)
