// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <errno.h>
#include <stdio.h>

#include "phx_error.h"

static void text_has_step_object_name_meaning_cure(void **state)
{
	assert_int_equal(phx_fail(-ENOENT, "open", "make it", "file %d", 7), -ENOENT);
	assert_string_equal(phxfs_last_error(),
			    "open: file 7: ENOENT (No such file or directory): make it");
	phx_fail(-EIO, "read", NULL, "%s", "it");
	assert_string_equal(phxfs_last_error(), "read: it: EIO (Input/output error)");
}

static void long_texts_are_cut_and_end(void **state)
{
	static char large[4096];

	memset(large, 'x', sizeof(large) - 1);
	phx_fail(-EIO, large, large, "%s", large);
	assert_true(strlen(phxfs_last_error()) < 700);
	phx_fail(-12345, "step", NULL, "object");
	assert_non_null(strstr(phxfs_last_error(), "unknown"));
}

static void errno_is_kept(void **state)
{
	errno = 77;
	phx_fail(-EIO, "read", NULL, "it");
	assert_int_equal(errno, 77);
}

static void marks_tell_whether_an_error_came_since(void **state)
{
	unsigned int mark = phx_error_mark();

	assert_false(phx_error_since(mark, -EIO));
	phx_fail(-EIO, "read", NULL, "it");
	assert_true(phx_error_since(mark, -EIO));
	assert_false(phx_error_since(mark, -ENOENT));
	assert_false(phx_error_since(phx_error_mark(), -EIO));
}

static void names_of_either_sign(void **state)
{
	assert_string_equal(phx_errno_name(ENOMEM), "ENOMEM");
	assert_string_equal(phx_errno_name(-ENOMEM), "ENOMEM");
	assert_non_null(phx_errno_name(0));
}

static int lines, last_level;
static char last_line[1024];

static void keep(void *arg, int level, const char *message)
{
	assert_ptr_equal(arg, &lines);
	lines++;
	last_level = level;
	snprintf(last_line, sizeof(last_line), "%s", message);
}

static void the_log_keeps_to_its_level(void **state)
{
	static atomic_flag flag = ATOMIC_FLAG_INIT;

	assert_int_equal(phxfs_set_log(keep, &lines, PHXFS_LOG_WARN), 0);
	phx_log(PHXFS_LOG_INFO, "not wanted");
	assert_int_equal(lines, 0);
	phx_log(PHXFS_LOG_ERROR, "%d wanted", 1);
	assert_int_equal(lines, 1);
	assert_int_equal(last_level, PHXFS_LOG_ERROR);
	assert_string_equal(last_line, "1 wanted");
	for (int i = 0; i < 5; i++)
		phx_log_once(&flag, PHXFS_LOG_WARN, "once");
	assert_int_equal(lines, 2);
	assert_int_equal(phxfs_set_log(NULL, NULL, PHXFS_LOG_DEBUG), 0);
	phx_log(PHXFS_LOG_ERROR, "to nobody");
	assert_int_equal(lines, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_has_step_object_name_meaning_cure),
		cmocka_unit_test(long_texts_are_cut_and_end),
		cmocka_unit_test(errno_is_kept),
		cmocka_unit_test(marks_tell_whether_an_error_came_since),
		cmocka_unit_test(names_of_either_sign),
		cmocka_unit_test(the_log_keeps_to_its_level),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
