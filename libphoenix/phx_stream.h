/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PHX_STREAM_H
#define PHX_STREAM_H

void phx_stream_fork_child(void);

#endif
