#include "ff_api.h"
