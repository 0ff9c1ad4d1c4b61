/* Slipstack as a C library: one header for all of it. */
#ifndef SLIPSTACK_H
#define SLIPSTACK_H

#include "ff_api.h"
#include "ff_epoll.h"

#endif
