# SPDX-License-Identifier: Apache-2.0
# make test-vm [KERNEL=6.1] [TESTS="..."]: the guest suite on a real kernel.
# make test-porting [KERNEL=6.1]: the porting guide, followed, and its acceptance list.

KERNEL ?= 6.1

test-vm: all
	@vm/run --kernel $(KERNEL) --build $(BUILD) $(TESTS)

test-porting: setup-test
	@vm/porting $(KERNEL)

.PHONY: test-vm test-porting
