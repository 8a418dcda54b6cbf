/* What both the NVLink calls and the field values need to know of links. */
#ifndef LINKS_H
#define LINKS_H

#include "call.h"

enum { MOST_LINKS = 36 }; /* NVML_NVLINK_MAX_LINKS */

/* State of each link, as field 165 gives it: 0 inactive, 1 active, 2 sleep. A GPU without NVLink has none. */
nvmlReturn_t links_read(const struct gpu *gpu, unsigned long long states[MOST_LINKS], size_t *count);
/* Beyond the last link the answer is InvalidArgument, not NotSupported. */
nvmlReturn_t links_need(const struct gpu *gpu, unsigned long link);
/* One of nvmlDeviceGetNvLinkErrorCounter's counters of a link that is there. */
nvmlReturn_t link_error_counter(const struct gpu *gpu, unsigned counter, unsigned long link, unsigned long long *errors);

#endif
