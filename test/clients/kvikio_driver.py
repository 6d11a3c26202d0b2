# SPDX-License-Identifier: Apache-2.0
"""KvikIO: finds every call that it demands, and opens and sets up the driver.

All of its transfers want CUDA's driver, so they are for a machine with a GPU.
"""

from kvikio import cufile_driver

assert cufile_driver.libcufile_version() == (1, 15), cufile_driver.libcufile_version()
cufile_driver.initialize()
assert cufile_driver.get("allow_compat_mode")
assert cufile_driver.get("max_device_cache_size") == 131072
cufile_driver.set({"max_device_cache_size": 65536})
assert cufile_driver.get("max_device_cache_size") == 65536
