// SPDX-License-Identifier: Apache-2.0
/* Every connector's table is whole, and the host's does what a connector must. */
#include "unit.h"

#include <errno.h>
#include <unistd.h>

#include "connectors/devconnector.h"
#include "phx_config.h"
#include "phx_init.h"

static int start(void **state)
{
	setenv("PHX_CONNECTOR", "host", 1);
	setenv("PHX_HOST_DEVICES", "2", 1);
	phx_init();
	return 0;
}

/* Callers never test for NULL: no slot may be empty. */
static void no_slot_is_empty(void **state)
{
	size_t first = offsetof(struct devconn_ops, init);

	for (int i = 0; devconn_list[i]; i++) {
		const struct devconn_ops *ops = devconn_list[i];

		assert_int_equal(ops->abi, DEVCONN_ABI);
		assert_non_null(ops->name);
		assert_true(ops->page_size >= 4096);
		assert_int_equal(ops->page_size & (ops->page_size - 1), 0);
		for (size_t at = first; at < sizeof(*ops); at += sizeof(void *)) {
			void *slot;

			memcpy(&slot, (const char *)ops + at, sizeof(slot));
			if (!slot)
				fail_msg("%s: slot at byte %zu is empty", ops->name, at);
		}
		for (int k = 0; k < i; k++)
			assert_string_not_equal(ops->name, devconn_list[k]->name);
	}
}

static void names_are_those_of_the_setting(void **state)
{
	for (int i = 0; devconn_list[i]; i++) {
		bool known = false;

		for (int k = 0; phx_connector_names[k]; k++)
			known |= !strcmp(devconn_list[i]->name, phx_connector_names[k]);
		assert_true(known);
	}
}

static void host_devices_are_numbered(void **state)
{
	struct devconn_device about;
	struct devconn_pointer p = { .len = 1 };

	assert_int_equal(host_connector.device_count(), 2);
	assert_int_equal(host_connector.find_device(1), 1);
	assert_int_equal(host_connector.find_device(2), -1);
	assert_int_equal(host_connector.device_describe(1, &about), 0);
	assert_true(*about.name);
	assert_string_equal(about.bdf, "");
	assert_true(about.memory_bytes > 1 << 20);
	assert_int_equal(host_connector.pointer_device(&p, &p), -ENOENT);
}

static void host_memory_is_aligned_and_copies(void **state)
{
	static const size_t lens[] = { 65536, 1 << 20, 2 << 20, 5 << 20 };
	char out[100], in[100];
	void *event = NULL, *none = NULL;

	memset(out, 7, sizeof(out));
	for (size_t i = 0; i < 4; i++) {
		void *p;

		assert_int_equal(host_connector.mem_alloc(0, lens[i], &p), 0);
		assert_int_equal((uintptr_t)p % 65536, 0);
		memset(p, 1, lens[i]);
		assert_int_equal(host_connector.memcpy_htod(0, p, out, 100), 0);
		assert_int_equal(host_connector.memcpy_dtod(0, (char *)p + 200, p, 100), 0);
		assert_int_equal(host_connector.memcpy_dtoh(0, in, (char *)p + 200, 100), 0);
		assert_memory_equal(in, out, 100);
		assert_int_equal(host_connector.memcpy_htod_async(0, 3, p, out, 100), 0);
		assert_int_equal(host_connector.queue_sync(0, 3), 0);
		assert_int_equal(host_connector.event_record(0, 3, &event), 0);
		assert_int_equal(host_connector.event_done(0, event), 0);
		assert_int_equal(host_connector.mem_free(0, p, lens[i]), 0);
	}
	assert_int_equal(host_connector.mem_alloc(0, SIZE_MAX & ~65535UL, &none), -ENOMEM);
	assert_null(none);
}

static void what_a_vendor_lacks_says_so(void **state)
{
	assert_int_equal(devconn_no_alloc(0, 1, NULL), -EOPNOTSUPP);
	assert_int_equal(devconn_no_free(0, NULL, 1), -EOPNOTSUPP);
	assert_int_equal(devconn_no_copy(0, NULL, NULL, 1), -EOPNOTSUPP);
	assert_int_equal(devconn_no_copy_async(0, 0, NULL, NULL, 1), -EOPNOTSUPP);
	assert_int_equal(devconn_no_launch_host_func(NULL, NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(devconn_no_stream_word(NULL, NULL, 0), -EOPNOTSUPP);
	devconn_no_range_push("x");
	devconn_no_range_pop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_slot_is_empty),
		cmocka_unit_test(names_are_those_of_the_setting),
		cmocka_unit_test(host_devices_are_numbered),
		cmocka_unit_test(host_memory_is_aligned_and_copies),
		cmocka_unit_test(what_a_vendor_lacks_says_so),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
