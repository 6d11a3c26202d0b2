/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that start with their size. The caller sets it to what it was built
 * with; fields are only ever added at the end, so both sides know the shorter
 * of the two. The first release's size is the least that is accepted.
 */
#ifndef PHX_SIZED_H
#define PHX_SIZED_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "phx_error.h"

/* Bytes up to and with @member: the size of the release that ended with it. */
#define PHX_SIZE_UPTO(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

static inline int phx_check_size(const void *out, size_t first_release, const char *step)
{
	uint32_t size = 0;

	if (out)
		memcpy(&size, out, sizeof(size));
	if (size >= first_release)
		return 0;
	return phx_fail(-EINVAL, step, "set its size field to sizeof the struct", "%s",
			out ? "size too small" : "NULL");
}

/* Fill @out from @in, of @size bytes, as far as the caller's struct goes. */
static inline void phx_fill(void *out, const void *in, size_t size)
{
	uint32_t theirs;

	memcpy(&theirs, out, sizeof(theirs));
	if (theirs > size) {
		memset((char *)out + size, 0, theirs - size);
		theirs = (uint32_t)size;
	}
	memcpy((char *)out + sizeof(theirs), (const char *)in + sizeof(theirs),
	       theirs - sizeof(theirs));
	memcpy(out, &theirs, sizeof(theirs)); /* what was filled */
}

#endif
