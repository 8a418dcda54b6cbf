/* Counts of memory errors that calls and field values share. */
#ifndef MEMORY_H
#define MEMORY_H

#include "call.h"

/* Corrected (type 0) or uncorrected (1) errors since the driver was loaded (counter 0) or for ever (1). */
nvmlReturn_t ecc_total(const struct call *call, unsigned type, unsigned counter, unsigned long long *errors);
/* Pages retired by several single-bit errors (cause 0) or by a double-bit error (1). */
nvmlReturn_t retired_count(const struct call *call, unsigned cause, unsigned long long *count);

#endif
