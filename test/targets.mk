# SPDX-License-Identifier: Apache-2.0
# Published clients of cuFile on our library. Needs a package index, so no part of test.

test-clients: all
	@test/clients/run $(BUILD)

.PHONY: test-clients
