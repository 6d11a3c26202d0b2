# SPDX-License-Identifier: Apache-2.0
# Targets of the P2P engine.

FUZZ_SECONDS ?= 600

# Fuzz the wire: greetings, control messages, notifications, streams of frames.
# Needs clang with libFuzzer; an input that breaks it is left in fuzz/crash-*.
fuzz-p2p: | setup
	@scripts/fuzz-p2p $(FUZZ_SECONDS)

.PHONY: fuzz-p2p
