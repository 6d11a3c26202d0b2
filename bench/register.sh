#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: register.sh BUILD-DIR
# 60 rounds of 10,000 registrations and deregistrations: neither time nor
# memory may grow.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work and their kin
. "$(dirname "$0")/lib.sh"
"$build/bin/bench_register"
