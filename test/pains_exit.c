// SPDX-License-Identifier: Apache-2.0
/* However a process ends, it ends with status 0; however it loads the library, it works. */
#include <libgen.h>
#include <spawn.h>
#include <sys/wait.h>

#include "t_file.h"

extern char **environ;

/* The path of a program that was built beside this one, or of a library. */
static const char *beside(const char *folder, const char *name)
{
	static char ring[4][600];
	static int next;
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	T_CHECK(n > 0);
	self[n] = '\0';
	next = (next + 1) % 4;
	snprintf(ring[next], sizeof(ring[0]), "%s/%s%s", dirname(self), folder, name);
	return ring[next];
}

static void run_often(const char *const *argv, long times)
{
	while (times-- > 0) {
		int status;
		pid_t pid;

		T_EQ(posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)argv, environ), 0);
		T_EQ(waitpid(pid, &status, 0), pid);
		if (status)
			T_FAIL("%s %s ends with status %#x", argv[0], argv[1], status);
	}
}

static void S29_every_end_is_status_0(void)
{
	static const char *const modes[] = { "unused", "clean",	     "nothing",	"in-flight",
					     "atexit", "destructor", "threads",	"other-thread" };
	int fd = t_file("f", 8 * T_PAGE, 1, O_RDONLY);

	close(fd);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		const char *argv[] = { beside("", "exit_linked"), modes[i], t_name("f"), NULL };

		/* threads and exit race on purpose: more often; the plain ways: fewer */
		run_often(argv, t_scale(i < 2 ? 20 : 300));
	}
}

static void S29_a_static_destructor_may_take_it_down(void)
{
	const char *argv[] = { beside("", "exit_static"), t_name("f"), NULL };

	close(t_file("f", T_PAGE, 1, O_RDONLY));
	run_often(argv, t_scale(300));
}

static void S29_dlclose_before_the_end(void)
{
	const char *argv[] = { beside("", "exit_dlopen"), "local",
			       beside("../lib/", "libphoenix.so"), t_name("f"), NULL };

	close(t_file("f", T_PAGE, 1, O_RDONLY));
	run_often(argv, t_scale(300));
}

static void R44_foreign_symbols_do_not_meet_ours(void)
{
	static const char *const modes[] = { "local", "global" };

	close(t_file("f", T_PAGE, 1, O_RDONLY));
	for (int i = 0; i < 2; i++) {
		const char *argv[] = { beside("", "exit_dlopen"), modes[i],
				       beside("../lib/", "libphoenix.so"), t_name("f"), NULL };

		run_often(argv, 5);
	}
}

static const struct t_case cases[] = {
	T_CASE(S29_every_end_is_status_0, .flags = T_ENGINES, .timeout = 300),
	T_CASE(S29_a_static_destructor_may_take_it_down, .timeout = 120),
	T_CASE(S29_dlclose_before_the_end, .flags = T_ENGINES, .timeout = 120),
	T_CASE(R44_foreign_symbols_do_not_meet_ours),
};

T_MAIN(cases)
