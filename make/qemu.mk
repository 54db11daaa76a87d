# Frontend qemu: the tests of the recorder with it, and with a newer QEMU than the release has.

.PHONY: newer-qemu
newer-qemu: ## build a qemu-x86_64 that can load plugins from Debian's newest sources, into target/qemu (3 minutes)
	@make/newer-qemu target/qemu

# Without the translator next to its plugin, `record` takes the emulator, as on a processor that native cannot use.
QEMU_ONLY := target/qemu-only
# Those in which the frontend matters; the others watch instrumented programs or QEMU itself anyway.
QEMU_TESTS := access_trace main_job record shared_memory tracing undisturbed $(if $(NUMALOC_FULL_TESTS),fidelity openmp)

.PHONY: qemu-only test-newer-qemu test-qemu
qemu-only: build # the frontends' libraries without the translator
	@rm -rf $(QEMU_ONLY) && mkdir -p $(QEMU_ONLY)
	@for file in target/debug/libnumaloc_*.so target/debug/libnumaloc_*.a; do ln -s "$(CURDIR)/$$file" $(QEMU_ONLY)/; done

TEST_EXTRA += test-qemu

test-qemu: qemu-only workloads # the recorder's tests with frontend qemu instead of native
	@NUMALOC_PLUGIN_DIR="$(CURDIR)/$(QEMU_ONLY)" $(TEST) --test recording -- $(addsuffix ::,$(QEMU_TESTS))

test-newer-qemu: newer-qemu ## the recorder's tests under the QEMU of newer-qemu
	@PATH="$(CURDIR)/target/qemu:$$PATH" $(MAKE) --no-print-directory test-qemu
	@PATH="$(CURDIR)/target/qemu:$$PATH" $(TEST) --test recording exactness::
