/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers, and proofs of a shared secret (HMAC-SHA-256). */
#ifndef P2P_AUTH_H
#define P2P_AUTH_H

#include <stddef.h>
#include <stdint.h>

/* Fill with random bytes; 0 or -errno. */
int p2p_random(void *buf, size_t len);
uint64_t p2p_random_u64(void); /* never 0 */

#define P2P_PROOF 32

void p2p_hmac(const void *key, size_t key_len, const void *data, size_t len,
	      uint8_t out[P2P_PROOF]);
/*
 * What an end proves with: HMAC(key, role | nonce of the connector | nonce of
 * the acceptor | extra). An empty key gives zeros.
 */
void p2p_proof(const void *key, size_t key_len, char role, const uint8_t connector[16],
	       const uint8_t acceptor[16], uint64_t extra, uint8_t out[P2P_PROOF]);
/* Comparison whose time does not tell where they differ. */
int p2p_proof_equal(const uint8_t a[P2P_PROOF], const uint8_t b[P2P_PROOF]);

#endif /* P2P_AUTH_H */
