// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool.h"

static const struct subcommand cmd = { .name = "test", .help = "" };

static void sizes_are_powers_of_1024(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4096", 4096 },
		{ "4096B", 4096 },
		{ "4k", 4096 },
		{ "4K", 4096 },
		{ "4KB", 4096 },
		{ "4KiB", 4096 },
		{ "1M", 1u << 20 },
		{ "2G", UINT64_C(2) << 30 },
		{ "3T", UINT64_C(3) << 40 },
		{ "9223372036854775807", INT64_MAX },
	};
	uint64_t bytes;
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		bytes = UINT64_MAX;
		assert_int_equal(parse_size(good[i].text, &bytes), 0);
		assert_true(bytes == good[i].bytes);
	}
}

static void wrong_sizes_are_refused_and_leave_the_value(void **state)
{
	static const struct {
		const char *text;
		int rc;
	} bad[] = {
		{ "", -EINVAL },
		{ " 1", -EINVAL },
		{ "-1", -EINVAL },
		{ "+1", -EINVAL },
		{ "0x10", -EINVAL },
		{ "1.5G", -EINVAL },
		{ "4X", -EINVAL },
		{ "4KK", -EINVAL },
		{ "4Ki", -EINVAL },
		{ "K", -EINVAL },
		{ "9223372036854775808", -ERANGE },
		{ "8388608T", -ERANGE },
		{ "99999999999999999999", -ERANGE },
	};
	uint64_t bytes = 4711;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(parse_size(bad[i].text, &bytes), bad[i].rc);
	assert_true(bytes == 4711);
}

/* The words of sizes are read back to the same size where they are exact. */
static void sizes_survive_being_written(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 1023, 1024, 65536, 1u << 20, UINT64_C(5) << 30 };
	char word[WORD_MAX], *blank;
	uint64_t back;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_word(word, sizes[i]);
		blank = strchr(word, ' ');
		memmove(blank, blank + 1, strlen(blank));
		assert_int_equal(parse_size(word, &back), 0);
		assert_true(back == sizes[i]);
	}
	assert_string_equal(size_word(word, 1536), "1.50 KiB");
}

static int parse(char **argv, uint64_t *size, uint64_t *n, int *i, bool *flag, double *s,
		 const char **choice, int *first)
{
	static const char *const choices[] = { "on", "off", NULL };
	const struct opt opts[] = {
		{ "size", OPT_SIZE, size, 1, 1u << 20, NULL },
		{ "n", OPT_UINT, n, 1, 8, NULL },
		{ "i", OPT_INT, i, 0, 0, NULL },
		{ "flag", OPT_FLAG, flag, 0, 0, NULL },
		{ "s", OPT_SECONDS, s, 0, 0, NULL },
		{ "choice", OPT_CHOICE, choice, 0, 0, choices },
		{ NULL, OPT_FLAG, NULL, 0, 0, NULL },
	};
	int argc = 0;

	while (argv[argc])
		argc++;
	return parse_options(&cmd, opts, argc, argv, first);
}

struct values {
	uint64_t size;
	uint64_t n;
	double s;
	const char *choice;
	int i;
	int first;
	bool flag;
};

static int parse_line(const char *line, struct values *v)
{
	static char copy[256];
	char *argv[16] = { NULL };
	int argc = 0;

	snprintf(copy, sizeof(copy), "test %s", line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	return parse(argv, &v->size, &v->n, &v->i, &v->flag, &v->s, &v->choice, &v->first);
}

static void options_reach_their_variables(void **state)
{
	struct values v = { 0 };

	assert_int_equal(parse_line("op --size 64K --n=8 --i -3 --flag file --s 0.5 --choice off",
				    &v),
			 EXIT_OK);
	assert_true(v.size == 65536 && v.n == 8 && v.i == -3 && v.flag && v.s == 0.5);
	assert_string_equal(v.choice, "off");
	/* the operands stand behind the options now: op, file */
	assert_int_equal(v.first, 11);
}

static void wrong_options_are_usage_errors(void **state)
{
	static const char *const lines[] = {
		"--nosuch", "-x", "--size", "--size x", "--size 0", "--size 2M", "--n 9",
		"--n -1", "--i one", "--i 99999999999", "--s 0", "--s -1", "--s x",
		"--s nan", "--s inf", "--choice maybe", "--flag=1", "--help=1",
	};
	struct values v = { 0 };
	size_t i;

	for (i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		if (parse_line(lines[i], &v) != EXIT_USAGE)
			fail_msg("'%s' was taken", lines[i]);
	}
	assert_true(v.size == 0 && v.n == 0 && v.s == 0 && !v.flag && !v.choice);
}

static void help_is_not_an_error(void **state)
{
	struct values v = { 0 };

	assert_int_equal(parse_line("--help", &v), PARSED_HELP);
	assert_int_equal(parse_line("-h", &v), PARSED_HELP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_powers_of_1024),
		cmocka_unit_test(wrong_sizes_are_refused_and_leave_the_value),
		cmocka_unit_test(sizes_survive_being_written),
		cmocka_unit_test(options_reach_their_variables),
		cmocka_unit_test(wrong_options_are_usage_errors),
		cmocka_unit_test(help_is_not_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
