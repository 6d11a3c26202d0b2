// SPDX-License-Identifier: Apache-2.0
/*
 * Command lines. A subcommand describes its options in a table; the walk over
 * argv is getopt_long's.
 */
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int usage_error(const struct subcommand *cmd, const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "phx %s: ", cmd->name);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fprintf(stderr, "\ntry 'phx help %s'\n", cmd->name);
	return EXIT_USAGE;
}

int parse_uint(const char *text, uint64_t *value)
{
	char *end;
	unsigned long long n;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -errno;
	if (*end)
		return -EINVAL;
	*value = n;
	return 0;
}

/* How far a suffix (K, KB, KiB, M, ...) shifts; -1: not a suffix. */
static int suffix_shift(const char *suffix)
{
	static const char units[] = "KMGT";
	const char *unit;

	if (!*suffix || !strcmp(suffix, "B"))
		return 0;
	unit = strchr(units, *suffix >= 'a' ? *suffix - 'a' + 'A' : *suffix);
	if (!unit)
		return -1;
	if (suffix[1] && strcmp(suffix + 1, "B") && strcmp(suffix + 1, "iB"))
		return -1;
	return 10 * (int)(unit - units + 1);
}

int parse_size(const char *text, uint64_t *bytes)
{
	unsigned long long n;
	char *end;
	int shift;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -errno;
	shift = suffix_shift(end);
	if (shift < 0)
		return -EINVAL;
	/* off_t is signed */
	if (n > (uint64_t)INT64_MAX >> shift)
		return -ERANGE;
	*bytes = (uint64_t)n << shift;
	return 0;
}

static int parse_int(const char *text, int *value)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (end == text || *end)
		return -EINVAL;
	if (errno || n < INT32_MIN || n > INT32_MAX)
		return -ERANGE;
	*value = (int)n;
	return 0;
}

static int parse_seconds(const char *text, double *value)
{
	char *end;
	double n;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	n = strtod(text, &end);
	if (*end && strcmp(end, "s"))
		return -EINVAL;
	/* also refuses what is no number */
	if (!(n > 0 && n <= 1e9))
		return -ERANGE;
	*value = n;
	return 0;
}

static int take_choice(const struct subcommand *cmd, const struct opt *opt, const char *text)
{
	char list[256] = "";
	size_t used = 0;
	int i;

	for (i = 0; opt->choices[i]; i++) {
		if (!strcmp(text, opt->choices[i])) {
			*(const char **)opt->out = opt->choices[i];
			return EXIT_OK;
		}
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
					 opt->choices[i]);
		if (used >= sizeof(list))
			used = sizeof(list) - 1;
	}
	return usage_error(cmd, "--%s: '%s' is none of %s", opt->name, text, list);
}

static int take_number(const struct subcommand *cmd, const struct opt *opt, const char *text)
{
	char low[WORD_MAX], high[WORD_MAX];
	uint64_t value = 0;
	int rc;

	rc = opt->kind == OPT_SIZE ? parse_size(text, &value) : parse_uint(text, &value);
	if (rc == -EINVAL)
		return usage_error(cmd, "--%s: '%s' is not a %s", opt->name, text,
				   opt->kind == OPT_SIZE ? "size (like 4096, 64K, 1G)" :
							   "whole number");
	if (rc || value < opt->min || (opt->max && value > opt->max)) {
		if (opt->kind == OPT_SIZE) {
			size_word(low, opt->min);
			size_word(high, opt->max ? opt->max : (uint64_t)INT64_MAX);
		} else {
			snprintf(low, sizeof(low), "%ju", (uintmax_t)opt->min);
			snprintf(high, sizeof(high), "%ju",
				 (uintmax_t)(opt->max ? opt->max : UINT64_MAX));
		}
		return usage_error(cmd, "--%s: '%s' is not between %s and %s", opt->name, text,
				   low, high);
	}
	*(uint64_t *)opt->out = value;
	return EXIT_OK;
}

static int take(const struct subcommand *cmd, const struct opt *opt, const char *text)
{
	switch (opt->kind) {
	case OPT_FLAG:
		*(bool *)opt->out = true;
		return EXIT_OK;
	case OPT_SIZE:
	case OPT_UINT:
		return take_number(cmd, opt, text);
	case OPT_TEXT:
		*(const char **)opt->out = text;
		return EXIT_OK;
	case OPT_CHOICE:
		return take_choice(cmd, opt, text);
	case OPT_INT:
		if (parse_int(text, opt->out))
			return usage_error(cmd, "--%s: '%s' is not a whole number", opt->name,
					   text);
		return EXIT_OK;
	case OPT_SECONDS:
		if (parse_seconds(text, opt->out))
			return usage_error(cmd, "--%s: '%s' is not a number of seconds above 0",
					   opt->name, text);
		return EXIT_OK;
	}
	return EXIT_OK;
}

int parse_options(const struct subcommand *cmd, const struct opt *opts, int argc, char **argv,
		  int *first)
{
	struct option table[OPT_MAX + 2] = { { "help", no_argument, NULL, 'h' } };
	int n, c, rc, index = 0;

	for (n = 0; opts[n].name; n++)
		table[n + 1] = (struct option){
			.name = opts[n].name,
			.has_arg = opts[n].kind == OPT_FLAG ? no_argument : required_argument,
		};

	opterr = 0;
	optind = 1;
	while ((c = getopt_long(argc, argv, cmd->operands_last ? "+:h" : ":h", table, &index)) !=
	       -1) {
		switch (c) {
		case 'h':
			fputs(cmd->help, stdout);
			return PARSED_HELP;
		case 0:
			rc = take(cmd, &opts[index - 1], optarg);
			if (rc)
				return rc;
			break;
		case ':':
			return usage_error(cmd, "%s needs a value", argv[optind - 1]);
		default:
			/* a long option leaves optopt 0, or its val where it took no value */
			if (optopt && optopt != 'h')
				return usage_error(cmd, "unknown option '-%c'", optopt);
			return usage_error(cmd, "'%s': no such option, or it takes no value",
					   argv[optind - 1]);
		}
	}
	*first = optind;
	return EXIT_OK;
}
