#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: register.sh BUILD-DIR
# 60 rounds of 10,000 registrations and deregistrations: neither time nor
# memory may grow.
. "$(dirname "$0")/lib.sh"
"$build/bench/bench_register" || missed=1
finish
