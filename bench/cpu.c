// SPDX-License-Identifier: Apache-2.0
/*
 * cpu FILE COMMAND...: runs the command and writes the processor time (user
 * and system, microseconds) of it and of all it waited for into FILE. Exits as
 * the command did. Measures every program in the same way, from outside.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static long long micros(struct timeval t)
{
	return t.tv_sec * 1000000LL + t.tv_usec;
}

int main(int argc, char **argv)
{
	struct rusage use;
	int status;
	FILE *file;
	pid_t pid;

	if (argc < 3) {
		fprintf(stderr, "usage: cpu FILE COMMAND...\n");
		return 2;
	}
	pid = fork();
	if (pid == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) < 0) {
		perror("cpu");
		return 1;
	}
	file = fopen(argv[1], "w");
	if (!file || fprintf(file, "%lld\n", micros(use.ru_utime) + micros(use.ru_stime)) < 0 ||
	    fclose(file)) {
		perror(argv[1]);
		return 1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
