# A newer QEMU than the release's, and the recorder's tests and figures under it.

.PHONY: newer-qemu
newer-qemu: ## build a qemu-x86_64 that can load plugins from Debian's newest sources, into target/qemu (3 minutes)
	@make/newer-qemu target/qemu

.PHONY: test-newer-qemu
test-newer-qemu: newer-qemu workloads ## the recorder's tests under the QEMU of newer-qemu
	@$(CARGO) build --locked -q --workspace
	@PATH="$(CURDIR)/target/qemu:$$PATH" $(CARGO) test --locked -q --no-fail-fast -p numaloc --test access_trace --test dependencies \
		--test exactness --test fidelity --test grouping --test main_job --test openmp --test record --test shared_memory --test tracing
