// SPDX-License-Identifier: Apache-2.0
/* See auth.h. SHA-256 is libmd's. */
#include "auth.h"

#include <endian.h>
#include <errno.h>
#include <sha2.h>
#include <string.h>
#include <sys/random.h>

int p2p_random(void *buf, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = getrandom((char *)buf + got, len - got, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		got += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

uint64_t p2p_random_u64(void)
{
	uint64_t v = 0;

	while (!v)
		if (p2p_random(&v, sizeof(v)))
			v = (uint64_t)(uintptr_t)&v; /* no getrandom: still not 0 */
	return v;
}

void p2p_hmac(const void *key, size_t key_len, const void *data, size_t len,
	      uint8_t out[P2P_PROOF])
{
	uint8_t block[SHA256_BLOCK_LENGTH] = { 0 };
	uint8_t pad[SHA256_BLOCK_LENGTH];
	uint8_t inner[SHA256_DIGEST_LENGTH];
	SHA2_CTX ctx;

	if (key_len > sizeof(block)) {
		SHA256Init(&ctx);
		SHA256Update(&ctx, key, key_len);
		SHA256Final(block, &ctx);
	} else if (key_len) {
		memcpy(block, key, key_len);
	}
	for (size_t i = 0; i < sizeof(pad); i++)
		pad[i] = block[i] ^ 0x36;
	SHA256Init(&ctx);
	SHA256Update(&ctx, pad, sizeof(pad));
	SHA256Update(&ctx, data, len);
	SHA256Final(inner, &ctx);
	for (size_t i = 0; i < sizeof(pad); i++)
		pad[i] = block[i] ^ 0x5c;
	SHA256Init(&ctx);
	SHA256Update(&ctx, pad, sizeof(pad));
	SHA256Update(&ctx, inner, sizeof(inner));
	SHA256Final(out, &ctx);
}

void p2p_proof(const void *key, size_t key_len, char role, const uint8_t connector[16],
	       const uint8_t acceptor[16], uint64_t extra, uint8_t out[P2P_PROOF])
{
	uint8_t data[1 + 16 + 16 + 8];

	if (!key_len) {
		memset(out, 0, P2P_PROOF);
		return;
	}
	data[0] = (uint8_t)role;
	memcpy(data + 1, connector, 16);
	memcpy(data + 17, acceptor, 16);
	extra = htole64(extra);
	memcpy(data + 33, &extra, 8);
	p2p_hmac(key, key_len, data, sizeof(data), out);
}

int p2p_proof_equal(const uint8_t a[P2P_PROOF], const uint8_t b[P2P_PROOF])
{
	uint8_t diff = 0;

	for (int i = 0; i < P2P_PROOF; i++)
		diff |= a[i] ^ b[i];
	return diff == 0;
}
