/* SPDX-License-Identifier: Apache-2.0 */
/* The NVIDIA connector's names in its second build, as MetaX's connector. */
#ifndef METAX_NAMES_H
#define METAX_NAMES_H

#define NVIDIA_NAME "metax"
#define NVIDIA_VENDOR "MetaX"
#define NVIDIA_RUNTIME "MetaX's runtime"
#define NVIDIA_HELD_STREAMS 1 /* without a context of our own, beside one at a time */
#define nvidia_connector metax_connector
#define nvidia_driver metax_driver
#define nvidia_driver_load metax_driver_load
#define nvidia_fail metax_fail
#define nvidia_card metax_card
#define nvidia_enter metax_enter
#define nvidia_enter_own metax_enter_own
#define nvidia_leave metax_leave
#define nvidia_pin metax_pin
#define nvidia_copy_dtod metax_copy_dtod
#define nvidia_copy_htod metax_copy_htod
#define nvidia_copy_dtoh metax_copy_dtoh
#define nvidia_copy_dtod_async metax_copy_dtod_async
#define nvidia_copy_htod_async metax_copy_htod_async
#define nvidia_copy_dtoh_async metax_copy_dtoh_async
#define nvidia_queue_sync metax_queue_sync
#define nvidia_event_record metax_event_record
#define nvidia_event_done metax_event_done
#define nvidia_event_wait metax_event_wait
#define nvidia_event_free metax_event_free
#define nvidia_stream_held metax_stream_held
#define nvidia_launch_host_func metax_launch_host_func
#define nvidia_stream_wait metax_stream_wait
#define nvidia_stream_signal metax_stream_signal
/* NVTX is NVIDIA's. */
#define nvidia_range_push devconn_no_range_push
#define nvidia_range_pop devconn_no_range_pop

#endif
