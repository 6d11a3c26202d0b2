# SPDX-License-Identifier: Apache-2.0
# make test-vm [KERNEL=6.1] [TESTS="..."]: the guest suite on a real kernel.

KERNEL ?= 6.1

test-vm: all
	@vm/run --kernel $(KERNEL) --build $(BUILD) $(TESTS)

.PHONY: test-vm
