/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVIDIA connector's names in another build of it: as the connector of a vendor whose
 * runtime has CUDA's functions and numbers. <vendor>_names.h defines NVIDIA_PREFIX and what
 * else differs, includes this, and comes before all else in that vendor's files.
 */
#ifndef NVIDIA_NAMES_H
#define NVIDIA_NAMES_H

#define NVIDIA_JOIN(prefix, name) prefix##_##name
#define NVIDIA_PREFIXED(prefix, name) NVIDIA_JOIN(prefix, name)
#define NVIDIA_ALIAS(name) NVIDIA_PREFIXED(NVIDIA_PREFIX, name)

#define nvidia_connector NVIDIA_ALIAS(connector)
#define nvidia_driver NVIDIA_ALIAS(driver)
#define nvidia_driver_load NVIDIA_ALIAS(driver_load)
#define nvidia_fail NVIDIA_ALIAS(fail)
#define nvidia_card NVIDIA_ALIAS(card)
#define nvidia_enter NVIDIA_ALIAS(enter)
#define nvidia_enter_own NVIDIA_ALIAS(enter_own)
#define nvidia_leave NVIDIA_ALIAS(leave)
#define nvidia_pin NVIDIA_ALIAS(pin)
#define nvidia_copy_dtod NVIDIA_ALIAS(copy_dtod)
#define nvidia_copy_htod NVIDIA_ALIAS(copy_htod)
#define nvidia_copy_dtoh NVIDIA_ALIAS(copy_dtoh)
#define nvidia_copy_dtod_async NVIDIA_ALIAS(copy_dtod_async)
#define nvidia_copy_htod_async NVIDIA_ALIAS(copy_htod_async)
#define nvidia_copy_dtoh_async NVIDIA_ALIAS(copy_dtoh_async)
#define nvidia_queue_sync NVIDIA_ALIAS(queue_sync)
#define nvidia_event_record NVIDIA_ALIAS(event_record)
#define nvidia_event_done NVIDIA_ALIAS(event_done)
#define nvidia_event_wait NVIDIA_ALIAS(event_wait)
#define nvidia_event_free NVIDIA_ALIAS(event_free)
#define nvidia_stream_held NVIDIA_ALIAS(stream_held)
#define nvidia_launch_host_func NVIDIA_ALIAS(launch_host_func)
#define nvidia_stream_wait NVIDIA_ALIAS(stream_wait)
#define nvidia_stream_signal NVIDIA_ALIAS(stream_signal)
/* NVTX is NVIDIA's. */
#define nvidia_range_push devconn_no_range_push
#define nvidia_range_pop devconn_no_range_pop

#endif
