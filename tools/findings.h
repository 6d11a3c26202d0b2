/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `phx check` finds: a list of findings, printed as text or JSON.
 */
#ifndef PHX_FINDINGS_H
#define PHX_FINDINGS_H

#include "tool.h"

enum verdict {
	VERDICT_INFO,
	VERDICT_PASS,
	VERDICT_WARN, /* works, but slower or smaller than it could */
	VERDICT_FAIL, /* does not work */
	VERDICTS,
};

struct finding {
	enum verdict verdict;
	char check[24];
	char object[256];
	char text[512];
	char cure[256]; /* "" where there is nothing to cure */
	cJSON *data;    /* figures behind the text, or NULL; owned */
};

struct findings {
	struct finding *list;
	size_t n;
	size_t room;
	bool lost; /* a finding could not be kept: no verdict may be trusted */
};

/* Adds one; text is printf-like. The result is valid until the next call, and
 * never NULL (a spare one where memory is short). */
__attribute__((format(printf, 5, 6))) struct finding *
find_add(struct findings *f, enum verdict verdict, const char *check, const char *object,
	 const char *text, ...);
__attribute__((format(printf, 2, 3))) void find_cure(struct finding *finding, const char *cure,
						     ...);
/* The finding's JSON object of figures, made on the first call. May be NULL. */
cJSON *find_data(struct finding *finding);

enum verdict findings_worst(const struct findings *f);
bool findings_print(const struct findings *f, bool json);
void findings_free(struct findings *f);

/* check_system.c */
void check_system(struct findings *f);
/* check_device.c; sysfs: "/sys", or a copy of another machine's */
void check_devices(struct findings *f, const char *sysfs);
/* check_bus.c: the device's driver, and its way to the disks */
void check_bus(struct findings *f, const char *object, const char *vendor, const char *bdf,
	       const char *sysfs);
/* check_file.c */
void check_file(struct findings *f, const char *path, int device, const char *sysfs);

/* The first line of a small file, without its newline. False: not readable. */
bool read_line(char *buf, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
