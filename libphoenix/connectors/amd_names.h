/* SPDX-License-Identifier: Apache-2.0 */
/* The NVIDIA connector's names in its second build, as AMD's connector. */
#ifndef AMD_NAMES_H
#define AMD_NAMES_H

#define NVIDIA_NAME "amd"
#define NVIDIA_VENDOR "AMD"
#define NVIDIA_RUNTIME "HIP"
#define NVIDIA_HELD_STREAMS 1 /* without a context of our own, beside one at a time */
#define nvidia_connector amd_connector
#define nvidia_driver amd_driver
#define nvidia_driver_load amd_driver_load
#define nvidia_fail amd_fail
#define nvidia_card amd_card
#define nvidia_enter amd_enter
#define nvidia_enter_own amd_enter_own
#define nvidia_leave amd_leave
#define nvidia_pin amd_pin
#define nvidia_copy_dtod amd_copy_dtod
#define nvidia_copy_htod amd_copy_htod
#define nvidia_copy_dtoh amd_copy_dtoh
#define nvidia_copy_dtod_async amd_copy_dtod_async
#define nvidia_copy_htod_async amd_copy_htod_async
#define nvidia_copy_dtoh_async amd_copy_dtoh_async
#define nvidia_queue_sync amd_queue_sync
#define nvidia_event_record amd_event_record
#define nvidia_event_done amd_event_done
#define nvidia_event_wait amd_event_wait
#define nvidia_event_free amd_event_free
#define nvidia_stream_held amd_stream_held
#define nvidia_launch_host_func amd_launch_host_func
#define nvidia_stream_wait amd_stream_wait
#define nvidia_stream_signal amd_stream_signal
/* NVTX is NVIDIA's. */
#define nvidia_range_push devconn_no_range_push
#define nvidia_range_pop devconn_no_range_pop

#endif
