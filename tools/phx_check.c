// SPDX-License-Identifier: Apache-2.0
/*
 * phx check: what this machine and these paths allow, and what stands in the
 * way. It changes nothing that outlives it; files are only read, and in a
 * directory an unnamed file is made.
 */
#include "findings.h"

#include <phoenix.h>
#include <string.h>

static const char help[] =
	"usage: phx check [OPTION...] [PATH...]\n"
	"\n"
	"Says, one line for each check, what works, what does not, why, and the cure:\n"
	"connectors, devices, I/O engine, limits, settings in force, and for each PATH\n"
	"(a file or a directory) the file system, direct I/O and the way data takes.\n"
	"\n"
	"  --device N     device that the paths are checked for (default 0)\n"
	"  --sysfs DIR    look at this copy of /sys\n"
	"  --json         one JSON object\n"
	"\n"
	"PASS works as well as it can; WARN works, but slower or smaller; FAIL does not\n"
	"work; INFO is for reading.\n"
	"\n"
	"exit status: 0 nothing failed, 1 a check failed, 2 wrong command line\n";

static int take_setting(void *arg, const struct phxfs_setting *s)
{
	bool invalid = strstr(s->source, "invalid") != NULL;
	struct finding *x;

	x = find_add(arg, invalid ? VERDICT_WARN : VERDICT_INFO, "setting", s->name, "%s (%s)",
		     s->value, s->source);
	if (invalid)
		find_cure(x, "%s", s->help);
	return 0;
}

static int run(int argc, char **argv)
{
	struct findings f = { 0 };
	const char *sysfs = "/sys";
	bool json = false, printed;
	enum verdict worst;
	int device = 0, first = 0, rc;
	const struct opt opts[] = {
		{ "device", OPT_INT, &device, 0, 0, NULL },
		{ "sysfs", OPT_TEXT, &sysfs, 0, 0, NULL },
		{ "json", OPT_FLAG, &json, 0, 0, NULL },
		{ NULL, OPT_FLAG, NULL, 0, 0, NULL },
	};

	rc = parse_options(&cmd_check, opts, argc, argv, &first);
	if (rc)
		return rc == PARSED_HELP ? EXIT_OK : rc;

	check_system(&f);
	check_devices(&f, sysfs);
	for (; first < argc; first++)
		check_file(&f, argv[first], device, sysfs);
	phxfs_config_each(take_setting, &f);

	printed = findings_print(&f, json);
	worst = findings_worst(&f);
	findings_free(&f);
	return worst == VERDICT_FAIL || !printed ? EXIT_FAILED : EXIT_OK;
}

const struct subcommand cmd_check = {
	.name = "check",
	.summary = "what this machine allows, and what stands in the way",
	.help = help,
	.run = run,
};
