// SPDX-License-Identifier: Apache-2.0
#include "bench.h"

#include <endian.h>
#include <string.h>

void pattern_fill(void *to, size_t n, uint64_t seed, uint64_t offset)
{
	unsigned char *p = to;
	uint64_t word;
	size_t part;

	while (n) {
		word = htole64(pattern_word(seed, offset));
		part = 8 - offset % 8;
		if (part > n)
			part = n;
		memcpy(p, (unsigned char *)&word + offset % 8, part);
		p += part;
		offset += part;
		n -= part;
	}
}

size_t pattern_check(const void *from, size_t n, uint64_t seed, uint64_t offset)
{
	const unsigned char *p = from;
	size_t done = 0, part, i;
	uint64_t word;

	while (done < n) {
		word = htole64(pattern_word(seed, offset + done));
		part = 8 - (offset + done) % 8;
		if (part > n - done)
			part = n - done;
		if (memcmp(p + done, (unsigned char *)&word + (offset + done) % 8, part)) {
			for (i = 0; i < part; i++)
				if (p[done + i] !=
				    ((unsigned char *)&word)[(offset + done) % 8 + i])
					return done + i;
		}
		done += part;
	}
	return n;
}
