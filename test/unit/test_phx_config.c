// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include "phoenix.h"
#include "phx_config.h"

static int read_config(void **state)
{
	unsetenv("PHX_PATH");
	unsetenv("PHX_STAGING_SIZE_MB");
	unsetenv("PHX_IO_ENGINE");
	unsetenv("PHXFS_IO_ENGINE");
	unsetenv("PHX_IO_WORKERS");
	unsetenv("PHX_HOST_DEVICES");
	return 0;
}

/* The value that the text gives, or the default's where it is invalid. */
static long staging(const char *text)
{
	setenv("PHX_STAGING_SIZE_MB", text, 1);
	phx_config_init();
	return phx_config.staging_size_mb;
}

static void numbers_are_taken_whole_or_not_at_all(void **state)
{
	static const char *const bad[] = { "0", "-1", "65537", "1x", "x1", "1 ", "0x10", "1.5", "",
					   "99999999999999999999", "one" };

	assert_int_equal(staging("1"), 1);
	assert_int_equal(staging("65536"), 65536);
	assert_int_equal(staging("0017"), 17);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(staging(bad[i]), 256);
}

static int path(const char *text)
{
	setenv("PHX_PATH", text, 1);
	phx_config_init();
	return phx_config.path;
}

static void words_are_whole_and_case_does_not_matter(void **state)
{
	assert_int_equal(path("direct"), PHX_PATH_DIRECT);
	assert_int_equal(path("STAGING"), PHX_PATH_STAGING);
	assert_int_equal(path("Bounce"), PHX_PATH_BOUNCE);
	assert_int_equal(path("bounc"), PHX_PATH_AUTO);
	assert_int_equal(path("bouncer"), PHX_PATH_AUTO);
	assert_int_equal(path(" bounce"), PHX_PATH_AUTO);
	assert_int_equal(path(""), PHX_PATH_AUTO);
}

static void the_first_spelling_wins(void **state)
{
	setenv("PHXFS_IO_ENGINE", "sync", 1);
	phx_config_init();
	assert_int_equal(phx_config.engine, PHX_ENGINE_SYNC);
	setenv("PHX_IO_ENGINE", "io_uring", 1);
	phx_config_init();
	assert_int_equal(phx_config.engine, PHX_ENGINE_IO_URING);
}

static void workers_are_never_none(void **state)
{
	phx_config_init();
	assert_true(phx_config.workers >= 1);
	setenv("PHX_IO_WORKERS", "0", 1);
	phx_config_init();
	assert_true(phx_config.workers >= 1);
	setenv("PHX_IO_WORKERS", "256", 1);
	phx_config_init();
	assert_int_equal(phx_config.workers, 256);
	setenv("PHX_IO_WORKERS", "257", 1);
	phx_config_init();
	assert_true(phx_config.workers <= 16);
}

static void the_environment_cannot_name_a_connector_that_is_not(void **state)
{
	setenv("PHX_CONNECTOR", "host", 1);
	phx_config_init();
	assert_string_equal(phx_connector_names[phx_config.connector - 1], "host");
	setenv("PHX_CONNECTOR", "other", 1);
	phx_config_init();
	assert_int_equal(phx_config.connector, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(numbers_are_taken_whole_or_not_at_all, read_config),
		cmocka_unit_test_setup(words_are_whole_and_case_does_not_matter, read_config),
		cmocka_unit_test_setup(the_first_spelling_wins, read_config),
		cmocka_unit_test_setup(workers_are_never_none, read_config),
		cmocka_unit_test_setup(the_environment_cannot_name_a_connector_that_is_not,
				       read_config),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
