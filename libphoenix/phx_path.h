/* SPDX-License-Identifier: Apache-2.0 */
/* Which way transfers go. */
#ifndef PHX_PATH_H
#define PHX_PATH_H

/*
 * The enum phxfs_path of a device in @mode (enum phxfs_mode), by PHX_PATH;
 * -1: PHX_PATH=direct, and the device cannot.
 */
int phx_path_choose(int mode);

/* The same for host buffers; set once, by phx_device_init(). */
extern int phx_path_host;

#endif
