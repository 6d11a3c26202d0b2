# SPDX-License-Identifier: Apache-2.0
# For the programs of p2p_rxe.sh and p2p_cq.sh: the median of a row's figures.
# of the figures from the fifth word on; 0: there is none
function median(  i, j, n, v, t) {
	for (i = 5; i <= NF; i++)
		if ($i != "-")
			v[++n] = $i + 0
	for (i = 1; i < n; i++)
		for (j = i + 1; j <= n; j++)
			if (v[j] < v[i]) {
				t = v[i]
				v[i] = v[j]
				v[j] = t
			}
	return n % 2 ? v[(n + 1) / 2] : n ? (v[n / 2] + v[n / 2 + 1]) / 2 : 0
}
