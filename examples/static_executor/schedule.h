/* Which sequence gets which rows. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "host.h"

/* Inside a step: leaves, forks, running ones, joins, in this order. Sets rows of each. */
void schedule(host* h);
/* Between steps: what is computed may serve others who begin alike. */
void index_prefixes(host* h);

#endif
